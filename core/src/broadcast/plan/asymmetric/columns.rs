//! Which trees, at which rates, bring the most into given capacities?
//!
//! Packing trees is a linear programme with a column for each tree of the network: more than can be written down. Column
//! generation (Ford, Fulkerson 1958; Gilmore, Gomory 1961) solves it over those trees that are known ([`Simplex`]), reads the
//! prices of the resources, and asks for a tree that is worth more than it costs ([`Costs::trees`]). When there is none, no
//! packing at all is better: the prices prove it. So up to [`EXACT_UP_TO`] destinations the result is the optimum. With more
//! the search for trees is a heuristic, and so is the result; it is never below that of the trees it began with.
//!
//! **Floors.** The greatest sum may leave a destination without anything. A destination with a floor earns so much for each
//! Mbit/s below it that no other use of any resource is worth as much, so floors that can be met together are met. That is a
//! concave gain, hence still linear: a column for what counts below the floor, limited by the floor and by what arrives.
//!
//! **Work** is counted in operations, not in time, so that a result does not depend on the machine. Where the result would be
//! no proven optimum anyway, the search also ends when many operations gained little.

use std::collections::BTreeSet;

use super::super::packing::{Feeder, PackedTree, Packing};
use super::network::{self, Network};
use super::pricing::{Costs, EXACT_UP_TO};
use super::simplex::{Outcome, Simplex};

/// Pivots between two searches for trees.
const PIVOTS: usize = 400;
/// Operations after which the best rates for given trees are what they are.
const MOST_WORK: usize = 2_000_000_000;
/// The search ends when so many operations, in a row, ...
const PATIENCE: u64 = 200_000_000;
/// ... gained less than this part of what there was.
const LITTLE: f64 = 1e-3;
/// A tree must be worth this much more than it costs, relative to the greatest prize.
const WORTH_ABOVE: f64 = 1e-8;
/// A tree that brings each of its members less than this part of what they receive is rounding error.
const SLOWEST: f64 = 1e-7;

/// How many operations may still be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work(pub(super) u64);

impl Work {
    /// Whether nothing is left.
    pub(super) fn is_spent(self) -> bool {
        self.0 == 0
    }

    /// Whether there is some left after so many more.
    fn spend(&mut self, operations: usize) -> bool {
        self.0 = self.0.saturating_sub(operations as u64);
        !self.is_spent()
    }
}

/// A tree, what it uses of each row per Mbit/s, and whom it reaches, by terminal.
#[derive(Clone, Debug)]
struct Tree {
    hops: Vec<Feeder>,
    uses: Vec<(usize, f64)>,
    members: Vec<usize>,
}

/// A tree as sorted hops: who is fed, by whom, along which arcs.
type Key = Vec<(usize, usize, Vec<usize>)>;

/// The trees that are known.
#[derive(Clone, Debug)]
pub(super) struct Columns<'n> {
    network: &'n Network<'n>,
    trees: Vec<Tree>,
    known: BTreeSet<Key>,
}

/// Rates for the trees that are known.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    /// By tree, Mbit/s.
    rates: Vec<f64>,
    /// What they earn: the sum of what arrives, and what counts below floors.
    pub(super) worth: f64,
    /// Nothing that keeps to the capacities brings more, where that is proven.
    pub(super) optimum: Option<f64>,
}

impl<'n> Columns<'n> {
    pub(super) fn new(network: &'n Network<'n>) -> Self {
        Self { network, trees: Vec::new(), known: BTreeSet::new() }
    }

    /// One more tree; false if it is known, reaches nobody, or uses what nothing is left of.
    pub(super) fn add(&mut self, hops: Vec<Feeder>) -> bool {
        let network = self.network;
        let members = hops.iter().map(|hop| network.terminal(hop.to)).collect::<Option<Vec<usize>>>();
        let Some((members, uses)) = members.filter(|members| !members.is_empty()).zip(network.uses(&hops))
        else {
            return false;
        };
        if network::rate(&uses, &network.left) <= 0.0 {
            return false;
        }
        let mut key: Vec<_> = hops.iter().map(|hop| (hop.to, hop.from, hop.route.clone())).collect();
        key.sort_unstable();
        let new = self.known.insert(key);
        if new {
            self.trees.push(Tree { hops, uses, members });
        }
        new
    }

