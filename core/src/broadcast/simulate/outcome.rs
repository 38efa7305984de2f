//! What came of a broadcast.

use super::super::schedule::Chunks;
use super::MAX_PLANS;
use super::hosts::HostState;
use super::world::World;

/// A broadcast, from the beginning to the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Size of the dataset, bytes.
    pub size_bytes: u64,
    /// Size of a chunk, bytes.
    pub chunk_bytes: u64,
    /// Destinations and those that joined, by name.
    pub nodes: Vec<NodeOutcome>,
    /// Until the last one had everything, seconds.
    pub seconds: f64,
    /// Sum of size / time over those that have everything, Mbit/s.
    pub aggregate_mbps: f64,
    /// Chunks that arrived where they were already, bytes.
    pub duplicate_bytes: u64,
    /// Chunks that arrived spoilt or did not arrive because a plan or a host ended, bytes.
    pub wasted_bytes: u64,
    /// What each link carried, in the order of the topology.
    pub links: Vec<LinkBytes>,
    /// What happened.
    pub timeline: Vec<Moment>,
    /// How many plans were carried out.
    pub plans: u64,
    /// The most numbers that a node kept at any time, for each chunk of the dataset.
    pub memory_per_chunk: f64,
    /// The most events that waited for their time at any time.
    pub most_waiting: usize,
}

/// What a destination got.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeOutcome {
    /// Its name.
    pub name: String,
    /// When it had everything, each chunk with its hash: seconds since the beginning, or since it joined.
    pub seconds: Option<f64>,
    /// Size / time, Mbit/s; 0 without everything.
    pub rate_mbps: f64,
    /// What the first plan promised, Mbit/s.
    pub planned_mbps: f64,
    /// Why it does not have everything.
    pub reason: Option<String>,
}

/// What a link carried, both ways.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkBytes {
    /// One end.
    pub a: String,
    /// The other.
    pub b: String,
    /// From `a` to `b`, bytes.
    pub bytes: u64,
    /// From `b` to `a`, bytes.
    pub back_bytes: u64,
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since the beginning.
    pub seconds: f64,
    /// What happened.
    pub what: String,
}

impl World<'_> {
    /// The books, closed.
    pub(super) fn outcome(self) -> Outcome {
        let nodes = self.nodes();
        let bytes = |arc: usize| self.arc_bits.get(arc).map_or(0, |bits| (bits / 8.0).round() as u64);
        let links = self.first.links.iter().enumerate().map(|(link, ends)| LinkBytes {
            a: ends.a.clone(),
            b: ends.b.clone(),
            bytes: bytes(2 * link),
            back_bytes: bytes(2 * link + 1),
        });
        let last = self.hosts.iter().filter_map(|host| host.complete).max().unwrap_or(0);
        Outcome {
            size_bytes: self.cut.size_bytes,
            chunk_bytes: self.cut.chunk_bytes,
            links: links.collect(),
            seconds: last as f64 / 1e9,
            aggregate_mbps: nodes.iter().map(|node| node.rate_mbps).sum(),
            nodes,
            duplicate_bytes: self.duplicate_bytes,
            wasted_bytes: (self.wasted_bits / 8.0).round() as u64,
            timeline: self.timeline,
            plans: self.epoch,
            most_waiting: self.most_waiting,
            memory_per_chunk: self.remembered as f64 / f64::from(self.cut.chunks),
        }
    }

    fn nodes(&self) -> Vec<NodeOutcome> {
        let bits = self.cut.size_bytes as f64 * 8.0;
        let node = |(vertex, host): (usize, &HostState)| {
            let name = self.graph.name(vertex).to_owned();
            let joined = host.joined.filter(|_| name != self.source)?;
            let seconds = host.complete.map(|complete| (complete - joined) as f64 / 1e9);
            Some(NodeOutcome {
                rate_mbps: seconds.map_or(0.0, |seconds| bits / seconds.max(1e-9) / 1e6),
                planned_mbps: self.planned.get(&name).copied().unwrap_or(0.0),
                reason: seconds.is_none().then(|| self.reason(vertex)),
                seconds,
                name,
            })
        };
        let mut nodes: Vec<NodeOutcome> = self.hosts.iter().enumerate().filter_map(node).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes
    }

    /// Why a host lacks chunks.
    fn reason(&self, vertex: usize) -> String {
        if let Some(reason) = self.coordinator.reason(self.graph.name(vertex)) {
            return reason;
        }
        if self.given_up() {
            return format!("given up: nothing new came to anybody in {} events", self.settings.patience);
        }
        if self.epoch >= MAX_PLANS {
            return format!("given up after {MAX_PLANS} plans");
        }
        let mut there = Chunks::none(self.cut.chunks);
        for host in self.hosts.iter().filter(|host| host.alive) {
            host.held.iter().for_each(|chunk| {
                there.insert(chunk);
            });
        }
        if there.complete() {
            "no way leads to it from the hosts that have what it lacks".to_owned()
        } else {
            format!("{} chunks are lost with hosts that are gone", there.count() - there.held())
        }
    }
}
