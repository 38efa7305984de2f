//! Who sends to whom, and how fast?
//!
//! [`plan`] turns a topology into trees of hops. It is deterministic: the same topology gives the same bytes, whatever the
//! order of its hosts, links and destinations. In debug builds every plan passes [`check`](super::validity::check).
//!
//! A tree runs at one rate. A baseline that relays from disk, whose hosts keep their own rates, is written as the nested
//! trees that carry them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::topology::{Graph, Topology, TopologyError};
use baseline::{Baseline, Parent};
use packing::{Capacities, Feeder, Packing};
use problem::Problem;
use stable::Found;

mod asymmetric;
mod baseline;
mod depth_first;
mod levels;
pub(crate) mod packing;
pub(crate) mod problem;
mod rooted;
pub(crate) mod sharing;
mod stable;
mod symmetric;

/// How trees are made.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Every destination at its own best.
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
    /// The destination with the largest bandwidth from the tree is added next, behind the latest of the best parents (Wang
    /// et al. 2007).
    Dijkstra,
    /// The same, behind the earliest of the best parents.
    DijkstraEarliest,
    /// A chain by descending bandwidth from the source.
    Chain,
}

impl std::fmt::Display for Strategy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, formatter)
    }
}

/// How a host passes on what it receives. Our own trees are the same in both; the baselines are not.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Relay {
    /// From disk: a host keeps its own rate, whatever those behind it can take.
    #[default]
    Asynchronous,
    /// With backpressure: a tree moves at the rate of its slowest hop.
    Synchronous,
}

/// What those who carry a plan out can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Executable {
    /// Any number of trees at once.
    #[default]
    Trees,
    /// One tree that relays from disk: see [`Plan::carried`].
    SingleTree,
}

/// What a plan may be like.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How trees are made.
    pub strategy: Strategy,
    /// How hosts pass on.
    pub relay: Relay,
    /// Most trees; 0 is no limit. The baselines know no limit.
    pub max_trees: u32,
    /// Seed of `Random`.
    pub seed: u64,
    /// Destinations that cannot be reached are left out and named, instead of refused.
    pub partial: bool,
    /// What can be carried out.
    pub executable: Executable,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            strategy: Strategy::Stable,
            relay: Relay::Asynchronous,
            max_trees: 16,
            seed: 0,
            partial: false,
            executable: Executable::Trees,
        }
    }
}

/// The trees of one broadcast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Where the data is.
    pub source: String,
    /// What really made the trees.
    pub strategy: Strategy,
    /// How hosts pass on.
    pub relay: Relay,
    /// Sum of the max-flows from the source to each destination, Mbit/s.
    pub bound_mbps: f64,
    /// The largest sum that any plan can reach, Mbit/s, where that was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimum_mbps: Option<f64>,
    /// Sum of the rates of the destinations, Mbit/s.
    pub aggregate_mbps: f64,
    /// How long planning took, milliseconds; for whoever has a clock to fill in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_milliseconds: Option<f64>,
    /// What each destination receives, by name.
    pub destinations: Vec<Arrival>,
    /// Destinations that cannot be reached, by name; only where a partial plan was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<Vec<String>>,
    /// One or several trees from the source; none without destinations.
    pub trees: Vec<Tree>,
    /// What it was made for.
    #[serde(skip)]
    pub executable: Executable,
}

/// What a destination receives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arrival {
    /// The destination.
    pub name: String,
    /// Over all trees, Mbit/s.
    pub rate_mbps: f64,
    /// Its max-flow from the source, Mbit/s: what it would get if it were alone.
    pub bound_mbps: f64,
}

/// Hops that together lead from the source to hosts, all at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tree {
    /// Rate of each hop, Mbit/s.
    pub rate_mbps: f64,
    /// A hop comes after the one that feeds it.
    pub hops: Vec<Hop>,
}

