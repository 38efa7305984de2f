//! Where did the bytes go?

use serde::{Deserialize, Serialize};

use super::link::Passage;

/// What a fabric has counted since it began. Bytes are bytes on the wire: IP and 38 bytes of Ethernet each packet;
/// a super-packet counts as its segments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Seconds since it began.
    pub seconds: f64,
    /// Two for each link of the topology, in its order: there and back.
    pub links: Vec<LinkCounters>,
    /// Budgets of hosts, where the topology has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<LinkCounters>,
    /// One for each port, in the order of the specification.
    pub ports: Vec<PortCounters>,
    /// Packets that were refused because the fabric held all the bytes that it may.
    pub overloaded: u64,
    /// How late packets were delivered.
    pub lateness: Lateness,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkCounters {
    /// Name of the vertex at its tail; of a budget, its host.
    pub from: String,
    /// Name of the vertex at its head; of a budget, its field, as in `sendMbps`.
    pub to: String,
    /// Packets sent, those lost on the way included.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets for which there was no room in the queue.
    pub dropped_packets: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Packets sent and lost on the way, by the declared loss.
    pub lost_packets: u64,
    /// The most that has been in the queue, bytes.
    pub max_queue_bytes: u64,
}

/// The interface of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortCounters {
    /// Name of the host.
    pub host: String,
    /// Packets from it, a super-packet as one.
    pub sent: u64,
    /// Packets to it, a super-packet as one.
    pub received: u64,
    /// Packets from it to an address that no host has.
    pub unroutable: u64,
    /// Packets from it that are not IPv4.
    pub foreign: u64,
    /// Packets to it that its interface did not take.
    pub refused: u64,
}

/// How much later than due packets were delivered: what the machine's load does to the emulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lateness {
    /// Deliveries.
    pub deliveries: u64,
    /// Average, microseconds.
    pub average_us: f64,
    /// Largest, microseconds.
    pub max_us: f64,
}

impl Counters {
    /// The direction of a link from one vertex to a neighbour.
    pub fn link(&self, from: &str, to: &str) -> Option<&LinkCounters> {
        self.links.iter().find(|link| link.from == from && link.to == to)
    }
}

impl LinkCounters {
    pub(super) fn new(from: &str, to: &str, passage: Passage) -> Self {
        let Passage { packets, bytes, dropped_packets, dropped_bytes, lost_packets, max_queue_bytes } =
            passage;
        let (from, to) = (from.to_owned(), to.to_owned());
        Self { from, to, packets, bytes, dropped_packets, dropped_bytes, lost_packets, max_queue_bytes }
    }
}

impl Lateness {
    pub(super) fn record(&mut self, late_ns: u64) {
        let late = late_ns as f64 / 1e3;
        self.deliveries += 1;
        self.average_us += (late - self.average_us) / self.deliveries as f64;
        self.max_us = self.max_us.max(late);
    }
}
