//! What should be? Pure: no client, no clock, no randomness; the same observation gives the same plan, and a plan that was
//! applied gives none.

mod draft;
mod events;
mod finish;
mod network;
mod nodes;
mod pause;
mod prepare;
mod refusal;
mod run;
mod staging;
mod standing;

use std::{sync::Arc, time::Duration};

use gridcast_crds::{
    NetworkMap, VirtualCluster, conditions,
    virtual_cluster::{TcpMode, VirtualClusterStatus},
};
use jiff::Timestamp;

use self::draft::Draft;
use super::{
    members::key_generation,
    objects::keys::keys_name,
    observed::{HelperPod, Host, Observed},
};
pub use crate::events::Event;

/// What to publish, make, delete and begin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The whole status; none where the published one says the same, or may wait a moment. Published before the actions.
    pub status: Option<VirtualClusterStatus>,
    /// What becomes of the finalizer; removed after everything else.
    pub finalizer: Finalizer,
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// What to tell, once the status is written.
    pub events: Vec<Event>,
    /// When to look again though nothing changed.
    pub requeue: Option<Duration>,
}

/// What becomes of the finalizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finalizer {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is added before anything is made.
    Add,
    /// It is removed.
    Remove,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ends and forgets operations.
    Cancel(Vec<String>),
    /// Applies these objects, side by side.
    ApplyObjects(Vec<ObjectKind>),
    /// Applies the Broadcast of the dataset with this index.
    ApplyBroadcast(usize),
    /// Deletes a Broadcast, by name and UID.
    DeleteBroadcast(String, String),
    /// Applies the NetworkMap.
    ApplyNetworkMap,
    /// Deletes the NetworkMap, by name and UID.
    DeleteNetworkMap(String, String),
    /// Deletes pods, by name and UID; with `force` without waiting for a kubelet that is gone.
    DeletePods {
        /// Which.
        pods: Vec<(String, String)>,
        /// Whether no kubelet is waited for.
        force: bool,
    },
    /// Deletes the PodDisruptionBudget.
    DeleteDisruptionBudget,
    /// Makes the pods that bring results home, with the keys of this number.
    CreateCollectPods(u64),
    /// Begins long work, unless it was begun.
    Begin(Step),
    /// Deletes the cluster itself: its time to live is over.
    DeleteSelf,
}

/// An object of the cluster that is no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// The headless Service.
    Service,
    /// The keys.
    Secret,
    /// The machinefile, as a record.
    ConfigMap,
    /// Who may reach the nodes.
    NetworkPolicy,
    /// While the program runs.
    DisruptionBudget,
}

impl ObjectKind {
    /// Tells what would be applied for `cluster`: what was applied in this version need not be applied again.
    pub fn version(self, cluster: &VirtualCluster) -> String {
        match self {
            // Made once under its name. Other keys are another annotation, which is no other generation.
            Self::Secret => keys_name(cluster, key_generation(cluster)),
            _ => cluster.metadata.generation.unwrap_or_default().to_string(),
        }
    }
}

/// What the API server takes or refuses as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// An object that is no child.
    Object(ObjectKind),
    /// The Broadcast of the dataset of this name.
    Broadcast(String),
    /// The NetworkMap.
    NetworkMap,
    /// The pods that bring results home.
    CollectPods,
}

/// Long work, with all that it needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Makes these pods.
    Create {
        /// What is asked for altogether: see [`super::members::creation_key`].
        key: String,
        /// Those that are missing.
        names: Vec<String>,
    },
    /// Tells all nodes who their fellows are and tries what a launch needs.
    Gate {
        /// Identifies the pods: see [`super::members::membership`].
        membership: String,
        /// All nodes.
        hosts: Arc<[Host]>,
    },
    /// Writes TCP settings, or in a dry run computes them.
    Tune {
        /// As of the gate.
        membership: String,
        /// All nodes.
        hosts: Arc<[Host]>,
        /// What was measured, if anything was.
        map: Option<Arc<NetworkMap>>,
    },
    /// Starts the program, or attaches to it.
    Launch {
        /// Its id.
        id: String,
        /// All nodes.
        hosts: Arc<[Host]>,
    },
    /// Ends a launch.
    Stop {
        /// Its id.
        id: String,
        /// Where its launcher runs.
        first: Host,
    },
    /// Brings results home.
    Collect {
        /// Id of the launch that made them.
        id: String,
        /// All nodes.
        hosts: Arc<[Host]>,
        /// The pods that write them, in the order of [`super::collect_claims`].
        pods: Vec<HelperPod>,
    },
    /// Restores TCP settings.
    Release {
        /// The nodes that are still there.
        hosts: Arc<[Host]>,
    },
}

impl Step {
    /// The name of its operation.
    pub fn operation(&self) -> String {
        match self {
            Self::Create { key, .. } => format!("create/{key}"),
            Self::Gate { membership, .. } => format!("gate/{membership}"),
            Self::Tune { membership, .. } => format!("tune/{membership}"),
            Self::Launch { id, .. } => format!("launch/{id}"),
            Self::Stop { id, .. } => format!("stop/{id}"),
            Self::Collect { id, .. } => format!("collect/{id}"),
            Self::Release { .. } => "release".to_owned(),
        }
    }
}

/// Computes the plan for one observation at one instant.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let mut draft = Draft::new(observed, now);
    let meta = &observed.cluster.metadata;
    if meta.deletion_timestamp.is_some() {
        pause::delete(&mut draft);
        // kstatus reads the deletion itself; nobody reads more.
        draft.status.clone_from(&draft.old);
        return draft.plan;
    }
    if draft.is_over() {
        finish::over(&mut draft);
    } else if observed.cluster.spec.suspend {
        pause::suspend(&mut draft);
    } else {
        live(&mut draft);
    }
    draft.done()
}

fn live(draft: &mut Draft<'_>) {
    pause::resume(draft);
    if let Some(trouble) = refusal::refusal(&draft.observed.cluster) {
        draft.stalled(&trouble);
        return;
    }
    // What else there is goes by its owner references.
    let leaves_settings = draft.spec().tcp().mode == TcpMode::Apply;
    let finalizers = &draft.observed.cluster.metadata.finalizers;
    if leaves_settings && !finalizers.iter().flatten().any(|name| name == super::FINALIZER) {
        draft.plan.finalizer = Finalizer::Add;
    }
    if draft.finished() {
        finish::wind_up(draft);
    } else if draft.holds(conditions::RUNNING) {
        run::run(draft);
    } else {
        prepare::prepare(draft);
    }
}

#[cfg(test)]
mod tests;
