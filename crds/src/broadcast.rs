//! One dataset, one source, a set of nodes: put it there, verified.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PodSecurityContext, Toleration},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bounds,
    conditions::conditions_schema,
    source::{Source, Strategy},
};

/// One dataset on a set of nodes, verified. Any pod can mount it.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "gridcast.io",
    version = "v1alpha1",
    kind = "Broadcast",
    namespaced,
    status = "BroadcastStatus",
    derive = "PartialEq",
    shortname = "bc",
    category = "gridcast",
    doc = "One dataset on a set of nodes, verified. Any pod can mount it.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodesStaged"),
    printcolumn(name = "Strategy", type_ = "string", json_path = ".status.strategy"),
    printcolumn(name = "Trees", type_ = "integer", json_path = ".status.trees"),
    printcolumn(name = "Mbit/s", type_ = "number", json_path = ".status.aggregateMbps"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("must be lower-case letters, digits and '-', beginning with a letter")
        .field_path(".metadata.name"),
    validation = Rule::new("size(self.metadata.name) <= 100")
        .message(Message::Expression("'must be at most 100 characters, so that suffixes fit, but has %d'.format([size(self.metadata.name)])".into()))
        .field_path(".metadata.name")
)]
#[x_kube(
    validation = Rule::new("has(self.path) == has(oldSelf.path)").message("path may not be added or removed")
)]
#[serde(rename_all = "camelCase")]
pub struct BroadcastSpec {
    /// Where the dataset comes from. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("source is immutable; make a new Broadcast"))]
    pub source: Source,
    /// The nodes that receive it.
    pub to: BroadcastTo,
    /// Path below the namespace's part of each node's data directory. Immutable. The object's name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[A-Za-z0-9._@+,=-]+(/[A-Za-z0-9._@+,=-]+)*$"))]
    #[x_kube(
        validation = Rule::new("!self.split('/').exists(part, part == '.' || part == '..')")
            .message("must not contain '.' or '..' as a part"),
        validation = Rule::new("self == oldSelf").message("path is immutable; make a new Broadcast")
    )]
    pub path: Option<String>,
    /// How it is spread.
    #[serde(default)]
    pub strategy: Strategy,
    /// Most trees of the plan; 0 for no limit.
    #[serde(default = "default_max_trees")]
    #[schemars(range(min = 0, max = 256))]
    pub max_trees: i32,
    /// Most that the source sends, Mbit/s. No limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub rate_limit_mbps: Option<i32>,
    /// Seconds from the end after which the object is deleted. Kept if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// What becomes of the data when the object is deleted.
    #[serde(default)]
    pub retain: Retain,
    /// The pod that reads a source of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_pod: Option<SourcePod>,
}

/// The pod that reads a volume, a ConfigMap, a Secret or a URL for a broadcast.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SourcePod {
    /// Who reads: user and groups that may read the data. The image's user, root without capabilities, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::pod_security_context")]
    pub security_context: Option<PodSecurityContext>,
    /// Labels of Kubernetes nodes on which it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::label_map")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints that it tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::tolerations")]
    pub tolerations: Vec<Toleration>,
}

fn default_max_trees() -> i32 {
    16
}

/// The nodes that receive a dataset: exactly one member is given.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("[has(self.nodes), has(self.nodeSelector), has(self.virtualCluster)].filter(given, given).size() == 1")
        .message("must have exactly one of `nodes`, `nodeSelector` and `virtualCluster`")
)]
#[serde(rename_all = "camelCase")]
pub struct BroadcastTo {
    /// Kubernetes nodes by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 5000),
        inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub nodes: Option<Vec<String>>,
    /// Kubernetes nodes that have all of these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::label_map")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The nodes of a VirtualCluster in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_cluster: Option<VirtualClusterReference>,
}

/// A VirtualCluster in the same namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct VirtualClusterReference {
    /// Its name.
    #[schemars(length(min = 1, max = 48), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
}

/// What becomes of the data when the object is deleted.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum Retain {
    /// Removed from every node.
    #[default]
    Delete,
    /// Left on the nodes.
    Keep,
}

/// What gridcast last saw of a broadcast.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BroadcastStatus {
    /// Generation of the spec that this describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_generation: Option<i64>,
    /// The state, one aspect each; see `docs/api.md`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Bytes outside holes, a hard-linked file once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub size_bytes: Option<i64>,
    /// Names of regular files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub files: Option<i64>,
    /// BLAKE3 of the manifest, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// Nodes that should have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16_000))]
    pub nodes_wanted: Option<i32>,
    /// Nodes that have all of it, verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16_000))]
    pub nodes_staged: Option<i32>,
    /// The nodes to look at first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub worst: Vec<BroadcastNode>,
    /// Sum of the nodes' rates, Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub aggregate_mbps: Option<f64>,
    /// Sum of the max-flows from the source, Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub bound_mbps: Option<f64>,
    /// What the bound rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_kind: Option<BoundKind>,
    /// The strategy that really ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub strategy: Option<String>,
    /// From the start until the slowest node had it, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 31_536_000.0))]
    pub seconds: Option<f64>,
    /// When it ended, one way or another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Trees of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16_000))]
    pub trees: Option<i32>,
    /// Bytes read from the origin: at most 1.05 times the size, since it is read once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub source_bytes_read: Option<i64>,
}

/// What a bound rests on.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum BoundKind {
    /// What was measured between the nodes.
    Measured,
    /// Nothing but the assumption that all links are alike: the dataset was staged sooner than it could be measured for.
    Assumed,
}

/// One node of a broadcast.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BroadcastNode {
    /// The node.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether it has all of it, verified.
    pub verified: bool,
    /// The size over this node's own time, Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub rate_mbps: Option<f64>,
    /// Why it is here, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
}
