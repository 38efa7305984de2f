//! A set of nodes, what they need, and optionally what runs on them.

pub mod data;
pub mod group;
pub mod network;
pub mod policy;
pub mod run;
pub mod status;

pub use data::{Acceptance, AcceptanceType, Data};
pub use group::{Group, VirtualMachine};
use kube::{CustomResource, KubeSchema};
pub use network::{Bandwidth, Network, OnViolation, Probe, ProbePolicy, Require, Tcp, TcpMode, TcpProfile};
pub use policy::{Cleanup, Gang, Restart, RestartAction, RestartRule, Scheduling};
pub use run::{Collect, CollectTo, EnvironmentVariable, Implementation, RemoteShell, Run};
use serde::{Deserialize, Serialize};
pub use status::VirtualClusterStatus;

/// A set of nodes that become one MPI cluster: measured, tuned, staged, and then running a program.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "gridcast.io",
    version = "v1alpha1",
    kind = "VirtualCluster",
    namespaced,
    status = "VirtualClusterStatus",
    derive = "PartialEq",
    shortname = "vcl",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    category = "gridcast",
    doc = "A set of nodes that become one MPI cluster: measured, tuned, staged, and then running a program.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Processes", type_ = "integer", json_path = ".spec.run.processes"),
    printcolumn(name = "Restarts", type_ = "integer", json_path = ".status.run.restarts"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Staged Mbit/s", type_ = "number", json_path = ".status.data[0].aggregateMbps", priority = 1),
    printcolumn(name = "Jitter ms", type_ = "number", json_path = ".status.network.jitterMilliseconds.max", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("must be lower-case letters, digits and '-', beginning with a letter; a '.' is refused because Open MPI cuts host names there")
        .field_path(".metadata.name"),
    validation = Rule::new("size(self.metadata.name) <= 48")
        .message(Message::Expression("'must be at most 48 characters, so that suffixes fit, but has %d'.format([size(self.metadata.name)])".into()))
        .field_path(".metadata.name"),
    validation = Rule::new("size(self.metadata.name) > 48 || self.spec.groups.all(g, size(self.metadata.name) + size(g.name) + size(string(g.replicas > 0 ? g.replicas - 1 : 0)) + 2 <= 63)")
        .message("must leave room: the cluster's name, a group's name, the index and two '-' may have at most 63 characters together")
        .field_path(".metadata.name")
)]
#[x_kube(
    validation = Rule::new(
            "!has(self.run) || has(self.replicas) || (has(self.run.allowOversubscribe) && self.run.allowOversubscribe) || \
             self.run.processes <= self.groups.map(g, g.replicas * (has(g.slots) ? g.slots : 1)).sum()"
        )
        // Only `format` has a cost that the API server can bound: of strings put together by `+` it would refuse the rule.
        .message(Message::Expression(
            "'must not exceed the sum of replicas times slots: %d processes on %d slots; lower `processes`, add replicas \
             or slots, or set `run.allowOversubscribe`'.format([self.run.processes, \
             self.groups.map(g, g.replicas * (has(g.slots) ? g.slots : 1)).sum()])".into()
        ))
        .field_path(".run.processes"),
    validation = Rule::new("!has(self.replicas) || size(self.groups) == 1")
        .message("may be given only where there is one group; set `replicas` in each group instead")
        .field_path(".replicas"),
    validation = Rule::new(
            "!has(self.run) || !has(self.replicas) || (has(self.run.allowOversubscribe) && self.run.allowOversubscribe) || \
             self.run.processes <= self.replicas * (has(self.groups[0].slots) ? self.groups[0].slots : 1)"
        )
        .message("must not exceed `replicas` times the slots of the group")
        .field_path(".run.processes"),
    validation = Rule::new(
            "self.suspend || oldSelf.suspend || !has(self.run) || \
             (has(self.replicas) == has(oldSelf.replicas) && (!has(self.replicas) || self.replicas == oldSelf.replicas))"
        )
        .message("replicas of a cluster with something to run may not change except while `suspend` is true"),
    validation = Rule::new("!has(self.run) || has(self.replicas) || self.groups.exists(g, g.replicas > 0)")
        .message("must have at least one replica when there is something to run")
        .field_path(".groups"),
    validation = Rule::new("!has(self.data) || self.data.all(d, self.data.exists_one(other, other.mountPath == d.mountPath))")
        .message("must have a different `mountPath` in each dataset")
        .field_path(".data"),
    validation = Rule::new("!has(self.data) || self.data.all(d, self.data.all(other, !other.mountPath.startsWith(d.mountPath + '/')))")
        .message("must not have one `mountPath` below another")
        .field_path(".data"),
    validation = Rule::new("self.suspend || oldSelf.suspend || !has(self.run) || self.groups == oldSelf.groups")
        .message("groups with something to run may not change except while `suspend` is true")
        .field_path(".groups"),
    validation = Rule::new("self.suspend || oldSelf.suspend || has(self.data) == has(oldSelf.data)")
        .message("data may not be added or removed except while `suspend` is true"),
    validation = Rule::new("self.suspend || oldSelf.suspend || !has(self.data) || !has(oldSelf.data) || self.data == oldSelf.data")
        .message("data may not change except while `suspend` is true")
        .field_path(".data"),
    validation = Rule::new("self.suspend || oldSelf.suspend || has(self.run) == has(oldSelf.run)")
        .message("run may not be added or removed except while `suspend` is true"),
    validation = Rule::new("self.suspend || oldSelf.suspend || !has(self.run) || !has(oldSelf.run) || self.run == oldSelf.run")
        .message("run may not change except while `suspend` is true")
        .field_path(".run")
)]
#[serde(rename_all = "camelCase")]
pub struct VirtualClusterSpec {
    /// Removes all compute while true; keys, data and identity stay. Resuming rebuilds from the current spec.
    #[serde(default)]
    pub suspend: bool,
    /// The nodes. Several groups make one machinefile, in this order.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub groups: Vec<Group>,
    /// Number of nodes of the only group, instead of the group's own: what `kubectl scale` sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: Option<i32>,
    /// What is measured, demanded and tuned. Measured once before the run, nothing demanded, nothing tuned if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Datasets that are on every node before anything runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub data: Vec<Data>,
    /// Tests on the nodes that gate the run and whose figures stay in the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub acceptance: Vec<Acceptance>,
    /// The MPI program. Without it the cluster stays up, for its users to work in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// When the program is started again. Never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// Seconds from creation, or from when it was resumed last, after which the cluster has failed. No limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub active_deadline_seconds: Option<i64>,
    /// Seconds from the end after which the object is deleted. Kept if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Which pods are removed at the end.
    #[serde(default)]
    pub cleanup: Cleanup,
    /// How the nodes are placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
}

