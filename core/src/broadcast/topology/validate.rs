//! Is this topology one that can be built and planned on?

use std::collections::HashMap;

use super::{Host, Link, Topology, graph::Graph};

/// Most hosts of a network that is built.
pub const MAX_HOSTS: usize = 4096;
/// Most switches of a network that is built.
pub const MAX_SWITCHES: usize = 4096;
/// Most links of a network that is built.
pub const MAX_LINKS: usize = 16_384;
/// Most hosts and switches of a network that is planned on.
pub const MAX_PLANNED_VERTICES: usize = 20_000;
/// Most links of a network that is planned on.
pub const MAX_PLANNED_LINKS: usize = 100_000;
/// Least capacity, Mbit/s: below, one packet takes longer than ten seconds.
pub const MIN_MBPS: f64 = 0.001;
/// Largest capacity, Mbit/s: a terabit per second.
pub const MAX_MBPS: f64 = 1_000_000.0;
/// Largest delay one way, milliseconds.
pub const MAX_DELAY_MS: f64 = 60_000.0;
/// Smallest queue, bytes: one full frame on the wire.
pub const MIN_QUEUE_BYTES: u64 = 1538;
/// Largest queue, bytes.
pub const MAX_QUEUE_BYTES: u64 = 1 << 30;
/// Longest name, as in DNS.
const MAX_NAME_BYTES: usize = 253;

/// Why a topology cannot be used. Each names the field, as in `links[3].b`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says it")]
pub enum TopologyError {
    #[error("hosts: there is none; list at least one")]
    NoHosts,
    #[error("{field}: {count} are listed, at most {most} can be; split the network")]
    TooMany { field: &'static str, count: usize, most: usize },
    #[error(
        "{field}: `{name}` is no name; use 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` and `.`, a letter or digit first"
    )]
    BadName { field: String, name: String },
    #[error("{field}: the name `{name}` is also that of {first}; rename one")]
    DuplicateName { field: String, name: String, first: String },
    #[error("{field}: no host or switch is named `{name}`; add it to hosts or switches, or correct the name")]
    UnknownEnd { field: String, name: String },
    #[error("{field}: the link ends where it starts, at `{name}`; name another end")]
    SelfLink { field: String, name: String },
    #[error(
        "{field}: `{a}` and `{b}` are joined by {first} already; keep one link, with the sum of their capacities"
    )]
    DoubleLink { field: String, a: String, b: String, first: String },
    #[error("{field}: {value} is outside {least} to {most}; give a number of {unit} inside")]
    OutOfRange { field: String, value: f64, least: f64, most: f64, unit: &'static str },
    #[error(
        "hosts: `{to}` cannot be reached from `{from}`; add a link, or a backMbps above 0 to one that leads only one way"
    )]
    Unreachable { from: String, to: String },
}

impl Topology {
    /// Whether the network can be built: all fields make sense, no two links join the same vertices, and every host can
    /// reach every other.
    pub fn validate(&self) -> Result<(), TopologyError> {
        self.counts(&[
            ("hosts", self.hosts.len(), MAX_HOSTS),
            ("switches", self.switches.len(), MAX_SWITCHES),
            ("links", self.links.len(), MAX_LINKS),
        ])?;
        self.fields(false)?;
        let graph = Graph::new(self);
        let unreachable = |from: usize, to: usize| {
            let name = |vertex: usize| graph.name(vertex).to_owned();
            Err(TopologyError::Unreachable { from: name(from), to: name(to) })
        };
        // From the first host to all, and to it from all, is from all to all.
        let from_first = graph.reached_from(0);
        if let Some(host) = (0..graph.hosts()).find(|&host| !from_first[host]) {
            return unreachable(0, host);
        }
        let to_first = graph.distances_to(0);
        match (0..graph.hosts()).find(|&host| to_first[host].is_none()) {
            Some(host) => unreachable(host, 0),
            None => Ok(()),
        }
    }

    /// Whether the network can be planned on: all fields make sense, whatever can be reached. Two links may join the same
    /// vertices: they count as one, with the sum of their capacities. A `backMbps` of 0 is a link that leads one way.
    pub fn validate_for_planning(&self) -> Result<(), TopologyError> {
        self.counts(&[
            ("hosts and switches", self.hosts.len() + self.switches.len(), MAX_PLANNED_VERTICES),
            ("links", self.links.len(), MAX_PLANNED_LINKS),
        ])?;
        self.fields(true)
    }

