//! How fast does each hop run when all of them run at once?
//!
//! Max-min fair sharing (progressive filling): all hops grow at one pace; when an arc or a budget of a host is full, the
//! hops that use it stay as they are, and with them all that they feed: nobody passes on faster than it receives.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::super::topology::Graph;
use super::packing::{Capacities, Feeder};

/// What a hop can use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Resource {
    Arc(usize),
    Send(usize),
    Receive(usize),
    Total(usize),
    Disk(usize),
}

/// What a hop of `route` uses, with how often: a host on the way receives and sends.
pub(crate) fn uses(graph: &Graph, route: &[usize]) -> Vec<(Resource, u32)> {
    let mut uses = Vec::new();
    for &arc in route {
        let (from, to) = (graph.arcs()[arc].from, graph.arcs()[arc].to);
        uses.push((Resource::Arc(arc), 1));
        for resource in
            [Resource::Send(from), Resource::Total(from), Resource::Receive(to), Resource::Total(to)]
        {
            if capacity(graph, resource).is_finite() {
                uses.push((resource, 1));
            }
        }
    }
    if let Some(&last) = route.last() {
        let disk = Resource::Disk(graph.arcs()[last].to);
        if capacity(graph, disk).is_finite() {
            uses.push((disk, 1));
        }
    }
    // A host on the way is named twice, as head and as tail.
    uses.sort_unstable();
    uses.dedup_by(|(later, more), (first, count)| {
        let same = later == first;
        *count += if same { *more } else { 0 };
        same
    });
    uses
}

/// Capacity of a resource, Mbit/s.
pub(crate) fn capacity(graph: &Graph, resource: Resource) -> f64 {
    match resource {
        Resource::Arc(arc) => graph.arcs()[arc].mbps,
        Resource::Send(host) => graph.limits(host).send,
        Resource::Receive(host) => graph.limits(host).receive,
        Resource::Total(host) => graph.limits(host).total,
        Resource::Disk(host) => graph.limits(host).disk,
    }
}

/// Fair rates of `hops` on what is left, Mbit/s. A hop must come after the one that feeds it.
pub(crate) fn rates(graph: &Graph, capacities: &Capacities, hops: &[Feeder]) -> Vec<f64> {
    let into: HashMap<usize, usize> = hops.iter().enumerate().map(|(index, hop)| (hop.to, index)).collect();
    let demand = |hop: &Feeder| {
        let uses = uses(graph, &hop.route).into_iter();
        Demand {
            uses: uses.map(|(resource, count)| (resource, f64::from(count))).collect(),
            fed_by: into.get(&hop.from).copied().into_iter().collect(),
        }
    };
    fill(&hops.iter().map(demand).collect::<Vec<_>>(), |resource| capacities.left(resource))
}

/// Something that grows with all others until a resource that it uses is full.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Demand {
    /// What it takes of each resource for each 1 that it has grown by; a resource may be listed more than once.
    pub(crate) uses: Vec<(Resource, f64)>,
    /// The demands, by place, that it never grows beyond.
    pub(crate) fed_by: Vec<usize>,
}

/// How far each demand grows, given what there is of each resource. All grow at one pace from 0; who uses a resource that is
/// full stays as it is, and so does everybody who is fed by one that does.
///
/// A resource with growing users is full at the level (what there is - what those that stay use) / (what those that grow use),
/// which rises whenever one of them stays. So a heap of these levels, where one that has risen is put back, gives the order of
/// events: O(U log U) for U uses, and no error adds up from step to step.
pub(crate) fn fill(demands: &[Demand], left: impl Fn(Resource) -> f64) -> Vec<f64> {
    let mut filling = Filling::new(demands, left);
    let mut heap: BinaryHeap<Reverse<(u64, usize)>> = filling
        .shared
        .iter()
        .enumerate()
        .map(|(index, shared)| Reverse((shared.level().to_bits(), index)))
        .collect();
    let mut now = 0.0_f64;
    while let Some(Reverse((bits, index))) = heap.pop() {
        let shared = &filling.shared[index];
        if shared.growing == 0 {
            continue;
        }
        let level = shared.level();
        // The bits of numbers that are not negative are in the order of the numbers.
        if level.to_bits() > bits {
            heap.push(Reverse((level.to_bits(), index)));
            continue;
        }
        if level.is_finite() {
            now = now.max(level);
        }
        for user in std::mem::take(&mut filling.shared[index].users) {
            filling.stop(user, now);
        }
    }
    filling.reached.into_iter().map(|reached| reached.unwrap_or(now)).collect()
}

struct Filling {
    /// For each demand what it uses, as places in `shared`.
    uses: Vec<Vec<(usize, f64)>>,
    /// For each demand those that it feeds.
    feeds: Vec<Vec<usize>>,
    shared: Vec<Shared>,
    /// Where each demand stopped.
    reached: Vec<Option<f64>>,
}

/// A resource while its users grow.
struct Shared {
    /// What there is for those that grow.
    left: f64,
    /// What those that grow take for each 1.
    pace: f64,
    /// Uses by demands that grow.
    growing: usize,
    users: Vec<usize>,
}

impl Shared {
    /// How far all have grown when it is full.
    fn level(&self) -> f64 {
        (self.left / self.pace).max(0.0)
    }
}

impl Filling {
    fn new(demands: &[Demand], left: impl Fn(Resource) -> f64) -> Self {
        let mut places = HashMap::new();
        let mut shared: Vec<Shared> = Vec::new();
        let mut uses: Vec<Vec<(usize, f64)>> = Vec::with_capacity(demands.len());
        let mut feeds = vec![Vec::new(); demands.len()];
        for (user, demand) in demands.iter().enumerate() {
            let mut used: Vec<(usize, f64)> = Vec::with_capacity(demand.uses.len());
            for &(resource, pace) in &demand.uses {
                let place = *places.entry(resource).or_insert_with(|| {
                    shared.push(Shared { left: left(resource), pace: 0.0, growing: 0, users: Vec::new() });
                    shared.len() - 1
                });
                shared[place].pace += pace;
                shared[place].growing += 1;
                shared[place].users.push(user);
                used.push((place, pace));
            }
            uses.push(used);
            for &feeder in &demand.fed_by {
                feeds[feeder].push(user);
            }
        }
        let reached = vec![None; demands.len()];
        Self { uses, feeds, shared, reached }
    }

    /// A demand stops, and with it all that it feeds.
    fn stop(&mut self, demand: usize, now: f64) {
        let mut stack = vec![demand];
        while let Some(demand) = stack.pop() {
            if self.reached[demand].is_some() {
                continue;
            }
            self.reached[demand] = Some(now);
            for &(place, pace) in &self.uses[demand] {
                let shared = &mut self.shared[place];
                shared.left -= pace * now;
                shared.pace -= pace;
                shared.growing -= 1;
            }
            stack.extend(&self.feeds[demand]);
        }
    }
}

#[cfg(test)]
mod tests;