    /// The best rates for the trees that are known and for those that are found on the way. `floors` by terminal, Mbit/s; 0
    /// is none.
    pub(super) fn generate(&mut self, floors: &[f64], work: &mut Work) -> Rates {
        let mut master = Master::new(self.network, floors);
        let mut loaded = 0;
        // What was gained when that was much more than before, and the work that was left then.
        let mut reached = (0.0, work.0);
        loop {
            for tree in self.trees.iter().skip(loaded) {
                master.load(tree);
            }
            loaded = self.trees.len();
            let pivots = master.simplex.pivots();
            let outcome = master.simplex.run(PIVOTS);
            let solved = (master.simplex.pivots() - pivots) * master.rows * master.rows;
            let found = self.search(&master);
            let more = work.spend(solved + self.effort());
            let gained = master.simplex.gained();
            if gained > reached.0 * (1.0 + LITTLE) {
                reached = (gained, work.0);
            }
            if !more || (!self.exact() && reached.1 - work.0 > PATIENCE) {
                // No more trees: the best rates for those that are loaded.
                master.finish();
                return self.rates(&master, false);
            }
            let done = !found && outcome != Outcome::Stopped;
            if done && !master.simplex.refresh() {
                return self.rates(&master, outcome == Outcome::Optimal && self.exact());
            }
        }
    }

    /// The rates of a master programme that has all known trees but for the latest.
    fn rates(&self, master: &Master, proven: bool) -> Rates {
        let mut rates = master.rates();
        rates.resize(self.trees.len(), 0.0);
        let optimum = (proven && master.floored.is_empty()).then(|| master.simplex.bound());
        Rates { rates, worth: master.simplex.gained(), optimum }
    }

    /// The best rates for some of the trees that are known.
    pub(super) fn among(&self, chosen: &[usize], floors: &[f64], work: &mut Work) -> Rates {
        let master = self.solved(chosen, floors, work);
        let mut rates = vec![0.0; self.trees.len()];
        for (&tree, rate) in chosen.iter().zip(master.rates()) {
            rates[tree] = rate;
        }
        Rates { rates, worth: master.simplex.gained(), optimum: None }
    }

    /// Adds trees that would be worth something beside the chosen ones.
    pub(super) fn search_beside(&mut self, chosen: &[usize], floors: &[f64], work: &mut Work) {
        let master = self.solved(chosen, floors, work);
        work.spend(self.effort());
        self.search(&master);
    }

    fn solved(&self, chosen: &[usize], floors: &[f64], work: &mut Work) -> Master {
        let mut master = Master::new(self.network, floors);
        for &tree in chosen {
            master.load(&self.trees[tree]);
        }
        work.spend(master.finish() * master.rows * master.rows);
        master
    }

    /// Whether the best tree at given prices is found with certainty.
    fn exact(&self) -> bool {
        self.network.size() <= EXACT_UP_TO + 1
    }

    /// Adds trees that are worth more than they cost; whether there was a new one.
    fn search(&mut self, master: &Master) -> bool {
        let prizes = master.prizes(self.network.size());
        let greatest = prizes.iter().copied().fold(0.0, f64::max);
        let costs = Costs::new(self.network, &master.prices());
        let mut found = false;
        for parents in costs.trees(&prizes) {
            if costs.worth(&prizes, &parents) > WORTH_ABOVE * greatest {
                found |= self.add(costs.hops(self.network, &parents));
            }
        }
        found
    }

    /// Operations of one search, about.
    fn effort(&self) -> usize {
        let (size, lines) = (self.network.size(), self.network.lines.len());
        let trees = if self.exact() { (4 * size) << (size - 1) } else { 40 * size * size };
        20 * size * lines + trees
    }

    /// What each terminal receives.
    pub(super) fn received(&self, rates: &Rates) -> Vec<f64> {
        let mut received = vec![0.0; self.network.size()];
        for (tree, rate) in self.trees.iter().zip(&rates.rates) {
            for &member in &tree.members {
                received[member] += rate;
            }
        }
        received
    }

