//! The report of a run: one schema for the local run and for Kubernetes.
//!
//! Steps that did not happen have no key. Matrices have the destination as row and the source as column; `null` on the
//! diagonal and where nothing was measured.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One run, from the manifest to the exit code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// One PascalCase word; empty when complete.
    pub reason: String,
    /// Names the host, rank or file; empty when complete.
    pub message: String,
    /// The program's exit code (128 + signal); the command's own where no program ended.
    pub exit_code: i32,
    /// The cluster's name.
    pub name: String,
    /// Seconds from the start.
    pub timeline: Timeline,
    /// What was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Settings that were written, or would have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Vec<TcpSetting>>,
    /// Datasets that were staged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Vec<Dataset>>,
    /// The program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// Every step happened and every rank was where the machinefile says.
    Complete,
    /// A step failed.
    Failed,
    /// The user stopped it.
    Interrupted,
    /// It goes on, or is suspended: a cluster of Kubernetes can be reported on at any time.
    Unfinished,
}

/// When each state was reached, in seconds from the start. A state that was not reached has no key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are those of the states")]
pub struct Timeline {
    pub created: f64,
    /// Hosts chosen, before the nodes exist (Kubernetes only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuned: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_rank: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<f64>,
}

/// A square matrix, `[destination][source]`.
pub type Rows = Vec<Vec<Option<f64>>>;

/// The measured network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Names, in the order of rows and columns.
    pub hosts: Vec<String>,
    /// Average round-trip time by payload size in bytes, as ping prints `avg`.
    pub rtt_milliseconds: BTreeMap<String, Rows>,
    /// Its spread, as ping prints `mdev`.
    pub jitter_milliseconds: BTreeMap<String, Rows>,
    /// Lost probes, percent.
    pub loss_percent: BTreeMap<String, Rows>,
    /// TCP goodput, Mbit/s.
    pub bandwidth_mbps: Rows,
    /// min, avg, max and mdev of each pair, as ping prints them, by payload size.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rtt_summary: BTreeMap<String, Vec<PairRtt>>,
    /// `kernel` or `user`: whose clock stamped the probes.
    pub timestamps: String,
    /// The pairs to look at first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worst: Vec<WorstPair>,
    /// What to know about these figures (fewer pairs at once, a pair not measured), one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Round-trip times of one ordered pair, milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "ping's own words")]
pub struct PairRtt {
    pub from: String,
    pub to: String,
    pub sent: u32,
    pub received: u32,
    pub min: f64,
    pub avg: f64,
    pub max: f64,
    pub mdev: f64,
}

/// The worst pair of one quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorstPair {
    /// `rttMilliseconds`, `jitterMilliseconds`, `lossPercent` or `bandwidthMbps`.
    pub quantity: String,
    /// Source.
    pub from: String,
    /// Destination.
    pub to: String,
    /// Its value.
    pub value: f64,
}

/// One kernel setting of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TcpSetting {
    /// Node.
    pub host: String,
    /// For instance `net.ipv4.tcp_rmem`.
    pub key: String,
    /// Value before.
    pub before: String,
    /// Value in force after, as read back; in a dry run the value that would be written.
    pub applied: String,
    /// Whether the value from before is in force again.
    pub restored: bool,
    /// Nothing was written: `applied` is what would be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Why: the rule and its inputs, or why the kernel refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// How the bound was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BoundKind {
    /// From the topology that the user declared.
    Declared,
    /// From what was measured.
    Measured,
    /// From nothing but the assumption that all links are alike (Kubernetes only).
    Assumed,
}

