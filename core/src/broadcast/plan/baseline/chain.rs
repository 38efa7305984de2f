//! In which order does a chain visit its hosts?
//!
//! The descending chain: by max-flow from the source, so that no host waits for one slower than itself. Hosts with equal
//! max-flow come in the order of a depth-first walk from the source. So the chain crosses a trunk between two switches once
//! each way, not once for each host: alternating between two sites would share the trunk among many hops. The walk enters
//! first the branch with the widest way back, ties by name: a host with a poor way out comes last.
//!
//! Two things can spoil it, and other orders are offered for them. Where the way out of a host is narrower than the way in
//! (an asymmetric link, a budget for sending and receiving together), those behind it get what it passes on. Where hosts of
//! two sites differ by a little only, strict order alternates between the sites; coarser classes of bandwidth do not.

use super::super::super::topology::{Graph, Limits};
use super::super::PlanError;
use super::super::packing::{Feeder, Feeders};
use super::super::problem::Problem;

/// Hosts whose bandwidths differ by less than about this factor are alike, in the orders by class.
const CLASSES: [f64; 2] = [1.1, 2.0];

/// The descending order.
pub(super) fn descending(problem: &Problem<'_>) -> Vec<usize> {
    Orders::new(problem).by(|_, bound| bound)
}

/// The descending order, then others; none twice.
pub(crate) fn orders(problem: &Problem<'_>) -> Vec<Vec<usize>> {
    let orders = Orders::new(problem);
    let relayed = |host: usize, bound: f64| bound.min(passes_on(problem.graph, host));
    let mut all = vec![orders.by(|_, bound| bound), orders.by(relayed)];
    for factor in CLASSES {
        all.push(orders.by(|host, bound| relayed(host, bound).log(factor).floor()));
    }
    all.push(orders.by(|_, _| 0.0));
    let mut different: Vec<Vec<usize>> = Vec::new();
    for order in all {
        if !different.contains(&order) {
            different.push(order);
        }
    }
    different
}

/// A chain that visits hosts in the order given, relaying from disk.
pub(crate) fn in_order(problem: &Problem<'_>, order: &[usize]) -> Result<Feeders, PlanError> {
    Ok(Feeders::new(problem.graph, &problem.capacities, hops(problem, order)?))
}

/// The hops of a chain that visits hosts in the order given.
pub(super) fn hops(problem: &Problem<'_>, order: &[usize]) -> Result<Vec<Feeder>, PlanError> {
    let senders = std::iter::once(problem.source).chain(order.iter().copied());
    senders.zip(order).map(|(from, &to)| problem.feeder(from, to)).collect()
}

/// The destinations, to be sorted.
struct Orders<'a> {
    problem: &'a Problem<'a>,
    /// When the depth-first walk first sees each vertex; later than all for those it does not see.
    seen: Vec<usize>,
}

impl<'a> Orders<'a> {
    fn new(problem: &'a Problem<'a>) -> Self {
        let mut seen = vec![usize::MAX; problem.graph.vertices()];
        for (position, vertex) in depth_first(problem.graph, problem.source).into_iter().enumerate() {
            seen[vertex] = position;
        }
        Self { problem, seen }
    }

    /// By descending `bandwidth(host, max-flow)`, then as the walk goes.
    fn by(&self, bandwidth: impl Fn(usize, f64) -> f64) -> Vec<usize> {
        let hosts = self.problem.destinations.iter().zip(&self.problem.bounds);
        let mut order: Vec<(usize, f64)> =
            hosts.map(|(&host, &bound)| (host, bandwidth(host, bound))).collect();
        order.sort_by(|(a, a_mbps), (b, b_mbps)| {
            b_mbps.total_cmp(a_mbps).then(self.seen[*a].cmp(&self.seen[*b]))
        });
        order.into_iter().map(|(host, _)| host).collect()
    }
}

/// What a host can pass on of what it receives, Mbit/s: over its links, and by its budgets, of which receiving takes half
/// of the total.
fn passes_on(graph: &Graph, host: usize) -> f64 {
    let links: f64 = graph.leaving(host).iter().map(|&arc| graph.arcs()[arc].mbps).sum();
    let Limits { send, total, .. } = graph.limits(host);
    links.min(send).min(total / 2.0)
}

/// All vertices in the order in which a depth-first walk first sees them.
fn depth_first(graph: &Graph, source: usize) -> Vec<usize> {
    let mut seen = vec![false; graph.vertices()];
    let mut walk = Vec::new();
    let mut stack = vec![source];
    while let Some(vertex) = stack.pop() {
        if std::mem::replace(&mut seen[vertex], true) {
            continue;
        }
        walk.push(vertex);
        let mut branches: Vec<(f64, &str, usize)> = graph
            .leaving(vertex)
            .iter()
            .map(|&arc| graph.arcs()[arc])
            .filter(|arc| !seen[arc.to])
            .map(|arc| {
                let back = graph.arc_between(arc.to, vertex).map_or(0.0, |back| graph.arcs()[back].mbps);
                (arc.mbps.min(back), graph.name(arc.to), arc.to)
            })
            .collect();
        // The last one pushed is entered first.
        branches.sort_by(|(a, a_name, _), (b, b_name, _)| a.total_cmp(b).then(b_name.cmp(a_name)));
        stack.extend(branches.into_iter().map(|(_, _, head)| head));
    }
    walk
}
