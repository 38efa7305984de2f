//! The status of a cluster as text: everything of it on one screen, in seconds since creation, so that it changes only
//! when the cluster does.

use gridcast_crds::{
    Broadcast,
    conditions::{self, READY, STALLED, SUSPENDED},
    virtual_cluster::status::{PlacedNode, StagedData},
};

use crate::report::parts::{self, cut, line};

use super::{compose, seen::Seen};

/// Conditions in the order in which a cluster goes through them; others follow.
const ORDER: [&str; 12] = [
    READY,
    conditions::RECONCILING,
    STALLED,
    conditions::PROVISIONED,
    conditions::STAGED,
    conditions::MEASURED,
    conditions::TUNED,
    conditions::ACCEPTED,
    conditions::RUNNING,
    conditions::COMPLETE,
    conditions::FAILED,
    SUSPENDED,
];
/// Widest line.
const COLUMNS: usize = 110;
/// Most nodes that are listed.
const LISTED: usize = 64;

/// The whole status. Text from outside is made harmless to the terminal.
pub(super) fn text(seen: &Seen) -> String {
    let mut out = String::new();
    heading(&mut out, seen);
    conditions(&mut out, seen);
    parts::timeline(&mut out, &compose::timeline(seen));
    if let Some(network) = compose::network(seen) {
        parts::network(&mut out, &network);
    }
    if let Some(settings) = compose::tcp(seen) {
        parts::tcp(&mut out, &settings);
    }
    for (staged, broadcast) in seen.data() {
        data(&mut out, seen, &staged, broadcast);
    }
    nodes(&mut out, seen);
    run(&mut out, seen);
    out
}

fn heading(out: &mut String, seen: &Seen) {
    let status = seen.status();
    let (name, namespace) = (cut(seen.name(), 63), cut(seen.namespace(), 63));
    line!(out, "{name} in namespace {namespace}");
    if let Some(ready) = seen.condition(READY) {
        let word = match ready.status.as_str() {
            "True" => "ready",
            _ if seen.is(STALLED) => "stalled",
            _ => "not ready",
        };
        parts::wrapped(out, "  ", &format!("{word}, {}: {}", ready.reason, ready.message));
    } else {
        line!(out, "  no status yet; is gridcast's operator running?");
    }
    if status.observed_generation.is_some() && status.observed_generation != seen.cluster.metadata.generation
    {
        line!(out, "  the spec has changed since; what follows is about the spec before");
    }
    if seen.cluster.metadata.deletion_timestamp.is_some() {
        line!(out, "  it is being deleted");
    }
    let wanted = seen.cluster.spec.nodes();
    let (there, ready) = (status.replicas.unwrap_or(0), status.ready_replicas.unwrap_or(0));
    line!(out, "  nodes: {wanted} wanted, {there} exist, {ready} answer");
}

fn conditions(out: &mut String, seen: &Seen) {
    let place = |type_: &str| ORDER.iter().position(|known| *known == type_).unwrap_or(ORDER.len());
    let mut conditions: Vec<_> = seen.status().conditions.iter().collect();
    conditions.sort_by_key(|condition| place(&condition.type_));
    if conditions.is_empty() {
        return;
    }
    line!(out, "\nCONDITIONS           since s  reason");
    for condition in conditions {
        let since = seen.seconds(condition.last_transition_time.0).map(|s| format!("{s:.0}"));
        let prefix = format!(
            "  {:12} {:7} {:>4}  ",
            cut(&condition.type_, 12),
            cut(&condition.status, 7),
            since.unwrap_or_default()
        );
        parts::wrapped(out, &prefix, &format!("{}: {}", condition.reason, condition.message));
    }
}

