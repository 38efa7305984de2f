//! Which nodes are meant?
//!
//! A [`BroadcastTo`] names Kubernetes nodes, selects them by labels, or refers to a VirtualCluster: then it means its
//! members, and the nodes on which they have a place.

use std::{collections::BTreeMap, sync::Arc};

use gridcast_crds::{VirtualCluster, broadcast::BroadcastTo};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::{
    agents::is_ready,
    context::Context,
    stores::{APP, Stores, node_of},
};

/// Value of [`APP`] on the pods that are a cluster's nodes.
const CLUSTER_APP: &str = "gridcast-cluster";
/// Nodes or members that one message names; the rest is counted.
const MOST_NAMED: usize = 3;

/// A Kubernetes node, as far as its agent is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeAgent {
    /// It answers.
    Ready {
        /// UID of its pod.
        uid: String,
    },
    /// It does not answer at present.
    Missing {
        /// Why, in a sentence that names the node.
        message: String,
        /// Since when there is no pod of an agent on it, as far as this process has seen; `None` where there is one.
        absent: Option<Timestamp>,
    },
    /// There is no such node.
    Gone,
}

/// What `to` or `of` means at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Targets {
    /// These nodes, in their order, each once.
    Nodes(Vec<String>),
    /// It is not known yet.
    Waiting {
        /// One PascalCase word.
        reason: &'static str,
        /// What is waited for.
        message: String,
        /// Places are being found at this moment, so that what takes a while may be begun.
        soon: bool,
        /// Nodes on which members have a place already, each once.
        placed: Vec<String>,
    },
}

/// The members of a VirtualCluster at present.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Members {
    /// The cluster's name.
    pub(crate) cluster: String,
    /// Whether there is such a cluster, not on its way out.
    pub(crate) exists: bool,
    /// It has no compute, as asked.
    pub(crate) suspended: bool,
    /// Names of the nodes it should have, in machinefile order.
    pub(crate) wanted: Vec<String>,
    /// Their pods, by name; those that ended or are on their way out are left out.
    pub(crate) pods: BTreeMap<String, Arc<Pod>>,
}

impl Members {
    /// Looks at the cluster of this name and its pods.
    pub(crate) fn of(stores: &Stores, namespace: &str, cluster: &str) -> Self {
        let object = stores.clusters.get(namespace, cluster);
        Self::new(cluster, object.as_deref(), stores.pods_of_cluster(namespace, cluster))
    }

    fn new(cluster: &str, object: Option<&VirtualCluster>, pods: Vec<Arc<Pod>>) -> Self {
        let alive = object.filter(|object| object.metadata.deletion_timestamp.is_none());
        let is_member = |pod: &Pod| {
            let ended = matches!(phase(pod), "Succeeded" | "Failed");
            let owned = pod
                .owner_references()
                .iter()
                .any(|owner| Some(&owner.uid) == alive.and_then(|o| o.metadata.uid.as_ref()));
            owned
                && !ended
                && pod.metadata.deletion_timestamp.is_none()
                && pod.labels().get(APP).is_some_and(|app| app == CLUSTER_APP)
        };
        Self {
            cluster: cluster.to_owned(),
            exists: alive.is_some(),
            suspended: alive.is_some_and(|object| object.spec.suspend),
            wanted: alive
                .map(|object| object.node_names().map(|(name, _)| name).collect())
                .unwrap_or_default(),
            pods: pods.into_iter().filter(|pod| is_member(pod)).map(|pod| (pod.name_any(), pod)).collect(),
        }
    }

    /// The node of each member, in machinefile order; those without a place by name.
    pub(crate) fn places(&self) -> Result<Vec<String>, Vec<String>> {
        let place = |name: &String| {
            let node = self.pods.get(name).and_then(|pod| node_of(pod));
            node.map(str::to_owned).ok_or_else(|| name.clone())
        };
        let (placed, homeless): (Vec<_>, Vec<_>) = self.wanted.iter().map(place).partition(Result::is_ok);
        if homeless.is_empty() {
            Ok(placed.into_iter().filter_map(Result::ok).collect())
        } else {
            Err(homeless.into_iter().filter_map(Result::err).collect())
        }
    }

