//! Which trees bring the most where links differ by direction, or hosts have budgets?
//!
//! There a plan that brings every destination its own max-flow need not exist, and the best one is hard to find in general.
//! What is done:
//!
//! 1. **Start**: walks in several orders (`greedy`), trees in which a host feeds several (`growth`), the baselines that the
//!    caller brings, each with what can still be had from what it leaves (`repair`). None of them is good everywhere: a walk
//!    puts a whole branch behind a poor host, a chain has one order for all rates, and trees that grow take the ways that are
//!    wide first.
//! 2. **Improve**: all their trees together are the first columns of a column generation (`columns`), so its result is at
//!    least the best of them. Up to 14 destinations it is the optimum, and proven to be.
//! 3. **Nobody starves**: who would receive less than [`SHARE`] of what they get when the source sends to each destination
//!    itself, fairly, gets a floor of that much; but no more than the best baseline gives them, so that the result stays at
//!    least as good as that.
//! 4. **Few trees**: see `fewer`.
//!
//! The master programme is dense: `O(R^2)` memory for `R` resources. Above [`MOST_ROWS`] the best start is taken as it is. All
//! work is counted in operations: some seconds for ten thousand hosts.

use std::cmp::Reverse;

use super::packing::{Feeders, PackedTree, Packing};
use super::problem::Problem;
use columns::{Columns, Rates, Work};
use fewer::fewer;
use greedy::{ORDERS, Order};
use network::{Network, Ordered};
use pricing::EXACT_UP_TO;
use repair::repair;

mod branching;
mod columns;
mod fewer;
mod greedy;
mod growth;
mod network;
#[cfg(test)]
mod optimum;
mod pricing;
mod repair;
mod simplex;

/// The part of its fair share below which a destination counts as starved.
pub(crate) const SHARE: f64 = 0.1;
/// Most resources for which columns are generated.
const MOST_ROWS: usize = 1600;
/// Operations of a whole plan: some seconds.
const WORK: u64 = 1_500_000_000;

/// Nothing is improved that has this part of the sum of the max-flows: without a limit on trees, and with one.
const ENOUGH: f64 = 1.0 - 1e-7;
const FEW_ARE_ENOUGH: f64 = 0.97;
/// Most baselines that are improved on: the best ones.
pub(crate) const BASELINES: usize = 3;
/// Of that many starts it is tried what can be had from what they leave; of all where the network is small.
const REPAIRED: usize = 4;

/// A packing, and the greatest sum that any packing can have, where that is proven.
#[derive(Clone, Debug)]
pub(crate) struct Best {
    pub(crate) packing: Packing,
    pub(crate) optimum: Option<f64>,
}

/// The best trees that are found; at most `max_trees` of them, 0 is no limit. Without a limit the sum is at least that of
/// each of `baselines`, whose trees are packings of the same problem.
pub(crate) fn pack(problem: &Problem<'_>, mut baselines: Vec<Packing>, max_trees: usize) -> Best {
    if problem.destinations.is_empty() {
        return Best { packing: Packing::default(), optimum: Some(0.0) };
    }
    baselines.sort_by(|a, b| b.sum().total_cmp(&a.sum()));
    baselines.truncate(BASELINES);
    let network = Network::new(problem);
    let fair = fair(&network);
    let floors = floors(&network, &fair, &baselines);
    let large = network.left.len() > MOST_ROWS;
    let mut starts = walks(&network, if large { &ORDERS[..1] } else { &ORDERS }, max_trees);
    starts.extend(grown(&network, max_trees));
    starts.extend(baselines);
    let start = best_start(&network, &mut starts, &floors, max_trees);
    let bound: f64 = problem.bounds.iter().sum();
    let enough = if max_trees > 0 { FEW_ARE_ENOUGH } else { ENOUGH };
    let done = network.size() > EXACT_UP_TO + 1 && start.sum() >= enough * bound;
    if done || large {
        return Best { packing: start, optimum: None };
    }
    let mut columns = Columns::new(&network);
    columns.add(network.spanning());
    for tree in starts.into_iter().chain([fair]).flat_map(|packing| packing.trees) {
        columns.add(tree.hops);
    }
    let (rates, optimum) = generated(&mut columns, &floors, max_trees);
    let most = if max_trees == 0 { usize::MAX } else { max_trees };
    let packing = repair(&network, beside(&network, columns.packing(&rates), Vec::new()), most);
    let packing = served(&network, packing, &floors, max_trees);
    // If the work did not suffice, or for rounding.
    let packing = if start.sum() > packing.sum() { start } else { packing };
    Best { packing, optimum }
}

