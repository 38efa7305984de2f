//! A set of nodes: measure them, keep matrices and inferred topology.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bounds,
    broadcast::BroadcastTo,
    conditions::conditions_schema,
    virtual_cluster::network::{Bandwidth, Probe, payloads},
};

/// The measured network between a set of nodes.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "gridcast.io",
    version = "v1alpha1",
    kind = "NetworkMap",
    namespaced,
    status = "NetworkMapStatus",
    derive = "PartialEq",
    shortname = "nmap",
    category = "gridcast",
    doc = "The measured network between a set of nodes.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Measured", type_ = "date", json_path = ".status.measuredTime"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("must be lower-case letters, digits and '-', beginning with a letter")
        .field_path(".metadata.name"),
    validation = Rule::new("size(self.metadata.name) <= 100")
        .message(Message::Expression("'must be at most 100 characters, so that suffixes fit, but has %d'.format([size(self.metadata.name)])".into()))
        .field_path(".metadata.name")
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkMapSpec {
    /// The nodes that are measured.
    pub of: BroadcastTo,
    /// UDP payload of a large ping, bytes. Pings of 64 bytes are always sent as well.
    #[serde(default = "default_payload_bytes")]
    #[schemars(range(min = 44, max = 65507))]
    pub payload_bytes: i32,
    /// Pings of each size and ordered pair.
    #[serde(default = "default_count")]
    #[schemars(range(min = 1, max = 1000))]
    pub count: i32,
    /// What is measured of TCP bandwidth.
    #[serde(default)]
    pub bandwidth: Bandwidth,
    /// Seconds from one measurement to the next. Measured once if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 2_592_000))]
    pub interval_seconds: Option<i32>,
}

fn default_payload_bytes() -> i32 {
    Probe::default().payload_bytes
}

impl NetworkMapSpec {
    /// Sizes of the UDP payload of all pings, bytes, ascending.
    pub fn payloads(&self) -> Vec<u32> {
        payloads(self.payload_bytes)
    }
}

fn default_count() -> i32 {
    Probe::default().count
}

/// What was measured last.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NetworkMapStatus {
    /// Generation of the spec that this describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_generation: Option<i64>,
    /// The state, one aspect each; see `docs/api.md`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// When the last measurement ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_time: Option<Time>,
    /// Whose clock stamped the probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<Timestamps>,
    /// The matrices, up to 64 hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrices: Option<Matrices>,
    /// The path of each host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub hosts: Vec<MappedHost>,
    /// The topology that explains the measurements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<InferredTopology>,
    /// How it was measured, where that limits what the figures say; one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 512)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub notes: Vec<String>,
    /// What to look at, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 512)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub anomalies: Vec<String>,
}

/// Whose clock stamped the probes.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum Timestamps {
    /// The kernel's, as a packet left or arrived.
    Kernel,
    /// The agent's.
    User,
}

/// Matrices: destination by row, source by column, null where nothing was measured.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Matrices {
    /// Names, in the order of rows and columns.
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub hosts: Vec<String>,
    /// Least round-trip time by payload size in bytes, milliseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::matrices")]
    pub min_rtt_milliseconds: BTreeMap<String, Vec<Vec<Option<f64>>>>,
    /// Longest round-trip time by payload size in bytes, milliseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::matrices")]
    pub max_rtt_milliseconds: BTreeMap<String, Vec<Vec<Option<f64>>>>,
    /// Average round-trip time by payload size in bytes, milliseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::matrices")]
    pub rtt_milliseconds: BTreeMap<String, Vec<Vec<Option<f64>>>>,
    /// Its mdev, milliseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::matrices")]
    pub jitter_milliseconds: BTreeMap<String, Vec<Vec<Option<f64>>>>,
    /// Lost pings, percent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::matrices")]
    pub loss_percent: BTreeMap<String, Vec<Vec<Option<f64>>>>,
    /// TCP goodput, Mbit/s.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::matrix")]
    pub bandwidth_mbps: Vec<Vec<Option<f64>>>,
}

/// What limits one host.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MappedHost {
    /// The host.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Window that fits its measurements (rate times round-trip time), bytes. Absent where the links limit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub window_bytes: Option<i64>,
    /// How well it fits, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub window_fit: Option<f64>,
}

/// Hosts, switches and links.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InferredTopology {
    /// Vertices that only forward.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub switches: Vec<String>,
    /// Links, full duplex.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub links: Vec<InferredLink>,
}

/// A link of an inferred topology.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InferredLink {
    /// One end.
    #[schemars(length(min = 1, max = 253))]
    pub a: String,
    /// The other.
    #[schemars(length(min = 1, max = 253))]
    pub b: String,
    /// Capacity from `a` to `b`, Mbit/s of TCP goodput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub mbps: Option<f64>,
    /// Capacity from `b` to `a`. As `mbps` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub back_mbps: Option<f64>,
    /// Delay one way, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 60_000.0))]
    pub delay_milliseconds: Option<f64>,
}
