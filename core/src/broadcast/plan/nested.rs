//! Which trees can be carried out by one queue of chunks?
//!
//! Those that are *nested*: each reaches only hosts that the larger ones reach, and the largest reaches all. Then whatever a
//! tree has carried when it retires is what its members need no more and all others still need, so it is carried again by
//! the rest, and everybody is served in the end.
//!
//! 1. On a tree: the tree set, exact ([`depth_first`]), nested by its theorem.
//! 2. On any network with symmetric links: the exact packing, where its trees happen to be nested; they are when all
//!    max-flows are equal.
//! 3. Otherwise the greatest sum among: the tree set on a widest spanning tree, at rates that its ways back allow (on that
//!    tree the theorem holds); `Flat`, and chains in several orders, from disk, those that starve nobody. What is chosen
//!    tells its own name; on equal sums it is the tree set.
//!
//! A baseline is carried out as the trees of which its nested ones are parts ([`carried`]): their hosts relay from disk, each
//! at its own rate.
//!
//! O(V² + E) for the spanning tree besides what the methods cost.

use std::collections::BTreeSet;

use super::baseline::chain;
use super::packing::{Feeders, Packing, SAME, starves};
use super::problem::Problem;
use super::rooted::Rooted;
use super::sharing::Resource;
use super::stable::Found;
use super::{Options, PlanError, Strategy, Tree, depth_first, levels, symmetric};

/// Most trees that are carried out: each costs every host a connection and memory.
pub const MOST_TREES: usize = 64;

/// The best plan of nested trees.
pub(super) fn pack(problem: &Problem<'_>, options: &Options) -> Result<Found, PlanError> {
    let most = usize::try_from(options.max_trees).unwrap_or(MOST_TREES);
    let most = if most == 0 { MOST_TREES } else { most.min(MOST_TREES) };
    let stable = |packing| Found { strategy: Strategy::Stable, packing, optimum: None };
    let rates = levels::floor(&problem.bounds, most);
    if let Some(rooted) = &problem.rooted {
        if let Some(packing) = depth_first::pack_fast_first(problem, rooted, &rates) {
            return Ok(stable(packing));
        }
    } else {
        let few = Problem { bounds: rates, ..problem.clone() };
        let carried = |packing: &Packing| {
            packing.trees.len() <= most && is_nested(&members(packing), problem.destinations.len())
        };
        if let Some(packing) = symmetric::pack(&few).filter(carried) {
            return Ok(stable(packing));
        }
    }
    let flat = problem.flat()?;
    let (strategy, feeders) = relay_tree(problem, &flat);
    let enough = feeders.sum() * (1.0 - SAME);
    let fair = |packing: &Packing| packing.sum() >= enough && !starves(&packing.received(), &flat);
    let spanning = spanning(problem, most).filter(fair);
    Ok(spanning.map_or_else(|| Found { strategy, packing: Packing::nested(&feeders), optimum: None }, stable))
}

/// Trees as agents carry them out, where they relay from disk: a tree all of whose hops an earlier one has is a part of it.
/// Such a tree's rate is that of its fastest hosts.
pub(super) fn carried(trees: &[Tree]) -> Vec<Tree> {
    let mut carried: Vec<(BTreeSet<(&str, &str)>, Tree)> = Vec::new();
    for tree in trees {
        let hops: BTreeSet<_> = tree.hops.iter().map(|hop| (hop.from.as_str(), hop.to.as_str())).collect();
        match carried.iter_mut().find(|(whole, _)| hops.is_subset(whole)) {
            Some((_, whole)) => whole.rate_mbps += tree.rate_mbps,
            None => carried.push((hops, tree.clone())),
        }
    }
    carried.into_iter().map(|(_, tree)| tree).collect()
}

/// Whether one queue completes all `destinations` by these trees.
pub(super) fn can_be_carried(trees: &[Tree], destinations: usize) -> bool {
    let members = |tree: &Tree| tree.hops.iter().map(|hop| hop.to.clone()).collect();
    let members: Vec<BTreeSet<String>> = trees.iter().map(members).collect();
    members.len() <= MOST_TREES && is_nested(&members, destinations)
}

fn members(packing: &Packing) -> Vec<BTreeSet<usize>> {
    packing.trees.iter().map(|tree| tree.hops.iter().map(|hop| hop.to).collect()).collect()
}

/// Whether each of these sets is part of all larger ones, and the largest has `all`.
pub fn is_nested<T: Ord>(sets: &[BTreeSet<T>], all: usize) -> bool {
    let mut sets: Vec<&BTreeSet<T>> = sets.iter().collect();
    sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
    sets.first().map_or(0, |set| set.len()) == all && sets.windows(2).all(|pair| pair[1].is_subset(pair[0]))
}

