//! Everything that a plan may look at.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use gridcast_crds::{
    Broadcast, NetworkMap, VirtualCluster,
    virtual_cluster::status::{Placement, TunedSetting},
};
use jiff::Timestamp;

/// A cluster and all that belongs to it, at one instant.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The object.
    pub cluster: Arc<VirtualCluster>,
    /// The nodes that its spec asks for, in machinefile order; none while it is suspended.
    pub members: Vec<Member>,
    /// Pods of ours that the spec no longer asks for, or asks for otherwise.
    pub strangers: Vec<HelperPod>,
    /// The Broadcasts that the cluster controls.
    pub broadcasts: Vec<Arc<Broadcast>>,
    /// The NetworkMap that the cluster controls.
    pub network_map: Option<Arc<NetworkMap>>,
    /// The pods that bring results home.
    pub collect_pods: Vec<HelperPod>,
    /// The objects that this process applied as the spec asks for them now.
    pub applied: BTreeSet<super::ObjectKind>,
    /// When the first of them was applied.
    pub applied_since: Option<Timestamp>,
    /// Long work.
    pub operations: Operations,
    /// When this process last wrote the status.
    pub last_write: Option<Timestamp>,
    /// What the API server refused of what was planned; nodes' pods apart, whose making tells that itself.
    pub refused: BTreeMap<super::Part, Refusal>,
    /// Since when this process has seen every node have a place.
    pub placed_since: Option<Timestamp>,
    /// This process applied a PodDisruptionBudget and has not deleted it since.
    pub budget: bool,
}

/// Something that the API server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it said last.
    pub trouble: Trouble,
    /// When it began to.
    pub since: Timestamp,
    /// When it said that last.
    pub at: Timestamp,
}

/// One node that the spec asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// `<cluster>-<group>-<index>`.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its index in the group.
    pub index: u32,
    /// Processes that it takes.
    pub slots: u32,
    /// Its pod, if one of this name exists that is the one asked for: see [`super::members::Asked`].
    pub pod: Option<MemberPod>,
    /// A pod of this name that is not (any more) the one asked for exists: the new one has to wait.
    pub occupied: bool,
}

/// What is known of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberPod {
    /// Its UID.
    pub uid: String,
    /// The Kubernetes node that carries it.
    pub node: Option<String>,
    /// Its IP address.
    pub address: Option<String>,
    /// The number of its keys.
    pub keys: Option<u64>,
    /// Its phase.
    pub phase: Phase,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// It is being deleted; the time at which it should be gone.
    pub deleting: Option<Timestamp>,
    /// Its containers wait for volumes and network.
    pub waits_for_sandbox: bool,
    /// What keeps it from running, or ended it.
    pub trouble: Option<Trouble>,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not all of it runs.
    #[default]
    Pending,
    /// It runs.
    Running,
    /// It ended well, which no node should.
    Succeeded,
    /// It ended.
    Failed,
}

/// A pod by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HelperPod {
    /// Its name.
    pub name: String,
    /// The rest.
    pub pod: MemberPod,
}

/// One thing that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One PascalCase word.
    pub reason: String,
    /// A sentence that names host, field or object.
    pub message: String,
}

impl Trouble {
    /// A trouble with its word and sentence.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}

/// A node that runs, as a step reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name, as in the machinefile.
    pub name: String,
    /// UID of its pod.
    pub uid: String,
    /// Address of its pod.
    pub address: String,
    /// The Kubernetes node that carries it.
    pub node: String,
    /// Processes that it takes.
    pub slots: u32,
    /// The number of its keys, where its pod tells.
    pub keys: Option<u64>,
}

/// How far long work is.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Work<T> {
    /// Not begun by this process.
    #[default]
    Absent,
    /// It goes on; what it reported last.
    Running(T),
    /// It ended well.
    Done(T),
    /// It did not.
    Failed(Trouble),
}

impl<T> Work<T> {
    /// It was not begun.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// It ended, one way or another.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Failed(_))
    }

    /// What it reported last or ended with.
    pub fn report(&self) -> Option<&T> {
        match self {
            Self::Running(report) | Self::Done(report) => Some(report),
            Self::Absent | Self::Failed(_) => None,
        }
    }
}

/// The operations of the cluster, each by the name that [`super::Step::operation`] gives it for the present members and
/// the present launch.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    /// `create/<key>`: the pods. Ends when all that it was asked for exist; fails only by what the spec has to change.
    pub create: Work<Creation>,
    /// `gate/<membership>`: names, starters, keys, launcher. Ends when nothing is in the way; tries for ever.
    pub gate: Work<Gate>,
    /// `tune/<membership>`.
    pub tune: Work<Tuned>,
    /// `launch/<id>` of `status.run.launch`. Fails only where the first node's starter is lost: a program that could not
    /// be started or ended badly is [`Work::Done`].
    pub launch: Work<Launch>,
    /// `stop/<id>` of `status.run.launch`.
    pub stop: Work<()>,
    /// `collect/<id>`.
    pub collect: Work<()>,
    /// `release`.
    pub release: Work<Released>,
    /// Since when this process knows that an operation is over, by its name.
    pub over_since: BTreeMap<String, Timestamp>,
    /// The names of all operations of the cluster, whatever they belong to.
    pub names: Vec<String>,
}

/// How the making of pods goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Creation {
    /// Why the API server takes no more at present; tried again.
    pub refused: Option<Trouble>,
}

/// How far the gate is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Names of the nodes whose starter answered.
    pub answering: BTreeSet<String>,
    /// What is in the way: the first problem, which names its host, and how many more there are.
    pub trouble: Option<Trouble>,
}

/// What was tuned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuned {
    /// Settings in machinefile order; at most 256.
    pub settings: Vec<TunedSetting>,
    /// Settings that were, or would be, changed, on all nodes.
    pub changed: u32,
}

/// How far a launch is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// When the launcher started.
    pub started: Option<Timestamp>,
    /// When the first rank reported.
    pub first_rank: Option<Timestamp>,
    /// The end of what program and launcher wrote so far; at most 8,192 bytes, whole characters.
    pub log_tail: String,
    /// How it ended.
    pub end: Option<LaunchEnd>,
}

/// How a launch ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchEnd {
    /// When.
    pub at: Option<Timestamp>,
    /// 128 + signal where one ended it; 127 or 126 where the program could not be started.
    pub exit_code: i32,
    /// Why it is not complete; none if it is.
    pub trouble: Option<Trouble>,
    /// Nodes that no longer answered when it ended.
    pub lost: Vec<String>,
    /// Where ranks were seen, in machinefile order; at most 64.
    pub placement: Vec<Placement>,
}

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Node and key of each setting whose value from before is in force.
    pub restored: BTreeSet<(String, String)>,
}
