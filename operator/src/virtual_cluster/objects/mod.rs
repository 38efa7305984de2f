//! What is made in the cluster for a VirtualCluster?
//!
//! Pure functions from a [`Blueprint`] to objects of the API, one object a file. The same blueprint gives the same bytes, so
//! that applying it twice changes nothing.
//!
//! ```text
//! pod              a member: the user's template, and what makes it a node      <cluster>-<group>-<index>
//! template         what of a template gridcast has to refuse
//! shared_memory    how large is a member's /dev/shm?
//! service          the members' names                                           <cluster>
//! keys             the Secret that members identify each other by               <cluster>-keys-<uid>-<number>
//! machinefile      the ConfigMap that records who was asked to run what         <cluster>-machinefile
//! network_policy   who may connect to a member                                  <cluster>
//! disruption       no voluntary eviction while the program runs                 <cluster>
//! children         the Broadcast of each dataset, and the NetworkMap            <cluster>-<data>, <cluster>
//! collect          the pods that write results into claims                      <cluster>-<number>-collect
//! ```

pub mod children;
pub mod collect;
pub mod disruption;
pub mod keys;
pub mod machinefile;
pub mod network_policy;
pub mod pod;
pub mod service;
pub mod shared_memory;
pub mod template;

use std::collections::BTreeMap;

use gridcast_core::mpi::HostSlots;
use gridcast_crds::{GROUP, VERSION, VirtualCluster, virtual_cluster::Group};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};

use crate::auxiliary_pod::AgentImage;

/// Who made it: on everything.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// What it is.
pub const APP: &str = "app.kubernetes.io/name";
/// The value of [`MANAGED_BY`].
pub const GRIDCAST: &str = "gridcast";
/// The value of [`APP`] of a member and of what belongs to all members.
pub const APP_CLUSTER: &str = "gridcast-cluster";
/// The value of [`APP`] of an agent's pod, in the operator's namespace.
pub const APP_AGENT: &str = "gridcast-agent";
/// The value of [`APP`] of the operator's pod.
pub const APP_OPERATOR: &str = "gridcast-operator";
/// Name of the VirtualCluster.
pub const CLUSTER: &str = "gridcast.io/cluster";
/// Name of a member's group.
pub const GROUP_NAME: &str = "gridcast.io/group";
/// Index of a member in its group.
pub const INDEX: &str = "gridcast.io/index";
/// What a pod was made from: [`super::members::incarnation`].
pub const INCARNATION: &str = "gridcast.io/incarnation";
/// The number of the keys that a pod has.
pub const KEYS: &str = "gridcast.io/keys";
/// The generation of the cluster from which a pod was made.
pub const GENERATION: &str = "gridcast.io/generation";

/// What all objects of a cluster are made from.
#[derive(Clone, Copy, Debug)]
pub struct Blueprint<'a> {
    /// The object.
    pub cluster: &'a VirtualCluster,
    /// Our image.
    pub image: &'a AgentImage,
    /// Where operator and agents run.
    pub operator_namespace: &'a str,
    /// The number of the keys that pods are given: those that the spec asks for, or those that the nodes have.
    pub keys: u64,
}

/// The place of one member in the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Place<'a> {
    /// `<cluster>-<group>-<index>`: the pod's name, the host's name, and the name in the machinefile.
    pub name: String,
    /// Its group.
    pub group: &'a Group,
    /// Its group's place in `spec.groups`.
    pub group_index: usize,
    /// Its place in the group.
    pub index: u32,
}

/// The members in machinefile order, which is the order of ranks. The first is the launcher.
pub fn places(cluster: &VirtualCluster) -> impl Iterator<Item = Place<'_>> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    cluster.spec.groups.iter().enumerate().flat_map(move |(group_index, group)| {
        (0..cluster.spec.replicas_of(group)).map(move |index| Place {
            name: format!("{name}-{}-{index}", group.name),
            group,
            group_index,
            index,
        })
    })
}

/// The members with their slots, in machinefile order.
pub fn hosts(cluster: &VirtualCluster) -> Vec<HostSlots> {
    places(cluster).map(|place| HostSlots { slots: place.group.slots(), name: place.name }).collect()
}

/// The labels that all members of a cluster have, and nothing else has.
pub fn member_labels(cluster: &str) -> BTreeMap<String, String> {
    labels(&[(MANAGED_BY, GRIDCAST), (APP, APP_CLUSTER), (CLUSTER, cluster)])
}

fn labels(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn select(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}

impl Blueprint<'_> {
    /// The cluster's name.
    pub fn name(&self) -> &str {
        self.cluster.metadata.name.as_deref().unwrap_or_default()
    }

    /// The cluster's namespace.
    pub fn namespace(&self) -> &str {
        self.cluster.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The cluster as the controller of what is made for it. Not one that waits for it when it is deleted in the foreground:
    /// to say so takes a permission more, where the API server looks at it.
    pub fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: "VirtualCluster".into(),
            name: self.name().into(),
            uid: self.cluster.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }

    /// Name, namespace, owner and labels of an object that belongs to the cluster as a whole.
    fn metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace().into()),
            labels: Some(member_labels(self.name())),
            owner_references: Some(vec![self.owner()]),
            ..ObjectMeta::default()
        }
    }
}

#[cfg(test)]
mod tests;
