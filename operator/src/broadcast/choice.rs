//! Which nodes are brought the dataset next, and which give it back?
//!
//! The first failed node ends a transfer for all its members. So whoever has not failed goes first, together; those that
//! have failed try again after their own back-off, and of these only the ones with the fewest failures at once: a node
//! that keeps failing keeps nobody else waiting.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    knowledge::{Campaign, Copy, Knowledge, Measured, Trouble, since},
    observed::Observed,
    plan::{Plan, age, newest},
    source::{Origin, PodState},
    standing,
    targets::{NodeAgent, Targets},
};

/// A transfer that begins at once would leave out whoever's agent needs a moment, and read the origin again for them.
const AGENTS_TAKE: Duration = Duration::from_secs(5);
/// How often a node that is not wanted is asked whether its pods have gone.
const HELD_CHECK: Duration = Duration::from_secs(30);

/// What the operation that stages does next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attempt {
    /// What it knows at first; every node of the attempt has an entry.
    pub(crate) first: Knowledge,
    /// Nodes that prepare for the dataset, and are brought it if there is a source.
    pub(crate) nodes: Vec<String>,
    /// The name under which the source will call.
    pub(crate) driver: String,
    /// Where the data is.
    pub(crate) source: Option<SourceAt>,
    /// Nodes that release it.
    pub(crate) release: Vec<String>,
    /// What a NetworkMap of these nodes has measured.
    pub(crate) mapped: Option<Measured>,
}

/// A source that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SourceAt {
    /// The agent of a node.
    Node {
        /// The node.
        node: String,
        /// The dataset there.
        path: String,
    },
    /// A source pod.
    Pod {
        /// Its address.
        address: String,
        /// Where it is.
        node: Option<String>,
        /// The dataset there.
        path: String,
    },
}

/// Who has it?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Those who should, where that is known.
    pub(crate) wanted: Vec<String>,
    /// They have it, verified.
    pub(crate) there: Vec<String>,
    /// They do not.
    pub(crate) missing: Vec<String>,
    /// They have not been asked.
    pub(crate) unknown: Vec<String>,
    /// They cannot be asked; each with why.
    pub(crate) silent: Vec<(String, String)>,
    /// The node that has the source, where it is one's.
    pub(crate) source_node: Option<String>,
}

impl Census {
    /// Counts.
    pub(crate) fn of(observed: &Observed) -> Self {
        let mut census = Self::default();
        if let Targets::Nodes(nodes) = &observed.targets {
            census.wanted.clone_from(nodes);
        }
        if let Ok(Origin::Node { name, .. }) = &observed.origin {
            census.source_node = name.clone().or_else(|| census.wanted.first().cloned());
        }
        for node in &census.wanted {
            let list = match observed.agents.get(node) {
                Some(NodeAgent::Ready { uid }) => match observed.knowledge.copies.get(node) {
                    Some(copy) if copy.is_there(uid) => &mut census.there,
                    Some(copy) if copy.agent == *uid && (copy.prepared || copy.trouble.is_some()) => {
                        &mut census.missing
                    }
                    _ => &mut census.unknown,
                },
                // Its agent is being replaced, perhaps: the data stays where it was.
                Some(NodeAgent::Missing { .. }) if was_there(observed, node, census.wanted.len()) => {
                    &mut census.there
                }
                Some(NodeAgent::Missing { message, .. }) => {
                    census.silent.push((node.clone(), message.clone()));
                    continue;
                }
                Some(NodeAgent::Gone) | None => {
                    census.silent.push((node.clone(), format!("there is no Kubernetes node {node}")));
                    continue;
                }
            };
            list.push(node.clone());
        }
        census
    }

    /// Everybody has it.
    pub(crate) fn complete(&self, observed: &Observed) -> bool {
        matches!(observed.targets, Targets::Nodes(_)) && self.there.len() == self.wanted.len()
    }
}

/// Whether a node that cannot be asked had the dataset when it was last known.
fn was_there(observed: &Observed, node: &str, wanted: usize) -> bool {
    if let Some(copy) = observed.knowledge.copies.get(node) {
        return copy.verified;
    }
    let Some(status) = &observed.object.status else { return false };
    let named = status.worst.iter().any(|shown| shown.name == node && shown.verified);
    let all = status.nodes_staged == i32::try_from(wanted).ok() && status.nodes_staged == status.nodes_wanted;
    standing::is_ready(&status.conditions) && (named || all)
}

/// Puts the next attempt into the plan, or when there will be one.
pub(crate) fn choose(observed: &Observed, census: &Census, now: Timestamp, plan: &mut Plan) {
    if observed.running {
        return;
    }
    if let Targets::Waiting { placed, .. } = &observed.targets {
        plan.attempt = announcement(observed, placed, now);
        return;
    }
    let release = unwanted(observed, census, now, plan);
    let (nodes, source) = wanted(observed, census, now, plan);
    if nodes.is_empty() && release.is_empty() {
        return;
    }
    let driver = driver(observed, census.source_node.as_deref());
    let first = first(observed, &nodes, now);
    let mapped = observed.mapped.clone();
    plan.attempt = Some(Attempt { first, nodes, driver, source, release, mapped });
}

