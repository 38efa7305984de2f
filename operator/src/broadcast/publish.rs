//! What is published of a Broadcast?
//!
//! Few writes: a transfer that takes a moment is told at its beginning and at its end. The operation that stages shows how
//! far it is at most every five seconds (see `stage`), so what is computed here changes no faster.

use std::time::Duration;

use gridcast_crds::{
    broadcast::{BroadcastNode, BroadcastStatus},
    conditions::{self as types, Condition},
};
use jiff::Timestamp;

use super::{
    choice::Census,
    knowledge::{Arrival, Copy},
    observed::Observed,
    plan::{self, Plan},
    source::{Origin, PodState},
    standing::{self, Standing},
    targets::Targets,
};
use crate::verdict::{self, whole_seconds};

/// Nodes that a status names.
const MOST_WORST: usize = 20;
/// Longest message of one node, bytes.
const MOST_MESSAGE: usize = 512;
/// A young object passes through several states in its first seconds: the first is told, and what goes wrong.
const YOUNG: Duration = Duration::from_secs(10);
/// Reasons of passing states in which nothing is wrong.
const QUIET: [&str; 3] = ["Staging", "StartingSource", "WaitingForPods"];

/// Whether a reason tells of a passing state in which nothing is wrong.
pub(crate) fn is_quiet(reason: &str) -> bool {
    QUIET.contains(&reason)
}

/// The status of an object that is not on its way out.
pub(crate) fn status(
    observed: &Observed,
    census: &Census,
    now: Timestamp,
    plan: &mut Plan,
) -> BroadcastStatus {
    let mut status = base(observed);
    if census.complete(observed) {
        let (reason, message) = ("Staged", staged(observed, census));
        status.completion_time =
            if standing::is_ready(plan::conditions(observed)) { status.completion_time } else { None }
                .or_else(|| Some(whole_seconds(now)));
        figures(observed, census, &mut status);
        status.conditions = conditions(observed, Standing::Ready, (reason, &message), now);
        return status;
    }
    let Some((reason, message)) = on_the_way(observed, census, now, plan) else {
        // Nothing is known to be different from what is published.
        status.conditions = standing::of_generation(plan::conditions(observed), status.observed_generation);
        return status;
    };
    status.completion_time = None;
    if matches!(observed.targets, Targets::Nodes(_)) {
        figures(observed, census, &mut status);
    }
    status.conditions = conditions(observed, Standing::Reconciling, (&reason, &message), now);
    status
}

/// What is published already, as of this generation.
pub(crate) fn base(observed: &Observed) -> BroadcastStatus {
    let mut status = observed.object.status.clone().unwrap_or_default();
    status.observed_generation = observed.object.metadata.generation;
    status
}

/// The status, unless it is what is published.
pub(crate) fn unless_shown(observed: &Observed, status: BroadcastStatus) -> Option<BroadcastStatus> {
    (observed.object.status.as_ref() != Some(&status)).then_some(status)
}

/// The conditions of one conclusion.
pub(crate) fn conditions(
    observed: &Observed,
    standing: Standing,
    what: (&str, &str),
    now: Timestamp,
) -> Vec<Condition> {
    standing::conditions(plan::conditions(observed), standing, what, observed.object.metadata.generation, now)
}

/// What is waited for, as a reason and a sentence. `None`: what is published stays.
fn on_the_way(
    observed: &Observed,
    census: &Census,
    now: Timestamp,
    plan: &mut Plan,
) -> Option<(String, String)> {
    let shown = standing::find(plan::conditions(observed), types::READY);
    let was_ready = shown.is_some_and(|ready| ready.status == "True");
    if let Some((reason, message)) = obstacle(observed, census) {
        return Some((reason, message + &progress(observed, census)));
    }
    // A copy that nobody was asked about yet is where it was, until someone says otherwise; and while a cluster's pods
    // are replaced nothing is missing on the nodes that are left.
    if was_ready && census.missing.is_empty() && census.silent.is_empty() {
        return None;
    }
    let retrying =
        plan::newest(observed).is_some_and(|pod| pod.number > 0 && pod.state == PodState::Starting);
    let shown_reason = shown.filter(|_| !was_ready).map(|ready| ready.reason.as_str());
    if retrying && shown_reason.is_some_and(|reason| !is_quiet(reason)) {
        return None;
    }
    let quiet = quiet(observed, census);
    let left = YOUNG.saturating_sub(plan::age(observed, now));
    if shown_reason.is_some_and(is_quiet) && !left.is_zero() && !shows_progress(observed) {
        plan.look_again(left);
        return None;
    }
    Some(quiet)
}

