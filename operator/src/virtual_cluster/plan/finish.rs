//! The end, by whichever way: what is known of the program is published, results are brought home, settings restored; then
//! the cluster is complete or has failed, its pods are cleaned up, and it is deleted when its time is over.

use std::time::Duration;

use gridcast_crds::{
    conditions,
    virtual_cluster::{Cleanup, status::Placement},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    Action, Part, Step,
    draft::{Draft, tail, whole_seconds},
    nodes::{self, Nodes, count},
    prepare::launch_of,
};
use crate::virtual_cluster::{
    members::{collect_claims, keys_in_use},
    observed::{Launch, LaunchEnd, MemberPod, Phase, Trouble, Work},
};

/// Bytes of the program's last words that a status keeps.
pub(super) const LOG_TAIL: usize = 8192;
/// The reason of a cluster whose time is over.
pub(super) const DEADLINE: &str = "DeadlineExceeded";
/// The reason of what ended well.
pub(super) const COMPLETED: &str = "Completed";

/// What came of a cluster.
pub(super) struct Outcome {
    /// Why it failed; none if it did not.
    pub(super) failure: Option<Trouble>,
    /// Of the program, if it ended by itself.
    pub(super) exit_code: Option<i32>,
    pub(super) placement: Vec<Placement>,
    pub(super) log_tail: String,
    /// When.
    pub(super) at: Option<Timestamp>,
}

impl Outcome {
    pub(super) fn failed(trouble: Trouble) -> Self {
        Self {
            failure: Some(trouble),
            exit_code: None,
            placement: Vec::new(),
            log_tail: String::new(),
            at: None,
        }
    }

    pub(super) fn ended(failure: Option<Trouble>, launch: &Launch, end: &LaunchEnd) -> Self {
        Self {
            failure,
            exit_code: Some(end.exit_code),
            placement: end.placement.clone(),
            log_tail: launch.log_tail.clone(),
            at: end.at,
        }
    }
}

/// Publishes what came of the cluster, and goes on to its end.
pub(super) fn conclude(draft: &mut Draft<'_>, outcome: Outcome) {
    let Outcome { failure, exit_code, placement, log_tail, at } = outcome;
    // What was to be done for a cluster that goes on.
    draft.plan.actions.clear();
    let at = at.unwrap_or(draft.now).min(draft.now);
    draft.reached(|timeline| &mut timeline.finished, at);
    let Some(program) = &draft.spec().run else {
        let trouble = failure.unwrap_or_else(|| Trouble::new("Ended", "the cluster ended"));
        end(draft, Some(&trouble));
        return;
    };
    let run = draft.status.run.get_or_insert_default();
    run.exit_code = exit_code;
    run.placement = placement;
    if !log_tail.is_empty() {
        run.log_tail = Some(tail(&log_tail, LOG_TAIL));
    }
    if let Some(trouble) = failure {
        draft.set(conditions::RUNNING, false, &trouble.reason, &trouble.message);
    } else {
        let name = program.command.first().map(String::as_str).unwrap_or_default();
        let message = format!("{name} ended well, each of its {} processes in its place", program.processes);
        draft.set(conditions::RUNNING, false, COMPLETED, &message);
    }
    wind_up(draft);
}

/// Between the end of the program and that of the cluster.
pub(super) fn wind_up(draft: &mut Draft<'_>) {
    let nodes = Nodes::of(&draft.observed.members);
    let mut keep = vec!["release".to_owned()];
    keep.extend(launch_of(draft).map(|id| format!("collect/{id}")));
    draft.keep_operations(&keep);
    nodes::publish(draft, &nodes, |_| true);
    let Some(ran) = draft.condition(conditions::RUNNING).cloned() else {
        end(draft, Some(&Trouble::new("Ended", "there is nothing to run any more")));
        return;
    };
    let failure = (ran.reason != COMPLETED).then(|| Trouble::new(ran.reason.clone(), ran.message.clone()));
    let failure = match collect(draft, &nodes, &ran.reason) {
        None => {
            going(draft, failure.as_ref(), "Collecting", "results are being collected");
            return;
        }
        Some(Ok(())) => failure,
        Some(Err(trouble)) => Some(match failure {
            None => trouble,
            Some(first) => Trouble::new(
                first.reason,
                format!("{}; results were not collected: {}", first.message, trouble.message),
            ),
        }),
    };
    if !release(draft, &nodes) {
        going(draft, failure.as_ref(), "Releasing", "TCP settings are being restored");
        return;
    }
    end(draft, failure.as_ref());
}

