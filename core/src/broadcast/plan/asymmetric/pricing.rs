//! Which tree is worth most, when each host that it reaches earns a prize and each Mbit/s of a resource costs a price?
//!
//! The question that column generation asks (`columns`). A tree chooses whom to reach, and for each of them who feeds it; a
//! hop costs its cheapest way. Any tree can be grown host by host, each fed by one that is there, so for up to
//! [`EXACT_UP_TO`] destinations the best of all trees comes out of a dynamic programme over the sets of hosts reached,
//! `O(2^n n)`. Beyond that the question is NP-hard in general (it contains the directed Steiner tree), and two heuristics
//! answer: the cheapest tree to all (`branching`), without the branches that cost more than they earn, again until nothing
//! changes; and growth by the host that is worth most next. Each is `O(n^2)` a round, besides `O(n E log V)` for the ways.

use std::collections::BTreeMap;

use super::super::packing::Feeder;
use super::branching;
use super::network::{Network, Ways};

/// Most destinations for which the best tree is found with certainty.
pub(super) const EXACT_UP_TO: usize = 14;
/// What a line costs besides its price: of ways that cost nothing the shortest are taken.
const TOLL: f64 = 1e-10;
/// Most rounds of the cheapest tree without what is not worth it.
const ROUNDS: usize = 6;

/// A tree over terminals: who feeds each, none for those that it does not reach and for the source.
pub(super) type Parents = Vec<Option<usize>>;

/// What each hop costs.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    size: usize,
    /// `costs[from * size + to]`; infinite to oneself, and where there is no way.
    costs: Vec<f64>,
    ways: Vec<Ways>,
}

impl Costs {
    /// Costs where a unit of each row has its price.
    pub(super) fn new(network: &Network<'_>, prices: &[f64]) -> Self {
        let size = network.size();
        let ways: Vec<Ways> = (0..size).map(|from| network.cheapest(from, prices, TOLL)).collect();
        Self::of_ways(network, ways)
    }

    /// Costs as some ways have them.
    pub(super) fn of_ways(network: &Network<'_>, ways: Vec<Ways>) -> Self {
        let size = network.size();
        let mut costs = vec![f64::INFINITY; size * size];
        for (from, ways) in ways.iter().enumerate() {
            for to in (1..size).filter(|&to| to != from) {
                costs[from * size + to] = ways.cost[network.terminals[to]];
            }
        }
        Self { size, costs, ways }
    }

    fn cost(&self, from: usize, to: usize) -> f64 {
        self.costs[from * self.size + to]
    }

    /// The hops of a tree, each after the one that feeds it.
    pub(super) fn hops(&self, network: &Network<'_>, parents: &Parents) -> Vec<Feeder> {
        let order = feeding_order(parents);
        let hops = order.into_iter().filter_map(|to| Some((parents[to]?, to)));
        hops.map(|(from, to)| network.hop(from, to, &network.way(&self.ways[from], to))).collect()
    }

    /// What a tree earns more than it costs.
    pub(super) fn worth(&self, prizes: &[f64], parents: &Parents) -> f64 {
        let hops = parents.iter().enumerate().filter_map(|(to, from)| Some(((*from)?, to)));
        hops.map(|(from, to)| prizes[to] - self.cost(from, to)).sum()
    }

    /// Trees that are worth something, the best first; those who come after it differ in size or in how they were found.
    /// With at most [`EXACT_UP_TO`] destinations no tree is worth more than the first. `prizes` by terminal.
    pub(super) fn trees(&self, prizes: &[f64]) -> Vec<Parents> {
        let trees = if self.size <= EXACT_UP_TO + 1 { self.all(prizes) } else { self.some(prizes) };
        let mut worth: Vec<(f64, Parents)> =
            trees.into_iter().map(|tree| (self.worth(prizes, &tree), tree)).collect();
        worth.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        worth.dedup_by(|(_, a), (_, b)| a == b);
        worth.into_iter().map(|(_, tree)| tree).collect()
    }

    /// The best tree of each size.
    fn all(&self, prizes: &[f64]) -> Vec<Parents> {
        let destinations = self.size - 1;
        let sets = 1_usize << destinations;
        // Terminal `i + 1` is bit `i`. The cheapest feeder of each terminal within each set; the source feeds all.
        let mut feeders = vec![0_u8; sets * destinations];
        let mut costs = vec![f64::INFINITY; sets];
        let mut last = vec![0_u8; sets];
        costs[0] = 0.0;
        let mut best: BTreeMap<u32, (f64, usize)> = BTreeMap::new();
        for set in 0..sets {
            if set > 0 {
                let newest = set.trailing_zeros() as usize;
                let before = set & (set - 1);
                for to in 0..destinations {
                    let old = feeders[before * destinations + to];
                    let closer = self.cost(newest + 1, to + 1) < self.cost(usize::from(old), to + 1);
                    feeders[set * destinations + to] = if closer { newest as u8 + 1 } else { old };
                }
                let worth = (0..destinations).filter(|bit| set >> bit & 1 == 1).map(|bit| prizes[bit + 1]);
                let worth = worth.sum::<f64>() - costs[set];
                let entry = best.entry(set.count_ones()).or_insert((worth, set));
                if worth > entry.0 {
                    *entry = (worth, set);
                }
            }
            for to in (0..destinations).filter(|to| set >> to & 1 == 0) {
                let feeder = usize::from(feeders[set * destinations + to]);
                let (next, cost) = (set | 1 << to, costs[set] + self.cost(feeder, to + 1));
                if cost < costs[next] {
                    costs[next] = cost;
                    last[next] = to as u8;
                }
            }
        }
        let chosen = best.into_values().filter(|(worth, _)| worth.is_finite());
        chosen.map(|(_, set)| self.grown(set, &last, &feeders)).collect()
    }