/// The operation has told how far it is.
fn shows_progress(observed: &Observed) -> bool {
    observed.running && observed.knowledge.copies.values().any(|copy| copy.bytes > 0 && !copy.verified)
}

/// What is wrong, as a reason and a sentence.
fn obstacle(observed: &Observed, census: &Census) -> Option<(String, String)> {
    if let Targets::Waiting { reason, message, soon: false, .. } = &observed.targets
        && !standing::is_ready(plan::conditions(observed))
    {
        return Some(((*reason).to_owned(), message.clone()));
    }
    if plan::needs_source(observed, census) {
        if let Some(trouble) = plan::source_trouble(observed, census) {
            return Some(trouble);
        }
        if let Some(trouble) = &observed.knowledge.source {
            return Some((trouble.failure.reason.clone(), trouble.failure.message.clone()));
        }
    }
    let troubles =
        census.missing.iter().filter_map(|node| observed.knowledge.copies.get(node)?.trouble.as_ref());
    let mut troubles: Vec<_> = troubles.collect();
    troubles.sort_by_key(|trouble| std::cmp::Reverse(trouble.count));
    if let Some(worst) = troubles.first() {
        let more = match troubles.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more nodes have failed)"),
        };
        return Some((worst.failure.reason.clone(), format!("{}{more}", worst.failure.message)));
    }
    let (_, message) = census.silent.first()?;
    let more = match census.silent.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more nodes)"),
    };
    Some(("NoAgent".to_owned(), format!("{message}{more}")))
}

/// The state in which nothing is wrong.
fn quiet(observed: &Observed, census: &Census) -> (String, String) {
    if let Targets::Waiting { reason, message, .. } = &observed.targets {
        return ((*reason).to_owned(), message.clone());
    }
    if matches!(observed.origin, Ok(Origin::Pod { .. })) && !observed.running {
        match plan::newest(observed) {
            Some(pod) if pod.state == PodState::Starting => {
                return ("StartingSource".to_owned(), format!("source pod {} starts", pod.name));
            }
            None => return ("StartingSource".to_owned(), "the source pod is being made".to_owned()),
            Some(_) => {}
        }
    }
    ("Staging".to_owned(), progress(observed, census).trim_start_matches("; ").to_owned())
}

/// How far it is, as the end of a sentence.
fn progress(observed: &Observed, census: &Census) -> String {
    match &observed.targets {
        Targets::Waiting { .. } => String::new(),
        Targets::Nodes(nodes) => format!("; {} of {} nodes have it", census.there.len(), nodes.len()),
    }
}

fn staged(observed: &Observed, census: &Census) -> String {
    let nodes = count(census.there.len() as u64, "node");
    let status = observed.object.status.as_ref();
    let published =
        status.and_then(|status| Some((status.size_bytes?.unsigned_abs(), status.files?.unsigned_abs())));
    let facts = observed.knowledge.dataset.as_ref().map(|facts| (facts.size_bytes, facts.files));
    match facts.or(published) {
        Some((bytes, files)) => format!("{} in {} on {nodes}, verified", size(bytes), count(files, "file")),
        None => format!("on {nodes}, verified"),
    }
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn size(bytes: u64) -> String {
    let scaled = |power: u32| bytes as f64 / f64::from(1_u32 << power);
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{:.1} KiB", scaled(10)),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", scaled(20)),
        _ => format!("{:.1} GiB", scaled(30)),
    }
}

