//! What do the three kinds have in common?
//!
//! Each is watched ([`Watched`]) and reconciled ([`Kind`]): `observe` reads caches and operations, `plan` decides, `apply`
//! writes. What a kind does in these is in its own module.

use std::{borrow::Cow, fmt::Debug, sync::Arc, time::Duration};

use gridcast_crds::{
    Broadcast, NetworkMap, VirtualCluster,
    broadcast::BroadcastStatus,
    network_map::NetworkMapStatus,
    virtual_cluster::status::{Timeline, VirtualClusterStatus},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::NamespaceResourceScope;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    context::Context,
    failure::Error,
    metrics::Stage,
    queue::{Queue, Queues},
    stores::{Shelf, Stores},
};

/// A kind that this operator answers for: how its objects are found and what they say of themselves.
pub trait Watched:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// Its status.
    type Status: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Where its objects are.
    fn shelf(stores: &Stores) -> &Shelf<Self>;

    /// Where its reconciliations wait.
    fn queue(queues: &Queues) -> &Arc<Queue>;

    /// What was published last.
    fn status(&self) -> Option<&Self::Status>;

    /// The conditions of the status.
    fn conditions(&self) -> &[Condition];

    /// When `status` says that stages were reached, each once in the life of an object.
    fn reached(status: &Self::Status) -> Vec<(Stage, Timestamp)>;
}

/// A kind that is reconciled.
pub trait Kind: Watched {
    /// Everything that a plan may look at.
    type Observed: Send + Sync;
    /// What should be.
    type Plan: Send + Sync;

    /// Reads what a plan depends on: caches and operations, nothing that takes time.
    fn observe(context: &Context, object: &Arc<Self>) -> Result<Self::Observed, Error>;

    /// Decides. Pure: no client, no clock, no randomness.
    fn plan(observed: &Self::Observed, now: Timestamp) -> Self::Plan;

    /// Writes the plan; applying it twice is applying it once. Says when to look again though nothing changed.
    fn apply(
        context: &Arc<Context>,
        object: &Arc<Self>,
        plan: Self::Plan,
    ) -> impl Future<Output = Result<Option<Duration>, Error>> + Send;
}

macro_rules! watched {
    ($kind:ty, $status:ty, $field:ident, $reached:expr) => {
        impl Watched for $kind {
            type Status = $status;

            fn shelf(stores: &Stores) -> &Shelf<Self> {
                &stores.$field
            }

            fn queue(queues: &Queues) -> &Arc<Queue> {
                &queues.$field
            }

            fn status(&self) -> Option<&Self::Status> {
                self.status.as_ref()
            }

            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |status| &status.conditions)
            }

            fn reached(status: &Self::Status) -> Vec<(Stage, Timestamp)> {
                $reached(status)
            }
        }
    };
}

watched!(VirtualCluster, VirtualClusterStatus, clusters, cluster_reached);
watched!(Broadcast, BroadcastStatus, broadcasts, |_| Vec::new());
watched!(NetworkMap, NetworkMapStatus, network_maps, |_| Vec::new());

fn cluster_reached(status: &VirtualClusterStatus) -> Vec<(Stage, Timestamp)> {
    let Some(timeline) = &status.timeline else { return Vec::new() };
    let Timeline { created: _, scheduled, ready, measured, tuned, staged, launched, first_rank, finished } =
        timeline;
    [
        (Stage::Scheduled, scheduled),
        (Stage::Ready, ready),
        (Stage::Measured, measured),
        (Stage::Tuned, tuned),
        (Stage::Staged, staged),
        (Stage::Launched, launched),
        (Stage::FirstRank, first_rank),
        (Stage::Finished, finished),
    ]
    .into_iter()
    .filter_map(|(stage, at)| Some((stage, at.as_ref()?.0)))
    .collect()
}

/// An object of one of the three kinds, as operations, events and queues refer to it.
///
/// Objects are told apart by their UID: one that was deleted and made again is another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Its kind.
    pub kind: Cow<'static, str>,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Owner {
    /// Refers to `object`.
    pub fn of<K: kube::Resource<DynamicType = ()>>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            kind: K::kind(&()),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
