//! Which trees of one rate reach most hosts, where a host may feed several?
//!
//! The walks of `greedy` use each line once in a tree, so that a host feeds at most as many others as it has lines. Where some
//! hosts can send much and others little, that is too few: behind those who send little nobody comes. Here a tree is grown host
//! by host at a given rate: whoever has that much left feeds as often as it can. Those who can pass on most are fed first, as
//! they feed the others; each by the nearest host that has the data, of equally near ones by the one that has most left, by the
//! source last.
//! Either of several rates the one is taken at which the tree brings most; or the rates are the steps between the levels that
//! destinations aim at (`levels`), which leaves all hosts something to pass on to the end. The next tree is grown over what is
//! left.
//!
//! A tree of `n` hosts costs `O(n log n + E)` where most hosts find a feeder on their own switch. That is little enough for
//! ten thousand hosts, for which the column generation is out of reach.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::super::levels;
use super::super::packing::{Feeder, PackedTree, Packing};
use super::network::{self, Network, Ordered};

/// Most trees that are grown, the rejected ones included, times the lines of the network: some seconds.
const GROWN_LINES: usize = 4_000_000;
/// Most rates that are tried for a tree, and least.
const RATES: usize = 24;
const FEWEST_RATES: usize = 4;
/// How often those are tried again whom nobody could feed yet.
const PASSES: usize = 6;
/// A tree that brings less than this part of the best one is not worth the effort.
const SLOWEST: f64 = 1e-4;
/// Steps between levels are lower by this, so that rounding closes no line that is just as wide.
const ROUNDED: f64 = 1.0 - 1e-9;

/// At most `most` trees over all that there is, each at the rate at which it brings the most; with `everybody` the first one
/// is the fastest that reaches all.
pub(super) fn pack(network: &Network<'_>, most: usize, everybody: bool) -> Packing {
    let growths = GROWN_LINES / network.lines.len().max(1);
    let tried = (growths / most.max(1)).clamp(FEWEST_RATES, RATES);
    let mut grown = Grown::new(network);
    for number in 0..most.min(growths / tried) {
        let rates = network.widths(&grown.left, tried);
        let mut trees = rates.iter().rev().filter_map(|&rate| grown.tree(rate));
        let to_all = |tree: &PackedTree| tree.hops.len() + 1 == network.size();
        let first = (number == 0 && everybody).then(|| trees.find(to_all)).flatten();
        let best = first.or_else(|| {
            let trees = rates.iter().filter_map(|&rate| grown.tree(rate));
            trees.reduce(|a, b| if b.brings() > a.brings() { b } else { a })
        });
        if !best.is_some_and(|tree| grown.take(tree)) {
            break;
        }
    }
    grown.packing
}

/// At most `most` trees whose rates are the steps between the levels that lose the least of all max-flows: who could receive
/// more than a level is in all trees up to that.
pub(super) fn by_levels(network: &Network<'_>, most: usize) -> Packing {
    let most = most.min(GROWN_LINES / network.lines.len().max(1)).max(1);
    let mut grown = Grown::new(network);
    let mut below = 0.0;
    for level in levels::choose(&network.problem.bounds, most) {
        let step = (level - below) * ROUNDED;
        if let Some(tree) = grown.tree(step) {
            grown.take(PackedTree { rate: tree.rate.min(step), ..tree });
        }
        below = level;
    }
    grown.packing
}

/// Trees that were grown, and what they leave.
struct Grown<'n> {
    network: &'n Network<'n>,
    steps: Steps,
    left: Vec<f64>,
    packing: Packing,
    most: f64,
}

impl<'n> Grown<'n> {
    fn new(network: &'n Network<'n>) -> Self {
        let (left, packing) = (network.left.clone(), Packing::default());
        Self { network, steps: Steps::new(network), left, packing, most: 0.0 }
    }

    /// One more tree, grown at `rate`; it gets what there is for it, which may be more.
    fn tree(&self, rate: f64) -> Option<PackedTree> {
        let hops = Growth::new(self.network, &self.steps, rate, &self.left).hops();
        let uses = self.network.uses(&hops).filter(|uses| !uses.is_empty())?;
        Some(PackedTree { rate: network::rate(&uses, &self.left), hops })
    }

    /// Adds a tree; false if it brings next to nothing.
    fn take(&mut self, tree: PackedTree) -> bool {
        let worth = tree.brings();
        let Some(uses) = self.network.uses(&tree.hops).filter(|_| worth > SLOWEST * self.most) else {
            return false;
        };
        self.most = self.most.max(worth);
        self.network.take(&uses, tree.rate, &mut self.left);
        self.packing.trees.push(tree);
        true
    }
}

/// Lines into each vertex from vertices that only forward, the widest first.
struct Steps(Vec<Vec<usize>>);

impl Steps {
    fn new(network: &Network<'_>) -> Self {
        let mut steps = vec![Vec::new(); network.leaving.len()];
        for (index, line) in network.lines.iter().enumerate() {
            if network.terminal_of[line.from].is_none() {
                steps[line.to].push(index);
            }
        }
        for lines in &mut steps {
            lines.sort_by(|&a, &b| {
                network.width(b, &network.left).total_cmp(&network.width(a, &network.left))
            });
        }
        Self(steps)
    }
}