/// The tree set on a widest spanning tree, at rates that no way back is too narrow for.
fn spanning(problem: &Problem<'_>, most: usize) -> Option<Packing> {
    let Problem { graph, capacities, .. } = problem;
    let rooted = problem.rooted.clone().unwrap_or_else(|| widest(problem));
    let bounds = rooted.bounds(graph, capacities);
    let mut back = vec![f64::INFINITY; graph.vertices()];
    for &vertex in &rooted.walk {
        if let (Some(entry), Some(parent)) = (rooted.entry[vertex], rooted.parent(graph, vertex)) {
            back[vertex] = back[parent].min(capacities.left(Resource::Arc(entry ^ 1)));
        }
    }
    // What each can pass on while it receives as much.
    let relays = |host: usize| {
        let limits = capacities.limits(host);
        back[host].min(limits.send).min(limits.total / 2.0)
    };
    let hosts = &problem.destinations;
    let own: Vec<f64> = hosts.iter().map(|&host| bounds[host].min(relays(host))).collect();
    // The last one of each rate need not pass it on: each has what all before it pass on.
    let mut order: Vec<usize> = (0..hosts.len()).collect();
    order.sort_by(|&a, &b| {
        let (bound, relays) = (|at: usize| bounds[hosts[at]], |at: usize| relays(hosts[at]));
        bound(b).total_cmp(&bound(a)).then(relays(b).total_cmp(&relays(a)))
    });
    let (mut shared, mut passed_on) = (own.clone(), f64::INFINITY);
    for at in order {
        let host = hosts[at];
        shared[at] = bounds[host].min(passed_on);
        passed_on = passed_on.min(relays(host));
    }
    [shared, own]
        .iter()
        .filter(|rates| rates.iter().all(|&rate| rate > 0.0))
        .find_map(|rates| depth_first::pack_fast_first(problem, &rooted, &levels::floor(rates, most)))
}

/// The spanning tree on which each vertex has the widest way to the source and back (Prim). Equal widths go by name.
fn widest(problem: &Problem<'_>) -> Rooted {
    let Problem { graph, capacities, source, .. } = problem;
    let arcs = graph.arcs();
    let width = |arc: usize| capacities.left(Resource::Arc(arc)).min(capacities.left(Resource::Arc(arc ^ 1)));
    let mut entry: Vec<Option<usize>> = vec![None; graph.vertices()];
    let mut reached = vec![false; graph.vertices()];
    let mut next = Some(*source);
    while let Some(vertex) = next {
        reached[vertex] = true;
        for &arc in graph.leaving(vertex) {
            let to = arcs[arc].to;
            let wider = entry[to].is_none_or(|known| width(arc) > width(known));
            if !reached[to] && width(arc) > 0.0 && wider {
                entry[to] = Some(arc);
            }
        }
        let open = (0..graph.vertices()).filter(|&vertex| !reached[vertex]);
        let open = open.filter_map(|vertex| entry[vertex].map(|arc| (width(arc), vertex)));
        let best = open.reduce(|best, other| {
            let name = |vertex: usize| graph.name(vertex);
            let wider = best.0.total_cmp(&other.0).then(name(other.1).cmp(name(best.1)));
            if wider.is_lt() { other } else { best }
        });
        next = best.map(|(_, vertex)| vertex);
    }
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); graph.vertices()];
    for vertex in (0..graph.vertices()).rev() {
        if let Some(arc) = entry[vertex] {
            behind[arcs[arc].from].push(vertex);
        }
    }
    for list in &mut behind {
        list.sort_by(|&a, &b| graph.name(b).cmp(graph.name(a)));
    }
    let (mut walk, mut stack) = (Vec::new(), vec![*source]);
    while let Some(vertex) = stack.pop() {
        walk.push(vertex);
        stack.append(&mut behind[vertex]);
    }
    Rooted { walk, entry }
}

/// The greatest sum among `Flat` and chains in several orders, of those that starve nobody. No chain may be possible where
/// links lead one way.
fn relay_tree(problem: &Problem<'_>, flat: &Feeders) -> (Strategy, Feeders) {
    let mut best: Option<(f64, Feeders)> = None;
    for chain in chain::orders(problem).iter().filter_map(|order| chain::in_order(problem, order).ok()) {
        let sum = chain.sum();
        if !starves(&chain.received(), flat) && best.as_ref().is_none_or(|(most, _)| sum > *most) {
            best = Some((sum, chain));
        }
    }
    match best {
        Some((sum, chain)) if sum >= flat.sum() => (Strategy::Chain, chain),
        _ => (Strategy::Flat, flat.clone()),
    }
}

#[cfg(test)]
mod tests;
