//! How would a broadcast go on this network?
//!
//! ```text
//! table     a plan for a terminal
//! dot       its trees for Graphviz
//! drawing   the network and the trees as SVG
//!   layout    where its hosts and switches are
//! ```

mod dot;
mod drawing;
mod layout;
mod table;

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Instant,
};

use gridcast_core::broadcast::{
    plan::{self, Options, Plan, PlanError, Relay, Strategy},
    topology::{Host, Topology},
};

use crate::{args, failure::Failure, topology};

/// `gridcast plan TOPOLOGY --source S …`
pub(crate) fn plan(arguments: &args::Plan) -> Result<ExitCode, Failure> {
    let network = topology::to_plan_on(&arguments.topology).map_err(Failure::input)?;
    let destinations = destinations(&network, arguments)?;
    let plan = planned(&network, &destinations, arguments)?;
    let text = match arguments.output {
        args::PlanOutput::Table => table::render(&plan),
        args::PlanOutput::Json => json(&plan)?,
        args::PlanOutput::Dot => dot::render(&plan),
        args::PlanOutput::Svg => drawing::render(&network, &plan),
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // `gridcast plan … | head` is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed("OutputClosed", format!("cannot write to standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The hosts that were named, or all but the source.
fn destinations(network: &Topology, arguments: &args::Plan) -> Result<Vec<String>, Failure> {
    let others = || network.hosts.iter().map(Host::name).filter(|&name| name != arguments.source);
    let destinations = match &arguments.to {
        Some(named) => {
            named.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
        }
        None => others().map(str::to_owned).collect::<Vec<String>>(),
    };
    if !destinations.is_empty() {
        return Ok(destinations);
    }
    Err(Failure::input(if arguments.to.is_some() {
        "--to: no host is named; name one or several, or leave --to out for all".to_owned()
    } else {
        format!("{}: hosts: there is none but the source; add one", arguments.topology.display())
    }))
}

fn planned(network: &Topology, destinations: &[String], arguments: &args::Plan) -> Result<Plan, Failure> {
    let options = Options {
        strategy: strategy(arguments.strategy),
        relay: match arguments.relay {
            args::Relay::Asynchronous => Relay::Asynchronous,
            args::Relay::Synchronous => Relay::Synchronous,
        },
        max_trees: arguments.max_trees,
        seed: arguments.seed,
        partial: arguments.partial,
        ..Options::default()
    };
    let start = Instant::now();
    let plan = plan::plan(network, &arguments.source, destinations, &options);
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    let mut plan = plan.map_err(|error| match error {
        PlanError::Unreachable { .. } | PlanError::Unsupported { .. } => {
            Failure::failed(error.reason(), error.to_string())
        }
        error => Failure::input(error.to_string()),
    })?;
    if plan.destinations.is_empty() {
        let names = plan.unreachable.unwrap_or_default().join(", ");
        let text = format!("no host that was asked for can be reached from {}: {names}", arguments.source);
        return Err(Failure::failed("Unreachable", text));
    }
    plan.plan_milliseconds = Some((milliseconds * 1e3).round() / 1e3);
    Ok(plan)
}

fn strategy(strategy: args::Strategy) -> Strategy {
    match strategy {
        args::Strategy::Stable => Strategy::Stable,
        args::Strategy::Flat => Strategy::Flat,
        args::Strategy::Random => Strategy::Random,
        args::Strategy::DepthFirst => Strategy::DepthFirst,
        args::Strategy::Fpfr => Strategy::Fpfr,
        args::Strategy::Dijkstra => Strategy::Dijkstra,
        args::Strategy::DijkstraEarliest => Strategy::DijkstraEarliest,
        args::Strategy::Chain => Strategy::Chain,
    }
}

fn json(plan: &Plan) -> Result<String, Failure> {
    let text = serde_json::to_string(plan);
    text.map(|text| text + "\n").map_err(|error| Failure::failed("OutputClosed", error.to_string()))
}

/// The word for a strategy, as on the command line and in JSON.
fn word(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Stable => "stable",
        Strategy::Flat => "flat",
        Strategy::Random => "random",
        Strategy::DepthFirst => "depth-first",
        Strategy::Fpfr => "fpfr",
        Strategy::Dijkstra => "dijkstra",
        Strategy::DijkstraEarliest => "dijkstra-earliest",
        Strategy::Chain => "chain",
    }
}

/// Percent that a rate is of its bound.
fn percent(rate_mbps: f64, bound_mbps: f64) -> f64 {
    if bound_mbps > 0.0 { 100.0 * rate_mbps / bound_mbps } else { 100.0 }
}

#[cfg(test)]
mod tests;
