//! What can still be had from what the trees of a packing leave?
//!
//! A tree that does not reach a destination is extended by a hop to it from any of its members, along the widest way over
//! what is left. Where that carries less than the tree, the tree is split: a part of its rate goes to one more host, the rest
//! stays as it was. At the end new trees are walked from the source. Nothing that is there is taken away, so no rate falls.
//!
//! Those who receive least are served first. A pass costs one widest-way search, `O(E log V)`, for each tree and each
//! extension; each extension uses up a resource or completes a tree.

use super::super::packing::{Feeder, PackedTree, Packing};
use super::greedy::{self, Order};
use super::network::Network;

/// An extension must bring this part of the fastest tree.
const LEAST: f64 = 1e-6;
/// Most splits, per destination: trees are cheap, but not free.
const SPLITS_PER_DESTINATION: usize = 4;

/// The packing, and what was added to it.
pub(super) fn repair(network: &Network<'_>, mut packing: Packing) -> Packing {
    let mut left = network.left_by(&packing);
    let fastest = packing.trees.iter().map(|tree| tree.rate).fold(0.0, f64::max);
    let mut splits = SPLITS_PER_DESTINATION * network.size();
    let mut index = 0;
    while index < packing.trees.len() {
        match extension(network, &packing, index, &left) {
            Some((hop, uses, rate)) if rate > LEAST * fastest => {
                let tree = &mut packing.trees[index];
                let whole = rate >= tree.rate;
                if !whole && splits == 0 {
                    index += 1;
                    continue;
                }
                let rate = rate.min(tree.rate);
                network.take(&uses, rate, &mut left);
                let rest = (!whole).then(|| PackedTree { rate: tree.rate - rate, hops: tree.hops.clone() });
                tree.rate = rate;
                tree.hops.push(hop);
                if let Some(rest) = rest {
                    splits -= 1;
                    packing.trees.push(rest);
                }
            }
            _ => index += 1,
        }
    }
    packing.trees.extend(greedy::pack(network, Order::Return, &mut left).trees);
    packing
}

/// A hop, what it uses, and the rate it can have.
type Extension = (Feeder, Vec<(usize, f64)>, f64);

/// The best hop to a destination that a tree does not reach: one that brings the tree's whole rate before others, the
/// destination that receives least before others.
fn extension(network: &Network<'_>, packing: &Packing, index: usize, left: &[f64]) -> Option<Extension> {
    let tree = packing.trees.get(index)?;
    let mut there = vec![false; network.size()];
    there[0] = true;
    for hop in &tree.hops {
        there[network.terminal(hop.to)?] = true;
    }
    let members: Vec<usize> = (0..there.len()).filter(|&terminal| there[terminal]).collect();
    if members.len() == there.len() {
        return None;
    }
    let received = packing.received();
    let ways = network.widest(&members, left);
    let missing = (1..there.len()).filter(|&to| !there[to]);
    let reachable = missing.filter(|&to| ways.cost[network.terminals[to]] < 0.0);
    let rated = reachable.map(|to| {
        let brings = (-ways.cost[network.terminals[to]]).min(tree.rate);
        (to, brings, received.get(&network.host(to)).copied().unwrap_or(0.0))
    });
    let better = |a: (usize, f64, f64), b: (usize, f64, f64)| {
        let order = a.1.total_cmp(&b.1).then(b.2.total_cmp(&a.2));
        if order.is_lt() { b } else { a }
    };
    let (to, _, _) = rated.reduce(better)?;
    let way = network.way(&ways, to);
    let first = network.lines[*way.first()?].from;
    let hop = network.hop(network.terminal_of[first]?, to, &way);
    let uses = network.uses(std::slice::from_ref(&hop))?;
    let rate = network.rate(&uses, left);
    Some((hop, uses, rate))
}

#[cfg(test)]
mod tests;
