//! Which TCP settings does each host need for this network and this run?
//!
//! Buffers follow the measured bandwidth-delay product: the usable window is about 0.65 of `tcp_rmem`'s maximum, what
//! may be in flight about 0.8 of `tcp_wmem`'s (both measured on Linux; the rest is bookkeeping), and twice the product
//! leaves room for loss recovery and queues. Only maxima change, only upwards, in powers of two, within what the host
//! can pay for. Congestion control follows a policy whose reason is in every setting's note; it is never switched off.

mod buffers;
mod congestion;
mod path;

use std::collections::BTreeMap;

use crate::report::Rows;

/// Congestion control.
pub const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";
/// Receive buffers: minimum, default, maximum, bytes.
pub const RMEM: &str = "net.ipv4.tcp_rmem";
/// Send buffers: minimum, default, maximum, bytes.
pub const WMEM: &str = "net.ipv4.tcp_wmem";
/// Pages that all sockets of the machine may take: low, pressure, high.
pub const MEM: &str = "net.ipv4.tcp_mem";
/// Whether a connection that was idle starts slowly again.
pub const SLOW_START_AFTER_IDLE: &str = "net.ipv4.tcp_slow_start_after_idle";

/// How the program communicates: a prior, as the manifest states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Not known.
    #[default]
    Auto,
    /// Pairs that exchange after pauses (NAS BT, SP).
    Asynchronous,
    /// Collectives whose senders take turns (NAS FT).
    Staggered,
    /// Many send to one at once (NAS IS).
    Synchronous,
    /// Long transfers.
    Bulk,
}

/// What is to happen with the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// No plan.
    #[default]
    Off,
    /// A plan to be shown.
    DryRun,
    /// A plan to be applied.
    Apply,
}

/// What an agent says of its host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// Its name.
    pub name: String,
    /// Settings in force, by key; only those that exist.
    pub settings: BTreeMap<String, String>,
    /// `net.ipv4.tcp_available_congestion_control`.
    pub available_congestion_controls: Vec<String>,
    /// `net.ipv4.tcp_allowed_congestion_control`: what a network namespace other than the machine's may choose. Empty
    /// where it could not be read.
    pub allowed_congestion_controls: Vec<String>,
    /// Memory of the host or the limit of its node, bytes; 0 = not known.
    pub memory_bytes: u64,
    /// Rate of its interface, Mbit/s, where one is declared. Used where windows hide what the path can carry.
    pub interface_mbps: Option<f64>,
}

/// Everything that a plan depends on.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// In the order of rows and columns.
    pub hosts: &'a [HostFacts],
    /// Average round-trip time, milliseconds, `[destination][source]`.
    pub rtt_milliseconds: &'a Rows,
    /// TCP goodput, Mbit/s.
    pub bandwidth_mbps: &'a Rows,
    /// Lost probes, percent.
    pub loss_percent: &'a Rows,
    /// Probes behind each value of `loss_percent`.
    pub probes: u32,
    /// Connections to one peer that are open at once (MPI and staging); at least 1.
    pub sockets_per_peer: u32,
    /// How the program communicates.
    pub profile: Profile,
    /// What happens with the plan.
    pub mode: Mode,
}

/// One setting of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSetting {
    /// Host.
    pub host: String,
    /// For instance `net.ipv4.tcp_rmem`.
    pub key: String,
    /// The value in force, fields separated by one space.
    pub before: String,
    /// The value to write; equal to `before` where it is right already.
    pub value: String,
    /// The rule and its inputs.
    pub note: String,
}

impl PlannedSetting {
    /// Whether there is something to write.
    pub fn changes(&self) -> bool {
        self.before != self.value
    }

    /// The command that does the same by hand.
    pub fn command(&self) -> String {
        format!("sysctl -w {}='{}'", self.key, self.value)
    }
}

/// Fields separated by one space: the kernel prints tabs.
pub fn normalized(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The settings of every host: receive buffers, send buffers and congestion control always, slow start after idle where
/// the profile says something about it. Empty in mode [`Mode::Off`].
pub fn tune(inputs: &Inputs<'_>) -> Vec<PlannedSetting> {
    if inputs.mode == Mode::Off {
        return Vec::new();
    }
    let mut plan = Vec::new();
    for (index, host) in inputs.hosts.iter().enumerate() {
        let paths = path::paths(inputs, index);
        let mut add = |key: &str, decide: &dyn Fn(&str) -> (String, String)| {
            if let Some(before) = host.settings.get(key) {
                let before = normalized(before);
                let (value, note) = decide(&before);
                plan.push(PlannedSetting {
                    host: host.name.clone(),
                    key: key.to_owned(),
                    before,
                    value,
                    note,
                });
            }
        };
        add(RMEM, &|before| buffers::receive(inputs, host, &paths, before));
        add(WMEM, &|before| buffers::send(inputs, host, &paths, before));
        let congestion = |before: &str| congestion::choose(inputs, host, &paths, before);
        add(CONGESTION_CONTROL, &congestion);
        let control = host.settings.get(CONGESTION_CONTROL).map(|now| congestion(&normalized(now)).0);
        if let Some(wanted) = congestion::slow_start_after_idle(inputs.profile, control.as_deref()) {
            add(SLOW_START_AFTER_IDLE, &|_| (wanted.0.to_owned(), wanted.1.to_owned()));
        }
    }
    plan
}

#[cfg(test)]
mod tests;