    /// The tree that the dynamic programme found for a set.
    fn grown(&self, mut set: usize, last: &[u8], feeders: &[u8]) -> Parents {
        let mut parents = vec![None; self.size];
        while set > 0 {
            let to = usize::from(last[set]);
            set &= !(1 << to);
            parents[to + 1] = Some(usize::from(feeders[set * (self.size - 1) + to]));
        }
        parents
    }

    /// Good trees by heuristics.
    fn some(&self, prizes: &[f64]) -> Vec<Parents> {
        let mut trees = vec![self.pruned(prizes, &self.growth(prizes))];
        let mut members: Vec<usize> = (0..self.size).collect();
        for _ in 0..ROUNDS {
            let Some(all) = self.spanning(&members) else { break };
            let pruned = self.pruned(prizes, &all);
            let reached = (0..self.size).filter(|&terminal| terminal == 0 || pruned[terminal].is_some());
            let reached: Vec<usize> = reached.collect();
            trees.extend([all, pruned]);
            if reached.len() == members.len() || reached.len() == 1 {
                break;
            }
            members = reached;
        }
        let mut last = trees.last().cloned().unwrap_or_default();
        if self.extend(prizes, &mut last) {
            trees.push(last);
        }
        trees
    }

    /// The cheapest tree to all `members`, of which the source is the first; without those that cannot be reached.
    pub(super) fn spanning(&self, members: &[usize]) -> Option<Parents> {
        let size = members.len();
        let mut costs = vec![f64::INFINITY; size * size];
        for (row, &from) in members.iter().enumerate() {
            for (column, &to) in members.iter().enumerate() {
                costs[row * size + column] = self.cost(from, to);
            }
        }
        let chosen = branching::cheapest(costs, size)?;
        let mut parents = vec![None; self.size];
        for (to, from) in chosen.into_iter().enumerate().skip(1) {
            parents[members[to]] = Some(members[from]);
        }
        Some(parents)
    }

    /// Host by host, whoever is worth most next; ends where the tree was worth most.
    fn growth(&self, prizes: &[f64]) -> Parents {
        let mut feeders = vec![0_usize; self.size];
        let mut there = vec![false; self.size];
        let mut grown: Vec<(usize, usize)> = Vec::new();
        let (mut worth, mut best, mut keep) = (0.0, 0.0, 0);
        loop {
            let gain = |to: usize| prizes[to] - self.cost(feeders[to], to);
            let next = (1..self.size)
                .filter(|&to| !there[to] && gain(to) > f64::NEG_INFINITY)
                .reduce(|best, to| if gain(to) > gain(best) { to } else { best });
            let Some(to) = next else { break };
            worth += gain(to);
            grown.push((feeders[to], to));
            if worth > best {
                (best, keep) = (worth, grown.len());
            }
            there[to] = true;
            for (other, feeder) in feeders.iter_mut().enumerate().skip(1) {
                if self.cost(to, other) < self.cost(*feeder, other) {
                    *feeder = to;
                }
            }
        }
        let mut parents = vec![None; self.size];
        for &(from, to) in grown.iter().take(keep) {
            parents[to] = Some(from);
        }
        parents
    }

    /// The tree without the branches that cost more than they earn.
    fn pruned(&self, prizes: &[f64], parents: &Parents) -> Parents {
        let order = feeding_order(parents);
        let mut worth = prizes.to_vec();
        let mut pruned = parents.clone();
        for &to in order.iter().rev() {
            let Some(from) = parents[to] else { continue };
            let branch = worth[to] - self.cost(from, to);
            if branch > 0.0 {
                worth[from] += branch;
            } else {
                pruned[to] = None;
            }
        }
        // What hung on a branch that went goes with it.
        for to in order {
            if pruned[to].is_some_and(|from| from != 0 && pruned[from].is_none()) {
                pruned[to] = None;
            }
        }
        pruned
    }

    /// Adds those that are worth it; whether there were any.
    fn extend(&self, prizes: &[f64], parents: &mut Parents) -> bool {
        let mut extended = false;
        while let Some((from, to)) = self.worthwhile(prizes, parents) {
            parents[to] = Some(from);
            extended = true;
        }
        extended
    }

    fn worthwhile(&self, prizes: &[f64], parents: &Parents) -> Option<(usize, usize)> {
        let there = |terminal: usize| terminal == 0 || parents[terminal].is_some();
        (1..parents.len()).filter(|&to| !there(to)).find_map(|to| {
            let senders = (0..self.size).filter(|&from| there(from));
            let from = senders.reduce(|a, b| if self.cost(b, to) < self.cost(a, to) { b } else { a })?;
            (prizes[to] - self.cost(from, to) > 0.0).then_some((from, to))
        })
    }
}

/// The terminals that a tree reaches, each after the one that feeds it, the nearest to the source first.
fn feeding_order(parents: &Parents) -> Vec<usize> {
    let mut children = vec![Vec::new(); parents.len()];
    for (to, from) in parents.iter().enumerate() {
        if let Some(from) = from {
            children[*from].push(to);
        }
    }
    let mut order = vec![0];
    let mut next = 0;
    while let Some(&from) = order.get(next) {
        order.extend(&children[from]);
        next += 1;
    }
    order.remove(0);
    order
}

#[cfg(test)]
mod tests;
