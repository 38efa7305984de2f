//! Who may connect to a member?
//!
//! - The members, on any port: MPI listens where the system lets it. A collect pod counts as one.
//! - The operator, on the starter's port.
//! - The node's agent probes *from inside* the members' own network namespaces, so its packets have members' addresses and
//!   need no rule. It runs in the network of its machine, and what comes from there no `podSelector` could admit; it has no
//!   reason to connect to a member from there. (kubelet, whose probes do come from there, is let through by every plugin.)
//!
//! Going out is left open: a program may need a licence server, and where it may not, the namespace's own policies say so.
//! Policies add up, so that a user who wants more, such as a page that a member serves, writes one for it.
//!
//! A plugin that enforces nothing changes nothing for the members: a foreign pod is refused by TLS alone.

use k8s_openapi::{
    api::networking::v1::{
        NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{APP, APP_OPERATOR, Blueprint, CLUSTER, GRIDCAST, MANAGED_BY, labels, select};

impl Blueprint<'_> {
    /// Admits members and the operator to members and collect pods.
    pub fn network_policy(&self) -> NetworkPolicy {
        let own = select(labels(&[(MANAGED_BY, GRIDCAST), (CLUSTER, self.name())]));
        let from_members = NetworkPolicyIngressRule {
            from: Some(vec![NetworkPolicyPeer {
                pod_selector: Some(own.clone()),
                ..NetworkPolicyPeer::default()
            }]),
            ports: None,
        };
        let tcp = |port| NetworkPolicyPort {
            port: Some(IntOrString::Int(port)),
            protocol: Some("TCP".into()),
            end_port: None,
        };
        let from_operator = NetworkPolicyIngressRule {
            from: Some(vec![NetworkPolicyPeer {
                namespace_selector: Some(select(labels(&[(
                    "kubernetes.io/metadata.name",
                    self.operator_namespace,
                )]))),
                pod_selector: Some(select(labels(&[(APP, APP_OPERATOR)]))),
                ip_block: None,
            }]),
            // Of the starter, and of the agent in a collect pod.
            ports: Some(vec![tcp(7412), tcp(7411)]),
        };
        NetworkPolicy {
            metadata: self.metadata(self.name().into()),
            spec: Some(NetworkPolicySpec {
                pod_selector: Some(own),
                policy_types: Some(vec!["Ingress".into()]),
                ingress: Some(vec![from_members, from_operator]),
                egress: None,
            }),
        }
    }
}
