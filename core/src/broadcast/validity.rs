//! Can this plan be carried out on this network?
//!
//! Independent of how plans are made: it adds up what the hops of all trees use and compares it with what is there.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::maxflow::MaxFlow;
use super::plan::packing::Capacities;
use super::plan::sharing::{Resource, capacity, uses};
use super::plan::{Hop, Plan, Tree, sources};
use super::topology::{Graph, Topology};

/// Rates may be above a capacity by this part of it: rounding errors of sums.
const TOLERANCE: f64 = 1e-6;

/// What is wrong with a plan. Fields are those of the plan, as in `trees[0].hops[2]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says it")]
pub enum Violation {
    #[error("{field}: `{name}` is no host of the topology")]
    UnknownHost { field: String, name: String },
    #[error("sources: {error}")]
    Sources { error: String },
    #[error("{field}: {value} is no rate")]
    BadRate { field: String, value: f64 },
    #[error("{field}: the tree has no hop")]
    EmptyTree { field: String },
    #[error("{field}: `{from}` sends before it receives; the tree does not lead here from the source")]
    NotFed { field: String, from: String },
    #[error("{field}: `{to}` receives twice in one tree, or is the source")]
    FedTwice { field: String, to: String },
    #[error("{field}: the path does not lead from `{from}` to `{to}`")]
    WrongEnds { field: String, from: String, to: String },
    #[error("{field}: no link leads from `{from}` to `{to}`")]
    Disconnected { field: String, from: String, to: String },
    #[error("{field}: the path visits `{vertex}` twice")]
    Loop { field: String, vertex: String },
    #[error("{resource} can carry {capacity_mbps} Mbit/s, {planned_mbps} are planned")]
    Overload { resource: String, capacity_mbps: f64, planned_mbps: f64 },
    #[error("destinations: `{name}` gets {stated_mbps} Mbit/s, but the hops bring {planned_mbps}")]
    StatedRate { name: String, stated_mbps: f64, planned_mbps: f64 },
    #[error("destinations: the max-flow to `{name}` is {bound_mbps} Mbit/s, not {stated_mbps}")]
    StatedBound { name: String, stated_mbps: f64, bound_mbps: f64 },
    #[error("destinations[{index}]: `{name}` is listed twice, or not by name")]
    Unsorted { index: usize, name: String },
    #[error("{field}: {stated_mbps}, but the destinations sum up to {sum_mbps}")]
    StatedSum { field: &'static str, stated_mbps: f64, sum_mbps: f64 },
}

/// Checks that `plan` keeps to the capacities and budgets of `topology`, that each tree leads from the source to each of
/// its hosts once, along links that exist, and that the stated figures are those of the hops.
pub fn check(topology: &Topology, plan: &Plan) -> Result<(), Violation> {
    check_beside(topology, &[], plan)
}

/// The same for a plan that is carried out while others are: their loads count, and bounds are those of what they leave.
pub fn check_beside(topology: &Topology, others: &[Plan], plan: &Plan) -> Result<(), Violation> {
    let graph = Graph::new(topology);
    let mut load: BTreeMap<Resource, f64> = BTreeMap::new();
    let mut received: HashMap<usize, f64> = HashMap::new();
    for other in others {
        let sources = sources(&graph, other)?;
        for (index, tree) in other.trees.iter().enumerate() {
            check_tree(&graph, &sources, index, tree, &mut load, &mut received)?;
        }
    }
    received.clear();
    let sources = sources(&graph, plan)?;
    for (index, tree) in plan.trees.iter().enumerate() {
        check_tree(&graph, &sources, index, tree, &mut load, &mut received)?;
    }
    for (&resource, &planned_mbps) in &load {
        let capacity_mbps = capacity(&graph, resource);
        if exceeds(planned_mbps, capacity_mbps) {
            return Err(Violation::Overload {
                resource: display(&graph, resource),
                capacity_mbps,
                planned_mbps,
            });
        }
    }
    check_figures(topology, &graph, others, plan, &received)
}

/// All hosts that have the data before.
fn sources(graph: &Graph, plan: &Plan) -> Result<HashSet<usize>, Violation> {
    let first = host(graph, "source", &plan.source);
    let more =
        plan.sources.iter().enumerate().map(|(index, name)| host(graph, &format!("sources[{index}]"), name));
    std::iter::once(first).chain(more).collect()
}

fn check_tree(
    graph: &Graph,
    sources: &HashSet<usize>,
    index: usize,
    tree: &Tree,
    load: &mut BTreeMap<Resource, f64>,
    received: &mut HashMap<usize, f64>,
) -> Result<(), Violation> {
    let field = format!("trees[{index}]");
    if tree.hops.is_empty() {
        return Err(Violation::EmptyTree { field });
    }
    rate(&field, tree.rate_mbps)?;
    let mut fed = sources.clone();
    for (number, hop) in tree.hops.iter().enumerate() {
        let field = format!("{field}.hops[{number}]");
        let (from, to) = (host(graph, &field, &hop.from)?, host(graph, &field, &hop.to)?);
        if !fed.contains(&from) {
            return Err(Violation::NotFed { field, from: hop.from.clone() });
        }
        if !fed.insert(to) {
            return Err(Violation::FedTwice { field, to: hop.to.clone() });
        }
        for (resource, count) in uses(graph, &route(graph, &field, hop)?) {
            *load.entry(resource).or_default() += tree.rate_mbps * f64::from(count);
        }
        *received.entry(to).or_default() += tree.rate_mbps;
    }
    Ok(())
}

/// The arcs of a hop's path.
fn route(graph: &Graph, field: &str, hop: &Hop) -> Result<Vec<usize>, Violation> {
    let field = || format!("{field}.path");
    if hop.path.first() != Some(&hop.from) || hop.path.last() != Some(&hop.to) {
        return Err(Violation::WrongEnds { field: field(), from: hop.from.clone(), to: hop.to.clone() });
    }
    let mut visited = HashSet::new();
    for vertex in &hop.path {
        if !visited.insert(vertex) {
            return Err(Violation::Loop { field: field(), vertex: vertex.clone() });
        }
    }
    let arcs = hop.path.windows(2).map(|ends| {
        let arc = graph.vertex(&ends[0]).zip(graph.vertex(&ends[1]));
        let arc = arc.and_then(|(from, to)| graph.arc_between(from, to));
        arc.ok_or_else(|| Violation::Disconnected {
            field: field(),
            from: ends[0].clone(),
            to: ends[1].clone(),
        })
    });
    arcs.collect()
}

/// The rates and the bound that the plan states.
fn check_figures(
    topology: &Topology,
    graph: &Graph,
    others: &[Plan],
    plan: &Plan,
    received: &HashMap<usize, f64>,
) -> Result<(), Violation> {
    let joined = sources::joined(topology, &plan.source, &plan.sources);
    let joined = joined.map_err(|error| Violation::Sources { error: error.to_string() })?;
    let whole = Graph::new(&joined.topology);
    let source = host(&whole, "source", &joined.source)?;
    let mut flow = MaxFlow::over(&whole, &Capacities::beside(&whole, others), source);
    let (mut bound, mut sum) = (0.0, 0.0);
    for (index, arrival) in plan.destinations.iter().enumerate() {
        let name = || arrival.name.clone();
        let field = format!("destinations[{index}]");
        if index > 0 && plan.destinations[index - 1].name >= arrival.name {
            return Err(Violation::Unsorted { index, name: name() });
        }
        let destination = host(graph, &field, &arrival.name)?;
        rate(&field, arrival.rate_mbps)?;
        let stated_mbps = arrival.rate_mbps;
        let planned_mbps = received.get(&destination).copied().unwrap_or(0.0);
        if differs(stated_mbps, planned_mbps) {
            return Err(Violation::StatedRate { name: name(), stated_mbps, planned_mbps });
        }
        let bound_mbps = flow.to(destination);
        if differs(arrival.bound_mbps, bound_mbps) {
            return Err(Violation::StatedBound { name: name(), stated_mbps: arrival.bound_mbps, bound_mbps });
        }
        bound += bound_mbps;
        sum += planned_mbps;
    }
    for (field, stated_mbps, sum_mbps) in
        [("boundMbps", plan.bound_mbps, bound), ("aggregateMbps", plan.aggregate_mbps, sum)]
    {
        if differs(stated_mbps, sum_mbps) {
            return Err(Violation::StatedSum { field, stated_mbps, sum_mbps });
        }
    }
    let named: HashSet<&str> = plan.destinations.iter().map(|arrival| arrival.name.as_str()).collect();
    let unnamed = received.iter().map(|(&host, &mbps)| (graph.name(host), mbps));
    match unnamed.filter(|(name, _)| !named.contains(name)).min_by_key(|(name, _)| *name) {
        Some((name, planned_mbps)) => {
            Err(Violation::StatedRate { name: name.to_owned(), stated_mbps: 0.0, planned_mbps })
        }
        None => Ok(()),
    }
}

fn host(graph: &Graph, field: &str, name: &str) -> Result<usize, Violation> {
    graph.host(name).ok_or_else(|| Violation::UnknownHost { field: field.to_owned(), name: name.to_owned() })
}

fn rate(field: &str, value: f64) -> Result<(), Violation> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(Violation::BadRate { field: field.to_owned(), value })
    }
}

fn exceeds(value: f64, limit: f64) -> bool {
    value > limit * (1.0 + TOLERANCE)
}

/// Not a number differs from everything.
fn differs(a: f64, b: f64) -> bool {
    let close = (a - b).abs() <= TOLERANCE * a.abs().max(b.abs());
    !close
}

fn display(graph: &Graph, resource: Resource) -> String {
    match resource {
        Resource::Arc(arc) => {
            let arc = graph.arcs()[arc];
            format!("the link from `{}` to `{}`", graph.name(arc.from), graph.name(arc.to))
        }
        Resource::Send(host) => format!("sendMbps of `{}`", graph.name(host)),
        Resource::Receive(host) => format!("receiveMbps of `{}`", graph.name(host)),
        Resource::Total(host) => format!("totalMbps of `{}`", graph.name(host)),
        Resource::Disk(host) => format!("diskMbps of `{}`", graph.name(host)),
    }
}

#[cfg(test)]
mod tests;
