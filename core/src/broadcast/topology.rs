//! The network as hosts, switches and links: what the planner plans on, the lab emulates and the inference produces.
//!
//! Capacities are Mbit/s of TCP goodput at MTU 1500. A file (YAML or JSON) reads like this:
//!
//! ```yaml
//! hosts: [S, A, {name: C, sendMbps: 900, totalMbps: 750}]
//! switches: [X, Y]
//! links: [{a: S, b: X, mbps: 1000}, {a: X, b: Y, mbps: 600, backMbps: 500, delayMs: 5}]
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network of hosts and switches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Topology {
    /// Those that store and relay.
    pub hosts: Vec<Host>,
    /// Those that only forward one flow, never replicate a stream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<String>,
    /// Full-duplex links between them.
    #[serde(default)]
    pub links: Vec<Link>,
}

/// A host: its name alone, or with budgets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Host {
    /// Limited by its links only.
    Name(String),
    /// Limited by budgets of its own.
    Limited(LimitedHost),
}

/// A host with budgets, Mbit/s each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitedHost {
    /// Its name.
    pub name: String,
    /// All it can send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_mbps: Option<f64>,
    /// All it can receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_mbps: Option<f64>,
    /// All it can send and receive together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_mbps: Option<f64>,
    /// All it can write to its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mbps: Option<f64>,
}

/// A full-duplex link. `back…` is the direction from `b` to `a`; where it is absent it equals the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Link {
    /// One end.
    pub a: String,
    /// The other.
    pub b: String,
    /// Capacity from `a` to `b`, Mbit/s of TCP goodput.
    pub mbps: f64,
    /// Capacity from `b` to `a`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_mbps: Option<f64>,
    /// Delay one way, from `a` to `b`, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// Delay from `b` to `a`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_delay_ms: Option<f64>,
    /// Packets lost at random from `a` to `b`, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<f64>,
    /// Packets lost at random from `b` to `a`, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_loss_percent: Option<f64>,
    /// Queue of the sender at `a`, bytes on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// Queue of the sender at `b`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_queue_bytes: Option<u64>,
}

impl Host {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Limited(host) => &host.name,
        }
    }
}
