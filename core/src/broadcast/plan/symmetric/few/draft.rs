//! What can still be made of some trees? Trees with what they leave of each arc.

use super::super::arborescences::NOBODY;
use super::super::model::Model;
use super::super::routed::Forest;
use super::ways::Ways;
use super::{Coins, rates};

/// No tree is halved that is smaller than this part of the greatest rate, unless somebody is slower.
const SMALL: i64 = 64;
/// Most trees whose rates are found together.
const MOST_RATES: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Draft<'a> {
    model: &'a Model,
    ways: &'a Ways,
    pub(super) forest: Forest<'a>,
    /// By physical arc.
    pub(super) left: Vec<i64>,
    /// The destinations, the fastest first.
    hosts: Vec<usize>,
}

impl<'a> Draft<'a> {
    /// The largest `most` trees of a forest.
    pub(super) fn new(model: &'a Model, ways: &'a Ways, mut forest: Forest<'a>, most: usize) -> Self {
        let worth = |members: usize, rate: i64| {
            -(rate / 1024) * i64::try_from(members).unwrap_or(i64::MAX / rate.max(1))
        };
        forest.trees.sort_by_cached_key(|tree| worth(members(&tree.parents), tree.rate));
        forest.trees.truncate(most);
        let mut hosts: Vec<usize> = (0..model.rates.len()).filter(|&host| model.rates[host] > 0).collect();
        hosts.sort_by_key(|&host| (-model.rates[host], host));
        let mut draft = Self { model, ways, forest, left: Vec::new(), hosts };
        draft.recount();
        draft
    }

    /// Counts anew what is left.
    pub(super) fn recount(&mut self) {
        self.left.clone_from(&self.ways.capacities);
        for tree in &self.forest.trees {
            for host in 0..tree.parents.len() {
                for &arc in self.forest.route(tree, host) {
                    self.left[arc] -= tree.rate;
                }
            }
        }
    }

    /// What each vertex receives.
    pub(super) fn received(&self) -> Vec<i64> {
        let mut received = vec![0; self.model.rates.len()];
        for tree in &self.forest.trees {
            for &host in self.hosts.iter().filter(|&&host| tree.parents[host] != NOBODY) {
                received[host] += tree.rate;
            }
        }
        received
    }

    pub(super) fn sum(&self) -> i64 {
        self.received().iter().sum()
    }

    /// How often a tree uses each arc.
    fn uses(&self, index: usize) -> Vec<i64> {
        let tree = &self.forest.trees[index];
        let mut uses = vec![0_i64; self.left.len()];
        for host in 0..tree.parents.len() {
            for &arc in self.forest.route(tree, host) {
                uses[arc] += 1;
            }
        }
        uses
    }

    /// Raises each tree to what is left on its links.
    pub(super) fn raise(&mut self) {
        for index in 0..self.forest.trees.len() {
            let uses = self.uses(index);
            let used = || uses.iter().enumerate().filter(|(_, uses)| **uses > 0);
            let more = used().map(|(arc, uses)| self.left[arc] / uses).min().unwrap_or(0).max(0);
            for (arc, uses) in used() {
                self.left[arc] -= more * uses;
            }
            self.forest.trees[index].rate += more;
        }
    }

    /// Halves trees until there are `most`.
    pub(super) fn change(&mut self, coins: Coins, most: usize) {
        let rates = || self.model.rates.iter().copied().filter(|rate| *rate > 0);
        let (Some(least), Some(greatest)) = (rates().min(), rates().max()) else { return };
        while self.forest.trees.len() < most {
            let by_rate = |&index: &usize| self.forest.trees[index].rate;
            let all = 0..self.forest.trees.len();
            let (Some(smallest), Some(largest)) = (all.clone().min_by_key(by_rate), all.max_by_key(by_rate))
            else {
                return;
            };
            let small = self.forest.trees[smallest].rate <= least.min(greatest / SMALL).max(1);
            let halved = if small || matches!(coins, Coins::Even) { largest } else { smallest };
            let half = self.forest.trees[halved].rate / 2;
            if half == 0 {
                break;
            }
            self.forest.cut(halved, half);
        }
        self.forest.trees.sort_by_key(|tree| -tree.rate);
    }

    /// Each destination joins each tree that it fits into.
    pub(super) fn join(&mut self) {
        let mut order: Vec<usize> = (0..self.forest.trees.len()).collect();
        order.sort_by_key(|&index| (-self.forest.trees[index].rate, index));
        for place in 0..self.hosts.len() {
            for &index in &order {
                self.join_tree(index, self.hosts[place]);
            }
        }
    }

    /// Puts a host into a tree if there is a way that is free for it.
    pub(super) fn join_tree(&mut self, index: usize, host: usize) {
        let tree = &self.forest.trees[index];
        if tree.parents[host] != NOBODY || tree.rate == 0 {
            return;
        }
        let Some(way) = self.ways.find(self.model, tree, host, &self.left) else { return };
        let feeds = way.anchor != host && self.model.stores(way.anchor);
        let next = (!feeds).then(|| tree.passes[way.anchor]);
        let rate = tree.rate;
        self.account(index, next, -rate);
        self.forest.hang(index, host, way.anchor, &way.inward, &way.outward);
        self.account(index, next, rate);
        self.account(index, Some(host), rate);
    }

    fn account(&mut self, index: usize, host: Option<usize>, amount: i64) {
        let Some(host) = host else { return };
        for &arc in self.forest.route(&self.forest.trees[index], host) {
            self.left[arc] -= amount;
        }
    }

    /// Gives the trees the rates that bring the most, none below its floor.
    pub(super) fn rerate(&mut self, floors: &[i64]) {
        let trees = self.forest.trees.len();
        if trees > MOST_RATES || trees != floors.len() {
            return;
        }
        let uses: Vec<Vec<i64>> = (0..trees).map(|index| self.uses(index)).collect();
        let mut rows = Vec::new();
        for &arc in &self.ways.arcs {
            let used: Vec<f64> = uses.iter().map(|uses| uses[arc] as f64).collect();
            if used.iter().any(|&uses| uses > 0.0) {
                let taken: i64 = uses.iter().zip(floors).map(|(uses, floor)| uses[arc] * floor).sum();
                rows.push((used, (self.ways.capacities[arc] - taken) as f64));
            }
        }
        let worth: Vec<f64> = self.forest.trees.iter().map(|tree| members(&tree.parents) as f64).collect();
        let before: Vec<i64> = self.forest.trees.iter().map(|tree| tree.rate).collect();
        let sum = self.sum();
        let more = rates::best(&worth, rows);
        for ((tree, more), floor) in self.forest.trees.iter_mut().zip(more).zip(floors) {
            tree.rate = floor + (more * (1.0 - 1e-12)).max(0.0) as i64;
        }
        self.recount();
        if self.left.iter().any(|&left| left < 0) || self.sum() < sum {
            for (tree, rate) in self.forest.trees.iter_mut().zip(before) {
                tree.rate = rate;
            }
            self.recount();
        }
    }
}

pub(super) fn members(parents: &[usize]) -> usize {
    parents.iter().filter(|&&parent| parent != NOBODY).count()
}
