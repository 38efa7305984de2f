//! Who sends to whom, and how fast?
//!
//! [`plan`] turns a topology into trees of hops. It is deterministic: the same topology gives the same bytes, whatever the
//! order of its hosts, links and destinations. Every plan passes [`check`](super::validity::check).
//!
//! `Flat` and `Chain` relay from disk: a host that receives faster than its child keeps its own rate and serves the child
//! from what it has stored. Their hops therefore run at different rates; a host never passes on faster than it receives.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::maxflow::MaxFlow;
use super::topology::{Graph, Topology, TopologyError};

mod chain;
pub(crate) mod sharing;

/// How trees are made.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Strategy {
    /// Every destination at its own best: the best of `Flat` and chains in several orders. The plan says which.
    #[default]
    Stable,
    /// The source sends to each destination itself.
    Flat,
    /// A chain in random order.
    Random,
    /// A chain in the order of a depth-first walk.
    DepthFirst,
    /// Depth-first trees, each to all destinations (Izmailov, Ganguly, Tu 2004).
    Fpfr,
    /// The destination with the largest bandwidth from the tree is added next (Wang et al. 2007).
    Dijkstra,
    /// A chain by descending bandwidth from the source.
    Chain,
}

impl std::fmt::Display for Strategy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, formatter)
    }
}

/// What a plan may be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How trees are made.
    pub strategy: Strategy,
    /// Most trees; 0 is no limit. `Chain` and `Flat` are one tree.
    pub max_trees: u32,
    /// Seed of `Random`.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { strategy: Strategy::Stable, max_trees: 16, seed: 0 }
    }
}

/// The trees of one broadcast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// What really made the trees.
    pub strategy: Strategy,
    /// Where the data is.
    pub source: String,
    /// One or several trees from the source; none without destinations.
    pub trees: Vec<Tree>,
    /// What each destination receives over all trees, Mbit/s.
    pub rates: BTreeMap<String, f64>,
    /// Sum of the max-flows from the source to each destination, Mbit/s.
    pub bound_mbps: f64,
}

/// Hops that together lead from the source to hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tree {
    /// Rate of its fastest hop, Mbit/s.
    pub rate_mbps: f64,
    /// A hop comes after the one that feeds it.
    pub hops: Vec<Hop>,
}

/// One stream between two hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hop {
    /// Who sends.
    pub from: String,
    /// Who receives.
    pub to: String,
    /// Planned rate, Mbit/s.
    pub rate_mbps: f64,
    /// The vertices on its way, `from` and `to` included.
    pub path: Vec<String>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says it")]
pub enum PlanError {
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error("the source `{name}` is no host of the topology; name one of its hosts")]
    UnknownSource { name: String },
    #[error("the destination `{name}` is no host of the topology; name one of its hosts")]
    UnknownDestination { name: String },
    #[error("the destination `{name}` is named twice; name it once")]
    DuplicateDestination { name: String },
    #[error("the destination `{name}` is the source; leave it out")]
    SourceIsDestination { name: String },
    #[error("`{to}` cannot be reached from `{from}`; add a link, or leave the destination out")]
    Unreachable { from: String, to: String },
    #[error("the strategy {strategy} is not offered; choose Stable, Chain or Flat")]
    Unsupported { strategy: Strategy },
}

impl PlanError {
    /// One word for reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Topology(_) => "InvalidTopology",
            Self::UnknownSource { .. } => "UnknownSource",
            Self::UnknownDestination { .. } => "UnknownDestination",
            Self::DuplicateDestination { .. } => "DuplicateDestination",
            Self::SourceIsDestination { .. } => "SourceIsDestination",
            Self::Unreachable { .. } => "Unreachable",
            Self::Unsupported { .. } => "UnsupportedStrategy",
        }
    }
}

impl Plan {
    /// Sum of the rates, Mbit/s.
    pub fn aggregate_mbps(&self) -> f64 {
        self.rates.values().sum()
    }
}

/// A plan to carry data from `source` to all `destinations`.
pub fn plan(
    topology: &Topology,
    source: &str,
    destinations: &[String],
    options: &Options,
) -> Result<Plan, PlanError> {
    topology.validate_fields()?;
    let graph = Graph::new(topology);
    let problem = Problem::new(&graph, source, destinations)?;
    let (strategy, feeders) = match options.strategy {
        Strategy::Flat => (Strategy::Flat, problem.flat()?),
        Strategy::Chain => (Strategy::Chain, chain::descending(&problem)?),
        Strategy::Stable => stable(&problem)?,
        strategy @ (Strategy::Random | Strategy::DepthFirst | Strategy::Fpfr | Strategy::Dijkstra) => {
            return Err(PlanError::Unsupported { strategy });
        }
    };
    Ok(problem.assemble(strategy, &feeders))
}

/// A destination is starved when it gets less than this share of what `Flat`, fair to all, would give it.
const STARVED_BELOW: f64 = 0.25;