/// One stream between two hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hop {
    /// Who sends.
    pub from: String,
    /// Who receives.
    pub to: String,
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
    #[error("{} cannot be reached from `{from}`; add a link, or leave out what cannot be reached", quoted(.to))]
    Unreachable { from: String, to: Vec<String> },
    #[error("the strategy {strategy} is not offered here; choose Stable, Chain or Flat")]
    Unsupported { strategy: Strategy },
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
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
    /// What a destination receives over all trees, Mbit/s; 0 for another host.
    pub fn rate_mbps(&self, name: &str) -> f64 {
        let at = self.destinations.binary_search_by(|arrival| arrival.name.as_str().cmp(name));
        at.ok().and_then(|at| self.destinations.get(at)).map_or(0.0, |arrival| arrival.rate_mbps)
    }

    /// The trees as they are carried out. Those of a plan for a single tree are all parts of the first, which is that tree:
    /// its rate is what the fastest hosts receive, and slower ones behind them are served from disk.
    pub fn carried(&self) -> Vec<Tree> {
        match (self.executable, self.trees.first()) {
            (Executable::SingleTree, Some(first)) => {
                let rate_mbps = self.trees.iter().map(|tree| tree.rate_mbps).sum();
                vec![Tree { rate_mbps, hops: first.hops.clone() }]
            }
            _ => self.trees.clone(),
        }
    }
}

/// A plan to carry data from `source` to all `destinations`.
pub fn plan(
    topology: &Topology,
    source: &str,
    destinations: &[String],
    options: &Options,
) -> Result<Plan, PlanError> {
    topology.validate_for_planning()?;
    let graph = Graph::new(topology);
    let (problem, unreachable) = Problem::new(&graph, Capacities::new(&graph), source, destinations)?;
    if !unreachable.is_empty() && !options.partial {
        return Err(PlanError::Unreachable { from: source.to_owned(), to: names(&graph, &unreachable) });
    }
    let found = pack(&problem, options)?;
    let mut plan = assemble(&problem, found.strategy, options, &found.packing);
    plan.optimum_mbps = found.optimum;
    plan.unreachable = options.partial.then(|| names(&graph, &unreachable));
    debug_assert_eq!(super::validity::check(topology, &plan), Ok(()));
    Ok(plan)
}

fn names(graph: &Graph, vertices: &[usize]) -> Vec<String> {
    vertices.iter().map(|&vertex| graph.name(vertex).to_owned()).collect()
}

/// The trees, and what made them.
fn pack(problem: &Problem<'_>, options: &Options) -> Result<Found, PlanError> {
    let carried_out = matches!(options.strategy, Strategy::Stable | Strategy::Chain | Strategy::Flat);
    if options.executable == Executable::SingleTree && !carried_out {
        return Err(PlanError::Unsupported { strategy: options.strategy });
    }
    let baseline = match options.strategy {
        Strategy::Stable => return stable::pack(problem, options),
        Strategy::Flat => Baseline::Flat,
        Strategy::Random => Baseline::Random(options.seed),
        Strategy::DepthFirst => Baseline::DepthFirst,
        Strategy::Fpfr => Baseline::Fpfr,
        Strategy::Dijkstra => Baseline::Dijkstra(Parent::Latest),
        Strategy::DijkstraEarliest => Baseline::Dijkstra(Parent::Earliest),
        Strategy::Chain => Baseline::Chain,
    };
    let packing = baseline::pack(problem, baseline, options.relay)?;
    Ok(Found { strategy: options.strategy, packing, optimum: None })
}

/// The plan in names.
fn assemble(problem: &Problem<'_>, strategy: Strategy, options: &Options, packing: &Packing) -> Plan {
    let graph = problem.graph;
    let name = |vertex: usize| graph.name(vertex).to_owned();
    let hop = |feeder: &Feeder| Hop {
        from: name(feeder.from),
        to: name(feeder.to),
        path: std::iter::once(name(feeder.from))
            .chain(feeder.route.iter().map(|&arc| name(graph.arcs()[arc].to)))
            .collect(),
    };
    let trees = packing.trees.iter();
    let trees =
        trees.map(|tree| Tree { rate_mbps: tree.rate, hops: tree.hops.iter().map(hop).collect() });
    let received: BTreeMap<usize, f64> = packing.received();
    let destinations = problem.destinations.iter().zip(&problem.bounds);
    let destinations: Vec<Arrival> = destinations
        .map(|(host, &bound_mbps)| {
            let rate_mbps = received.get(host).copied().unwrap_or(0.0);
            Arrival { name: name(*host), rate_mbps, bound_mbps }
        })
        .collect();
    Plan {
        source: name(problem.source),
        strategy,
        relay: options.relay,
        bound_mbps: problem.bounds.iter().sum(),
        optimum_mbps: None,
        aggregate_mbps: destinations.iter().map(|arrival| arrival.rate_mbps).sum(),
        plan_milliseconds: None,
        destinations,
        unreachable: None,
        trees: trees.collect(),
        executable: options.executable,
    }
}

#[cfg(test)]
mod tests;