impl VirtualClusterSpec {
    /// What is measured, with the defaults in force.
    pub fn probe(&self) -> Probe {
        self.network.as_ref().and_then(|network| network.probe.clone()).unwrap_or_default()
    }

    /// What is tuned, with the defaults in force.
    pub fn tcp(&self) -> Tcp {
        self.network.as_ref().and_then(|network| network.tcp.clone()).unwrap_or_default()
    }

    /// What is demanded of the network.
    pub fn require(&self) -> Option<&Require> {
        self.network.as_ref().and_then(|network| network.require.as_ref())
    }

    /// Number of nodes of `group`, one of this spec's.
    pub fn replicas_of(&self, group: &Group) -> u32 {
        self.replicas.unwrap_or(group.replicas).unsigned_abs()
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.groups.iter().map(|group| self.replicas_of(group)).sum()
    }

    /// Number of processes that fit.
    pub fn slots(&self) -> u32 {
        self.groups.iter().map(|group| self.replicas_of(group) * group.slots()).sum()
    }
}

impl VirtualCluster {
    /// The names of the nodes, `<cluster>-<group>-<index>`, in machinefile order, each with its group.
    pub fn node_names(&self) -> impl Iterator<Item = (String, &Group)> {
        let cluster = self.metadata.name.clone().unwrap_or_default();
        self.spec.groups.iter().flat_map(move |group| {
            let cluster = cluster.clone();
            (0..self.spec.replicas_of(group))
                .map(move |index| (format!("{cluster}-{}-{index}", group.name), group))
        })
    }
}
