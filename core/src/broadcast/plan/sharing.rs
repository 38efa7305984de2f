//! How fast does each hop run when all of them run at once?
//!
//! Max-min fair sharing (progressive filling): all hops grow at one pace; when an arc or a budget of a host is full, the
//! hops that use it stay as they are, and with them all that they feed: nobody passes on faster than it receives.

use std::collections::HashMap;

use super::super::topology::Graph;
use super::packing::{Capacities, Feeder};

/// A resource is full when less than this part of it is left: rounding errors of a sum of thousands of rates.
const FULL_BELOW: f64 = 1e-12;

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
    let mut resources: Vec<Shared> = Vec::new();
    let mut indices = HashMap::new();
    for (hop, feeder) in hops.iter().enumerate() {
        for (resource, count) in uses(graph, &feeder.route) {
            let index = *indices.entry(resource).or_insert_with(|| {
                let capacity = capacities.left(resource);
                resources.push(Shared { left: capacity, capacity, growing: 0, users: Vec::new() });
                resources.len() - 1
            });
            resources[index].growing += count;
            resources[index].users.push((hop, count));
        }
    }
    let mut rates = vec![0.0; hops.len()];
    let mut growing = vec![true; hops.len()];
    let fed_by = fed_by(hops);
    loop {
        let steps = resources.iter().filter(|shared| shared.growing > 0).map(Shared::step);
        // No hop is without an arc: when nothing limits, nothing grows.
        let Some(step) = steps.reduce(f64::min) else { return rates };
        for (rate, _) in rates.iter_mut().zip(&growing).filter(|(_, growing)| **growing) {
            *rate += step;
        }
        let mut stops = vec![false; hops.len()];
        for shared in resources.iter_mut().filter(|shared| shared.growing > 0) {
            // The one that set the step is full by definition, whatever rounding says.
            let full = shared.step() <= step;
            shared.left = (shared.left - step * f64::from(shared.growing)).max(0.0);
            if full || shared.left <= FULL_BELOW * shared.capacity {
                for &(hop, _) in &shared.users {
                    stops[hop] = true;
                }
            }
        }
        for hop in 0..hops.len() {
            if growing[hop] && (stops[hop] || fed_by[hop].is_some_and(|feeder| !growing[feeder])) {
                growing[hop] = false;
            }
        }
        for shared in &mut resources {
            shared.growing =
                shared.users.iter().filter(|(hop, _)| growing[*hop]).map(|(_, count)| count).sum();
        }
    }
}

/// A resource while rates grow.
struct Shared {
    left: f64,
    capacity: f64,
    /// Uses by hops that still grow.
    growing: u32,
    users: Vec<(usize, u32)>,
}

impl Shared {
    /// How much all may grow until it is full.
    fn step(&self) -> f64 {
        self.left / f64::from(self.growing)
    }
}

/// For each hop the one that feeds it; none for those from the source.
fn fed_by(hops: &[Feeder]) -> Vec<Option<usize>> {
    let into: HashMap<usize, usize> = hops.iter().enumerate().map(|(index, hop)| (hop.to, index)).collect();
    hops.iter().map(|hop| into.get(&hop.from).copied()).collect()
}
