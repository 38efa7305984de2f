//! What would the other ways to broadcast reach on the same network?
//!
//! Each method only says who feeds whom along which way; how fast the hops then run is the same for all of them and depends
//! on the relays ([`Relay`]). Methods that draw one tree let its hops share what they have in common:
//!
//! - *synchronous*: bounded buffers, so that the slowest hop holds up all others. One rate: the least of capacity by number
//!   of uses, over all arcs and budgets.
//! - *asynchronous*: relays store, so that a host receives at its own fair share, but no faster than the one that feeds it
//!   ([`sharing`](super::sharing)).
//!
//! `Flat` has no relays, so both models give the fair shares. `Fpfr` has several trees and sends parts of the data in fixed
//! proportion down each: see [`fpfr`].
//!
//! A hop takes the way that the network would choose ([`Graph::route`](super::super::topology::Graph::route)), but for
//! methods that choose the way themselves, the depth-first ones. A host that a method does not reach gets nothing; the
//! methods that cannot leave one out say that there is no way. With several trees, or with several rates in one tree, the
//! trees of the result are those that carry the rates ([`Packing::nested`]).
//!
//! Sources: Takahashi, Saito, Shibata, Taura: "A Stable Broadcast Algorithm", CCGrid 2008, and those that the methods name.

use super::packing::{Feeder, Feeders, PackedTree, Packing};
use super::problem::Problem;
use super::{PlanError, Relay};

pub(crate) mod chain;
mod depth_first;
mod dijkstra;
mod fpfr;
mod random;
mod walk;

pub(crate) use dijkstra::Parent;

/// Vertices and arcs that one method may look at, in all its searches, when all methods are tried.
const SEARCHED: usize = 50_000_000;

/// A way to broadcast that others have published, or that is obvious.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Baseline {
    /// The source sends to each destination itself.
    Flat,
    /// A chain in an order drawn from this seed.
    Random(u64),
    /// A chain in the order of a depth-first walk.
    DepthFirst,
    /// Depth-first trees, each to all destinations.
    Fpfr,
    /// The destination with the largest bandwidth from the tree is added next.
    Dijkstra(Parent),
    /// A chain by descending bandwidth.
    Chain,
}

/// The trees of a method, each with the rate of every hop, Mbit/s.
///
/// O(N (V + E)) for N destinations and those vertices and links, and O(U log U) for U uses of arcs by hops; `Fpfr` costs a
/// walk of O(V + E) for each tree, of which there are at most as many as arcs and budgets.
pub(crate) fn trees(
    problem: &Problem<'_>,
    baseline: Baseline,
    relay: Relay,
) -> Result<Vec<Feeders>, PlanError> {
    let hops = match baseline {
        Baseline::Flat => return Ok(vec![problem.flat()?]),
        Baseline::Fpfr => return Ok(fpfr::trees(problem, relay)),
        Baseline::Random(seed) => chain::hops(problem, &random::order(problem, seed))?,
        Baseline::DepthFirst => depth_first::hops(problem),
        Baseline::Dijkstra(parent) => dijkstra::hops(problem, parent)?,
        Baseline::Chain => chain::hops(problem, &chain::descending(problem))?,
    };
    Ok(vec![match relay {
        Relay::Synchronous => at_one_rate(problem, hops),
        Relay::Asynchronous => from_disk(problem, hops),
    }])
}

/// The same as trees with one rate each.
pub(crate) fn pack(problem: &Problem<'_>, baseline: Baseline, relay: Relay) -> Result<Packing, PlanError> {
    Ok(Packing::carrying(&trees(problem, baseline, relay)?))
}

/// What every method reaches from disk, and chains in several orders beside them; those that are possible, the greatest sum
/// first. From disk nobody receives less than in lockstep, so who is not below these is below no baseline.
///
/// Of networks with thousands of hosts ([`SEARCHED`]) only the quick methods: depth-first ones and two chains.
pub(crate) fn all(problem: &Problem<'_>, seed: u64) -> Vec<Vec<Feeders>> {
    let mut methods = vec![Baseline::DepthFirst, Baseline::Fpfr];
    // The first order is that of `Chain`.
    let mut orders = chain::orders(problem);
    // A search for each hop.
    if problem.destinations.len() * (problem.graph.vertices() + problem.graph.arcs().len()) <= SEARCHED {
        methods.extend([
            Baseline::Flat,
            Baseline::Random(seed),
            Baseline::Dijkstra(Parent::Latest),
            Baseline::Dijkstra(Parent::Earliest),
        ]);
    } else {
        orders.truncate(2);
    }
    let methods = methods.into_iter().map(|method| trees(problem, method, Relay::Asynchronous));
    let chains = orders.iter().map(|order| Ok(vec![chain::in_order(problem, order)?]));
    let mut all: Vec<(f64, Vec<Feeders>)> =
        methods.chain(chains).filter_map(Result::ok).map(|trees| (sum(&trees), trees)).collect();
    // Equal sums stay in the order of the methods.
    all.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    all.into_iter().map(|(_, trees)| trees).collect()
}

/// What all destinations receive together, Mbit/s.
pub(crate) fn sum(trees: &[Feeders]) -> f64 {
    trees.iter().map(Feeders::sum).sum()
}

fn from_disk(problem: &Problem<'_>, hops: Vec<Feeder>) -> Feeders {
    Feeders::new(problem.graph, &problem.capacities, hops)
}

fn at_one_rate(problem: &Problem<'_>, hops: Vec<Feeder>) -> Feeders {
    let rate = problem.capacities.rate(problem.graph, &hops);
    alike(PackedTree { rate, hops })
}

/// A tree all of whose hops have its rate.
fn alike(PackedTree { rate, hops }: PackedTree) -> Feeders {
    Feeders { rates: vec![rate; hops.len()], hops }
}

#[cfg(test)]
mod tests;
