//! What comes of a plan in simulated time? `gridcast simulate`, and its JSON (docs/simulate.schema.json).

use std::{collections::BTreeMap, process::ExitCode};

use clap::ValueEnum as _;
use gridcast_core::broadcast::{
    plan::{Plan, Relay, Strategy},
    simulate::{self, Fault, FaultKind, LinkBytes, Moment, NodeOutcome, Settings, SimulateError},
    topology::Topology,
};
use serde::Serialize;

use crate::{args, failure::Failure, topology};

use super::{chart, destinations, json, options, percent, planned, print, strategy, summary, word};

/// Longest time that is simulated: hops are looked at twice in each second of it.
const MOST_SECONDS: f64 = 1e7;

/// All that was simulated.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Simulation {
    pub(super) size_bytes: u64,
    /// What the destinations could receive if each were alone, together.
    pub(super) bound_mbps: f64,
    pub(super) strategies: Vec<Carried>,
    pub(super) source: String,
    pub(super) faults: Vec<FaultAt>,
}

/// A plan that was carried out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Carried {
    pub(super) strategy: Strategy,
    pub(super) relay: Relay,
    pub(super) aggregate_mbps: f64,
    /// Until the last host had everything.
    pub(super) seconds: f64,
    pub(super) duplicate_bytes: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) wasted_bytes: u64,
    pub(super) chunk_bytes: u64,
    pub(super) plans: u64,
    pub(super) links: Vec<Traffic>,
    pub(super) timeline: Vec<Happened>,
}

/// A destination, or a host that joined.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node {
    pub(super) name: String,
    /// Null where it does not have everything.
    pub(super) seconds: Option<f64>,
    pub(super) rate_mbps: f64,
    pub(super) planned_mbps: f64,
    /// Of a host that the first plan reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound_mbps: Option<f64>,
    /// When it joined, since the beginning; only of a host that the first plan does not reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) joined_seconds: Option<f64>,
    /// Why it does not have everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<String>,
}

/// What a link carried.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Traffic {
    a: String,
    b: String,
    bytes: u64,
    back_bytes: u64,
}

/// Something that happened.
#[derive(Debug, Serialize)]
pub(super) struct Happened {
    pub(super) seconds: f64,
    pub(super) what: String,
}

/// Something that was to go wrong.
#[derive(Debug, Serialize)]
pub(super) struct FaultAt {
    pub(super) seconds: f64,
    pub(super) fault: String,
}

impl Simulation {
    /// Percent of the bound that the hosts reach together which it is of; those that joined have no part in it.
    pub(super) fn percent(&self, carried: &Carried) -> f64 {
        let named = carried.nodes.iter().filter(|node| node.bound_mbps.is_some());
        percent(named.map(|node| node.rate_mbps).sum(), self.bound_mbps)
    }
}