    fn counts(&self, counts: &[(&'static str, usize, usize)]) -> Result<(), TopologyError> {
        if self.hosts.is_empty() {
            return Err(TopologyError::NoHosts);
        }
        match counts.iter().find(|(_, count, most)| count > most) {
            Some(&(field, count, most)) => Err(TopologyError::TooMany { field, count, most }),
            None => Ok(()),
        }
    }

    fn fields(&self, parallel: bool) -> Result<(), TopologyError> {
        let names = self.validate_names()?;
        for (index, host) in self.hosts.iter().enumerate() {
            validate_budgets(index, host)?;
        }
        let mut joined = HashMap::new();
        for (index, link) in self.links.iter().enumerate() {
            validate_ends(index, link, &names)?;
            let ends = if link.a < link.b { (&link.a, &link.b) } else { (&link.b, &link.a) };
            if let Some(first) = joined.insert(ends, index).filter(|_| !parallel) {
                return Err(TopologyError::DoubleLink {
                    field: format!("links[{index}]"),
                    a: link.a.clone(),
                    b: link.b.clone(),
                    first: format!("links[{first}]"),
                });
            }
            validate_numbers(index, link)?;
        }
        Ok(())
    }

    /// Where each name is, as a field.
    fn validate_names(&self) -> Result<HashMap<&str, String>, TopologyError> {
        let hosts = self.hosts.iter().enumerate().map(|(index, host)| {
            let part = if matches!(host, Host::Name(_)) { "" } else { ".name" };
            (format!("hosts[{index}]{part}"), host.name())
        });
        let switches = self.switches.iter().enumerate();
        let switches = switches.map(|(index, switch)| (format!("switches[{index}]"), switch.as_str()));
        let mut names = HashMap::new();
        for (field, name) in hosts.chain(switches) {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            let good = (1..=MAX_NAME_BYTES).contains(&name.len())
                && name.bytes().all(plain)
                && name.as_bytes()[0].is_ascii_alphanumeric();
            if !good {
                return Err(TopologyError::BadName { field, name: name.escape_debug().take(80).collect() });
            }
            if let Some(first) = names.insert(name, field.clone()) {
                return Err(TopologyError::DuplicateName { field, name: name.to_owned(), first });
            }
        }
        Ok(names)
    }
}

fn validate_budgets(index: usize, host: &Host) -> Result<(), TopologyError> {
    let Host::Limited(host) = host else { return Ok(()) };
    for (name, budget) in [
        ("sendMbps", host.send_mbps),
        ("receiveMbps", host.receive_mbps),
        ("totalMbps", host.total_mbps),
        ("diskMbps", host.disk_mbps),
    ] {
        in_range(|| format!("hosts[{index}].{name}"), budget, MIN_MBPS, MAX_MBPS, "Mbit/s")?;
    }
    Ok(())
}

fn validate_ends(index: usize, link: &Link, names: &HashMap<&str, String>) -> Result<(), TopologyError> {
    for (end, name) in [("a", &link.a), ("b", &link.b)] {
        if !names.contains_key(name.as_str()) {
            return Err(TopologyError::UnknownEnd {
                field: format!("links[{index}].{end}"),
                name: name.escape_debug().take(80).collect(),
            });
        }
    }
    if link.a == link.b {
        return Err(TopologyError::SelfLink { field: format!("links[{index}].b"), name: link.b.clone() });
    }
    Ok(())
}

fn validate_numbers(index: usize, link: &Link) -> Result<(), TopologyError> {
    let field = |name: &str| format!("links[{index}].{name}");
    in_range(|| field("mbps"), Some(link.mbps), MIN_MBPS, MAX_MBPS, "Mbit/s")?;
    if link.back_mbps != Some(0.0) {
        in_range(|| field("backMbps"), link.back_mbps, MIN_MBPS, MAX_MBPS, "Mbit/s")?;
    }
    for (name, delay) in [("delayMs", link.delay_ms), ("backDelayMs", link.back_delay_ms)] {
        in_range(|| field(name), delay, 0.0, MAX_DELAY_MS, "milliseconds")?;
    }
    for (name, loss) in [("lossPercent", link.loss_percent), ("backLossPercent", link.back_loss_percent)] {
        in_range(|| field(name), loss, 0.0, 100.0, "percent")?;
    }
    for (name, queue) in [("queueBytes", link.queue_bytes), ("backQueueBytes", link.back_queue_bytes)] {
        let (least, most) = (MIN_QUEUE_BYTES as f64, MAX_QUEUE_BYTES as f64);
        in_range(|| field(name), queue.map(|bytes| bytes as f64), least, most, "bytes")?;
    }
    Ok(())
}

/// NaN and the infinities are outside every range.
fn in_range(
    field: impl Fn() -> String,
    value: Option<f64>,
    least: f64,
    most: f64,
    unit: &'static str,
) -> Result<(), TopologyError> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            Err(TopologyError::OutOfRange { field: field(), value, least, most, unit })
        }
        _ => Ok(()),
    }
}
