//! What was read of a cluster: its own object, its NetworkMap, its Broadcasts.

use std::collections::BTreeMap;

use gridcast_crds::{
    Broadcast, NetworkMap, VirtualCluster,
    virtual_cluster::status::{StagedData, VirtualClusterStatus},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use serde_json::{Value, json};

/// One object, or that it is gone.
pub(super) enum Object {
    /// The cluster.
    Cluster(Option<Box<VirtualCluster>>),
    /// The NetworkMap.
    Map(Option<Box<NetworkMap>>),
    /// A Broadcast by name.
    Broadcast(String, Option<Box<Broadcast>>),
}

/// A cluster and its children.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) cluster: VirtualCluster,
    pub(super) map: Option<NetworkMap>,
    /// By name.
    pub(super) broadcasts: BTreeMap<String, Broadcast>,
    /// What a status says before there is one.
    blank: VirtualClusterStatus,
}

impl Seen {
    /// A cluster whose children are not known yet.
    pub(super) fn new(cluster: VirtualCluster) -> Self {
        Self { cluster, map: None, broadcasts: BTreeMap::new(), blank: VirtualClusterStatus::default() }
    }

    /// Takes what is new. False where the cluster is gone, or is another one of the same name.
    pub(super) fn take(&mut self, object: Object) -> bool {
        match object {
            Object::Cluster(None) => return false,
            Object::Cluster(Some(cluster)) => {
                if cluster.metadata.uid != self.cluster.metadata.uid {
                    return false;
                }
                self.cluster = *cluster;
            }
            Object::Map(map) => self.map = map.map(|map| *map),
            Object::Broadcast(name, Some(broadcast)) => {
                self.broadcasts.insert(name, *broadcast);
            }
            Object::Broadcast(name, None) => {
                self.broadcasts.remove(&name);
            }
        }
        true
    }

    pub(super) fn name(&self) -> &str {
        self.cluster.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.cluster.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn status(&self) -> &VirtualClusterStatus {
        self.cluster.status.as_ref().unwrap_or(&self.blank)
    }

    /// The condition of a type.
    pub(super) fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status().conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether a condition is there and true.
    pub(super) fn is(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status == "True")
    }

    /// When the cluster was created, which all seconds are counted from.
    pub(super) fn created(&self) -> Option<Timestamp> {
        let first = self.status().timeline.as_ref().and_then(|timeline| timeline.created.as_ref());
        let created = || self.cluster.metadata.creation_timestamp.as_ref().map(|time| time.0);
        first.map(|time| time.0).or_else(created)
    }

    /// Seconds from creation; not before it, for some times are kept in whole seconds only.
    pub(super) fn seconds(&self, at: Timestamp) -> Option<f64> {
        Some(at.duration_since(self.created()?).as_secs_f64().max(0.0))
    }

    /// The NetworkMap that has the matrices.
    pub(super) fn map_name(&self) -> String {
        let named = self.status().network.as_ref().and_then(|network| network.map_name.clone());
        named.unwrap_or_else(|| self.name().to_owned())
    }

    /// The Broadcast of a dataset, by the dataset's name.
    pub(super) fn broadcast_name(&self, data: &str) -> String {
        let staged = self.status().data.iter().find(|staged| staged.name == data);
        let named = staged.and_then(|staged| staged.broadcast_name.clone());
        named.unwrap_or_else(|| format!("{}-{data}", self.name()))
    }

    /// The Broadcasts of all datasets.
    pub(super) fn broadcast_names(&self) -> Vec<String> {
        self.cluster.spec.data.iter().map(|data| self.broadcast_name(&data.name)).collect()
    }

    /// Each dataset, as far as it is, with its Broadcast.
    pub(super) fn data(&self) -> Vec<(StagedData, Option<&Broadcast>)> {
        let known = &self.status().data;
        let declared = self.cluster.spec.data.iter().map(|data| &data.name);
        // What is no longer in the spec was staged all the same.
        let others = known.iter().map(|staged| &staged.name);
        let others = others.filter(|name| self.cluster.spec.data.iter().all(|data| data.name != **name));
        declared
            .chain(others)
            .map(|name| {
                let staged = known.iter().find(|staged| staged.name == *name).cloned();
                let staged =
                    staged.unwrap_or_else(|| StagedData { name: name.clone(), ..StagedData::default() });
                (staged, self.broadcasts.get(&self.broadcast_name(name)))
            })
            .collect()
    }

    /// All of it for scripts: statuses as the API server has them.
    pub(super) fn json(&self) -> Value {
        let map = self.map.as_ref().map(|map| json!({ "name": map.metadata.name, "status": map.status }));
        let broadcasts = self.broadcasts.iter();
        let broadcasts: Vec<Value> =
            broadcasts.map(|(name, broadcast)| json!({ "name": name, "status": broadcast.status })).collect();
        json!({
            "name": self.name(),
            "namespace": self.namespace(),
            "generation": self.cluster.metadata.generation,
            "status": self.cluster.status,
            "networkMap": map,
            "broadcasts": broadcasts,
        })
    }
}
