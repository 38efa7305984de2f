//! What if depth-first trees are added while they reach everybody?
//!
//! Fast Parallel File Replication (Izmailov, Ganguly, Tu: GGF-10, 2004): a depth-first walk over what is left, at the rate
//! that its narrowest resource allows, until a walk misses somebody. Each tree carries a part of the data in proportion to
//! its rate. On a tree network the first walk fills the narrowest link, so there is one tree only.
//!
//! Relays from disk: parts keep their proportions, which were fixed when the data was divided, so a host that receives
//! faster does so in all trees by one factor. All hosts grow by one factor until a resource is full; who uses it stays as it
//! is, and so do those whom it feeds in any of the trees. The factor of nobody is below 1, for the trees fit together.

use std::collections::HashMap;

use super::super::Relay;
use super::super::packing::{Feeders, PackedTree};
use super::super::problem::Problem;
use super::super::sharing::{Demand, fill, uses};
use super::alike;
use super::walk::walk;

pub(super) fn trees(problem: &Problem<'_>, relay: Relay) -> Vec<Feeders> {
    let trees = synchronous(problem);
    match relay {
        Relay::Synchronous => trees.into_iter().map(alike).collect(),
        Relay::Asynchronous => {
            let factors = factors(problem, &trees);
            trees.into_iter().map(|tree| grown(tree, &factors)).collect()
        }
    }
}

fn synchronous(problem: &Problem<'_>) -> Vec<PackedTree> {
    let stores = problem.stores();
    let mut left = problem.capacities.clone();
    let mut trees = Vec::new();
    loop {
        let hops = walk(problem, &left, &stores);
        if hops.is_empty() || hops.len() < problem.destinations.len() {
            return trees;
        }
        let tree = PackedTree { rate: left.rate(problem.graph, &hops), hops };
        left.take(problem.graph, &tree);
        trees.push(tree);
    }
}

/// By how much each host is faster from disk than in lockstep.
fn factors(problem: &Problem<'_>, trees: &[PackedTree]) -> HashMap<usize, f64> {
    let places: HashMap<usize, usize> =
        problem.destinations.iter().enumerate().map(|(place, &host)| (host, place)).collect();
    let mut demands = vec![Demand::default(); places.len()];
    for tree in trees {
        for hop in &tree.hops {
            let demand = &mut demands[places[&hop.to]];
            let used = uses(problem.graph, &hop.route).into_iter();
            demand.uses.extend(used.map(|(resource, count)| (resource, tree.rate * f64::from(count))));
            demand.fed_by.extend(places.get(&hop.from));
        }
    }
    let factors = fill(&demands, |resource| problem.capacities.left(resource));
    // Below 1 by rounding alone.
    problem.destinations.iter().copied().zip(factors.into_iter().map(|factor| factor.max(1.0))).collect()
}

fn grown(tree: PackedTree, factors: &HashMap<usize, f64>) -> Feeders {
    let rates = tree.hops.iter().map(|hop| tree.rate * factors[&hop.to]).collect();
    Feeders { hops: tree.hops, rates }
}
