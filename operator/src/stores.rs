//! What does the operator know of the cluster, without asking?
//!
//! One watch per kind, shared by everything that looks. An object is on its [`Shelf`] under its name and under the keys
//! that others look it up by; no look-up goes through all pods. What this operator writes is put there at once, so that
//! the next plan sees it though the watch has not told it yet.

use std::sync::Arc;

use gridcast_crds::{Broadcast, NetworkMap, VirtualCluster};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Resource, core::PartialObjectMeta};

pub use crate::{
    shelf::{Change, Shelf},
    slim::trim_pod,
};

/// Label of everything that gridcast makes.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label that says what a pod is for.
pub const APP: &str = "app.kubernetes.io/name";
/// Label with the name of the cluster that a pod is a node of.
pub const CLUSTER: &str = "gridcast.io/cluster";
/// Label with the UID of the Broadcast that a source pod reads for.
pub const BROADCAST_UID: &str = "gridcast.io/broadcast-uid";
/// Value of [`APP`] on the node agents' pods.
pub const AGENT_APP: &str = "gridcast-agent";

/// All that is watched.
#[derive(Debug)]
pub struct Stores {
    /// VirtualClusters.
    pub clusters: Shelf<VirtualCluster>,
    /// Broadcasts.
    pub broadcasts: Shelf<Broadcast>,
    /// NetworkMaps.
    pub network_maps: Shelf<NetworkMap>,
    /// Pods that gridcast made, as [`crate::slim`] keeps them.
    pub pods: Shelf<Pod>,
    /// Pods of the node agents, alike.
    pub agents: Shelf<Pod>,
    /// Metadata of the Kubernetes nodes, without annotations.
    pub nodes: Shelf<PartialObjectMeta<Node>>,
}

impl Default for Stores {
    fn default() -> Self {
        Self {
            clusters: Shelf::new(|_| Vec::new()),
            broadcasts: Shelf::new(|broadcast: &Broadcast| {
                let target = broadcast.spec.to.virtual_cluster.as_ref().map(|cluster| cluster.name.as_str());
                keys_of_child(broadcast, target)
            }),
            network_maps: Shelf::new(|map: &NetworkMap| {
                let target = map.spec.of.virtual_cluster.as_ref().map(|cluster| cluster.name.as_str());
                keys_of_child(map, target)
            }),
            pods: Shelf::new(keys_of_pod),
            agents: Shelf::new(|pod: &Pod| {
                node_of(pod).map(|node| format!("node/{node}")).into_iter().collect()
            }),
            nodes: Shelf::new(|_| Vec::new()),
        }
    }
}

impl Stores {
    /// Whether every watch has delivered what there was when it began.
    pub fn synced(&self) -> bool {
        self.unsynced().is_empty()
    }

    /// The kinds whose watch has not yet delivered what there was.
    pub fn unsynced(&self) -> Vec<&'static str> {
        [
            ("virtualclusters", self.clusters.synced()),
            ("broadcasts", self.broadcasts.synced()),
            ("networkmaps", self.network_maps.synced()),
            ("pods", self.pods.synced()),
            ("agents", self.agents.synced()),
            ("nodes", self.nodes.synced()),
        ]
        .into_iter()
        .filter(|(_, synced)| !synced)
        .map(|(kind, _)| kind)
        .collect()
    }

    /// The pods that carry the label of this cluster, whichever incarnation made them, in no order.
    pub fn pods_of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<Pod>> {
        self.pods.find(&format!("cluster/{namespace}/{cluster}"))
    }

    /// The pods that are controlled by the object with this UID.
    pub fn pods_of_owner(&self, uid: &str) -> Vec<Arc<Pod>> {
        self.pods.find(&format!("owner/{uid}"))
    }

    /// The source pods of the Broadcast with this UID.
    pub fn pods_of_broadcast(&self, uid: &str) -> Vec<Arc<Pod>> {
        self.pods.find(&format!("broadcast/{uid}"))
    }

    /// The Broadcasts that are controlled by the object with this UID.
    pub fn broadcasts_of_owner(&self, uid: &str) -> Vec<Arc<Broadcast>> {
        self.broadcasts.find(&format!("owner/{uid}"))
    }

    /// The NetworkMaps that are controlled by the object with this UID.
    pub fn network_maps_of_owner(&self, uid: &str) -> Vec<Arc<NetworkMap>> {
        self.network_maps.find(&format!("owner/{uid}"))
    }

    /// The Broadcasts that go to this cluster.
    pub fn broadcasts_to(&self, namespace: &str, cluster: &str) -> Vec<Arc<Broadcast>> {
        self.broadcasts.find(&format!("to/{namespace}/{cluster}"))
    }

    /// The NetworkMaps of this cluster.
    pub fn network_maps_to(&self, namespace: &str, cluster: &str) -> Vec<Arc<NetworkMap>> {
        self.network_maps.find(&format!("to/{namespace}/{cluster}"))
    }

    /// The agent's pods on a node: more than one while it is replaced.
    pub fn agents_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.agents.find(&format!("node/{node}"))
    }
}

