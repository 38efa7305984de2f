//! What happened, by the difference of two statuses? Transitions only: an undisturbed run tells that it was launched and
//! that it completed.

use gridcast_crds::{conditions, virtual_cluster::VirtualClusterStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::Event;

/// Reasons for not being ready that are no trouble.
pub(super) const PROGRESS: [&str; 8] =
    ["Provisioning", "Staging", "Measuring", "Tuning", "Launching", "Restarting", "Collecting", "Releasing"];

/// Reasons for being ready and nothing but that; to collect and to release is [`PROGRESS`].
const AS_ASKED: [&str; 3] = ["Provisioned", "Running", "Completed"];

pub(super) fn between(old: &VirtualClusterStatus, new: &VirtualClusterStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let turned = |type_: &str, status: &str| {
        let now = find(new, type_).filter(|condition| condition.status == status)?;
        find(old, type_).is_none_or(|before| before.status != status).then_some(now)
    };
    if let Some(suspended) = turned(conditions::SUSPENDED, "True") {
        events.push(Event::normal("Suspended", suspended.message.clone()));
    }
    if let Some(resumed) = turned(conditions::SUSPENDED, "False") {
        events.push(Event::normal("Resumed", resumed.message.clone()));
    }
    events.extend(restarted(old, new));
    if let Some(running) = turned(conditions::RUNNING, "True") {
        events.push(Event::normal("Launched", running.message.clone()));
    }
    if let Some(complete) = turned(conditions::COMPLETE, "True") {
        events.push(Event::normal("Completed", complete.message.clone()));
    } else if let Some(failed) = turned(conditions::FAILED, "True") {
        events.push(Event::warning(failed.reason.clone(), failed.message.clone()));
    } else if let Some(ready) =
        turned(conditions::READY, "True").filter(|ready| ready.reason == "Provisioned")
    {
        events.push(Event::normal("Provisioned", ready.message.clone()));
    } else {
        events.extend(trouble(old, new));
    }
    events
}

fn restarted(old: &VirtualClusterStatus, new: &VirtualClusterStatus) -> Option<Event> {
    let restarts = |status: &VirtualClusterStatus| status.run.as_ref().map_or(0, |run| run.restarts);
    let before = find(old, conditions::RUNNING)?;
    let now = find(new, conditions::RUNNING)?;
    if before.status != "True" || now.status == "True" {
        return None;
    }
    if restarts(new) > restarts(old) {
        return Some(Event::warning("Restarting", now.message.clone()));
    }
    (now.reason == "Interrupted").then(|| Event::normal("Interrupted", now.message.clone()))
}

/// Something new is in the way, or missing from a cluster that is ready all the same.
fn trouble(old: &VirtualClusterStatus, new: &VirtualClusterStatus) -> Option<Event> {
    let ready = find(new, conditions::READY)
        .filter(|ready| ready.status == "False" || !AS_ASKED.contains(&ready.reason.as_str()))?;
    let news = find(old, conditions::READY).is_none_or(|before| before.reason != ready.reason);
    (news && !PROGRESS.contains(&ready.reason.as_str()))
        .then(|| Event::warning(ready.reason.clone(), ready.message.clone()))
}

fn find<'a>(status: &'a VirtualClusterStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_)
}
