//! What do the trees of a plan use, and what do they leave?
//!
//! A [`Packing`] is a set of trees, each with one rate for all its hops, that together keep to the [`Capacities`] of the
//! network. A relay tree whose hops differ in rate ([`Feeders`]: a host keeps its own rate and serves the slower ones behind
//! it from its disk) is the same as nested trees with one rate each: one for each step between two rates
//! ([`Packing::nested`]). So every plan, ours or a baseline, has one form.

use std::collections::BTreeMap;

use super::super::topology::{Graph, Limits};
use super::sharing::{self, Resource, uses};
use super::{Hop, Plan, levels};

/// Two rates are one when they differ by less than this part of the greater one.
pub(super) const SAME: f64 = 1e-9;

/// A destination is starved when it gets less than this share of what `Flat`, fair to all, would give it.
pub(super) const STARVED_BELOW: f64 = 0.25;

/// Hops of nested trees together, at most about this many: some hundred bytes each.
const MOST_HOPS: usize = 400_000;
/// At least so many nested trees are made, where there are as many rates.
const FEWEST_NESTED: usize = 16;

/// One stream between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Feeder {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Arcs on its way, from `from` to `to`; at least one.
    pub(crate) route: Vec<usize>,
}

/// One tree all of whose hops run at one rate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PackedTree {
    /// Mbit/s, above 0.
    pub(crate) rate: f64,
    /// A hop comes after the one that feeds it; each host is fed once.
    pub(crate) hops: Vec<Feeder>,
}

impl PackedTree {
    /// What it brings to all together, Mbit/s.
    pub(crate) fn brings(&self) -> f64 {
        self.rate * self.hops.len() as f64
    }
}

/// Trees that together keep to the capacities that they were packed into.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Packing {
    pub(crate) trees: Vec<PackedTree>,
}

impl Packing {
    /// The nested trees that carry what a relay tree carries from disk: for each step between two of its rates a tree of
    /// the hops that are at least as fast, at the rate of the step. The largest tree comes first. Of more steps than
    /// [`most_nested`] those are kept that lose the least: hosts between two of them get the lower one.
    pub(crate) fn nested(feeders: &Feeders) -> Self {
        let rates: Vec<f64> = feeders.rates.iter().copied().filter(|&rate| rate > 0.0).collect();
        let levels = levels::choose(&rates, most_nested(rates.len()));
        let mut below = 0.0;
        let trees = levels.into_iter().map(|level| {
            let fast = feeders.hops.iter().zip(&feeders.rates).filter(|(_, rate)| **rate >= level);
            let tree = PackedTree { rate: level - below, hops: fast.map(|(hop, _)| hop.clone()).collect() };
            below = level;
            tree
        });
        Self { trees: trees.collect() }
    }

    /// The nested trees of several relay trees.
    pub(crate) fn carrying(trees: &[Feeders]) -> Self {
        Self { trees: trees.iter().flat_map(|tree| Self::nested(tree).trees).collect() }
    }

    /// What each host receives, Mbit/s, by vertex.
    pub(crate) fn received(&self) -> BTreeMap<usize, f64> {
        let mut received = BTreeMap::new();
        for tree in &self.trees {
            for hop in &tree.hops {
                *received.entry(hop.to).or_default() += tree.rate;
            }
        }
        received
    }

    /// What all hosts receive together, Mbit/s; summed in order of size, so that equal sets of rates have equal sums.
    pub(crate) fn sum(&self) -> f64 {
        let mut rates: Vec<f64> = self.received().into_values().collect();
        rates.sort_by(f64::total_cmp);
        rates.iter().sum()
    }
}

/// Most trees that are made of one relay tree of so many hops: as many as it has rates, up to some hundred hops. Beyond, all
/// those trees would be half the square of the hops: gigabytes for ten thousand hosts.
pub(crate) fn most_nested(hops: usize) -> usize {
    (2 * MOST_HOPS / hops.max(1)).max(FEWEST_NESTED)
}

/// What is left of each arc and of each budget, Mbit/s. A budget that is not declared is infinite and stays so.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Capacities {
    arcs: Vec<f64>,
    /// By host.
    limits: Vec<Limits>,
}

impl Capacities {
    /// All of a graph.
    pub(crate) fn new(graph: &Graph) -> Self {
        Self {
            arcs: graph.arcs().iter().map(|arc| arc.mbps).collect(),
            limits: (0..graph.hosts()).map(|host| graph.limits(host)).collect(),
        }
    }

    /// What running plans leave. Links that they use and that are gone cost nothing.
    pub(crate) fn beside(graph: &Graph, plans: &[Plan]) -> Self {
        let mut left = Self::new(graph);
        for tree in plans.iter().flat_map(|plan| &plan.trees) {
            let hop = |hop: &Hop| {
                let ends = hop.path.windows(2).map(|ends| graph.vertex(&ends[0]).zip(graph.vertex(&ends[1])));
                let arcs = ends.filter_map(|ends| ends.and_then(|(from, to)| graph.arc_between(from, to)));
                let route: Vec<usize> = arcs.collect();
                let (from, to) = graph.vertex(&hop.from).zip(graph.vertex(&hop.to))?;
                Some(Feeder { from, to, route })
            };
            let hops = tree.hops.iter().filter_map(hop).collect();
            left.take(graph, &PackedTree { rate: tree.rate_mbps, hops });
        }
        left
    }

    /// What is left of a resource, never below 0; a switch has no budgets to run out of.
    pub(crate) fn left(&self, resource: Resource) -> f64 {
        let limit = |host: usize, of: fn(&Limits) -> f64| self.limits.get(host).map_or(f64::INFINITY, of);
        match resource {
            Resource::Arc(arc) => self.arcs[arc],
            Resource::Send(host) => limit(host, |limits| limits.send),
            Resource::Receive(host) => limit(host, |limits| limits.receive),
            Resource::Total(host) => limit(host, |limits| limits.total),
            Resource::Disk(host) => limit(host, |limits| limits.disk),
        }
    }

