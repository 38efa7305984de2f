//! What can still be had from what the trees of a packing leave?
//!
//! Each tree gets the rate that is left for it. A tree that does not reach a destination is extended by a hop to it from any
//! of its members, along the widest way over what is left. Where that carries less than the tree, the tree is split: a part of its rate goes to one more host, the rest
//! stays as it was. At the end new trees are walked from the source. Nothing that is there is taken away, so no rate falls.
//!
//! Of hosts to which a tree can be extended at the same rate, the one that receives least is served first. Each extension
//! costs a search for widest ways, `O(E log V)`; it uses up a resource or completes a tree.

use super::super::packing::{Feeder, PackedTree, Packing};
use super::greedy::{self, Order};
use super::network::{self, Network};

/// An extension must bring this part of the fastest tree.
const LEAST: f64 = 1e-6;
/// Most splits, per destination: trees are cheap, but not free.
const SPLITS_PER_DESTINATION: usize = 4;
/// Most searches, times the lines of the network: a part of a second.
const SEARCHED_LINES: usize = 4_000_000;

/// The packing, and what was added to it; trees are added as long as there are fewer than `most`.
pub(super) fn repair(network: &Network<'_>, mut packing: Packing, most: usize) -> Packing {
    packing.trees.retain(|tree| !tree.hops.is_empty());
    let mut left = network.left_by(&packing);
    for tree in &mut packing.trees {
        if let Some(uses) = network.uses(&tree.hops) {
            let more = network::rate(&uses, &left);
            network.take(&uses, more, &mut left);
            tree.rate += more;
        }
    }
    let mut received = network.received(&packing);
    let fastest = packing.trees.iter().map(|tree| tree.rate).fold(0.0, f64::max);
    let splits = most.saturating_sub(packing.trees.len());
    let mut splits = splits.min(SPLITS_PER_DESTINATION * network.size());
    let (mut index, mut searches) = (0, SEARCHED_LINES / network.lines.len().max(1));
    while let Some(tree) = packing.trees.get_mut(index).filter(|_| searches > 0) {
        searches -= 1;
        let found = extension(network, tree, &received, &left).filter(|found| found.rate > LEAST * fastest);
        let Some(found) = found.filter(|found| splits > 0 || found.rate >= tree.rate) else {
            index += 1;
            continue;
        };
        let rate = found.rate.min(tree.rate);
        network.take(&found.uses, rate, &mut left);
        received[found.to] += rate;
        let rest =
            (found.rate < tree.rate).then(|| PackedTree { rate: tree.rate - rate, hops: tree.hops.clone() });
        tree.rate = rate;
        tree.hops.push(found.hop);
        if let Some(rest) = rest {
            splits -= 1;
            packing.trees.push(rest);
        }
    }
    let room = most.saturating_sub(packing.trees.len());
    if room > 0 {
        packing.trees.extend(greedy::pack(network, Order::Return, &mut left).trees.into_iter().take(room));
    }
    packing
}

/// A hop to one more terminal, what it uses, and the rate it can have.
struct Extension {
    to: usize,
    hop: Feeder,
    uses: Vec<(usize, f64)>,
    rate: f64,
}

/// The best hop to a destination that a tree does not reach: the one that brings most, of equal ones that to the destination
/// that receives least.
fn extension(network: &Network<'_>, tree: &PackedTree, received: &[f64], left: &[f64]) -> Option<Extension> {
    let mut there = vec![false; network.size()];
    there[0] = true;
    for hop in &tree.hops {
        there[network.terminal(hop.to)?] = true;
    }
    let members: Vec<usize> = (0..there.len()).filter(|&terminal| there[terminal]).collect();
    if members.len() == there.len() {
        return None;
    }
    let ways = network.widest(&members, left);
    let missing = (1..there.len()).filter(|&to| !there[to]);
    let brings = |to: usize| (-ways.cost[network.terminals[to]]).min(tree.rate);
    let to = missing.filter(|&to| brings(to) > 0.0).reduce(|best, to| {
        let order = brings(to).total_cmp(&brings(best)).then(received[best].total_cmp(&received[to]));
        if order.is_gt() { to } else { best }
    })?;
    let way = network.way(&ways, to);
    let from = network.terminal_of[network.lines[*way.first()?].from]?;
    let hop = network.hop(from, to, &way);
    let uses = network.uses(std::slice::from_ref(&hop))?;
    let rate = network::rate(&uses, left);
    Some(Extension { to, hop, uses, rate })
}

#[cfg(test)]
mod tests;
