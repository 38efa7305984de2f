//! What happens to a Broadcast that is deleted?
//!
//! Every node that has a copy releases it; then the finalizer goes. A node that is gone for good has nothing to release.
//! One whose pods have the dataset mounted, or whose agent does not answer, is waited for and named. One that has no agent
//! any more, since the DaemonSet does not select it, is waited for a while: nobody there would ever answer. What it has
//! stays there, and that is told.

use std::time::Duration;

use gridcast_crds::broadcast::Retain;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    choice::Attempt,
    knowledge::{Copy, since},
    observed::{Observed, shown},
    plan::{Finalizer, Plan, SourceStep},
    publish,
    standing::Standing,
    targets::{NodeAgent, Targets, named},
};
use crate::apply::has_finalizer;

/// How often a node is asked whether its pods have gone: nothing tells, and nobody reads or writes for it but the agent.
const HELD_CHECK: Duration = Duration::from_secs(2);

/// A node without any pod of an agent is let go of after so long. An agent that is replaced is back within seconds.
const NO_AGENT: Duration = Duration::from_mins(2);

/// Decides what is done for a Broadcast on its way out.
pub(crate) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if !has_finalizer(&*observed.object) {
        return plan;
    }
    let knowledge = &observed.knowledge;
    if !observed.pods.is_empty() {
        plan.source = SourceStep::Remove;
    }
    if !knowledge.releasing {
        plan.stop = observed.running;
        begin(observed, now, &mut plan);
        return plan;
    }
    if observed.running {
        return plan;
    }
    let mut left: Vec<(&String, &Copy)> =
        knowledge.copies.iter().filter(|(node, _)| !is_gone(observed, node)).collect();
    let mut abandoned = Vec::new();
    left.retain(|(node, _)| match patience(observed, node, now) {
        None => true,
        Some(Duration::ZERO) => {
            abandoned.push((*node).clone());
            false
        }
        Some(wait) => {
            plan.look_again(wait);
            true
        }
    });
    if left.is_empty() {
        plan.finalizer = Finalizer::Remove;
        plan.left_behind = left_behind(observed, &abandoned);
        return plan;
    }
    let mut due = Vec::new();
    for &(node, copy) in &left {
        if !matches!(observed.agents.get(node), Some(NodeAgent::Ready { .. })) {
            continue;
        }
        let last = knowledge.released_at.map_or(Duration::MAX, |then| since(then, now));
        let wait = match &copy.trouble {
            Some(trouble) if copy.held.is_empty() => trouble.wait(now),
            _ => HELD_CHECK.saturating_sub(last),
        };
        if wait.is_zero() {
            due.push(node.clone());
        } else {
            plan.look_again(wait);
        }
    }
    if !due.is_empty() {
        plan.attempt = Some(attempt(observed, due));
    }
    let (reason, message) = waits_for(observed, &left);
    let mut status = publish::base(observed);
    status.conditions = publish::conditions(observed, Standing::Reconciling, (&reason, &message), now);
    plan.status = publish::unless_shown(observed, status);
    plan
}

/// Asks everybody who may have a copy, at once.
fn begin(observed: &Observed, now: Timestamp, plan: &mut Plan) {
    let mut attempt = attempt(observed, Vec::new());
    let first = &mut attempt.first;
    first.releasing = true;
    // It ends with the operation that is stopped; what comes next is counted from here.
    first.source = None;
    let never = first.copies.is_empty() && !observed.running && observed.object.status.is_none();
    if never {
        plan.finalizer = Finalizer::Remove;
        return;
    }
    if !observed.whole {
        // What a process before this one did: its targets, and whoever its status named.
        let mut others: Vec<String> = shown(&observed.object).collect();
        if let Targets::Nodes(nodes) = &observed.targets {
            others.extend(nodes.iter().cloned());
        }
        for node in others.into_iter().filter(|node| !is_gone(observed, node)) {
            first.copies.entry(node).or_default();
        }
        first.swept = true;
        attempt.release.clone_from(&observed.everybody);
    }
    for copy in first.copies.values_mut() {
        // How bringing it went says nothing about taking it back.
        copy.trouble = None;
    }
    for node in first.copies.keys() {
        let answers = matches!(observed.agents.get(node), Some(NodeAgent::Ready { .. }));
        if answers && !attempt.release.contains(node) {
            attempt.release.push(node.clone());
        }
    }
    first.released_at = Some(now);
    plan.attempt = Some(attempt);
}