/// `gridcast simulate TOPOLOGY --source S --size SIZE …`
pub(crate) fn command(arguments: &args::Simulate) -> Result<ExitCode, Failure> {
    let asked = &arguments.broadcast;
    let network = topology::to_plan_on(&asked.topology).map_err(Failure::input)?;
    let destinations = destinations(&network, asked)?;
    let mut simulation = Simulation {
        size_bytes: arguments.size,
        bound_mbps: 0.0,
        strategies: Vec::new(),
        source: asked.source.clone(),
        faults: arguments.fault.iter().map(FaultAt::from).collect(),
    };
    for strategy in strategies(arguments.strategy) {
        let options = options(asked, strategy);
        let plan = planned(&network, &asked.source, &destinations, &options)?;
        let faults = arguments.fault.clone();
        let chunk_bytes = arguments.chunk;
        let settings = Settings { chunk_bytes, faults, options, ..Settings::new(arguments.size) };
        simulation.bound_mbps = plan.bound_mbps;
        simulation.strategies.push(carried(&network, &plan, &settings)?);
    }
    print(&match arguments.output {
        args::SimulateOutput::Table => summary::render(&simulation),
        args::SimulateOutput::Json => json(&simulation)?,
        args::SimulateOutput::Svg => chart::render(&simulation),
    })?;
    match incomplete(&simulation, &arguments.fault) {
        Some(text) => Err(Failure::failed("Incomplete", text)),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn strategies(strategies: args::Strategies) -> Vec<Strategy> {
    match strategies {
        args::Strategies::One(one) => vec![strategy(one)],
        args::Strategies::All => args::Strategy::value_variants().iter().copied().map(strategy).collect(),
    }
}

fn carried(network: &Topology, plan: &Plan, settings: &Settings) -> Result<Carried, Failure> {
    takes_no_ages(plan, settings)?;
    let outcome = simulate::simulate(network, plan, settings).map_err(|error| match error {
        SimulateError::UnknownHost { .. } | SimulateError::UnknownLink { .. } => {
            Failure::input(format!("--fault: {error}"))
        }
        SimulateError::Empty => Failure::input(format!("--size: {error}")),
        SimulateError::TooManyChunks { .. } => Failure::input(format!("--chunk: {error}")),
        SimulateError::NoWay { .. } => Failure::failed("NoWay", error.to_string()),
    })?;
    let bounds: BTreeMap<&str, f64> =
        plan.destinations.iter().map(|arrival| (arrival.name.as_str(), arrival.bound_mbps)).collect();
    let node = |node: NodeOutcome| Node {
        bound_mbps: bounds.get(node.name.as_str()).copied(),
        joined_seconds: match bounds.get(node.name.as_str()) {
            Some(_) => None,
            None => joined(&node.name, &settings.faults),
        },
        name: node.name,
        seconds: node.seconds,
        rate_mbps: node.rate_mbps,
        planned_mbps: node.planned_mbps,
        failed: node.reason,
    };
    Ok(Carried {
        strategy: plan.strategy,
        relay: plan.relay,
        aggregate_mbps: outcome.aggregate_mbps,
        seconds: outcome.seconds,
        duplicate_bytes: outcome.duplicate_bytes,
        nodes: outcome.nodes.into_iter().map(node).collect(),
        wasted_bytes: outcome.wasted_bytes,
        chunk_bytes: outcome.chunk_bytes,
        plans: outcome.plans,
        links: outcome.links.into_iter().map(Traffic::from).collect(),
        timeline: outcome.timeline.into_iter().map(Happened::from).collect(),
    })
}

/// Refuses what would take longer than is simulated.
fn takes_no_ages(plan: &Plan, settings: &Settings) -> Result<(), Failure> {
    let arrivals = plan.destinations.iter().filter(|arrival| arrival.rate_mbps > 0.0);
    let planned = arrivals.map(|arrival| ("--size", format!("to `{}`", arrival.name), arrival.rate_mbps));
    let faults = settings.faults.iter().filter_map(|fault| match &fault.kind {
        FaultKind::Slow(_, mbps) | FaultKind::Link(_, _, mbps) => {
            Some(("--fault", format!("with {}", fault.kind), *mbps))
        }
        _ => None,
    });
    let Some((option, what, mbps)) = planned.chain(faults).min_by(|a, b| a.2.total_cmp(&b.2)) else {
        return Ok(());
    };
    let days = |seconds: f64| seconds / 86_400.0;
    let seconds = settings.size_bytes as f64 * 8.0 / 1e6 / mbps;
    if seconds <= MOST_SECONDS {
        return Ok(());
    }
    let (needs, most) = (days(seconds), days(MOST_SECONDS));
    Err(Failure::input(format!(
        "{option}: the data needs {needs:.0} days {what}, at {mbps} Mbit/s; at most {most:.0} days are simulated, give a \
         smaller size or a higher rate"
    )))
}

/// When a host that was not named takes part.
fn joined(name: &str, faults: &[Fault]) -> Option<f64> {
    let times = faults.iter().filter_map(|fault| match &fault.kind {
        FaultKind::Join(host) | FaultKind::Back(host) if host == name => Some(fault.at),
        _ => None,
    });
    times.min().map(|at| at.as_secs_f64())
}

/// Which hosts that survive do not have everything, and why.
fn incomplete(simulation: &Simulation, faults: &[Fault]) -> Option<String> {
    let mut told = Vec::new();
    for carried in &simulation.strategies {
        let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for node in &carried.nodes {
            if let Some(reason) = node.failed.as_deref().filter(|_| survives(&node.name, faults)) {
                reasons.entry(reason).or_default().push(format!("`{}`", node.name));
            }
        }
        let reasons = reasons.into_iter().map(|(reason, names)| format!("{}: {reason}", names.join(", ")));
        let reasons: Vec<String> = reasons.collect();
        if !reasons.is_empty() {
            told.push(format!("{} leaves without all data {}", word(carried.strategy), reasons.join("; ")));
        }
    }
    (!told.is_empty()).then(|| told.join(". "))
}

/// Whether no fault takes the host away for good. Of two at one time the later in the list counts.
fn survives(name: &str, faults: &[Fault]) -> bool {
    let about = faults.iter().filter_map(|fault| match &fault.kind {
        FaultKind::Kill(host) | FaultKind::Full(host) if host == name => Some((fault.at, false)),
        FaultKind::Back(host) | FaultKind::Join(host) if host == name => Some((fault.at, true)),
        _ => None,
    });
    about.max_by_key(|&(at, _)| at).is_none_or(|(_, alive)| alive)
}

impl From<LinkBytes> for Traffic {
    fn from(LinkBytes { a, b, bytes, back_bytes }: LinkBytes) -> Self {
        Self { a, b, bytes, back_bytes }
    }
}

impl From<Moment> for Happened {
    fn from(Moment { seconds, what }: Moment) -> Self {
        Self { seconds, what }
    }
}

impl From<&Fault> for FaultAt {
    fn from(fault: &Fault) -> Self {
        Self { seconds: fault.at.as_secs_f64(), fault: fault.kind.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_killed_for_good_does_not_survive() {
        let faults = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Fault>>();
        assert!(survives("A", &faults(&["at=1s kill=B", "at=2s spoil=A"])));
        assert!(!survives("B", &faults(&["at=1s kill=B"])));
        assert!(!survives("B", &faults(&["at=2s full=B", "at=1s join=B"])));
        assert!(survives("B", &faults(&["at=2s back=B", "at=1s kill=B"])));
    }
}
