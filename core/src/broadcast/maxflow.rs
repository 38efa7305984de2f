//! How fast could each destination receive if it were alone? The bound that every broadcast is measured against.
//!
//! Max-flow by Dinic's algorithm on integers: capacities are rounded to units so small that the largest cut just fits, so
//! results are exact and the same for any order of the input. A host is split into an entry and an exit, with what it can pass on between them:
//! a relay spends its total budget twice for each byte, the source and the destination once.

use std::collections::VecDeque;

use super::plan::packing::Capacities;
use super::plan::sharing::Resource;
use super::topology::{Graph, Limits, Topology};

/// No cut has more units than this.
const MOST_UNITS: f64 = (1_u64 << 62) as f64;
/// Above any sum of capacities, and far enough below the end of 64 bits that a flow can be added to it.
const UNLIMITED: u64 = 1 << 63;

/// A name that is no host of the topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no host is named `{0}`; name one of the topology's hosts")]
pub struct UnknownHost(pub String);

/// Max-flow from `source` to each destination, Mbit/s, by name; each destination once, 0 for one that cannot be reached.
pub fn bound(
    topology: &Topology,
    source: &str,
    destinations: &[String],
) -> Result<Vec<(String, f64)>, UnknownHost> {
    let graph = Graph::new(topology);
    let host = |name: &str| graph.host(name).ok_or_else(|| UnknownHost(name.to_owned()));
    let mut flow = MaxFlow::new(&graph, host(source)?);
    let mut bounds = Vec::with_capacity(destinations.len());
    for name in destinations {
        bounds.push((name.clone(), flow.to(host(name)?)));
    }
    bounds.sort_by(|(a, _), (b, _)| a.cmp(b));
    bounds.dedup_by(|(a, _), (b, _)| a == b);
    Ok(bounds)
}

/// The bound of a broadcast: the sum over its destinations, Mbit/s.
pub fn sum(bounds: &[(String, f64)]) -> f64 {
    bounds.iter().map(|(_, mbps)| mbps).sum()
}

/// Max-flows from one source over one graph.
#[derive(Clone, Debug)]
pub(crate) struct MaxFlow {
    /// `edges[i]` and `edges[i ^ 1]` are there and back.
    edges: Vec<Edge>,
    /// Capacities of the edges while no flow runs.
    capacities: Vec<u64>,
    leaving: Vec<Vec<usize>>,
    /// Per host: its edge to the sink, and what it can receive.
    sinks: Vec<(usize, u64)>,
    source: usize,
    sink: usize,
    start: usize,
    /// Units of integer capacity in 1 Mbit/s.
    scale: f64,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    to: usize,
    left: u64,
}

impl MaxFlow {
    /// Over all of the graph.
    pub(crate) fn new(graph: &Graph, source: usize) -> Self {
        Self::over(graph, &Capacities::new(graph), source)
    }

    /// Over what is left of it.
    pub(crate) fn over(graph: &Graph, capacities: &Capacities, source: usize) -> Self {
        // Entries of all vertices, exits of hosts, the start and the sink.
        let (vertices, hosts) = (graph.vertices(), graph.hosts());
        let (start, sink) = (vertices + hosts, vertices + hosts + 1);
        let exit = |vertex: usize| if vertex < hosts { vertices + vertex } else { vertex };
        let mut flow = Self {
            edges: Vec::new(),
            capacities: Vec::new(),
            leaving: vec![Vec::new(); sink + 1],
            sinks: Vec::new(),
            source,
            sink,
            start,
            scale: scale(graph, capacities),
        };
        let scale = flow.scale;
        let units = |mbps: f64| units(mbps, scale);
        for (index, arc) in graph.arcs().iter().enumerate().filter(|(_, arc)| arc.mbps > 0.0) {
            flow.join(exit(arc.from), arc.to, units(capacities.left(Resource::Arc(index))));
        }
        for host in 0..hosts {
            let Limits { send, receive, total, disk } = capacities.limits(host);
            flow.join(host, exit(host), units(send.min(receive).min(total / 2.0)));
            let edge = flow.join(host, sink, 0);
            flow.sinks.push((edge, units(receive.min(total).min(disk))));
        }
        let Limits { send, total, .. } = capacities.limits(source);
        flow.join(start, exit(source), units(send.min(total)));
        flow.capacities = flow.edges.iter().map(|edge| edge.left).collect();
        flow
    }