fn attempt(observed: &Observed, release: Vec<String>) -> Attempt {
    let mut first = observed.knowledge.clone();
    first.copies.retain(|node, _| !is_gone(observed, node));
    Attempt { first, nodes: Vec::new(), driver: String::new(), source: None, release, mapped: None }
}

fn is_gone(observed: &Observed, node: &str) -> bool {
    matches!(observed.agents.get(node), Some(NodeAgent::Gone))
}

/// How long a node without an agent is waited for yet; `None` where there is one.
fn patience(observed: &Observed, node: &str, now: Timestamp) -> Option<Duration> {
    let Some(NodeAgent::Missing { absent: Some(absent), .. }) = observed.agents.get(node) else {
        return None;
    };
    let deleted = observed.object.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    // One in the future is of a clock that goes before ours, and would be waited for.
    let begun = deleted.filter(|deleted| *deleted <= now).map_or(*absent, |deleted| deleted.max(*absent));
    Some(NO_AGENT.saturating_sub(since(begun, now)))
}

/// What is not removed, where it should have been.
fn left_behind(observed: &Observed, nodes: &[String]) -> Option<String> {
    if nodes.is_empty() || observed.object.spec.retain == Retain::Keep {
        return None;
    }
    let object = &observed.object;
    Some(format!(
        "no agent has been on {} for {} s: what is there of the dataset stays, in data/{}/{} and records/{}.json below the \
         agents' state directory (/var/lib/gridcast, if the chart does not say otherwise)",
        named(nodes),
        NO_AGENT.as_secs(),
        object.namespace().unwrap_or_default(),
        observed.path(),
        object.uid().unwrap_or_default()
    ))
}

/// Who is waited for, as a reason and a sentence: pods first, since their owner can do something.
fn waits_for(observed: &Observed, left: &[(&String, &Copy)]) -> (String, String) {
    if let Some((node, copy)) = left.iter().find(|(_, copy)| !copy.held.is_empty()) {
        let name = |uid: &String| {
            let known = observed.knowledge.pods.get(uid);
            known.map_or_else(|| format!("pod with UID {uid}"), |name| format!("pod {name}"))
        };
        let pods: Vec<String> = copy.held.iter().map(name).collect();
        let have = if pods.len() == 1 { "has" } else { "have" };
        let message = format!(
            "node {node}: {} still {have} it mounted; it is removed when they have gone",
            named(&pods)
        );
        return ("Mounted".to_owned(), message);
    }
    let failed = left.iter().find_map(|(_, copy)| copy.trouble.as_ref());
    if let Some(trouble) = failed {
        return (trouble.failure.reason.clone(), trouble.failure.message.clone());
    }
    let silent = left.iter().find_map(|(node, _)| match observed.agents.get(*node) {
        Some(NodeAgent::Missing { message, absent }) => Some((message, absent.is_some())),
        _ => None,
    });
    match silent {
        Some((message, absent)) => {
            let otherwise = if absent {
                format!("; without an agent for {} s it stays there", NO_AGENT.as_secs())
            } else {
                String::new()
            };
            let message = format!(
                "{message}; its copy of the dataset is removed when it answers, or when the node is deleted{otherwise}"
            );
            ("NoAgent".to_owned(), message)
        }
        None => ("Releasing".to_owned(), format!("{} nodes release the dataset", left.len())),
    }
}
