//! What gridcast last saw of a cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::conditions_schema;

/// What gridcast last saw of a cluster.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VirtualClusterStatus {
    /// Generation of the spec that this describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_generation: Option<i64>,
    /// The state, one aspect each; see `docs/api.md`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Nodes that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16_000))]
    pub replicas: Option<i32>,
    /// Nodes that answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16_000))]
    pub ready_replicas: Option<i32>,
    /// Label selector of the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub selector: Option<String>,
    /// When each state was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// The network, in a few figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSummary>,
    /// The datasets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub data: Vec<StagedData>,
    /// The program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunStatus>,
    /// When it ended, one way or another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The first nodes of the cluster, in machinefile order, and where they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub nodes: Vec<PlacedNode>,
    /// What was written, or would be, in the nodes' network namespaces; the first 256 settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["host".into(), "key".into()]))]
    pub tcp: Vec<TunedSetting>,
}

/// One node of the cluster.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PlacedNode {
    /// Its name, as in the machinefile.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The Kubernetes node that carries it, once it has a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub node: Option<String>,
    /// Its address, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub address: Option<String>,
    /// Whether its starter answers.
    pub ready: bool,
    /// Why it is not ready, one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub reason: Option<String>,
}

/// One kernel setting of one node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TunedSetting {
    /// The node.
    #[schemars(length(min = 1, max = 63))]
    pub host: String,
    /// The sysctl.
    #[schemars(length(min = 1, max = 128))]
    pub key: String,
    /// Its value before.
    #[schemars(length(max = 128))]
    pub before: String,
    /// Its value as read back.
    #[schemars(length(max = 128))]
    pub applied: String,
    /// The value from before is in force.
    pub restored: bool,
    /// Nothing was written.
    pub dry_run: bool,
    /// Why this value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub note: Option<String>,
}

/// When each state was first reached, to the microsecond: a small run is over in two seconds.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// The object was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<MicroTime>,
    /// Every node has a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<MicroTime>,
    /// Every node answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<MicroTime>,
    /// The network was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MicroTime>,
    /// The TCP settings were in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuned: Option<MicroTime>,
    /// Every dataset was on every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<MicroTime>,
    /// `mpirun` was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched: Option<MicroTime>,
    /// The first rank reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_rank: Option<MicroTime>,
    /// It ended, one way or another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<MicroTime>,
}

/// The network between the nodes, in a few figures. The matrices are in the NetworkMap.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSummary {
    /// Nodes that were measured.
    #[schemars(range(min = 0, max = 16_000))]
    pub hosts: i32,
    /// Average round-trip time of each pair, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_milliseconds: Option<Spread>,
    /// Jitter of each pair, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_milliseconds: Option<Spread>,
    /// TCP goodput of each pair, Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_mbps: Option<Spread>,
    /// The pairs to look at first, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 512)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub worst: Vec<String>,
    /// The NetworkMap that has all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub map_name: Option<String>,
}

/// The spread of one quantity over all pairs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// Least.
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub min: f64,
    /// Median.
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub median: f64,
    /// Most.
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub max: f64,
}

/// A dataset on the nodes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct StagedData {
    /// Its name in the spec.
    #[schemars(length(min = 1, max = 32))]
    pub name: String,
    /// Bytes outside holes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub size_bytes: Option<i64>,
    /// Nodes that have all of it, verified.
    #[schemars(range(min = 0, max = 16_000))]
    pub nodes_staged: i32,
    /// The Broadcast that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub broadcast_name: Option<String>,
    /// The strategy that really ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub strategy: Option<String>,
    /// Sum of the nodes' rates, Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub aggregate_mbps: Option<f64>,
    /// Sum of the max-flows from the source, Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub bound_mbps: Option<f64>,
    /// From the start until the slowest node had it, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 31_536_000.0))]
    pub seconds: Option<f64>,
}

/// The program.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// Times it was started again.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub restarts: i32,
    /// Its exit code; 128 + signal where one ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub exit_code: Option<i32>,
    /// The launch that runs or ran last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub launch: Option<String>,
    /// The end of what the program and its launcher wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub log_tail: Option<String>,
    /// Where the ranks were seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["host".into()]))]
    pub placement: Vec<Placement>,
}

/// The ranks seen on one node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The node.
    #[schemars(length(min = 1, max = 63))]
    pub host: String,
    /// Its ranks, ascending.
    #[schemars(length(max = 1024), inner(range(min = 0, max = 1_024_000)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub ranks: Vec<i32>,
}
