//! A simulation for a terminal: at most 100 columns.

use std::fmt::Write as _;

use gridcast_core::broadcast::plan::Strategy;

use crate::report::parts::{line, size};

use super::{
    counted, folded, percent, relays, shortened,
    simulation::{Carried, Node, Simulation},
    word,
};

/// Longest name shown: beside one strategy, and beside several.
const NAMES: (usize, usize) = (40, 18);
/// Most hosts and events listed.
const LISTED: usize = 32;

pub(super) fn render(simulation: &Simulation) -> String {
    let mut out = String::new();
    let Some(first) = simulation.strategies.first() else { return out };
    let text = format!(
        "{} in chunks of {} from {} to {}, relays {}",
        size(simulation.size_bytes),
        size(first.chunk_bytes),
        shortened(&simulation.source, NAMES.0),
        counted(first.nodes.len(), "host"),
        relays(first.relay)
    );
    folded(&mut out, "", &text);
    line!(out, "each host at its own bound: {:.1} Mbit/s in all", simulation.bound_mbps);
    strategies(&mut out, simulation);
    match simulation.strategies.as_slice() {
        [one] => {
            hosts(&mut out, simulation, one);
            events(&mut out, one);
        }
        several => matrix(&mut out, simulation, several),
    }
    out
}

fn strategies(out: &mut String, simulation: &Simulation) {
    line!(out, "");
    line!(
        out,
        "{:17}  {:>12}  {:>10}  {:>12}  {:>11}  {:>14}  {:>5}",
        "strategy",
        "Mbit/s",
        "% of bound",
        "last after",
        "complete",
        "received twice",
        "plans"
    );
    for carried in &simulation.strategies {
        let complete = carried.nodes.iter().filter(|node| node.seconds.is_some()).count();
        line!(
            out,
            "{:17}  {:>12.1}  {:>10.1}  {:>12}  {:>11}  {:>14}  {:>5}",
            word(carried.strategy),
            carried.aggregate_mbps,
            simulation.percent(carried),
            seconds(carried.seconds) + " s",
            format!("{complete}/{}", carried.nodes.len()),
            size(carried.duplicate_bytes),
            carried.plans
        );
    }
}

/// Seconds that a host needs at its bound.
pub(super) fn ideal(simulation: &Simulation, node: &Node) -> Option<f64> {
    let bound = node.bound_mbps.filter(|&mbps| mbps > 0.0)?;
    Some(simulation.size_bytes as f64 * 8.0 / 1e6 / bound)
}

/// Three or four digits of what takes seconds to years.
pub(super) fn seconds(seconds: f64) -> String {
    let decimals = if seconds < 1.0 {
        3
    } else if seconds < 100.0 {
        2
    } else {
        usize::from(seconds < 100_000.0)
    };
    format!("{seconds:.decimals$}")
}

/// All hosts, or of many those that fail and the latest ones against their bounds.
fn hosts(out: &mut String, simulation: &Simulation, carried: &Carried) {
    let share = |node: &Node| match (ideal(simulation, node), node.seconds) {
        (Some(ideal), Some(seconds)) => percent(ideal, seconds),
        (_, Some(_)) => 100.0,
        (_, None) => 0.0,
    };
    let mut shown: Vec<&Node> = carried.nodes.iter().collect();
    if shown.len() > LISTED {
        // Stable: equal ones stay by name.
        shown.sort_by(|a, b| share(a).total_cmp(&share(b)));
    }
    let more = shown.len().saturating_sub(LISTED);
    shown.truncate(LISTED);
    let width = shown.iter().map(|node| node.name.chars().count()).max().unwrap_or(0).clamp(4, NAMES.0);
    line!(out, "");
    let (name, mbps, after, bound) = ("host", "Mbit/s", "complete", "at its bound");
    line!(out, "{name:width$}  {mbps:>12}  {after:>12}  {bound:>12}  {:>6}", "%");
    for node in shown {
        let name = shortened(&node.name, NAMES.0);
        let at_bound = ideal(simulation, node).map_or_else(|| "-".to_owned(), |ideal| seconds(ideal) + " s");
        let (after, percent) = match node.seconds {
            Some(after) => (seconds(after) + " s", format!("{:.1}", share(node))),
            None => ("never".to_owned(), "-".to_owned()),
        };
        let mbps = node.rate_mbps;
        line!(out, "{name:width$}  {mbps:>12.1}  {after:>12}  {at_bound:>12}  {percent:>6}");
        if let Some(reason) = &node.failed {
            folded(out, "    ", reason);
        }
    }
    if more > 0 {
        line!(out, "and {} that need no longer against their bounds", counted(more, "other"));
    }
}

/// What happened, but for the ends that are in the table of hosts.
fn events(out: &mut String, carried: &Carried) {
    let told = carried.timeline.iter().filter(|moment| !moment.what.ends_with(" has everything"));
    let told: Vec<_> = told.collect();
    if told.is_empty() {
        return;
    }
    line!(out, "");
    for moment in told.iter().take(LISTED) {
        folded(out, &format!("{:>12.3} s  ", moment.seconds), &moment.what);
    }
    if let Some(more) = told.len().checked_sub(LISTED).filter(|&more| more > 0) {
        line!(out, "and {}; -o json has all", counted(more, "other event"));
    }
}

/// Seconds of each host by each strategy, in the order of hosts; of many the latest by the first strategy.
fn matrix(out: &mut String, simulation: &Simulation, several: &[Carried]) {
    let Some(first) = several.first() else { return };
    let mut shown: Vec<&Node> = first.nodes.iter().collect();
    if shown.len() > LISTED {
        shown.sort_by(|a, b| {
            let time = |node: &Node| node.seconds.unwrap_or(f64::INFINITY);
            time(b).total_cmp(&time(a))
        });
    }
    let more = shown.len().saturating_sub(LISTED);
    shown.truncate(LISTED);
    let width = shown.iter().map(|node| node.name.chars().count()).max().unwrap_or(0).clamp(7, NAMES.1);
    let (above, below): (Vec<_>, Vec<_>) = several.iter().map(|carried| heading(carried.strategy)).unzip();
    let columns = |words: &[&str]| {
        words.iter().fold(String::new(), |mut line, word| {
            let _ = write!(line, "{word:>9}");
            line
        })
    };
    line!(out, "");
    line!(out, "{:width$}{:>9}{}", "seconds", "at its", columns(&above));
    line!(out, "{:width$}{:>9}{}", "", "bound", columns(&below));
    for node in shown {
        let mut text = format!("{:width$}", shortened(&node.name, NAMES.1));
        let at_bound = ideal(simulation, node).map_or_else(|| "-".to_owned(), seconds);
        let _ = write!(text, "{at_bound:>9}");
        for carried in several {
            let at = carried.nodes.binary_search_by(|other| other.name.cmp(&node.name));
            let after = at.ok().and_then(|at| carried.nodes.get(at)).and_then(|node| node.seconds);
            let _ = write!(text, "{:>9}", after.map_or_else(|| "never".to_owned(), seconds));
        }
        line!(out, "{text}");
    }
    if more > 0 {
        line!(out, "and {} before these; -o json has all", counted(more, "other"));
    }
}

/// A strategy in two lines of at most eight letters.
fn heading(strategy: Strategy) -> (&'static str, &'static str) {
    match word(strategy) {
        "depth-first" => ("depth-", "first"),
        "dijkstra" => ("dijkstra", "latest"),
        "dijkstra-earliest" => ("dijkstra", "earliest"),
        other => ("", other),
    }
}