    /// The max-flow to `host`, Mbit/s; 0 to the source itself.
    pub(crate) fn to(&mut self, host: usize) -> f64 {
        if host == self.source {
            return 0.0;
        }
        for (edge, &capacity) in self.edges.iter_mut().zip(&self.capacities) {
            edge.left = capacity;
        }
        let (edge, receive) = self.sinks[host];
        self.edges[edge].left = receive;
        let mut total: u64 = 0;
        while let Some(levels) = self.levels() {
            total += self.blocking_flow(&levels);
        }
        total as f64 / self.scale
    }

    fn join(&mut self, from: usize, to: usize, capacity: u64) -> usize {
        let edge = self.edges.len();
        self.edges.push(Edge { to, left: capacity });
        self.edges.push(Edge { to: from, left: 0 });
        self.leaving[from].push(edge);
        self.leaving[to].push(edge + 1);
        edge
    }

    /// Distances from the start over what is left; none when the sink is cut off.
    fn levels(&self) -> Option<Vec<u32>> {
        let mut levels = vec![u32::MAX; self.leaving.len()];
        levels[self.start] = 0;
        let mut queue = VecDeque::from([self.start]);
        while let Some(node) = queue.pop_front() {
            for &edge in &self.leaving[node] {
                let Edge { to, left } = self.edges[edge];
                if left > 0 && levels[to] == u32::MAX {
                    levels[to] = levels[node] + 1;
                    queue.push_back(to);
                }
            }
        }
        (levels[self.sink] != u32::MAX).then_some(levels)
    }

    /// Sends along shortest ways until none is left. A walk with a stack of its own: a chain of thousands of hosts would
    /// overflow the thread's.
    fn blocking_flow(&mut self, levels: &[u32]) -> u64 {
        let mut tried = vec![0_usize; self.leaving.len()];
        let mut way: Vec<usize> = Vec::new();
        let mut total = 0;
        loop {
            let node = way.last().map_or(self.start, |&edge| self.edges[edge].to);
            if node == self.sink {
                let sent = way.iter().map(|&edge| self.edges[edge].left).min().unwrap_or(0);
                for &edge in &way {
                    self.edges[edge].left -= sent;
                    self.edges[edge ^ 1].left += sent;
                }
                total += sent;
                let full = way.iter().position(|&edge| self.edges[edge].left == 0).unwrap_or(0);
                way.truncate(full);
                continue;
            }
            let open = |&edge: &usize| {
                let Edge { to, left } = self.edges[edge];
                left > 0 && levels[to] == levels[node].saturating_add(1)
            };
            let rest = self.leaving[node].get(tried[node]..).unwrap_or(&[]);
            if let Some(skipped) = rest.iter().position(open) {
                tried[node] += skipped;
                way.push(self.leaving[node][tried[node]]);
            } else {
                // A dead end: the edge into it is not tried again in this round.
                let Some(edge) = way.pop() else { return total };
                tried[self.edges[edge ^ 1].to] += 1;
            }
        }
    }
}

/// Units in 1 Mbit/s: a power of two, so that capacities are rounded and never scaled, and so many that all arcs together
/// stay below [`MOST_UNITS`].
fn scale(graph: &Graph, capacities: &Capacities) -> f64 {
    let arcs = (0..graph.arcs().len()).map(|arc| capacities.left(Resource::Arc(arc)));
    let limits = (0..graph.hosts()).map(|host| capacities.limits(host));
    let budgets = limits.flat_map(|limits| [limits.send, limits.receive, limits.total, limits.disk]);
    let greatest = arcs.chain(budgets).filter(|mbps| mbps.is_finite()).fold(0.0, f64::max);
    let count = (graph.arcs().len() + graph.hosts()) as f64;
    if greatest > 0.0 { (MOST_UNITS / (greatest * count)).log2().floor().exp2() } else { 1.0 }
}

/// Capacity as an integer; infinite becomes [`UNLIMITED`].
fn units(mbps: f64, scale: f64) -> u64 {
    if mbps.is_finite() { (mbps * scale).round() as u64 } else { UNLIMITED }
}

#[cfg(test)]
mod tests;
