//! What is measured between the nodes, what is demanded, and what is tuned.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The network between the nodes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// What is measured, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// What the network must reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require: Option<Require>,
    /// Which TCP settings of the nodes are changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
}

/// What is measured, and when.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// When.
    pub policy: ProbePolicy,
    /// UDP payload of a large ping, bytes. Pings of 64 bytes are always sent as well.
    #[schemars(range(min = 44, max = 65507))]
    pub payload_bytes: i32,
    /// Pings of each size and ordered pair.
    #[schemars(range(min = 1, max = 1000))]
    pub count: i32,
    /// From one ping of a pair to the next.
    #[schemars(range(min = 1, max = 10_000))]
    pub interval_milliseconds: i32,
    /// What is measured of TCP bandwidth.
    pub bandwidth: Bandwidth,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            policy: ProbePolicy::BeforeRun,
            payload_bytes: 50_000,
            count: 10,
            interval_milliseconds: 10,
            bandwidth: Bandwidth::Pairs,
        }
    }
}

/// Payload of the small ping, bytes: a packet that waits for no other of its own, so it tells the path's delay.
pub const SMALL_PAYLOAD_BYTES: u32 = 64;

impl Probe {
    /// Sizes of the UDP payload of all pings, bytes, ascending.
    pub fn payloads(&self) -> Vec<u32> {
        payloads(self.payload_bytes)
    }
}

/// The small ping and one of `payload_bytes`, ascending.
pub(crate) fn payloads(payload_bytes: i32) -> Vec<u32> {
    let mut sizes = vec![SMALL_PAYLOAD_BYTES, payload_bytes.unsigned_abs()];
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// When the network is measured.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum ProbePolicy {
    /// Once, before data is staged and the program starts.
    #[default]
    BeforeRun,
    /// Not at all.
    Never,
}

/// What is measured of TCP bandwidth.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum Bandwidth {
    /// Every ordered pair, in rounds of disjoint pairs.
    #[default]
    Pairs,
    /// Nothing.
    None,
}

/// What the network must reach.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new("has(self.maxJitterMilliseconds) || has(self.minBandwidthMbps)")
        .message("must have at least one of `maxJitterMilliseconds` and `minBandwidthMbps`")
)]
#[serde(rename_all = "camelCase")]
pub struct Require {
    /// Most jitter (mdev of the round-trip time, as ping prints it) of any pair and payload size, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 60_000.0))]
    pub max_jitter_milliseconds: Option<f64>,
    /// Least TCP goodput of any pair, Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 10_000_000.0))]
    pub min_bandwidth_mbps: Option<f64>,
    /// What happens if it is not reached.
    #[serde(default)]
    pub on_violation: OnViolation,
}

/// What happens if the network does not reach what is demanded.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum OnViolation {
    /// The report names the pairs and the run goes on.
    #[default]
    Warn,
    /// The cluster has failed and nothing is started.
    Fail,
}

/// Which TCP settings of the nodes are changed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Tcp {
    /// Whether they are changed.
    pub mode: TcpMode,
    /// How the program communicates. Nothing is assumed of it if absent: slow start after idle stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<TcpProfile>,
    /// What a change is judged by.
    pub objective: TcpObjective,
}

/// Whether TCP settings are changed.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum TcpMode {
    /// Nothing is computed or written.
    #[default]
    Off,
    /// The report says what would be written.
    DryRun,
    /// Written in each node's own network namespace, read back, and restored at the end.
    Apply,
}

/// How the program communicates (Hablot's classes).
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum TcpProfile {
    /// Found out in the first seconds of the run. On Kubernetes refused so far.
    Auto,
    /// Each process sends when it is ready (NPB's BT, SP).
    Asynchronous,
    /// One after the other (FT).
    Staggered,
    /// All at once to the same receivers (IS).
    Synchronous,
    /// Long streams.
    Bulk,
}

/// What a change of TCP settings is judged by.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum TcpObjective {
    /// The time of the whole run.
    #[default]
    TotalTime,
    /// Latency of small messages.
    Latency,
    /// Throughput of large ones.
    Throughput,
}