/// One dataset, staged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dataset {
    /// Its name in the manifest.
    pub name: String,
    /// Bytes outside holes, a hard-linked file once.
    pub size_bytes: u64,
    /// Names of regular files.
    pub files: u64,
    /// BLAKE3 of the manifest, hexadecimal.
    pub digest: String,
    /// The strategy that really ran.
    pub strategy: String,
    /// Number of trees.
    pub trees: u32,
    /// From the first command to an agent until the slowest node had published.
    pub seconds: f64,
    /// Sum of the nodes' rates, Mbit/s.
    pub aggregate_mbps: f64,
    /// Sum of the max-flows from the source to the same nodes, Mbit/s.
    pub bound_mbps: f64,
    /// Where the bound comes from.
    pub bound_kind: BoundKind,
    /// Bytes read from the origin.
    pub source_bytes_read: u64,
    /// All but the source.
    pub nodes: Vec<StagedNode>,
}

/// One node of a staged dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StagedNode {
    /// Node.
    pub name: String,
    /// The published directory was read again and equals the manifest.
    pub verified: bool,
    /// sizeBytes over this node's own time, Mbit/s.
    pub rate_mbps: f64,
}

/// The program's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The program's exit code; 128 + signal where a signal ended it.
    pub exit_code: i32,
    /// Times it was started again (Kubernetes only).
    #[serde(default, skip_serializing_if = "none_of_it")]
    pub restarts: u32,
    /// Where the ranks were seen.
    pub placement: Vec<PlacedRanks>,
    /// The end of what the program and its launcher wrote (Kubernetes only: a local run's goes to the terminal).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_tail: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn none_of_it(count: &u32) -> bool {
    *count == 0
}

/// The ranks seen on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacedRanks {
    /// Node.
    pub host: String,
    /// Its ranks, ascending.
    pub ranks: Vec<u32>,
}

impl Report {
    /// The JSON Schema of a report, as `docs/report.schema.json` has it.
    pub fn schema() -> schemars::Schema {
        schemars::schema_for!(Self)
    }
}

impl Network {
    /// Names the pairs to look at first, from the matrices.
    pub fn name_worst(&mut self) {
        self.worst = crate::network::worst_pairs(self);
    }

    /// The worst pair of a quantity, for instance `bandwidthMbps`.
    pub fn worst_of(&self, quantity: &str) -> Option<&WorstPair> {
        self.worst.iter().find(|pair| pair.quantity == quantity)
    }
}

impl Dataset {
    /// Rate over bound, percent; none where there is no bound.
    pub fn percent_of_bound(&self) -> Option<f64> {
        (self.bound_mbps > 0.0).then(|| 100.0 * self.aggregate_mbps / self.bound_mbps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `GRIDCAST_UPDATE_GOLDEN=1 cargo test -p gridcast-core report` writes it anew.
    #[test]
    fn the_published_schema_is_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/report.schema.json");
        let schema = serde_json::to_string_pretty(&Report::schema()).unwrap() + "\n";
        if std::env::var_os("GRIDCAST_UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &schema).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap();
        assert!(
            published == schema,
            "docs/report.schema.json is not what the types say: run \
             GRIDCAST_UPDATE_GOLDEN=1 cargo test -p gridcast-core report"
        );
    }

    #[test]
    fn the_example_is_read_and_written_unchanged() {
        let text = include_str!("../tests/report.json");
        let report: Report = serde_json::from_str(text).unwrap();
        let before: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&report).unwrap(), before);
        let network = report.network.unwrap();
        assert_eq!(crate::network::worst_pairs(&network), network.worst);
        let worst = network.worst_of("bandwidthMbps").unwrap();
        assert_eq!((worst.from.as_str(), worst.to.as_str()), ("ring-node-0", "ring-node-3"));
    }

    #[test]
    fn steps_that_did_not_happen_have_no_key() {
        let report = Report {
            outcome: Outcome::Failed,
            reason: "NoMpirun".to_owned(),
            message: "x".to_owned(),
            exit_code: 1,
            name: "ring".to_owned(),
            timeline: Timeline::default(),
            network: None,
            tcp: None,
            data: None,
            run: None,
        };
        let json = serde_json::to_value(&report).unwrap();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["outcome", "reason", "message", "exitCode", "name", "timeline"]);
        assert_eq!(json["timeline"], serde_json::json!({"created": 0.0}));
    }
}