/// Tells the nodes where members have a place already: a pod that comes there waits for a dataset that is known, and not
/// for the node to hear of one.
fn announcement(observed: &Observed, placed: &[String], now: Timestamp) -> Option<Attempt> {
    let is_new = |node: &&String| match observed.agents.get(*node) {
        Some(NodeAgent::Ready { uid }) => {
            let copy = observed.knowledge.copies.get(*node);
            copy.is_none_or(|copy| copy.agent != *uid || !(copy.prepared || copy.trouble.is_some()))
        }
        _ => false,
    };
    let nodes: Vec<String> = placed.iter().filter(is_new).cloned().collect();
    (!nodes.is_empty()).then(|| Attempt {
        first: first(observed, &nodes, now),
        driver: driver(observed, None),
        nodes,
        source: None,
        release: Vec::new(),
        mapped: None,
    })
}

/// The name under which the source will call. Where that is a node that is not known yet it is nobody's: each transfer
/// says it again.
fn driver(observed: &Observed, source_node: Option<&str>) -> String {
    match &observed.origin {
        Ok(Origin::Node { name, .. }) => source_node.map(str::to_owned).or_else(|| name.clone()),
        _ => None,
    }
    .unwrap_or_else(|| observed.object.uid().unwrap_or_default())
}

/// The nodes of the next transfer with its source; without a source those that are to prepare.
fn wanted(
    observed: &Observed,
    census: &Census,
    now: Timestamp,
    plan: &mut Plan,
) -> (Vec<String>, Option<SourceAt>) {
    let trouble = observed.knowledge.source.as_ref();
    let wait = trouble.map_or(Duration::ZERO, |trouble| trouble.wait(now));
    let patience = AGENTS_TAKE.saturating_sub(age(observed, now));
    let source = match source_at(observed, census) {
        Some(_) if !census.silent.is_empty() && !patience.is_zero() => {
            plan.look_again(patience);
            None
        }
        Some(_) if !wait.is_zero() => {
            plan.look_again(wait);
            None
        }
        source => source,
    };
    if source.is_none() {
        return (census.unknown.clone(), None);
    }
    let (troubled, fine): (Vec<&String>, Vec<&String>) =
        census.missing.iter().partition(|node| trouble_of(observed, node).is_some());
    let mut nodes: Vec<String> = fine.into_iter().chain(&census.unknown).cloned().collect();
    if nodes.is_empty() {
        nodes = fewest_failures(observed, &troubled, now, plan);
    }
    nodes.sort();
    (nodes, source)
}

fn trouble_of<'a>(observed: &'a Observed, node: &str) -> Option<&'a Trouble> {
    observed.knowledge.copies.get(node)?.trouble.as_ref()
}

/// Of those whose back-off is over, the ones with the fewest failures.
fn fewest_failures(
    observed: &Observed,
    troubled: &[&String],
    now: Timestamp,
    plan: &mut Plan,
) -> Vec<String> {
    let mut due: Vec<(u32, String)> = Vec::new();
    for &node in troubled {
        let Some(trouble) = trouble_of(observed, node) else { continue };
        let wait = trouble.wait(now);
        if wait.is_zero() {
            due.push((trouble.count, node.clone()));
        } else {
            plan.look_again(wait);
        }
    }
    let fewest = due.iter().map(|(count, _)| *count).min();
    due.into_iter().filter(|(count, _)| Some(*count) == fewest).map(|(_, node)| node).collect()
}

/// The source, if it can be asked.
fn source_at(observed: &Observed, census: &Census) -> Option<SourceAt> {
    match observed.origin.as_ref().ok()? {
        Origin::Node { path, .. } => {
            let node = census.source_node.clone()?;
            let is_ready = matches!(observed.agents.get(&node), Some(NodeAgent::Ready { .. }));
            is_ready.then(|| SourceAt::Node { node, path: path.clone() })
        }
        Origin::Pod { path, .. } => {
            let pod = newest(observed)?;
            let PodState::Running { address } = &pod.state else { return None };
            Some(SourceAt::Pod { address: address.clone(), node: pod.node.clone(), path: path.clone() })
        }
    }
}

/// The nodes that have a copy and should not, and can be asked now.
fn unwanted(observed: &Observed, census: &Census, now: Timestamp, plan: &mut Plan) -> Vec<String> {
    let mut nodes = Vec::new();
    for (node, copy) in &observed.knowledge.copies {
        if census.wanted.contains(node) || !matches!(observed.agents.get(node), Some(NodeAgent::Ready { .. }))
        {
            continue;
        }
        let held = !copy.held.is_empty();
        let last = observed.knowledge.released_at.map_or(Duration::MAX, |then| since(then, now));
        let wait = match &copy.trouble {
            _ if held => HELD_CHECK.saturating_sub(last),
            Some(trouble) => trouble.wait(now),
            None => Duration::ZERO,
        };
        if wait.is_zero() {
            nodes.push(node.clone());
        } else {
            plan.look_again(wait);
        }
    }
    nodes
}

/// What an attempt with these nodes knows at first.
fn first(observed: &Observed, nodes: &[String], now: Timestamp) -> Knowledge {
    let mut first = observed.knowledge.clone();
    // Of a node that is gone for good there is nothing to release.
    first.copies.retain(|node, _| !matches!(observed.agents.get(node), Some(NodeAgent::Gone)));
    if first.copies.values().all(|copy| copy.verified) {
        first.campaign = Campaign::default();
        for copy in first.copies.values_mut() {
            copy.arrival = None;
        }
    }
    first.attempt = first.attempt.saturating_add(1).max(now.as_second());
    for node in nodes {
        let Some(NodeAgent::Ready { uid }) = observed.agents.get(node) else { continue };
        let copy = first.copies.entry(node.clone()).or_default();
        if copy.agent != *uid {
            *copy = Copy { agent: uid.clone(), arrival: copy.arrival, ..Copy::default() };
        }
        copy.held.clear();
    }
    first
}
