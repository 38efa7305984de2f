//! What of a pod does the operator keep?
//!
//! A thousand pods carry a thousand copies of a user's template. What nobody asks a cached pod for is not even read: were
//! it read and dropped, what is kept would lie scattered among the gaps, and the memory would never be given back.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, PodStatus},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube::{Resource, core::NamespaceResourceScope};
use serde::Deserialize;

/// A pod without managed fields, annotations, and all of its spec but `nodeName`, `hostNetwork` and the containers' names.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Wire")]
pub struct SlimPod(pub Pod);

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    metadata: WireMetadata,
    spec: Option<WireSpec>,
    status: Option<PodStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    node_name: Option<String>,
    host_network: Option<bool>,
    #[serde(default)]
    containers: Vec<WireContainer>,
}

#[derive(Deserialize)]
struct WireContainer {
    name: String,
}

impl From<Wire> for SlimPod {
    fn from(wire: Wire) -> Self {
        let Wire { metadata, spec, status } = wire;
        Self(Pod { metadata: metadata.into(), spec: spec.map(Into::into), status })
    }
}

impl From<WireMetadata> for ObjectMeta {
    fn from(wire: WireMetadata) -> Self {
        let WireMetadata {
            name,
            namespace,
            uid,
            resource_version,
            generation,
            creation_timestamp,
            deletion_timestamp,
            deletion_grace_period_seconds,
            labels,
            owner_references,
            finalizers,
        } = wire;
        Self {
            name,
            namespace,
            uid,
            resource_version,
            generation,
            creation_timestamp,
            deletion_timestamp,
            deletion_grace_period_seconds,
            labels,
            owner_references,
            finalizers,
            ..Self::default()
        }
    }
}

impl From<WireSpec> for PodSpec {
    fn from(wire: WireSpec) -> Self {
        let WireSpec { node_name, host_network, containers } = wire;
        let named = |WireContainer { name }| Container { name, ..Container::default() };
        Self {
            node_name,
            host_network,
            containers: containers.into_iter().map(named).collect(),
            ..Self::default()
        }
    }
}

impl Resource for SlimPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

/// Drops from a pod that was read whole what [`SlimPod`] would not have read.
pub fn trim_pod(pod: &mut Pod) {
    let slim = serde_json::to_value(&*pod).and_then(serde_json::from_value::<SlimPod>);
    if let Ok(SlimPod(slim)) = slim {
        *pod = slim;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_plans_look_at_is_kept_and_the_template_is_not() {
        let whole = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "ring-node-0", "namespace": "default", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "labels": {"gridcast.io/cluster": "ring"}, "annotations": {"a": "b"}, "finalizers": ["f"],
                "ownerReferences": [{"apiVersion": "gridcast.io/v1alpha1", "kind": "VirtualCluster", "name": "ring", "uid": "o", "controller": true}],
                "managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]
            },
            "spec": {
                "nodeName": "n1", "hostNetwork": true, "volumes": [{"name": "v", "emptyDir": {}}],
                "containers": [{"name": "node", "image": "mpi", "env": [{"name": "A", "value": "b"}]}]
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
        });
        let SlimPod(slim) = serde_json::from_value(whole.clone()).unwrap();
        let mut kept = whole.clone();
        kept["metadata"]
            .as_object_mut()
            .unwrap()
            .retain(|key, _| key != "annotations" && key != "managedFields");
        kept["spec"] = json!({"nodeName": "n1", "hostNetwork": true, "containers": [{"name": "node"}]});
        assert_eq!(serde_json::to_value(&slim).unwrap(), kept);

        let mut trimmed: Pod = serde_json::from_value(whole).unwrap();
        trim_pod(&mut trimmed);
        assert_eq!(trimmed, slim);
    }
}
