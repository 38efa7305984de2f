//! No compute, as asked; and a cluster that goes.

use std::time::Duration;

use gridcast_crds::conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::{
    Action, Finalizer, Step,
    draft::{Draft, elapsed, tail},
    finish::{LOG_TAIL, release},
    nodes::{self, Nodes, count},
    prepare::launch_of,
};
use crate::virtual_cluster::observed::MemberPod;

/// A deletion waits so long for settings to be restored and the program to end; then it goes on without.
const RELEASE: Duration = Duration::from_secs(30);

/// Removes all compute; keys, data and identity stay.
pub(super) fn suspend(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let ran = draft.holds(conditions::RUNNING);
    if ran
        && let Some(launch) = observed.operations.launch.report().filter(|launch| !launch.log_tail.is_empty())
    {
        let run = draft.status.run.get_or_insert_default();
        run.log_tail = Some(tail(&launch.log_tail, LOG_TAIL));
    }
    draft.keep_operations(&[]);
    let pods: Vec<(String, &MemberPod)> = observed
        .strangers
        .iter()
        .chain(&observed.collect_pods)
        .map(|pod| (pod.name.clone(), &pod.pod))
        .collect();
    nodes::delete(draft, &pods);
    // What is measured next is measured between other pods.
    if let Some(map) = observed.network_map.as_ref().filter(|map| map.metadata.deletion_timestamp.is_none()) {
        let (name, uid) = (map.metadata.name.clone(), map.metadata.uid.clone());
        draft.act(Action::DeleteNetworkMap(name.unwrap_or_default(), uid.unwrap_or_default()));
    }
    if ran || observed.budget {
        draft.act(Action::DeleteDisruptionBudget);
    }
    let message = match observed.strangers.len() {
        0 => "there is no compute, as `spec.suspend` asks".to_owned(),
        1 => "1 pod is being removed, as `spec.suspend` asks".to_owned(),
        left => format!("{left} pods are being removed, as `spec.suspend` asks"),
    };
    forget(draft);
    draft.set(conditions::SUSPENDED, true, "Suspended", &message);
    draft.status.replicas = Some(count(observed.strangers.len()));
    draft.status.ready_replicas = Some(0);
}

/// Takes up a cluster that was suspended, or is new.
pub(super) fn resume(draft: &mut Draft<'_>) {
    if draft.holds(conditions::SUSPENDED) {
        forget(draft);
        // Its pods are gone, or go: there is nothing left of it to be ended.
        if let Some(run) = &mut draft.status.run {
            run.launch = None;
        }
        draft.set(conditions::SUSPENDED, false, "Resumed", "rebuilt from the present spec");
    }
    let made = draft.observed.cluster.metadata.creation_timestamp.as_ref().map_or(draft.now, |time| time.0);
    draft.reached(|timeline| &mut timeline.created, made);
}

/// All that was said of the nodes of before.
fn forget(draft: &mut Draft<'_>) {
    let suspended = draft.condition(conditions::SUSPENDED).cloned();
    draft.status.conditions = suspended.into_iter().collect();
    draft.status.nodes = Vec::new();
    draft.status.tcp = Vec::new();
    draft.status.network = None;
    if let Some(run) = &mut draft.status.run {
        run.exit_code = None;
        run.placement = Vec::new();
    }
    if let Some(timeline) = &mut draft.status.timeline {
        let created: Option<MicroTime> = timeline.created.take();
        *timeline = gridcast_crds::virtual_cluster::status::Timeline { created, ..Default::default() };
    }
}

/// Restores settings and ends the program; what the cluster owns goes with it, by its owner references.
pub(super) fn delete(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let ours =
        observed.cluster.metadata.finalizers.iter().flatten().any(|name| name == super::super::FINALIZER);
    if !ours {
        draft.keep_operations(&[]);
        return;
    }
    let nodes = Nodes::of(&observed.members);
    let launch = launch_of(draft).filter(|_| draft.holds(conditions::RUNNING));
    let mut keep = vec!["release".to_owned()];
    keep.extend(launch.iter().map(|id| format!("stop/{id}")));
    let asked = observed.cluster.metadata.deletion_timestamp.as_ref().map_or(draft.now, |time| time.0);
    let in_time = elapsed(asked, draft.now) < RELEASE;
    let stopped = match (&launch, nodes.first()) {
        (Some(id), Some(first)) if in_time => {
            if observed.operations.stop.is_absent() {
                draft.begin(Step::Stop { id: id.clone(), first });
            }
            observed.operations.stop.is_over()
        }
        _ => true,
    };
    let released = !in_time || release(draft, &nodes);
    if stopped && released {
        keep.clear();
        draft.plan.finalizer = Finalizer::Remove;
    } else {
        draft.left(asked, RELEASE);
    }
    draft.keep_operations(&keep);
}