    /// The nodes of those that have a place, each once, in machinefile order.
    fn placed(&self) -> Vec<String> {
        let pods = self.wanted.iter().filter_map(|name| self.pods.get(name));
        distinct(pods.filter_map(|pod| node_of(pod).map(str::to_owned)).collect())
    }

    /// What is waited for where there are no members to look at, as a reason and a sentence.
    pub(crate) fn absent(&self) -> Option<(&'static str, String)> {
        let cluster = &self.cluster;
        if !self.exists {
            Some((
                "NoCluster",
                format!("waits for VirtualCluster {cluster}, which does not exist in this namespace"),
            ))
        } else if self.suspended {
            Some(("ClusterSuspended", format!("waits for VirtualCluster {cluster} to be resumed")))
        } else if self.wanted.is_empty() {
            Some(("NoNodes", format!("VirtualCluster {cluster} has no nodes; raise `replicas`")))
        } else {
            None
        }
    }
}

/// What `to` means at present.
pub(crate) fn resolve(stores: &Stores, namespace: &str, to: &BroadcastTo) -> Targets {
    if let Some(cluster) = &to.virtual_cluster {
        return of_members(&Members::of(stores, namespace, &cluster.name));
    }
    if let Some(labels) = &to.node_selector {
        let nodes = stores.nodes.all();
        let selected = nodes
            .iter()
            .filter(|node| labels.iter().all(|(key, value)| node.labels().get(key) == Some(value)));
        return of_selection(labels, selected.map(|node| node.name_any()).collect());
    }
    Targets::Nodes(distinct(to.nodes.clone().unwrap_or_default()))
}

fn of_members(members: &Members) -> Targets {
    if let Some((reason, message)) = members.absent() {
        return Targets::Waiting { reason, message, soon: false, placed: Vec::new() };
    }
    match members.places() {
        Ok(places) => Targets::Nodes(distinct(places)),
        Err(homeless) => Targets::Waiting {
            reason: "WaitingForPods",
            message: format!(
                "{} of {} nodes of VirtualCluster {} have no place yet: {}",
                homeless.len(),
                members.wanted.len(),
                members.cluster,
                named(&homeless)
            ),
            soon: true,
            placed: members.placed(),
        },
    }
}

fn of_selection(labels: &BTreeMap<String, String>, mut nodes: Vec<String>) -> Targets {
    if nodes.is_empty() {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        return Targets::Waiting {
            reason: "NoNodes",
            message: format!("no Kubernetes node has the labels {}; label one", labels.join(",")),
            soon: false,
            placed: Vec::new(),
        };
    }
    nodes.sort();
    Targets::Nodes(nodes)
}

