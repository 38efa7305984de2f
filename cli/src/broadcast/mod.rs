//! How would a broadcast go on this network?
//!
//! ```text
//! table       a plan for a terminal
//! dot         its trees for Graphviz
//! drawing     the network and the trees as SVG
//!   layout      where its hosts and switches are
//!   curve       what joins them
//! simulation  what comes of a plan in simulated time, as JSON
//!   summary     for a terminal
//!   chart       as SVG
//! ```

mod chart;
mod curve;
mod dot;
mod drawing;
mod layout;
mod simulation;
mod summary;
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

pub(crate) use simulation::command as simulate;

/// `gridcast plan TOPOLOGY --source S …`
pub(crate) fn plan(arguments: &args::Plan) -> Result<ExitCode, Failure> {
    let asked = &arguments.broadcast;
    let network = topology::to_plan_on(&asked.topology).map_err(Failure::input)?;
    let destinations = destinations(&network, asked)?;
    let options = Options { partial: arguments.partial, ..options(asked, strategy(arguments.strategy)) };
    let plan = planned(&network, &asked.source, &destinations, &options)?;
    print(&match arguments.output {
        args::PlanOutput::Table => table::render(&plan),
        args::PlanOutput::Json => json(&plan)?,
        args::PlanOutput::Dot => dot::render(&plan),
        args::PlanOutput::Svg => drawing::render(&network, &plan),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// To standard output, which may be closed: `gridcast plan … | head` is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed("OutputClosed", format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// The hosts that were named, or all but the source.
fn destinations(network: &Topology, asked: &args::Broadcast) -> Result<Vec<String>, Failure> {
    if let Some(named) = &asked.to {
        if named.iter().any(|name| name.trim().is_empty()) {
            let text = "--to: a name is empty; write --to A,B, or leave --to out for all hosts";
            return Err(Failure::input(text));
        }
        return Ok(named.iter().map(|name| name.trim().to_owned()).collect());
    }
    let others = network.hosts.iter().map(Host::name).filter(|&name| name != asked.source);
    let others: Vec<String> = others.map(str::to_owned).collect();
    if others.is_empty() {
        let file = asked.topology.display();
        return Err(Failure::input(format!("{file}: hosts: there is none but the source; add one")));
    }
    Ok(others)
}

fn options(asked: &args::Broadcast, strategy: Strategy) -> Options {
    Options {
        strategy,
        relay: match asked.relay {
            args::Relay::Asynchronous => Relay::Asynchronous,
            args::Relay::Synchronous => Relay::Synchronous,
        },
        max_trees: asked.max_trees,
        seed: asked.seed,
        ..Options::default()
    }
}

fn planned(
    network: &Topology,
    source: &str,
    destinations: &[String],
    options: &Options,
) -> Result<Plan, Failure> {
    let start = Instant::now();
    let plan = plan::plan(network, source, destinations, options);
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    let mut plan = plan.map_err(|error| match error {
        PlanError::Unreachable { .. } | PlanError::Unsupported { .. } => {
            Failure::failed(error.reason(), error.to_string())
        }
        PlanError::UnknownSource { .. } => Failure::input(format!("--source: {error}")),
        PlanError::UnknownDestination { .. }
        | PlanError::DuplicateDestination { .. }
        | PlanError::SourceIsDestination { .. } => Failure::input(format!("--to: {error}")),
        error => Failure::input(error.to_string()),
    })?;
    if plan.destinations.is_empty() {
        let names = plan.unreachable.unwrap_or_default().join(", ");
        let text = format!("no host that was asked for can be reached from {source}: {names}");
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

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value);
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

/// The word for a relay model, for people.
fn relays(relay: Relay) -> &'static str {
    match relay {
        Relay::Asynchronous => "from disk",
        Relay::Synchronous => "with backpressure",
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Widest line of a table.
const COLUMNS: usize = 100;

/// Text behind a prefix, in as many lines as it needs.
fn folded(out: &mut String, prefix: &str, text: &str) {
    let mut used = prefix.chars().count();
    let indent = used;
    out.push_str(prefix);
    for word in text.split_whitespace() {
        let word = shortened(word, COLUMNS - indent);
        let length = word.chars().count();
        if used > indent && used + 1 + length > COLUMNS {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        }
        if used > indent {
            out.push(' ');
            used += 1;
        }
        out.push_str(&word);
        used += length;
    }
    out.push('\n');
}

/// A name in at most this many letters: a part of a long one is left out, nearer to its beginning, since names differ at
/// their ends.
fn shortened(name: &str, letters: usize) -> String {
    let count = name.chars().count();
    if count <= letters {
        return name.to_owned();
    }
    let behind = letters.saturating_sub(1) * 2 / 3;
    let before = letters.saturating_sub(1 + behind);
    let text: String = name.chars().take(before).chain("…".chars()).collect();
    text + &name.chars().skip(count - behind).collect::<String>()
}

/// The beginning of a drawing in pixels, with letters of this size.
fn svg((width, height): (f64, f64), letters: u32) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"{letters}\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    )
}

/// Percent that a rate is of its bound.
fn percent(rate_mbps: f64, bound_mbps: f64) -> f64 {
    if bound_mbps > 0.0 { 100.0 * rate_mbps / bound_mbps } else { 100.0 }
}

#[cfg(test)]
mod tests;