/// Rates for the best trees, at most `max_trees`, that starve nobody, and the optimum where it is proven.
fn generated(columns: &mut Columns<'_>, floors: &[f64], max_trees: usize) -> (Rates, Option<f64>) {
    let nothing = vec![0.0; floors.len()];
    let free = columns.generate(&nothing, &mut Work(WORK));
    let optimum = free.optimum;
    let (mut rates, mut needed) = (free, nothing);
    let mut work = Work(WORK / 2);
    // A floor for one may push another below its own.
    while let Some(more) = starved(columns, &rates, floors, &needed) {
        needed = more;
        rates = columns.generate(&needed, &mut work);
    }
    if max_trees > 0 && columns.used(&rates).len() > max_trees {
        rates = fewer(columns, &rates, max_trees, floors, &mut Work(WORK / 4));
    }
    (rates, optimum)
}

/// The source sends to each destination itself, along the widest way, and all share fairly: a tree for each.
fn fair(network: &Network<'_>) -> Packing {
    let problem = network.problem;
    let ways = network.widest(&[0], &network.left);
    let reached = (1..network.size()).filter(|&to| ways.cost[network.terminals[to]] < 0.0);
    let hops = reached.map(|to| network.hop(0, to, &network.way(&ways, to))).collect();
    let Feeders { hops, rates } = Feeders::new(problem.graph, &problem.capacities, hops);
    let trees = hops.into_iter().zip(rates).filter(|(_, rate)| *rate > 0.0);
    Packing { trees: trees.map(|(hop, rate)| PackedTree { rate, hops: vec![hop] }).collect() }
}

/// What no destination should be below, by terminal, Mbit/s; the best baselines meet it, unless they starve somebody.
fn floors(network: &Network<'_>, fair: &Packing, baselines: &[Packing]) -> Vec<f64> {
    let mut floors: Vec<f64> = network.received(fair).into_iter().map(|mbps| SHARE * mbps).collect();
    for baseline in baselines {
        for (floor, mbps) in floors.iter_mut().zip(network.received(baseline)) {
            if mbps > 0.0 {
                *floor = floor.min(mbps);
            }
        }
    }
    floors
}

/// The floors that are needed so that nobody is below theirs, if that is more than there are.
fn starved(columns: &Columns<'_>, rates: &Rates, floors: &[f64], needed: &[f64]) -> Option<Vec<f64>> {
    let received = columns.received(rates);
    let below = |terminal: usize| received[terminal] < floors[terminal] * (1.0 - 1e-6);
    let more: Vec<f64> = (0..floors.len())
        .map(|terminal| if needed[terminal] > 0.0 || below(terminal) { floors[terminal] } else { 0.0 })
        .collect();
    (more != needed).then_some(more)
}

/// Packings that walks find: those of few trees first, where they are to be few.
fn walks(network: &Network<'_>, orders: &[Order], max_trees: usize) -> Vec<Packing> {
    let few = orders.iter().filter(|_| max_trees > 0);
    let few = few.map(|&order| greedy::pack_few(network, order, max_trees));
    let all = orders.iter().map(|&order| greedy::pack(network, order, &mut network.left.clone()));
    few.chain(all).collect()
}

/// Packings of trees that grow: by levels, at the best rates, and so with a first one to all.
fn grown(network: &Network<'_>, max_trees: usize) -> Vec<Packing> {
    let most = if max_trees == 0 { network.most_trees() } else { max_trees };
    vec![
        growth::by_levels(network, most),
        growth::pack(network, most, false),
        growth::pack(network, most, true),
    ]
}