    /// The trees that have a rate, by what they bring, the most first.
    pub(super) fn used(&self, rates: &Rates) -> Vec<usize> {
        let brings = |tree: usize| rates.rates[tree] * self.trees[tree].members.len() as f64;
        let received = self.received(rates);
        let matters = |&tree: &usize| {
            let least =
                self.trees[tree].members.iter().map(|&member| received[member]).fold(f64::INFINITY, f64::min);
            rates.rates[tree] > SLOWEST * least
        };
        let mut used: Vec<usize> = (0..rates.rates.len()).filter(matters).collect();
        used.sort_by(|&a, &b| brings(b).total_cmp(&brings(a)));
        used
    }

    /// How many trees are known.
    pub(super) fn len(&self) -> usize {
        self.trees.len()
    }

    /// The trees that have a rate, the largest first, of equal ones the fastest.
    pub(super) fn packing(&self, rates: &Rates) -> Packing {
        let mut used = self.used(rates);
        used.sort_by(|&a, &b| {
            let sizes = self.trees[b].members.len().cmp(&self.trees[a].members.len());
            sizes.then(rates.rates[b].total_cmp(&rates.rates[a]))
        });
        let tree = |tree: usize| PackedTree { rate: rates.rates[tree], hops: self.trees[tree].hops.clone() };
        Packing { trees: used.into_iter().map(tree).collect() }
    }
}

/// The programme over the trees that are known. Rows: the resources, then for each floor one that limits what counts below
/// it, and one for what arrives. Columns: what counts below each floor, then the trees.
struct Master {
    simplex: Simplex,
    /// Rows of resources, and all.
    resources: usize,
    rows: usize,
    /// Terminals with a floor.
    floored: Vec<usize>,
    /// Per terminal its row of what arrives.
    arrives: Vec<Option<usize>>,
}

impl Master {
    fn new(network: &Network<'_>, floors: &[f64]) -> Self {
        let resources = network.left.len();
        let floored: Vec<usize> = (1..floors.len()).filter(|&terminal| floors[terminal] > 0.0).collect();
        let mut limits = network.left.clone();
        limits.extend(floored.iter().map(|&terminal| floors[terminal]));
        limits.resize(resources + 2 * floored.len(), 0.0);
        let rows = limits.len();
        let mut simplex = Simplex::new(limits);
        let mut arrives = vec![None; network.size()];
        // One Mbit/s of a resource helps at most all others; a tree that helps one below its floor uses at most all lines
        // that a way has.
        let worth = (4 * network.size()) as f64;
        for (index, &terminal) in floored.iter().enumerate() {
            let arrival = resources + floored.len() + index;
            arrives[terminal] = Some(arrival);
            simplex.add(worth, vec![(resources + index, 1.0), (arrival, 1.0)]);
        }
        Self { simplex, resources, rows, floored, arrives }
    }

    fn load(&mut self, tree: &Tree) {
        let mut uses = tree.uses.clone();
        uses.extend(tree.members.iter().filter_map(|&member| Some((self.arrives[member]?, -1.0))));
        self.simplex.add(tree.members.len() as f64, uses);
    }

    /// Pivots to the optimum; how many.
    fn finish(&mut self) -> usize {
        let before = self.simplex.pivots();
        self.simplex.run(MOST_WORK / (self.rows * self.rows).max(1));
        self.simplex.pivots() - before
    }

    /// Rates of the trees that are loaded.
    fn rates(&self) -> Vec<f64> {
        self.simplex.amounts().split_off(self.floored.len())
    }

    /// Prices of the resources.
    fn prices(&self) -> Vec<f64> {
        let mut prices = self.simplex.prices();
        prices.truncate(self.resources);
        prices
    }

    /// What an Mbit/s to each terminal earns.
    fn prizes(&self, size: usize) -> Vec<f64> {
        let prices = self.simplex.prices();
        let mut prizes: Vec<f64> =
            self.arrives.iter().map(|arrives| 1.0 + arrives.map_or(0.0, |row| prices[row])).collect();
        prizes.resize(size, 1.0);
        prizes[0] = 0.0;
        prizes
    }
}

#[cfg(test)]
mod tests;