/// A tree while it grows.
struct Growth<'n> {
    network: &'n Network<'n>,
    steps: &'n Steps,
    rate: f64,
    left: Vec<f64>,
    /// For each vertex the lines into it from hosts that have the data, the widest first; what was wide may no longer be. The
    /// source's come last.
    offers: Vec<BinaryHeap<(Ordered, Reverse<usize>)>>,
    /// When each vertex was searched last.
    searched: Vec<usize>,
    searches: usize,
    hops: Vec<Feeder>,
}

impl<'n> Growth<'n> {
    fn new(network: &'n Network<'n>, steps: &'n Steps, rate: f64, left: &[f64]) -> Self {
        let vertices = network.leaving.len();
        Self {
            network,
            steps,
            rate,
            left: left.to_vec(),
            offers: vec![BinaryHeap::new(); vertices],
            searched: vec![0; vertices],
            searches: 0,
            hops: Vec::new(),
        }
    }

    fn hops(mut self) -> Vec<Feeder> {
        self.offer(0);
        let mut waiting = self.order();
        for _ in 0..PASSES {
            let before = waiting.len();
            waiting.retain(|&to| !self.feed(to));
            if waiting.is_empty() || waiting.len() == before {
                break;
            }
        }
        self.hops
    }

    /// Those who can receive at the rate, who passes on most first.
    fn order(&self) -> Vec<usize> {
        let network = self.network;
        let passes_on = |to: usize| {
            let lines = network.leaving[network.terminals[to]].iter();
            lines.map(|&line| network.width(line, &self.left)).fold(0.0, f64::max)
        };
        let disk =
            |to: usize| network.disk[network.terminals[to]].map_or(f64::INFINITY, |row| self.left[row]);
        let fit = (1..network.size()).filter(|&to| disk(to) >= self.rate);
        let mut order: Vec<(f64, usize)> = fit.map(|to| (passes_on(to), to)).collect();
        order.sort_by(|(a, a_to), (b, b_to)| b.total_cmp(a).then(a_to.cmp(b_to)));
        order.into_iter().map(|(_, to)| to).collect()
    }

    /// A host has the data.
    fn offer(&mut self, terminal: usize) {
        for &line in &self.network.leaving[self.network.terminals[terminal]] {
            let width = self.network.width(line, &self.left);
            if width >= self.rate {
                // What the source can send, no tree can begin without: others go before it.
                let key = if terminal == 0 { 0.0 } else { width };
                self.offers[self.network.lines[line].to].push((Ordered(key), Reverse(line)));
            }
        }
    }

    /// Feeds a host, if anybody can.
    fn feed(&mut self, to: usize) -> bool {
        let Some(way) = self.way(to) else { return false };
        let network = self.network;
        let Some(from) = way.first().and_then(|&line| network.terminal_of[network.lines[line].from]) else {
            return false;
        };
        let hop = network.hop(from, to, &way);
        // A host on the way sends what it receives: its total is needed twice.
        let Some(uses) = network.uses(std::slice::from_ref(&hop)) else { return false };
        if network::rate(&uses, &self.left) < self.rate {
            return false;
        }
        network.take(&uses, self.rate, &mut self.left);
        self.hops.push(hop);
        self.offer(to);
        true
    }

    /// The shortest way from a host that has the data, over what only forwards, with enough left for the rate.
    fn way(&mut self, to: usize) -> Option<Vec<usize>> {
        self.searches += 1;
        let goal = self.network.terminals[to];
        let mut queue = VecDeque::from([(goal, usize::MAX, usize::MAX)]);
        let mut taken: Vec<(usize, usize)> = Vec::new();
        self.searched[goal] = self.searches;
        while let Some((vertex, line, behind)) = queue.pop_front() {
            // Where the way goes on from here: the line, and the place of the rest of the way.
            let place = if line == usize::MAX {
                usize::MAX
            } else {
                taken.push((line, behind));
                taken.len() - 1
            };
            if let Some(first) = self.best_offer(vertex) {
                let mut way = vec![first];
                let mut at = place;
                while let Some(&(line, behind)) = taken.get(at) {
                    way.push(line);
                    at = behind;
                }
                return Some(way);
            }
            for &line in &self.steps.0[vertex] {
                let from = self.network.lines[line].from;
                if self.searched[from] != self.searches && self.network.width(line, &self.left) >= self.rate {
                    self.searched[from] = self.searches;
                    queue.push_back((from, line, place));
                }
            }
        }
        None
    }

    /// The widest line into a vertex from a host that has the data, if it is wide enough.
    fn best_offer(&mut self, vertex: usize) -> Option<usize> {
        loop {
            let (Ordered(was), Reverse(line)) = *self.offers[vertex].peek()?;
            let width = self.network.width(line, &self.left);
            if width >= self.rate && width >= was {
                return Some(line);
            }
            self.offers[vertex].pop();
            if width >= self.rate {
                self.offers[vertex].push((Ordered(width), Reverse(line)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