fn going(draft: &mut Draft<'_>, failure: Option<&Trouble>, reason: &str, message: &str) {
    match failure {
        None => draft.ready(reason, message),
        Some(failure) => {
            draft.reconciling(reason, &format!("{message}; {}: {}", failure.reason, failure.message));
        }
    }
}

/// Brings home what a program left that ended by itself, even badly: the nodes' disks go, and hours of output with them.
/// None while that goes on.
fn collect(draft: &mut Draft<'_>, nodes: &Nodes<'_>, reason: &str) -> Option<Result<(), Trouble>> {
    let Some(run) = draft.spec().run.as_ref().filter(|run| !run.collect.is_empty()) else {
        return Some(Ok(()));
    };
    let ended = draft.status.run.as_ref().is_some_and(|run| run.exit_code.is_some());
    let Some(id) = launch_of(draft).filter(|_| ended && reason != DEADLINE) else { return Some(Ok(())) };
    match &draft.observed.operations.collect {
        Work::Done(()) => return Some(Ok(())),
        Work::Failed(trouble) => return Some(Err(trouble.clone())),
        Work::Running(()) => return None,
        Work::Absent => {}
    }
    if nodes.membership.is_none() {
        return Some(Err(Trouble::new("CollectFailed", "a node that may have results is gone")));
    }
    let (claims, pods) = (collect_claims(run).len(), &draft.observed.collect_pods);
    if let Some(ended) = pods.iter().find(|pod| matches!(pod.pod.phase, Phase::Failed | Phase::Succeeded)) {
        let why = ended.pod.trouble.as_ref().map_or("it ended", |trouble| trouble.message.as_str());
        return Some(Err(Trouble::new("CollectFailed", format!("pod {}: {why}", ended.name))));
    }
    let runs =
        |pod: &MemberPod| pod.phase == Phase::Running && pod.address.is_some() && pod.deleting.is_none();
    if pods.len() == claims && pods.iter().all(|pod| runs(&pod.pod)) {
        draft.begin(Step::Collect { id, hosts: nodes.hosts.clone(), pods: pods.clone() });
        return None;
    }
    let finished =
        draft.status.timeline.as_ref().and_then(|timeline| timeline.finished.as_ref()).map(|at| at.0);
    let scheduling = draft.spec().scheduling.clone().unwrap_or_default();
    let limit = Duration::from_secs(u64::from(scheduling.timeout_seconds.unsigned_abs()));
    if draft.left(finished.unwrap_or(draft.now), limit).is_none() {
        let refused = draft.observed.refused.get(&Part::CollectPods).map(|refused| &refused.trouble);
        let trouble = refused.or_else(|| pods.iter().find_map(|pod| pod.pod.trouble.as_ref()));
        let why = trouble.map_or("it does not run", |trouble| trouble.message.as_str());
        let message = format!("the pod that writes results was waited for {} s: {why}", limit.as_secs());
        return Some(Err(Trouble::new("CollectFailed", message)));
    }
    if pods.len() < claims {
        // The nodes' own: those that are asked for may be others by now.
        let keys = keys_in_use(&draft.observed.cluster, &nodes.hosts);
        draft.write(&Part::CollectPods, Action::CreateCollectPods(keys));
    }
    None
}

/// Restores settings where nodes are left that have them. True when there is nothing (more) to wait for.
pub(super) fn release(draft: &mut Draft<'_>, nodes: &Nodes<'_>) -> bool {
    let written = draft.status.tcp.iter().any(|setting| !setting.dry_run && !setting.restored);
    if !written || nodes.hosts.is_empty() {
        return true;
    }
    match &draft.observed.operations.release {
        Work::Absent => {
            draft.begin(Step::Release { hosts: nodes.hosts.clone() });
            false
        }
        Work::Running(_) => false,
        // A node that does not answer takes its settings with it when its pod goes.
        Work::Failed(_) => true,
        Work::Done(released) => {
            for setting in &mut draft.status.tcp {
                setting.restored |= released.restored.contains(&(setting.host.clone(), setting.key.clone()));
            }
            true
        }
    }
}

