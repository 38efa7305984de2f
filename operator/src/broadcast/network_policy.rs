//! Who may connect to a source pod?
//!
//! The operator and the nodes' agents, on one port. Agents come from their nodes' own network, which no selector names, so
//! that the port is open to everybody, and the pod's TLS tells them from others. Without this a namespace that denies what
//! comes in by default would keep its data from everybody.
//!
//! The policy stays as long as the Broadcast: while there is no source pod it says nothing, another one may be needed, and
//! to remove it would be a write more for each dataset.

use gridcast_control::AGENT_PORT;
use gridcast_crds::Broadcast;
use k8s_openapi::{
    api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec},
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};

use super::source::{keys_name, labels, metadata};
use crate::{auxiliary_pod::Role, stores::APP};

/// Admits everybody to the port of `broadcast`'s source pods, and nobody to any other.
pub(super) fn network_policy(broadcast: &Broadcast) -> NetworkPolicy {
    let port = NetworkPolicyPort {
        port: Some(IntOrString::Int(AGENT_PORT.into())),
        protocol: Some("TCP".into()),
        end_port: None,
    };
    let mut selected = labels(broadcast);
    selected.insert(APP.into(), Role::Source.app().into());
    NetworkPolicy {
        metadata: ObjectMeta { name: Some(keys_name(broadcast)), ..metadata(broadcast) },
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector { match_labels: Some(selected), match_expressions: None }),
            policy_types: Some(vec!["Ingress".into()]),
            ingress: Some(vec![NetworkPolicyIngressRule { from: None, ports: Some(vec![port]) }]),
            egress: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::{
        auxiliary_pod::{AgentImage, Mount},
        broadcast::source,
    };

    #[test]
    fn a_source_pod_is_reached_on_its_port_and_on_no_other() {
        let broadcast: Broadcast = serde_json::from_value(json!({
            "apiVersion": "gridcast.io/v1alpha1", "kind": "Broadcast",
            "metadata": {"name": "ics", "namespace": "lab", "uid": "6f1e-22"},
            "spec": {"source": {"configMap": {"name": "ics"}}, "to": {"nodes": ["n1"]}},
        }))
        .unwrap();
        let policy = network_policy(&broadcast);
        assert_eq!(policy.metadata.namespace.as_deref(), Some("lab"));
        assert_eq!(policy.metadata.owner_references.unwrap()[0].uid, "6f1e-22");
        let spec = policy.spec.unwrap();
        let selected: BTreeMap<String, String> = spec.pod_selector.unwrap().match_labels.unwrap();
        let pod = source::pod(&broadcast, Mount::ConfigMap { name: "ics".into() }, 0).unwrap();
        let pod = pod.pod(&AgentImage::default());
        let labels = pod.metadata.labels.unwrap();
        assert!(selected.iter().all(|(key, value)| labels.get(key) == Some(value)), "{labels:?}");
        let rules = serde_json::to_value(spec.ingress).unwrap();
        assert_eq!(rules, json!([{"ports": [{"port": 7411, "protocol": "TCP"}]}]));
        let served = pod.spec.unwrap().containers[0].ports.as_ref().unwrap()[0].container_port;
        assert_eq!(served, 7411);
        // Nothing is said of what goes out: an init container may fetch the data.
        assert_eq!(spec.policy_types, Some(vec!["Ingress".to_owned()]));
    }
}