/// The start with the greatest sum, within a limit of trees. The best of `starts` are repaired, there too, and come first.
/// Where it starves somebody, a part of everything goes to one tree to all instead.
fn best_start(network: &Network<'_>, starts: &mut [Packing], floors: &[f64], max_trees: usize) -> Packing {
    let most = if max_trees == 0 { usize::MAX } else { max_trees };
    let starves =
        |packing: &Packing| network.received(packing).iter().zip(floors).any(|(mbps, floor)| mbps < floor);
    let worth = |packing: &Packing| packing.sum() * if starves(packing) { 1.0 - SHARE } else { 1.0 };
    let repaired = if network.size() <= EXACT_UP_TO + 1 { starts.len() } else { REPAIRED };
    starts.sort_by_cached_key(|packing| Reverse(Ordered(worth(&largest(packing.clone(), most)))));
    for packing in starts.iter_mut().take(repaired) {
        *packing = repair(network, std::mem::take(packing), usize::MAX);
    }
    let few = starts.iter().take(repaired).map(|packing| match packing.trees.len() {
        count if count > most => repair(network, largest(packing.clone(), most), most),
        _ => packing.clone(),
    });
    let served = few.map(|packing| served(network, packing, floors, max_trees));
    let rated = served.map(|packing| (packing.sum(), packing));
    let best = rated.reduce(|a, b| if b.0 > a.0 { b } else { a });
    best.map(|(_, packing)| packing).unwrap_or_default()
}

/// A packing in which nobody is below their floor: where somebody is, a part of what others have goes to them.
fn served(network: &Network<'_>, packing: Packing, floors: &[f64], max_trees: usize) -> Packing {
    let received = network.received(&packing);
    let below: Vec<usize> =
        (1..floors.len()).filter(|&to| received[to] < floors[to] * (1.0 - 1e-6)).collect();
    if below.is_empty() {
        return packing;
    }
    if max_trees > 0 && packing.trees.len() + below.len() > max_trees {
        return shared(network, packing, floors, max_trees);
    }
    // Each from the source: floors are a part of what all can have so at once.
    let ways = network.widest(&[0], &network.left);
    let trees = below.into_iter().map(|to| {
        let hops = vec![network.hop(0, to, &network.way(&ways, to))];
        PackedTree { rate: floors[to], hops }
    });
    beside(network, packing, trees.collect())
}

/// A packing, and beside it other trees; its own that use what these need are as much slower, as are those that use more than
/// there is: the tolerances of a programme belong to its largest row, which may be a million times the least.
fn beside(network: &Network<'_>, mut packing: Packing, trees: Vec<PackedTree>) -> Packing {
    let uses = |tree: &PackedTree| network.uses(&tree.hops).unwrap_or_default();
    let load = |trees: &[PackedTree]| {
        let mut load = vec![0.0; network.left.len()];
        for tree in trees {
            for (row, count) in uses(tree) {
                load[row] += tree.rate * count;
            }
        }
        load
    };
    let (new, old) = (load(&trees), load(&packing.trees));
    let part = |row: usize| {
        let there = (network.left[row] - new[row]).max(0.0);
        if old[row] > there { there / old[row] } else { 1.0 }
    };
    for tree in &mut packing.trees {
        tree.rate *= uses(tree).into_iter().map(|(row, _)| part(row)).fold(1.0, f64::min);
    }
    packing.trees.retain(|tree| tree.rate > 0.0);
    packing.trees.extend(trees);
    packing
}

/// At most `most` trees, one of them to all, with as much of everything as those need who are below their floors.
fn shared(network: &Network<'_>, packing: Packing, floors: &[f64], most: usize) -> Packing {
    let mut trees = growth::pack(network, 1, true).trees;
    trees.retain(|tree| tree.hops.len() + 1 == network.size());
    let all = trees.pop().or_else(|| {
        let hops = network.spanning();
        let rate = network::rate(&network.uses(&hops)?, &network.left);
        Some(PackedTree { rate, hops })
    });
    let Some(all) = all.filter(|all| all.rate > 0.0) else { return packing };
    let packing = largest(packing, most - 1);
    let received = network.received(&packing);
    let below = received.iter().zip(floors).filter(|(mbps, floor)| mbps < floor).map(|(_, floor)| *floor);
    let rate = below.fold(0.0, f64::max).min(SHARE * all.rate);
    beside(network, packing, vec![PackedTree { rate, ..all }])
}

/// The trees that bring most.
fn largest(mut packing: Packing, most: usize) -> Packing {
    if packing.trees.len() > most {
        packing.trees.sort_by(|a, b| b.brings().total_cmp(&a.brings()));
        packing.trees.truncate(most);
    }
    packing
}

#[cfg(test)]
mod tests;