fn keys_of_child<K: Resource<DynamicType = ()>>(object: &K, target: Option<&str>) -> Vec<String> {
    let namespace = object.meta().namespace.as_deref().unwrap_or_default();
    owner_key(object).into_iter().chain(target.map(|cluster| format!("to/{namespace}/{cluster}"))).collect()
}

fn keys_of_pod(pod: &Pod) -> Vec<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let label = |name: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(name));
    let cluster = label(CLUSTER).map(|cluster| format!("cluster/{namespace}/{cluster}"));
    let broadcast = label(BROADCAST_UID).map(|uid| format!("broadcast/{uid}"));
    owner_key(pod).into_iter().chain(cluster).chain(broadcast).collect()
}

fn owner_key<K: Resource>(object: &K) -> Option<String> {
    let owner =
        object.meta().owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))?;
    Some(format!("owner/{}", owner.uid))
}

/// The node that a pod has a place on.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
    use kube::{ResourceExt as _, runtime::watcher::Event};

    fn pod(name: &str, uid: &str, version: u64, cluster: &str) -> Pod {
        Pod {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some("default".into()),
                uid: Some(uid.into()),
                resource_version: Some(version.to_string()),
                labels: Some([(CLUSTER.to_owned(), cluster.to_owned())].into()),
                owner_references: Some(vec![OwnerReference {
                    uid: format!("owner of {cluster}"),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        }
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<String> {
        let mut names: Vec<String> = pods.iter().map(|pod| pod.name_any()).collect();
        names.sort();
        names
    }

    #[test]
    fn objects_are_found_by_what_they_belong_to() {
        let stores = Stores::default();
        for event in [
            Event::Init,
            Event::InitApply(pod("a-0", "1", 1, "a")),
            Event::InitApply(pod("b-0", "2", 2, "b")),
            Event::InitDone,
            Event::Apply(pod("a-1", "3", 3, "a")),
        ] {
            stores.pods.take(event);
        }
        assert_eq!(names(&stores.pods_of_cluster("default", "a")), ["a-0", "a-1"]);
        assert_eq!(names(&stores.pods_of_owner("owner of b")), ["b-0"]);
        assert!(stores.pods_of_cluster("other", "a").is_empty());

        // Its label changes, it goes, a list misses it.
        stores.pods.take(Event::Apply(pod("a-1", "3", 4, "b")));
        assert_eq!(names(&stores.pods_of_cluster("default", "b")), ["a-1", "b-0"]);
        let gone = stores.pods.take(Event::Delete(pod("b-0", "2", 5, "b")));
        assert!(gone[0].old.is_some() && gone[0].new.is_none());
        stores.pods.take(Event::Init);
        stores.pods.take(Event::InitApply(pod("a-0", "1", 1, "a")));
        let missing = stores.pods.take(Event::InitDone);
        assert_eq!(missing.len(), 1);
        assert!(stores.pods_of_cluster("default", "b").is_empty());
        assert_eq!(stores.pods.len(), 1);
    }

    #[test]
    fn what_was_written_is_there_at_once_and_never_overtakes_the_watch() {
        let pods = Stores::default().pods;
        let version = || pods.get("default", "a-0").and_then(|pod| pod.resource_version());
        pods.written(pod("a-0", "1", 5, "a"));
        assert_eq!(version().unwrap(), "5");
        assert!(pods.take(Event::Apply(pod("a-0", "1", 4, "a"))).is_empty(), "an older state");
        pods.take(Event::Apply(pod("a-0", "1", 7, "a")));
        pods.written(pod("a-0", "1", 6, "a"));
        assert_eq!(version().unwrap(), "7");

        // The answer to a write arrives after the object went; its successor is another.
        pods.take(Event::Delete(pod("a-0", "1", 8, "a")));
        pods.written(pod("a-0", "1", 7, "a"));
        assert_eq!(version(), None);
        pods.written(pod("a-0", "2", 9, "a"));
        pods.removed("default", "a-0", "1");
        assert_eq!(version().unwrap(), "9");
        pods.removed("default", "a-0", "2");
        assert_eq!(version(), None);
    }

    #[test]
    fn a_list_that_began_before_a_write_does_not_take_it_away() {
        let pods = Stores::default().pods;
        pods.take(Event::Init);
        pods.written(pod("a-0", "1", 5, "a"));
        pods.take(Event::InitDone);
        assert!(pods.synced() && pods.len() == 1);
    }
}
