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

use super::topology::{Graph, Topology};
use baseline::{Baseline, Parent};
use packing::{Capacities, Feeder, Packing};
use problem::Problem;
use stable::Found;

mod asymmetric;
mod baseline;
mod depth_first;
mod error;
mod join;
mod levels;
mod nested;
mod options;
pub(crate) mod packing;
pub(crate) mod problem;
mod replan;
mod rooted;
pub(crate) mod sharing;
pub(crate) mod sources;
mod stable;
mod symmetric;

pub use error::PlanError;
pub use join::join;
pub use nested::{MOST_TREES, is_nested};
pub use options::{Executable, Options, Relay, Strategy};
pub use replan::{Progress, replan};

/// The trees of one broadcast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Where the data is.
    pub source: String,
    /// Other hosts that have all of it, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
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

impl Plan {
    /// The JSON Schema of a plan, as `docs/plan.schema.json` has it.
    pub fn schema() -> schemars::Schema {
        schemars::schema_for!(Self)
    }

    /// What a destination receives over all trees, Mbit/s; 0 for another host.
    pub fn rate_mbps(&self, name: &str) -> f64 {
        let at = self.destinations.binary_search_by(|arrival| arrival.name.as_str().cmp(name));
        at.ok().and_then(|at| self.destinations.get(at)).map_or(0.0, |arrival| arrival.rate_mbps)
    }

    /// The trees as they are carried out. The nested trees of a baseline whose hosts relay from disk are parts of one: its
    /// rate is what the fastest hosts receive, and slower ones behind them are served from disk.
    pub fn carried(&self) -> Vec<Tree> {
        match self.executable {
            Executable::Nested if self.strategy != Strategy::Stable => nested::carried(&self.trees),
            Executable::Nested | Executable::Trees => self.trees.clone(),
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
    let network = sources::joined(topology, source, &options.sources)?;
    if let Some(name) = destinations.iter().find(|name| options.sources.contains(name)) {
        return Err(PlanError::SourceIsDestination { name: name.clone() });
    }
    let graph = Graph::new(&network.topology);
    let capacities = Capacities::beside(&graph, &options.beside);
    let (problem, unreachable) = Problem::new(&graph, capacities, &network.source, destinations)?;
    if !unreachable.is_empty() && !options.partial {
        return Err(PlanError::Unreachable { from: source.to_owned(), to: names(&graph, &unreachable) });
    }
    let found = pack(&problem, options)?;
    let mut plan = assemble(&problem, found.strategy, options, &found.packing);
    network.restore(&mut plan, source);
    plan.optimum_mbps = found.optimum;
    let reached = plan.destinations.len();
    if options.executable == Executable::Nested && !nested::can_be_carried(&plan.carried(), reached) {
        return Err(PlanError::Unsupported { strategy: options.strategy });
    }
    plan.unreachable = options.partial.then(|| names(&graph, &unreachable));
    debug_assert_eq!(super::validity::check_beside(topology, &options.beside, &plan), Ok(()));
    Ok(plan)
}

fn names(graph: &Graph, vertices: &[usize]) -> Vec<String> {
    vertices.iter().map(|&vertex| graph.name(vertex).to_owned()).collect()
}

/// The trees, and what made them.
fn pack(problem: &Problem<'_>, options: &Options) -> Result<Found, PlanError> {
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
    let trees = trees.map(|tree| Tree { rate_mbps: tree.rate, hops: tree.hops.iter().map(hop).collect() });
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
        sources: Vec::new(),
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
