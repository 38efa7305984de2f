//! What is on every node before anything runs, and what the nodes must show first.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::source::{Source, Strategy};

/// A dataset that is on every node, verified, before anything runs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Data {
    /// Name, unique in the cluster.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Where the nodes see it, read-only.
    #[schemars(length(min = 2, max = 256), regex(pattern = r"^(/[A-Za-z0-9._@+,=-]+)+$"))]
    #[x_kube(
        validation = Rule::new("!self.split('/').exists(part, part == '.' || part == '..')")
            .message("must not contain '.' or '..' as a part"),
        validation = Rule::new("!self.matches('^/(gridcast|proc|sys|dev)(/|$)')")
            .message("must not be in '/gridcast', '/proc', '/sys' or '/dev'"),
        validation = Rule::new("!self.matches('^/(bin|boot|etc|lib|lib32|lib64|run|sbin|tmp|usr|var)$')")
            .message("must not hide a directory that the system needs; choose one below it or another")
    )]
    pub mount_path: String,
    /// Where it comes from.
    pub source: Source,
    /// How it is spread. `Stable` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
}

impl Data {
    /// How it is spread.
    pub fn strategy(&self) -> Strategy {
        self.strategy.unwrap_or_default()
    }
}

/// A test on the nodes that gates the run.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("(self.type == 'Stream') == has(self.minTriadMBps)")
        .message("must be given with type 'Stream' and with no other").field_path(".minTriadMBps"),
    validation = Rule::new("(self.type == 'Storage') == has(self.path)")
        .message("must be given with type 'Storage' and with no other").field_path(".path"),
    validation = Rule::new("(self.type == 'Storage') == has(self.sizeBytes)")
        .message("must be given with type 'Storage' and with no other").field_path(".sizeBytes"),
    validation = Rule::new("(self.type == 'Storage') == has(self.minWriteMBps)")
        .message("must be given with type 'Storage' and with no other").field_path(".minWriteMBps"),
    validation = Rule::new("(self.type == 'PingPong') == has(self.sizes)")
        .message("must be given with type 'PingPong' and with no other").field_path(".sizes"),
    validation = Rule::new("(self.type == 'PingPong') == has(self.minBandwidthMBps)")
        .message("must be given with type 'PingPong' and with no other").field_path(".minBandwidthMBps")
)]
#[serde(rename_all = "camelCase")]
pub struct Acceptance {
    /// Which test.
    #[serde(rename = "type")]
    pub type_: AcceptanceType,
    /// `Stream`: least memory bandwidth of the triad on every node, MB/s.
    #[serde(default, rename = "minTriadMBps", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 100_000_000.0))]
    pub min_triad_mbytes_per_second: Option<f64>,
    /// `Storage`: directory of the node that is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 256), regex(pattern = r"^(/[A-Za-z0-9._@+,=-]+)+$"))]
    pub path: Option<String>,
    /// `Storage`: bytes that are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_048_576, max = 1_099_511_627_776_i64))]
    pub size_bytes: Option<i64>,
    /// `Storage`: least rate of writing with a final fsync, MB/s.
    #[serde(default, rename = "minWriteMBps", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub min_write_mbytes_per_second: Option<f64>,
    /// `PingPong`: message sizes between two MPI processes, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16), inner(range(min = 1, max = 1_073_741_824)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub sizes: Option<Vec<i32>>,
    /// `PingPong`: least bandwidth at the largest size, MB/s.
    #[serde(default, rename = "minBandwidthMBps", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub min_bandwidth_mbytes_per_second: Option<f64>,
}

/// Which acceptance test.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum AcceptanceType {
    /// McCalpin's STREAM triad: memory bandwidth.
    #[default]
    Stream,
    /// Sequential writing.
    Storage,
    /// MPI messages between two nodes.
    PingPong,
}
