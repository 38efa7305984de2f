//! A plan for a terminal: at most 100 columns.

use gridcast_core::broadcast::plan::{Arrival, Plan, Tree};

use crate::report::parts::line;

use super::{COLUMNS, counted, folded, percent, relays, shortened, word};

/// Longest name shown.
const NAME: usize = 40;
/// The same in a row of hops.
const IN_HOPS: usize = 20;
/// Most hosts and trees listed.
const LISTED: usize = 32;

pub(super) fn render(plan: &Plan) -> String {
    let mut out = String::new();
    heading(&mut out, plan);
    hosts(&mut out, plan);
    trees(&mut out, plan);
    out
}

fn heading(out: &mut String, plan: &Plan) {
    let text = format!(
        "{} from {} to {}, relays {}: {}{}",
        word(plan.strategy),
        shortened(&plan.source, NAME),
        counted(plan.destinations.len(), "host"),
        relays(plan.relay),
        counted(plan.trees.len(), "tree"),
        plan.plan_milliseconds.map_or_else(String::new, |ms| format!(", planned in {ms:.1} ms")),
    );
    folded(out, "", &text);
    line!(
        out,
        "{:.1} Mbit/s in all, {:.1} % of the bound of {:.1}",
        plan.aggregate_mbps,
        percent(plan.aggregate_mbps, plan.bound_mbps),
        plan.bound_mbps
    );
    if let Some(optimum) = plan.optimum_mbps {
        let percent = percent(plan.aggregate_mbps, optimum);
        line!(out, "{percent:.1} % of {optimum:.1}, the most that any plan can reach");
    }
    if let Some(names) = plan.unreachable.as_ref().filter(|names| !names.is_empty()) {
        let names: Vec<String> = names.iter().map(|name| shortened(name, NAME)).collect();
        folded(out, "cannot be reached: ", &names.join(", "));
    }
}

/// All hosts, or of many those with the least of their bound.
fn hosts(out: &mut String, plan: &Plan) {
    let mut shown: Vec<&Arrival> = plan.destinations.iter().collect();
    if shown.len() > LISTED {
        // Stable: equal ones stay by name.
        shown.sort_by(|a, b| {
            percent(a.rate_mbps, a.bound_mbps).total_cmp(&percent(b.rate_mbps, b.bound_mbps))
        });
    }
    let more = shown.len().saturating_sub(LISTED);
    shown.truncate(LISTED);
    let width = shown.iter().map(|host| host.name.chars().count()).max().unwrap_or(0).clamp(4, NAME);
    line!(out, "");
    line!(out, "{:width$}  {:>12}  {:>12}  {:>6}", "host", "Mbit/s", "bound", "%");
    for host in shown {
        line!(
            out,
            "{:width$}  {:>12.1}  {:>12.1}  {:>6.1}",
            shortened(&host.name, NAME),
            host.rate_mbps,
            host.bound_mbps,
            percent(host.rate_mbps, host.bound_mbps)
        );
    }
    if more > 0 {
        line!(out, "and {} with no less of their bound", counted(more, "other"));
    }
}

fn trees(out: &mut String, plan: &Plan) {
    if plan.trees.is_empty() {
        return;
    }
    line!(out, "");
    line!(out, "{:>4}  {:>12}  {:>6}", "tree", "Mbit/s", "hosts");
    for (index, tree) in plan.trees.iter().take(LISTED).enumerate() {
        let start = format!("{:>4}  {:>12.1}  {:>6}  ", index + 1, tree.rate_mbps, tree.hops.len());
        let room = COLUMNS - start.len();
        line!(out, "{start}{}", hops(tree, room));
    }
    if let Some(more) = plan.trees.len().checked_sub(LISTED).filter(|&more| more > 0) {
        line!(out, "and {}", counted(more, "other"));
    }
}

/// The hops as chains, `S > A > B, A > C`; of many the first ones.
fn hops(tree: &Tree, room: usize) -> String {
    let mut text = String::new();
    let mut at = "";
    for hop in &tree.hops {
        let (from, to) = (shortened(&hop.from, IN_HOPS), shortened(&hop.to, IN_HOPS));
        let part = match (at == hop.from, text.is_empty()) {
            (true, _) => format!(" > {to}"),
            (false, true) => format!("{from} > {to}"),
            (false, false) => format!(", {from} > {to}"),
        };
        if text.chars().count() + part.chars().count() + " …".len() > room {
            return text + " …";
        }
        text.push_str(&part);
        at = &hop.to;
    }
    text
}