/// The greatest sum among `Flat` and chains in several orders, of those that starve nobody. A chain on equal sums: it
/// spares the source. No chain may be possible where links lead one way.
fn stable(problem: &Problem<'_>) -> Result<(Strategy, Feeders), PlanError> {
    let flat = problem.flat()?;
    let mut best: Option<(f64, Feeders)> = None;
    for chain in chain::orders(problem).iter().filter_map(|order| chain::in_order(problem, order).ok()) {
        let sum = chain.sum();
        if !chain.starves(&flat) && best.as_ref().is_none_or(|(most, _)| sum > *most) {
            best = Some((sum, chain));
        }
    }
    Ok(match best {
        Some((sum, chain)) if sum >= flat.sum() => (Strategy::Chain, chain),
        _ => (Strategy::Flat, flat),
    })
}

/// What is to be planned, as vertices.
#[derive(Debug)]
pub(crate) struct Problem<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) source: usize,
    /// By name.
    pub(crate) destinations: Vec<usize>,
    /// Max-flow of each destination.
    pub(crate) bounds: Vec<f64>,
}

/// One tree that relays from disk, in the order of feeding.
#[derive(Clone, Debug)]
pub(crate) struct Feeders {
    pub(crate) hops: Vec<Feeder>,
    /// Rate of each hop, Mbit/s.
    pub(crate) rates: Vec<f64>,
}

/// One hop of it.
#[derive(Clone, Debug)]
pub(crate) struct Feeder {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Arcs on its way.
    pub(crate) route: Vec<usize>,
}

impl Feeders {
    /// Hops with the rates they have when all run at once.
    pub(crate) fn new(graph: &Graph, hops: Vec<Feeder>) -> Self {
        let rates = sharing::rates(graph, &hops);
        Self { hops, rates }
    }

    /// Summed in the order of the rates, so that equal sets of rates have equal sums.
    pub(crate) fn sum(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates.iter().sum()
    }

    /// Whether somebody gets far less than from `fair`.
    pub(crate) fn starves(&self, fair: &Self) -> bool {
        let shares: BTreeMap<_, _> = fair.hops.iter().map(|hop| hop.to).zip(&fair.rates).collect();
        let mut received = self.hops.iter().map(|hop| hop.to).zip(&self.rates);
        received.any(|(to, rate)| shares.get(&to).is_some_and(|&share| *rate < STARVED_BELOW * share))
    }
}

impl<'a> Problem<'a> {
    fn new(graph: &'a Graph, source: &str, destinations: &[String]) -> Result<Self, PlanError> {
        let source_vertex =
            graph.host(source).ok_or_else(|| PlanError::UnknownSource { name: source.to_owned() })?;
        let mut names = BTreeSet::new();
        let mut vertices = Vec::with_capacity(destinations.len());
        let mut sorted: Vec<&str> = destinations.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        for name in sorted {
            let owned = || name.to_owned();
            let vertex = graph.host(name).ok_or_else(|| PlanError::UnknownDestination { name: owned() })?;
            if vertex == source_vertex {
                return Err(PlanError::SourceIsDestination { name: owned() });
            }
            if !names.insert(name) {
                return Err(PlanError::DuplicateDestination { name: owned() });
            }
            vertices.push(vertex);
        }
        let mut flow = MaxFlow::new(graph, source_vertex);
        let bounds = vertices.iter().map(|&vertex| flow.to(vertex)).collect();
        Ok(Self { graph, source: source_vertex, destinations: vertices, bounds })
    }

    /// A hop along the shortest way.
    pub(crate) fn feeder(&self, from: usize, to: usize) -> Result<Feeder, PlanError> {
        let name = |vertex: usize| self.graph.name(vertex).to_owned();
        let route = self.graph.route(from, to);
        let route = route.ok_or_else(|| PlanError::Unreachable { from: name(from), to: name(to) })?;
        Ok(Feeder { from, to, route })
    }

    fn flat(&self) -> Result<Feeders, PlanError> {
        let hops = self.destinations.iter().map(|&to| self.feeder(self.source, to));
        Ok(Feeders::new(self.graph, hops.collect::<Result<_, _>>()?))
    }

    fn assemble(&self, strategy: Strategy, feeders: &Feeders) -> Plan {
        let name = |vertex: usize| self.graph.name(vertex).to_owned();
        let hops: Vec<Hop> = feeders
            .hops
            .iter()
            .zip(&feeders.rates)
            .map(|(feeder, &rate_mbps)| {
                let heads = feeder.route.iter().map(|&arc| name(self.graph.arcs()[arc].to));
                Hop {
                    from: name(feeder.from),
                    to: name(feeder.to),
                    rate_mbps,
                    path: std::iter::once(name(feeder.from)).chain(heads).collect(),
                }
            })
            .collect();
        let rates = hops.iter().map(|hop| (hop.to.clone(), hop.rate_mbps)).collect();
        let rate_mbps = feeders.rates.iter().copied().fold(0.0, f64::max);
        let trees = if hops.is_empty() { Vec::new() } else { vec![Tree { rate_mbps, hops }] };
        Plan { strategy, source: name(self.source), trees, rates, bound_mbps: self.bounds.iter().sum() }
    }
}

#[cfg(test)]
mod tests;
