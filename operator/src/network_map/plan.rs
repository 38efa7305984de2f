//! What should be done for a NetworkMap? Pure: no client, no clock, no randomness.

use std::time::Duration;

use gridcast_crds::{
    conditions::{self as types, Condition},
    network_map::NetworkMapStatus,
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    observed::{Host, Hosts, Measurement, Observed},
    published,
};
use crate::broadcast::{
    knowledge::since,
    standing::{self, Standing},
};

/// What to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What is measured now.
    pub(crate) order: Option<Order>,
    /// What to publish; `None` where the published status says it.
    pub(crate) status: Option<NetworkMapStatus>,
    /// When to look again though nothing changed.
    pub(crate) again: Option<Duration>,
}

/// A measurement that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    /// Who is measured.
    pub(crate) hosts: Vec<Host>,
    /// What is known at first.
    pub(crate) first: Measurement,
}

/// A measurement that takes no longer is told of when it has ended.
const SHORT: Duration = Duration::from_secs(3);
/// A young object passes through several states in its first seconds: the first is told, and what goes wrong.
const YOUNG: Duration = Duration::from_secs(10);
const MEASURING: &str = "the network between the hosts is being measured";
/// Reasons of passing states in which nothing is wrong.
const QUIET: [&str; 2] = ["WaitingForPods", "Measuring"];
/// How often it is seen whether a program has ended.
const BUSY_CHECK: Duration = Duration::from_secs(30);

/// Whether a reason tells of a passing state in which nothing is wrong.
pub(crate) fn is_quiet(reason: &str) -> bool {
    QUIET.contains(&reason)
}

/// Decides what is done for a NetworkMap.
pub(crate) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    // Nothing has to be released.
    if observed.object.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let hosts = match &observed.hosts {
        Hosts::Known(hosts) => hosts,
        Hosts::Waiting { reason, message } => {
            // What was measured stays true while pods are replaced.
            if !is_current(observed) && !observed.running {
                tell(observed, (reason, message), now, &mut plan);
            }
            return plan;
        }
    };
    let key = observed.key(hosts);
    let last = Some(&observed.last).filter(|last| last.key == key);
    if let Some(trouble) = last.and_then(|last| last.trouble.as_ref()) {
        // It is told while it is tried again, too.
        tell(observed, (&trouble.failure.reason, &trouble.failure.message), now, &mut plan);
    } else if let Some((at, found)) = last.and_then(|last| last.found.as_ref()) {
        let mut status = published::figures(found, *at);
        let message = match hosts.len() {
            1 => "one host: there is nothing between hosts to measure".to_owned(),
            hosts => format!("measured between {hosts} hosts"),
        };
        status.observed_generation = observed.object.metadata.generation;
        status.conditions = conclude(observed, Standing::Ready, ("Measured", &message), now);
        plan.status = (observed.object.status.as_ref() != Some(&status)).then_some(status);
    }
    if observed.running {
        under_way(observed, now, &mut plan);
        return plan;
    }
    match due(observed, hosts, &key, now) {
        None => {}
        Some(wait) if !wait.is_zero() => plan.again = Some(wait),
        Some(_) if observed.busy => {
            plan.again = Some(BUSY_CHECK);
            let message =
                "the program runs, and measuring would disturb it; it is measured when that has ended";
            if !is_current(observed) && last.is_none_or(|last| last.trouble.is_none()) {
                tell(observed, ("ProgramRuns", message), now, &mut plan);
            }
        }
        Some(_) => order(observed, hosts, key, now, &mut plan),
    }
    plan
}

fn order(observed: &Observed, hosts: &[Host], key: String, now: Timestamp, plan: &mut Plan) {
    let Measurement { found, trouble, .. } =
        if observed.last.key == key { observed.last.clone() } else { Measurement::default() };
    if measured(observed, hosts, &key).is_none() && trouble.is_none() && is_current(observed) {
        // What is published is about others.
        tell(observed, ("Measuring", MEASURING), now, plan);
    }
    let first = Measurement { key, began: now, found, trouble };
    plan.order = Some(Order { hosts: hosts.to_vec(), first });
    plan.again = Some(SHORT);
}

/// Tells of a measurement that takes long; one that is made again goes on in silence.
fn under_way(observed: &Observed, now: Timestamp, plan: &mut Plan) {
    let left = SHORT.saturating_sub(since(observed.last.began, now));
    if !left.is_zero() {
        plan.again = Some(left);
    } else if !is_current(observed) && observed.last.trouble.is_none() && plan.status.is_none() {
        tell(observed, ("Measuring", MEASURING), now, plan);
    }
}

/// When the next measurement should be; `None`: never.
fn due(observed: &Observed, hosts: &[Host], key: &str, now: Timestamp) -> Option<Duration> {
    let measured = measured(observed, hosts, key);
    let failed = observed.last.trouble.as_ref().filter(|_| observed.last.key == key);
    if let Some(trouble) = failed {
        return Some(trouble.wait(now));
    }
    match (measured, observed.object.spec.interval_seconds) {
        (None, _) => Some(Duration::ZERO),
        (Some(_), None) => None,
        (Some(at), Some(seconds)) => {
            let interval = Duration::from_secs(seconds.unsigned_abs().into());
            Some(interval.saturating_sub(since(at, now)))
        }
    }
}

/// When these very hosts were measured as the spec asks, by this process or by one before it.
fn measured(observed: &Observed, hosts: &[Host], key: &str) -> Option<Timestamp> {
    if !observed.last.key.is_empty() {
        let found = observed.last.found.as_ref().filter(|_| observed.last.key == key);
        return found.map(|(at, _)| *at);
    }
    let status = observed.object.status.as_ref().filter(|_| is_current(observed))?;
    let at = status.measured_time.as_ref()?.0;
    let same = published::hosts(status).iter().eq(hosts.iter().map(|host| &host.name));
    // Pods of the same names that were made later are others.
    let newer = hosts.iter().filter_map(|host| host.pod.as_ref()?.created).any(|created| created > at);
    (same && !newer).then_some(at)
}

/// The published status is what this generation asks for.
fn is_current(observed: &Observed) -> bool {
    let status = observed.object.status.as_ref();
    status.is_some_and(|status| {
        status.observed_generation == observed.object.metadata.generation
            && standing::is_ready(&status.conditions)
    })
}

/// Publishes that there is no measurement yet, and why.
fn tell(observed: &Observed, what: (&str, &str), now: Timestamp, plan: &mut Plan) {
    let shown = standing::find(conditions(observed), types::READY);
    let age = observed.object.creation_timestamp().map_or(Duration::ZERO, |time| since(time.0, now));
    let quiet_before = shown.is_some_and(|shown| shown.status == "False" && is_quiet(&shown.reason));
    let left = YOUNG.saturating_sub(age);
    if is_quiet(what.0) && quiet_before && !left.is_zero() {
        plan.again = Some(plan.again.map_or(left, |again| again.min(left)));
        return;
    }
    let mut status = observed.object.status.clone().unwrap_or_default();
    status.observed_generation = observed.object.metadata.generation;
    status.conditions = conclude(observed, Standing::Reconciling, what, now);
    plan.status = (observed.object.status.as_ref() != Some(&status)).then_some(status);
}

fn conclude(observed: &Observed, standing: Standing, what: (&str, &str), now: Timestamp) -> Vec<Condition> {
    standing::conditions(conditions(observed), standing, what, observed.object.metadata.generation, now)
}

/// The conditions that are published.
pub(crate) fn conditions(observed: &Observed) -> &[Condition] {
    observed.object.status.as_ref().map_or(&[], |status| &status.conditions)
}
