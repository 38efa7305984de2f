//! The network as hosts, switches and links: what the planner plans on, the lab emulates and the inference produces.
//!
//! Capacities are Mbit/s of TCP goodput at MTU 1500. A file (YAML or JSON) reads like this:
//!
//! ```yaml
//! hosts: [S, A, {name: C, sendMbps: 900, totalMbps: 750}]
//! switches: [X, Y]
//! links: [{a: S, b: X, mbps: 1000}, {a: X, b: Y, mbps: 600, backMbps: 500, delayMs: 5}]
//! ```
//!
//! Vertices are numbered: hosts first, then switches, each in the order of the file. [`Topology::arcs`] has two directed
//! arcs for each link: `links[i]` is arc `2 i` from `a` to `b` and arc `2 i + 1` back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::Rows;

mod graph;
mod routes;
mod validate;

pub use graph::{Arc, Graph, Limits};
pub use routes::Routes;
pub use validate::{
    MAX_DELAY_MS, MAX_HOSTS, MAX_LINKS, MAX_MBPS, MAX_PLANNED_LINKS, MAX_PLANNED_VERTICES, MAX_QUEUE_BYTES,
    MAX_SWITCHES, MIN_MBPS, MIN_QUEUE_BYTES, TopologyError,
};

/// Link rate where nothing is declared and nothing was measured, Mbit/s.
const ASSUMED_MBPS: f64 = 1000.0;

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

impl Topology {
    /// One switch with a link of `mbps` to each host; `delay_ms` one way, in both directions of each link.
    pub fn one_switch(hosts: &[String], mbps: f64, delay_ms: f64) -> Self {
        Self::star(hosts, |_| (mbps, None, Some(delay_ms)))
    }

    /// What a measured matrix says at the least: one switch, to which each host sends as fast as it was measured to send to
    /// its best peer, and from which it receives as fast as from its best peer. `bandwidth_mbps[destination][source]`.
    ///
    /// Where one direction of a host has no figure it gets that of the other; a host without any gets the largest figure of
    /// the matrix, so that a bound is never below what was measured; without any figure at all links have 1 Gbit/s.
    pub fn from_matrix(hosts: &[String], bandwidth_mbps: &Rows) -> Self {
        let figure = |to: usize, from: usize| {
            let figure = *bandwidth_mbps.get(to)?.get(from)?;
            figure.filter(|mbps| mbps.is_finite() && to != from).filter(|&mbps| mbps >= MIN_MBPS)
        };
        let largest = |figures: &mut dyn Iterator<Item = f64>| figures.reduce(f64::max);
        let sent = |host: usize| largest(&mut (0..hosts.len()).filter_map(|to| figure(to, host)));
        let received = |host: usize| largest(&mut (0..hosts.len()).filter_map(|from| figure(host, from)));
        let top = largest(&mut (0..hosts.len()).filter_map(sent)).unwrap_or(ASSUMED_MBPS);
        Self::star(hosts, |host| {
            let (up, down) = (sent(host), received(host));
            (up.or(down).unwrap_or(top), Some(down.or(up).unwrap_or(top)), None)
        })
    }

    /// `link` gives (mbps, backMbps, delayMs) of the link from host i to the switch.
    fn star(hosts: &[String], link: impl Fn(usize) -> (f64, Option<f64>, Option<f64>)) -> Self {
        let mut switch = "switch".to_owned();
        while hosts.contains(&switch) {
            switch.push_str("-x");
        }
        let links = hosts.iter().enumerate().map(|(index, host)| {
            let (mbps, back_mbps, delay_ms) = link(index);
            Link { back_mbps, delay_ms, ..Link::new(host, &switch, mbps) }
        });
        Self {
            links: links.collect(),
            hosts: hosts.iter().cloned().map(Host::Name).collect(),
            switches: vec![switch],
        }
    }
}

impl Link {
    /// A symmetric link without delay or loss.
    pub fn new(a: &str, b: &str, mbps: f64) -> Self {
        Self {
            a: a.to_owned(),
            b: b.to_owned(),
            mbps,
            back_mbps: None,
            delay_ms: None,
            back_delay_ms: None,
            loss_percent: None,
            back_loss_percent: None,
            queue_bytes: None,
            back_queue_bytes: None,
        }
    }
}

#[cfg(test)]
mod tests;