/// Complete, or failed.
fn end(draft: &mut Draft<'_>, failure: Option<&Trouble>) {
    draft.status.completion_time = Some(Time(whole_seconds(draft.now)));
    match failure {
        None => {
            let message =
                draft.condition(conditions::RUNNING).map(|ran| ran.message.clone()).unwrap_or_default();
            draft.ready(COMPLETED, &message);
            draft.set(conditions::COMPLETE, true, COMPLETED, &message);
        }
        Some(trouble) => {
            draft.stalled(trouble);
            draft.set(conditions::FAILED, true, &trouble.reason, &trouble.message);
        }
    }
    // An operator that began after the program ended does not remember that there is one.
    if !draft.observed.budget && launch_of(draft).is_some() {
        draft.act(Action::DeleteDisruptionBudget);
    }
    over(draft);
}

/// After the end, for good.
pub(super) fn over(draft: &mut Draft<'_>) {
    let nodes = Nodes::of(&draft.observed.members);
    draft.keep_operations(&["release".to_owned()]);
    if !release(draft, &nodes) {
        return;
    }
    clean_up(draft, &nodes);
    if draft.observed.budget {
        draft.act(Action::DeleteDisruptionBudget);
    }
    let Some(seconds) = draft.spec().ttl_seconds_after_finished else { return };
    let Some(completed) = draft.status.completion_time.as_ref().map(|time| time.0) else { return };
    if draft.left(completed, Duration::from_secs(u64::from(seconds.unsigned_abs()))).is_none() {
        draft.act(Action::DeleteSelf);
    }
}

fn clean_up(draft: &mut Draft<'_>, nodes: &Nodes<'_>) {
    let observed = draft.observed;
    let of_members = observed
        .members
        .iter()
        .filter_map(|member| member.pod.as_ref().map(|pod| (member.name.clone(), pod)));
    let strangers = observed.strangers.iter().map(|stranger| (stranger.name.clone(), &stranger.pod));
    let policy = draft.spec().cleanup;
    let goes = |pod: &MemberPod| match policy {
        Cleanup::None => false,
        Cleanup::Running => matches!(pod.phase, Phase::Pending | Phase::Running),
        Cleanup::All => true,
    };
    let (gone, kept): (Vec<_>, Vec<_>) = of_members.chain(strangers).partition(|(_, pod)| goes(pod));
    let collect = observed.collect_pods.iter().map(|pod| (pod.name.clone(), &pod.pod));
    let gone: Vec<_> = gone.into_iter().chain(collect).collect();
    nodes::delete(draft, &gone);
    let stays = |name: &str| kept.iter().any(|(kept, pod)| kept == name && pod.deleting.is_none());
    for node in &mut draft.status.nodes {
        node.ready &= stays(&node.name);
    }
    // As it is when that is done: another write for it would tell nobody anything.
    draft.status.replicas = Some(count(kept.iter().filter(|(_, pod)| pod.deleting.is_none()).count()));
    let running = if policy == Cleanup::None { nodes.running } else { 0 };
    draft.status.ready_replicas = Some(count(running));
}

/// `activeDeadlineSeconds` counts from the making of the cluster, or from when it was resumed last.
fn deadline(draft: &Draft<'_>) -> Option<Duration> {
    draft.spec().active_deadline_seconds.map(|seconds| Duration::from_secs(seconds.unsigned_abs()))
}

/// Looks again when the time is over.
pub(super) fn watch_deadline(draft: &mut Draft<'_>) {
    if let Some(limit) = deadline(draft) {
        let start = draft.start();
        draft.left(start, limit);
    }
}

pub(super) fn is_past_deadline(draft: &Draft<'_>) -> bool {
    deadline(draft).is_some_and(|limit| super::draft::elapsed(draft.start(), draft.now) >= limit)
}

pub(super) fn deadline_trouble(draft: &Draft<'_>) -> Trouble {
    let seconds = draft.spec().active_deadline_seconds.unwrap_or_default();
    let phase = match draft.condition(conditions::READY) {
        Some(ready) if ready.status == "True" => "while the program ran".to_owned(),
        Some(ready) => format!("before the program ran: {}: {}", ready.reason, ready.message),
        None => "before anything was made".to_owned(),
    };
    Trouble::new(
        DEADLINE,
        format!("activeDeadlineSeconds: {seconds} s passed {phase}; raise it or ask for less"),
    )
}

/// Ends a cluster that does not run yet and whose time is over.
pub(super) fn deadline_passed(draft: &mut Draft<'_>) -> bool {
    if !is_past_deadline(draft) {
        watch_deadline(draft);
        return false;
    }
    let trouble = deadline_trouble(draft);
    conclude(draft, Outcome::failed(trouble));
    true
}