/// Each once, where it came first.
fn distinct(names: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

/// The agent of a node.
pub(crate) fn agent_of(context: &Context, node: &str) -> NodeAgent {
    if context.stores.nodes.get("", node).is_none() {
        return NodeAgent::Gone;
    }
    let absent = context.agents.absent_since(node, (context.now)());
    if let Err(failure) = context.agents.of_node(node) {
        return NodeAgent::Missing { message: failure.message, absent };
    }
    let agents = context.stores.agents_on(node);
    let ready = agents.iter().filter(|agent| is_ready(agent));
    let newest = ready.max_by_key(|agent| agent.metadata.creation_timestamp.as_ref().map(|time| time.0));
    NodeAgent::Ready { uid: newest.and_then(|agent| agent.uid()).unwrap_or_default() }
}

/// The phase of a pod.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// A few names and the number of the others.
pub(crate) fn named(names: &[String]) -> String {
    let shown = names.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use gridcast_crds::{VirtualClusterSpec, virtual_cluster::Group};
    use serde_json::json;

    use super::*;

    fn cluster(replicas: i32) -> VirtualCluster {
        let group = Group { name: "node".into(), replicas, ..Group::default() };
        let mut object =
            VirtualCluster::new("ring", VirtualClusterSpec { groups: vec![group], ..Default::default() });
        object.metadata.uid = Some("c1".into());
        object
    }

    fn pod(name: &str, node: Option<&str>, phase: &str) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": name, "labels": {APP: CLUSTER_APP},
                "ownerReferences": [{"apiVersion": "gridcast.io/v1alpha1", "kind": "VirtualCluster",
                    "name": "ring", "uid": "c1", "controller": true}]},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn members_without_a_place_are_named_and_waited_for() {
        let pods = vec![pod("ring-node-0", Some("w1"), "Pending"), pod("ring-node-1", None, "Pending")];
        let Targets::Waiting { reason, message, soon, placed } =
            of_members(&Members::new("ring", Some(&cluster(3)), pods))
        else {
            panic!("not all have a place")
        };
        assert_eq!((reason, soon, placed), ("WaitingForPods", true, vec!["w1".to_owned()]));
        assert_eq!(
            message,
            "2 of 3 nodes of VirtualCluster ring have no place yet: ring-node-1, ring-node-2"
        );
    }

    #[test]
    fn two_members_of_one_node_are_one_target_in_machinefile_order() {
        let pods = vec![
            pod("ring-node-2", Some("w2"), "Running"),
            pod("ring-node-0", Some("w2"), "Running"),
            pod("ring-node-1", Some("w1"), "Pending"),
        ];
        let members = Members::new("ring", Some(&cluster(3)), pods);
        assert_eq!(of_members(&members), Targets::Nodes(vec!["w2".into(), "w1".into()]));
    }

    #[test]
    fn what_ended_goes_or_belongs_to_another_is_no_member() {
        let ended = pod("ring-node-0", Some("w1"), "Failed");
        let mut going = (*pod("ring-node-0", Some("w1"), "Running")).clone();
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let mut foreign = (*pod("ring-node-0", Some("w1"), "Running")).clone();
        foreign.metadata.owner_references = None;
        for pod in [ended, Arc::new(going), Arc::new(foreign)] {
            assert_eq!(
                Members::new("ring", Some(&cluster(1)), vec![pod]).places(),
                Err(vec!["ring-node-0".into()])
            );
        }
    }

    #[test]
    fn a_cluster_that_is_not_there_is_waited_for_by_name() {
        let reason = |members: &Members| members.absent().map(|(reason, _)| reason);
        assert_eq!(reason(&Members::new("ring", None, Vec::new())), Some("NoCluster"));
        let mut dying = cluster(1);
        dying.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(reason(&Members::new("ring", Some(&dying), Vec::new())), Some("NoCluster"));
        let mut suspended = cluster(1);
        suspended.spec.suspend = true;
        assert_eq!(reason(&Members::new("ring", Some(&suspended), Vec::new())), Some("ClusterSuspended"));
        assert_eq!(reason(&Members::new("ring", Some(&cluster(0)), Vec::new())), Some("NoNodes"));
        assert_eq!(reason(&Members::new("ring", Some(&cluster(1)), Vec::new())), None);
    }

    #[test]
    fn a_selector_that_selects_nobody_says_so() {
        let labels = BTreeMap::from([("disk".to_owned(), "fast".to_owned())]);
        let Targets::Waiting { reason, message, .. } = of_selection(&labels, Vec::new()) else {
            panic!("nobody")
        };
        assert_eq!(reason, "NoNodes");
        assert!(message.contains("disk=fast"), "{message}");
        let nodes = of_selection(&labels, vec!["b".into(), "a".into()]);
        assert_eq!(nodes, Targets::Nodes(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn long_lists_are_counted() {
        let names: Vec<String> = (0..5).map(|i| format!("n{i}")).collect();
        assert_eq!(named(&names), "n0, n1, n2 and 2 more");
        assert_eq!(named(&names[..1]), "n0");
    }
}