/// Figures of the dataset, its nodes and the transfers that brought it.
fn figures(observed: &Observed, census: &Census, status: &mut BroadcastStatus) {
    let knowledge = &observed.knowledge;
    if let Some(facts) = &knowledge.dataset {
        status.size_bytes = Some(bounded(facts.size_bytes));
        status.files = Some(bounded(facts.files));
        if facts.digest.is_some() {
            status.digest.clone_from(&facts.digest);
        }
    }
    let number = |count: usize| i32::try_from(count).ok();
    status.nodes_wanted = number(census.wanted.len());
    status.nodes_staged = number(census.there.len());
    status.worst = worst(observed, census);
    let campaign = &knowledge.campaign;
    let arrivals: Vec<Arrival> = knowledge.copies.values().filter_map(|copy| copy.arrival).collect();
    if campaign.transfers == 0 || arrivals.is_empty() {
        // This process has carried nothing: what is published says how it came.
        return;
    }
    status.aggregate_mbps = Some(rounded(arrivals.iter().map(|arrival| arrival.rate_mbps).sum()));
    status.bound_mbps = Some(rounded(arrivals.iter().map(|arrival| arrival.bound_mbps).sum()));
    status.bound_kind = campaign.bound_kind;
    status.strategy = Some(campaign.strategy.clone());
    status.trees = i32::try_from(campaign.trees).ok();
    status.seconds = Some(rounded(campaign.seconds));
    status.source_bytes_read = Some(bounded(campaign.source_bytes_read));
}

/// The nodes to look at first: those without it, then the slowest.
fn worst(observed: &Observed, census: &Census) -> Vec<BroadcastNode> {
    let knowledge = &observed.knowledge;
    let published = observed.object.status.as_ref().map_or(&[][..], |status| &status.worst);
    let mut nodes: Vec<(u8, f64, BroadcastNode)> = Vec::new();
    for name in &census.wanted {
        let copy = knowledge.copies.get(name);
        let mut node = BroadcastNode { name: name.clone(), ..BroadcastNode::default() };
        let silent = census.silent.iter().find(|(silent, _)| silent == name).map(|(_, why)| why.clone());
        let (rank, why) = if let Some(why) = silent {
            (1, Some(why))
        } else if census.there.contains(name) {
            node.verified = true;
            let before = published.iter().find(|before| before.name == *name).and_then(|node| node.rate_mbps);
            node.rate_mbps = copy.and_then(|copy| copy.arrival).map(|a| rounded(a.rate_mbps)).or(before);
            (3, None)
        } else {
            let trouble = copy.and_then(|copy| copy.trouble.as_ref());
            (
                if trouble.is_some() { 0 } else { 2 },
                trouble.map(|t| t.failure.message.clone()).or_else(|| under_way(observed, copy)),
            )
        };
        node.message = why.map(|why| verdict::bounded(&why, MOST_MESSAGE));
        nodes.push((rank, node.rate_mbps.unwrap_or(f64::MAX), node));
    }
    nodes.sort_by(|(a, rate_a, node_a), (b, rate_b, node_b)| {
        a.cmp(b).then(rate_a.total_cmp(rate_b)).then(node_a.name.cmp(&node_b.name))
    });
    nodes.into_iter().take(MOST_WORST).map(|(_, _, node)| node).collect()
}

fn under_way(observed: &Observed, copy: Option<&Copy>) -> Option<String> {
    let bytes = copy.filter(|copy| copy.bytes > 0)?.bytes;
    let total = observed.knowledge.dataset.as_ref()?.size_bytes;
    Some(format!("{} of {}", size(bytes), size(total)))
}

/// Three decimals: kbit/s of a rate, milliseconds of a time.
fn rounded(value: f64) -> f64 {
    ((value * 1000.0).round() / 1000.0).clamp(0.0, 1e9)
}

/// A number that JSON carries, as the schema demands.
fn bounded(number: u64) -> i64 {
    const MOST: u64 = 9_007_199_254_740_991;
    i64::try_from(number.min(MOST)).unwrap_or(i64::MAX)
}