    /// What is left of the budgets of a vertex.
    pub(crate) fn limits(&self, vertex: usize) -> Limits {
        self.limits.get(vertex).copied().unwrap_or(Limits::NONE)
    }

    /// The greatest rate at which all of `hops` can run together, Mbit/s; infinite without hops.
    pub(crate) fn rate(&self, graph: &Graph, hops: &[Feeder]) -> f64 {
        let used = used(graph, hops);
        used.iter()
            .map(|(&resource, &count)| self.left(resource) / f64::from(count))
            .fold(f64::INFINITY, f64::min)
    }

    /// Takes what a tree uses. Where rounding would leave less than nothing, nothing is left.
    pub(crate) fn take(&mut self, graph: &Graph, tree: &PackedTree) {
        for (resource, count) in used(graph, &tree.hops) {
            self.add(resource, -tree.rate * f64::from(count));
        }
    }

    /// Whether all trees can run at once, but for rounding.
    pub(crate) fn fits(&self, graph: &Graph, packing: &Packing) -> bool {
        let mut load = Load::new(self);
        for tree in &packing.trees {
            for hop in &tree.hops {
                load.add(graph, &hop.route, tree.rate);
            }
        }
        load.within(self)
    }

    fn add(&mut self, resource: Resource, mbps: f64) {
        let left = match resource {
            Resource::Arc(arc) => self.arcs.get_mut(arc),
            Resource::Send(host) => self.limits.get_mut(host).map(|limits| &mut limits.send),
            Resource::Receive(host) => self.limits.get_mut(host).map(|limits| &mut limits.receive),
            Resource::Total(host) => self.limits.get_mut(host).map(|limits| &mut limits.total),
            Resource::Disk(host) => self.limits.get_mut(host).map(|limits| &mut limits.disk),
        };
        if let Some(left) = left.filter(|left| left.is_finite()) {
            let rest = *left + mbps;
            // What rounding leaves of a resource that is used up is nothing.
            *left = if rest > SAME * *left { rest } else { 0.0 };
        }
    }
}

/// What many hops use together, Mbit/s: as a table, where [`used`] is a list.
#[derive(Debug)]
struct Load {
    arcs: Vec<f64>,
    limits: Vec<Limits>,
}

impl Load {
    fn new(capacities: &Capacities) -> Self {
        let nothing = Limits { send: 0.0, receive: 0.0, total: 0.0, disk: 0.0 };
        Self { arcs: vec![0.0; capacities.arcs.len()], limits: vec![nothing; capacities.limits.len()] }
    }

    fn add(&mut self, graph: &Graph, route: &[usize], rate: f64) {
        for &arc in route {
            self.arcs[arc] += rate;
            if let Some(limits) = self.limits.get_mut(graph.arcs()[arc].from) {
                limits.send += rate;
                limits.total += rate;
            }
            if let Some(limits) = self.limits.get_mut(graph.arcs()[arc].to) {
                limits.receive += rate;
                limits.total += rate;
            }
        }
        let last = route.last().map(|&arc| graph.arcs()[arc].to);
        if let Some(limits) = last.and_then(|host| self.limits.get_mut(host)) {
            limits.disk += rate;
        }
    }

    fn within(&self, capacities: &Capacities) -> bool {
        let fits = |load: f64, capacity: f64| load <= capacity * (1.0 + SAME);
        let limits = self.limits.iter().zip(&capacities.limits);
        self.arcs.iter().zip(&capacities.arcs).all(|(&load, &capacity)| fits(load, capacity))
            && limits.into_iter().all(|(load, limit)| {
                fits(load.send, limit.send)
                    && fits(load.receive, limit.receive)
                    && fits(load.total, limit.total)
                    && fits(load.disk, limit.disk)
            })
    }
}

/// How often the hops together use each resource.
pub(crate) fn used(graph: &Graph, hops: &[Feeder]) -> BTreeMap<Resource, u32> {
    let mut used = BTreeMap::new();
    for hop in hops {
        for (resource, count) in uses(graph, &hop.route) {
            *used.entry(resource).or_default() += count;
        }
    }
    used
}

/// One tree that relays from disk: a host keeps its own rate and serves those behind it from what it has stored, so hops
/// may differ in rate, but none passes on faster than it receives.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Feeders {
    /// In the order of feeding.
    pub(crate) hops: Vec<Feeder>,
    /// Rate of each hop, Mbit/s.
    pub(crate) rates: Vec<f64>,
}

impl Feeders {
    /// Hops with the rates they have when all run at once and share fairly what is left.
    pub(crate) fn new(graph: &Graph, capacities: &Capacities, hops: Vec<Feeder>) -> Self {
        let rates = sharing::rates(graph, capacities, &hops);
        Self { hops, rates }
    }

    /// Summed in order of size, so that equal sets of rates have equal sums.
    pub(crate) fn sum(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates.iter().sum()
    }

    /// What each host receives, Mbit/s, by vertex.
    pub(crate) fn received(&self) -> BTreeMap<usize, f64> {
        self.hops.iter().map(|hop| hop.to).zip(self.rates.iter().copied()).collect()
    }
}

/// Whether somebody who gets something from `fair` receives far less.
pub(crate) fn starves(received: &BTreeMap<usize, f64>, fair: &Feeders) -> bool {
    let mut shares = fair.hops.iter().zip(&fair.rates);
    shares.any(|(hop, share)| received.get(&hop.to).copied().unwrap_or(0.0) < STARVED_BELOW * share)
}