fn data(out: &mut String, seen: &Seen, staged: &StagedData, broadcast: Option<&Broadcast>) {
    let status = broadcast.and_then(|broadcast| broadcast.status.clone()).unwrap_or_default();
    let done = status.nodes_staged.unwrap_or(staged.nodes_staged);
    let on = match (status.nodes_wanted, done) {
        (Some(wanted), _) => format!("{done} of {wanted} machines"),
        (None, 1) => "1 machine".to_owned(),
        (None, _) => format!("{done} machines"),
    };
    let mut told = vec![format!("{}: verified on {on}", staged.name)];
    let size = status.size_bytes.or(staged.size_bytes);
    told.extend(size.map(|size| parts::size(size.unsigned_abs())));
    let strategy = status.strategy.as_ref().or(staged.strategy.as_ref());
    told.extend(strategy.map(|strategy| format!("by {strategy}")));
    told.extend(status.seconds.or(staged.seconds).map(|seconds| format!("in {seconds:.2} s")));
    out.push('\n');
    parts::wrapped(out, "DATA  ", &told.join(", "));
    let aggregate = status.aggregate_mbps.or(staged.aggregate_mbps);
    if let (Some(mbps), Some(bound)) = (aggregate, status.bound_mbps.or(staged.bound_mbps)) {
        let share = 100.0 * mbps / bound.max(f64::MIN_POSITIVE);
        line!(out, "  {mbps:.1} Mbit/s in all, {share:.1} % of the bound of {bound:.1}");
    }
    if broadcast.is_none() {
        line!(out, "  there is no broadcast {} yet", cut(&seen.broadcast_name(&staged.name), 80));
    }
    if let Some(ready) = status.conditions.iter().find(|c| c.type_ == READY && c.status != "True") {
        parts::wrapped(out, "  ", &format!("{}: {}", ready.reason, ready.message));
    }
    if !status.worst.is_empty() {
        line!(out, "  {:40} {:>9}", "machine", "Mbit/s");
    }
    for node in &status.worst {
        let rate = node.rate_mbps.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        let verified = if node.verified { "verified" } else { "not yet" };
        let why = node.message.as_deref().filter(|message| !message.is_empty());
        let told = why.map_or_else(|| verified.to_owned(), |why| format!("{verified}: {why}"));
        parts::wrapped(out, &format!("  {:40} {rate:>9}  ", cut(&node.name, 40)), &told);
    }
}

fn nodes(out: &mut String, seen: &Seen) {
    let status = seen.status();
    if status.nodes.is_empty() {
        return;
    }
    let ranks = |node: &PlacedNode| {
        let placed = status.run.iter().flat_map(|run| &run.placement).find(|p| p.host == node.name);
        let ranks: Vec<u32> = placed.iter().flat_map(|p| &p.ranks).map(|rank| rank.unsigned_abs()).collect();
        parts::ranks(&ranks)
    };
    let rows: Vec<[String; 5]> = status
        .nodes
        .iter()
        .take(LISTED)
        .map(|node| {
            let state = match (&node.reason, node.ready) {
                (_, true) => "ready",
                (Some(reason), false) => reason,
                (None, false) => "not ready",
            };
            let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
            [node.name.clone(), known(&node.node), known(&node.address), state.to_owned(), ranks(node)]
        })
        .collect();
    let titles = ["name", "machine", "address", "state", "ranks"].map(str::to_owned);
    let mut widths = [32, 24, 20, 18, 0];
    for (column, width) in widths.iter_mut().enumerate() {
        let widest = rows.iter().chain([&titles]).map(|row| row[column].chars().count()).max();
        *width = widest.unwrap_or(0).min(*width);
    }
    // Ranks have what is left.
    widths[4] = COLUMNS - widths.iter().map(|width| width + 2).sum::<usize>();
    line!(out, "\nNODES");
    for row in [&titles].into_iter().chain(&rows) {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("  {:width$}", cut(cell, width)));
        line!(out, "{}", cells.collect::<String>());
    }
    let all = seen.cluster.spec.nodes() as usize;
    if all > rows.len() {
        line!(out, "  these are {} of {all} nodes", rows.len());
    }
}

fn run(out: &mut String, seen: &Seen) {
    let Some(run) = &seen.status().run else { return };
    let most = seen.cluster.spec.restart.as_ref().map_or(0, |restart| restart.max_restarts);
    let code = run.exit_code.map_or_else(String::new, |code| format!(", exit code {code}"));
    let launch = run.launch.as_deref().map_or_else(String::new, |id| format!(", launch {}", cut(id, 60)));
    line!(out, "\nRUN  {} of at most {most} restarts{code}{launch}", run.restarts);
    parts::log(out, run.log_tail.as_deref().unwrap_or_default());
}
