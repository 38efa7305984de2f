//! From nothing to the open gate: nodes, data, network, settings; then the program starts.

use std::time::Duration;

use gridcast_crds::{
    conditions,
    virtual_cluster::{Scheduling, status::RunStatus},
};
use jiff::Timestamp;

use super::{
    ObjectKind, Part, Step,
    draft::{Draft, elapsed, shortened},
    finish,
    network::{self, Progress},
    nodes::{self, Nodes},
    run, staging,
};
use crate::virtual_cluster::{
    members::creation_key,
    observed::{Gate, Host, Trouble, Work},
};

/// What exists as long as the cluster has nodes.
const OBJECTS: [ObjectKind; 4] =
    [ObjectKind::Secret, ObjectKind::Service, ObjectKind::NetworkPolicy, ObjectKind::ConfigMap];
/// Reasons of a program that is started again.
const AGAIN: [&str; 2] = ["Restarting", "Interrupted"];
/// A program that is started again without being counted is started this seldom at most.
const INTERRUPTED_EVERY: Duration = Duration::from_secs(10);

/// Objects that were applied longer ago are applied again when pods are made.
const MADE_AGAIN: Duration = Duration::from_secs(10);
/// Least and longest wait before objects are applied again while nodes cannot be reached.
const DOUBTED: (Duration, Duration) = (Duration::from_secs(20), Duration::from_mins(5));
/// What a Secret, Service or NetworkPolicy that somebody removed looks like.
const DOUBTS: [&str; 4] = ["VolumesPending", "NoStarter", "NameUnresolved", "KeyRefused"];
/// The launch of before has so long to be ended; then its nodes are replaced, which ends it, too.
const STOP_LIMIT: Duration = Duration::from_mins(1);
/// Bytes of the cause that a cluster which was not ready in time is given.
const CAUSE: usize = 600;

/// What is waited for.
struct Wait {
    /// The stage, as the reason of `Ready`.
    stage: &'static str,
    progress: Progress,
}

pub(super) fn prepare(draft: &mut Draft<'_>) {
    if finish::deadline_passed(draft) {
        return;
    }
    let nodes = Nodes::of(&draft.observed.members);
    keep_operations(draft, &nodes);
    assert_objects(draft, &nodes);
    let provided = nodes::provide(draft, &nodes);
    let staged = staging::stage(draft, &nodes);
    let data_is_there = matches!(staged, Progress::Done);
    let (provisioned, open) = gate(draft, &nodes, provided, data_is_there);
    nodes::publish(draft, &nodes, |host| answers(&draft.observed.operations.gate, open, host));
    mark(draft, &nodes, &provisioned, open);
    let measured = network::measure(draft, &nodes, open);
    let is_measured = matches!(measured, Progress::Done);
    let tuned = network::tune(draft, &nodes, open, is_measured);
    let waits = [
        Wait { stage: "Provisioning", progress: provisioned },
        Wait { stage: "Staging", progress: staged },
        Wait { stage: "Measuring", progress: measured },
        Wait { stage: "Tuning", progress: tuned },
    ];
    if !tell(draft, &nodes, &waits, data_is_there) && open {
        start(draft, &nodes);
    }
}

fn keep_operations(draft: &mut Draft<'_>, nodes: &Nodes<'_>) {
    let mut keep = vec![format!("create/{}", creation_key(&draft.observed.cluster))];
    if let Some(membership) = &nodes.membership {
        keep.extend([format!("gate/{membership}"), format!("tune/{membership}")]);
    }
    if let Some(launch) = launch_of(draft) {
        // A stop that failed at a node which is gone is not waited for at the node that takes its place.
        let is_void = nodes.first().is_none() && matches!(draft.observed.operations.stop, Work::Failed(_));
        keep.extend((!is_void).then(|| format!("stop/{launch}")));
        keep.push(format!("launch/{launch}"));
    }
    draft.keep_operations(&keep);
}

/// Applies what is not known to be there: what was not applied in its present version, and all of it where somebody may have
/// removed it since and it matters, which is when pods are made and when they cannot be reached.
fn assert_objects(draft: &mut Draft<'_>, nodes: &Nodes<'_>) {
    let old = draft.observed.applied_since.map_or(Duration::MAX, |since| elapsed(since, draft.now));
    let again = if nodes::begins_creation(draft, nodes) {
        old >= MADE_AGAIN
    } else {
        is_doubtful(draft)
            && draft.observed.applied_since.is_some_and(|since| {
                // Ever more seldom: what the objects cannot mend must not be written for ever.
                let wait = nodes::patience(draft, DOUBTED);
                draft.left(since, wait).is_none()
            })
    };
    let wanted = |kind: &ObjectKind| again || !draft.observed.applied.contains(kind);
    let kinds = OBJECTS.into_iter().filter(wanted).collect();
    draft.apply_objects(kinds);
}

/// Whether nodes are kept from running, as published, by what a missing object would bring about.
fn is_doubtful(draft: &Draft<'_>) -> bool {
    let told = draft.old.conditions.iter().find(|old| old.type_ == conditions::PROVISIONED);
    let told = told.filter(|told| told.status == "False").map(|told| told.reason.as_str());
    told.is_some_and(|reason| DOUBTS.contains(&reason))
        || matches!(draft.observed.operations.gate, Work::Failed(_))
}

pub(super) fn launch_of(draft: &Draft<'_>) -> Option<String> {
    draft.status.run.as_ref().and_then(|run| run.launch.clone())
}

/// Every node runs, is reached by its name from both sides, and answers. What was found so before stays so while the same
/// nodes run: pods are made by this operator alone, after it has published that some are missing.
fn gate(
    draft: &mut Draft<'_>,
    nodes: &Nodes<'_>,
    provided: Option<(Trouble, bool)>,
    data_is_there: bool,
) -> (Progress, bool) {
    match provided {
        Some((trouble, true)) => return (Progress::Stuck(trouble), false),
        Some((trouble, false)) => return (Progress::Hindered(trouble), false),
        None => {}
    }
    if let Some(refused) = unmade(draft) {
        return (Progress::Hindered(refused), false);
    }
    let Some(membership) = nodes.membership.clone() else {
        // Nodes that have a place and wait for data are a matter of the data's.
        let last = (data_is_there || nodes.placed < nodes.total()).then(|| nodes::last_end(draft, nodes));
        let trouble = last.flatten().or_else(|| nodes.trouble(draft.now, data_is_there));
        if data_is_there && nodes.placed > nodes.running {
            draft.look_again(Duration::from_secs(5));
        }
        return (trouble.map_or_else(|| Progress::Going(nodes.counts()), Progress::Hindered), false);
    };
    let was_open =
        draft.holds(conditions::PROVISIONED) && draft.old.replicas == Some(nodes::count(nodes.total()));
    let step = Step::Gate { membership, hosts: nodes.hosts.clone() };
    match &draft.observed.operations.gate {
        Work::Done(_) => (Progress::Done, true),
        Work::Absent if was_open || nodes.total() == 0 => (Progress::Done, true),
        Work::Absent => {
            draft.begin(step);
            (Progress::Going(asked(&Gate::default(), nodes)), false)
        }
        Work::Running(gate) => {
            // What kubelet says of a pod is nearer to the cause than that nobody answers there; and a starter whose container
            // does not run yet is silent for that reason.
            let silent = gate.trouble.clone().filter(|_| nodes.running == nodes.total());
            match nodes.trouble(draft.now, data_is_there).or(silent) {
                Some(trouble) => (Progress::Hindered(trouble), false),
                None => (Progress::Going(asked(gate, nodes)), false),
            }
        }
        Work::Failed(trouble) => {
            draft.retry(step);
            (Progress::Hindered(trouble.clone()), false)
        }
    }
}

/// Why an object is not there. One that was made before is, even if the API server does not take it once more because a quota
/// is used up by now; unless its name is somebody else's since.
fn unmade(draft: &Draft<'_>) -> Option<Trouble> {
    OBJECTS.into_iter().find_map(|kind| {
        let refused = draft.refusal(&Part::Object(kind))?;
        (refused.reason == "NameTaken" || !draft.observed.applied.contains(&kind)).then_some(refused)
    })
}

fn asked(gate: &Gate, nodes: &Nodes<'_>) -> String {
    format!("{} of {} nodes run, {} answer", nodes.running, nodes.total(), gate.answering.len())
}

fn answers(gate: &Work<Gate>, open: bool, host: &Host) -> bool {
    open || gate.report().is_some_and(|gate| gate.answering.contains(&host.name))
}

fn mark(draft: &mut Draft<'_>, nodes: &Nodes<'_>, provisioned: &Progress, open: bool) {
    if nodes.placed == nodes.total() {
        // Not the moment at which a status is written that may wait.
        let since = draft.observed.placed_since.unwrap_or(draft.now);
        draft.reached(|timeline| &mut timeline.scheduled, since);
    }
    match provisioned {
        Progress::Done => {
            let message = if nodes.total() == 1 {
                "1 node answers".to_owned()
            } else {
                format!("{} nodes answer", nodes.total())
            };
            draft.set(conditions::PROVISIONED, true, "Provisioned", &message);
        }
        Progress::Going(message) => draft.set(conditions::PROVISIONED, false, "Provisioning", message),
        Progress::Hindered(trouble) | Progress::Stuck(trouble) | Progress::Failed(trouble) => {
            draft.set(conditions::PROVISIONED, false, &trouble.reason, &trouble.message);
        }
    }
    if open {
        draft.reached(|timeline| &mut timeline.ready, draft.now);
    }
    if draft.spec().run.is_some() {
        keep_reason_of_restart(draft);
    } else {
        draft.clear(conditions::RUNNING);
    }
}

/// Until it runs, people see why it does not run any more, where it did.
fn keep_reason_of_restart(draft: &mut Draft<'_>) {
    if restarting(draft).is_none() {
        draft.set(conditions::RUNNING, false, "Pending", "starts when nodes, data and network are as asked");
    }
}

/// Says what is waited for; false if nothing is.
fn tell(draft: &mut Draft<'_>, nodes: &Nodes<'_>, waits: &[Wait; 4], data_is_there: bool) -> bool {
    if let Some(failed) = waits.iter().find_map(|wait| match &wait.progress {
        Progress::Failed(trouble) => Some(trouble.clone()),
        _ => None,
    }) {
        finish::conclude(draft, finish::Outcome::failed(failed));
        return true;
    }
    let base = deadline_base(draft, data_is_there);
    let stuck = waits.iter().find_map(|wait| match &wait.progress {
        Progress::Stuck(trouble) => Some(trouble.clone()),
        _ => None,
    });
    let hindered = waits.iter().find_map(|wait| match &wait.progress {
        Progress::Hindered(trouble) => Some(trouble.clone()),
        _ => None,
    });
    // Nodes that have a place and wait for data are not late; data has its own end.
    let waits_for_data = nodes.placed == nodes.total() && !data_is_there;
    let provisioning = !matches!(waits[0].progress, Progress::Done);
    let trouble = stuck.clone().or(hindered);
    if (provisioning || trouble.is_some())
        && !waits_for_data
        && overdue(draft, nodes, base, trouble.as_ref(), !provisioning)
    {
        return true;
    }
    if let Some(trouble) = stuck {
        draft.stalled(&trouble);
        return true;
    }
    if let Some(trouble) = trouble {
        draft.reconciling(&trouble.reason, &trouble.message);
        return true;
    }
    // Data is on its way while pods wait for it: that is what people want to know of.
    let order = if waits_for_data { [1, 0, 2, 3] } else { [0, 1, 2, 3] };
    for index in order {
        if let Progress::Going(message) = &waits[index].progress {
            match restarting(draft) {
                Some(cause) => draft.reconciling("Restarting", &format!("{message}; {cause}")),
                None => draft.reconciling(waits[index].stage, message),
            }
            return true;
        }
    }
    false
}

/// Why the program does not run any more, where it did.
fn restarting(draft: &Draft<'_>) -> Option<String> {
    let running = draft.condition(conditions::RUNNING)?;
    AGAIN.contains(&running.reason.as_str()).then(|| running.message.clone())
}

/// From when on the present wait is counted.
fn deadline_base(draft: &Draft<'_>, data_is_there: bool) -> Timestamp {
    let provisioned =
        draft.since(conditions::PROVISIONED, false).or_else(|| draft.since(conditions::PROVISIONED, true));
    let staged = draft.since(conditions::STAGED, true).filter(|_| data_is_there);
    [provisioned, staged].into_iter().flatten().fold(draft.start(), Timestamp::max)
}

/// Fails a cluster that waits for too long. One without a program that was ready once goes on trying: its users work in
/// the nodes that it has.
fn overdue(
    draft: &mut Draft<'_>,
    nodes: &Nodes<'_>,
    base: Timestamp,
    trouble: Option<&Trouble>,
    open: bool,
) -> bool {
    let was_ready = draft.status.timeline.as_ref().is_some_and(|timeline| timeline.ready.is_some());
    if draft.spec().run.is_none() && was_ready {
        return false;
    }
    let scheduling: Scheduling = draft.spec().scheduling.clone().unwrap_or_default();
    let limit = Duration::from_secs(u64::from(scheduling.timeout_seconds.unsigned_abs()));
    if draft.left(base, limit).is_some() {
        return false;
    }
    let cause =
        trouble.map_or_else(|| nodes.counts(), |trouble| format!("{}: {}", trouble.reason, trouble.message));
    let gate = &draft.observed.operations.gate;
    let missing = nodes.missing(|host| answers(gate, open, host));
    let missing = missing.map(|missing| format!("; missing: {missing}")).unwrap_or_default();
    // The end of what a scheduler says is worth less than the names.
    let cause = shortened(&cause, CAUSE);
    let message = format!(
        "after {} s (scheduling.timeoutSeconds) the cluster is not ready: {cause}{missing}",
        limit.as_secs()
    );
    finish::conclude(draft, finish::Outcome::failed(Trouble::new("NotReadyInTime", message)));
    true
}

/// The gate is open.
fn start(draft: &mut Draft<'_>, nodes: &Nodes<'_>) {
    let Some(program) = draft.spec().run.as_ref() else {
        let message = match nodes.total() {
            1 => "1 node answers".to_owned(),
            total => format!("{total} nodes answer"),
        };
        draft.ready("Provisioned", &message);
        return;
    };
    let Some(membership) = &nodes.membership else { return };
    let before = launch_of(draft);
    if let Some(before) = &before
        && let Some(message) = stopping(draft, nodes, before)
    {
        draft.reconciling("Restarting", &message);
        return;
    }
    if let Some(left) = interrupted_wait(draft) {
        draft.look_again(left);
        draft.reconciling("Restarting", "the program is about to be started again");
        return;
    }
    let id = next_launch(before.as_deref(), membership);
    let run = draft.status.run.get_or_insert_with(RunStatus::default);
    run.launch = Some(id);
    run.exit_code = None;
    run.placement = Vec::new();
    let message = format!(
        "{} processes of {} on {} nodes",
        program.processes,
        program.command.first().map(String::as_str).unwrap_or_default(),
        nodes.total()
    );
    draft.set(conditions::RUNNING, true, "Launched", &message);
    draft.ready(run::RUNS, &message);
    draft.reached(|timeline| &mut timeline.launched, draft.now);
    run::begin(draft, nodes);
}

/// Two launches at once would fight for the nodes: says what is waited for while that of before may still run.
///
/// A stop that failed proves nothing. It is tried again, and where it does not succeed within [`STOP_LIMIT`] the nodes go:
/// nothing is left of a launch whose pods are gone.
fn stopping(draft: &mut Draft<'_>, nodes: &Nodes<'_>, launch: &str) -> Option<String> {
    let operations = &draft.observed.operations;
    if matches!(operations.launch, Work::Done(_)) || matches!(operations.stop, Work::Done(())) {
        return None;
    }
    let first = nodes.first()?;
    let step = Step::Stop { id: launch.to_owned(), first };
    let trouble = match &operations.stop {
        Work::Failed(trouble) => trouble,
        Work::Absent => {
            draft.begin(step);
            return Some("the launch of before is being ended".to_owned());
        }
        Work::Running(()) | Work::Done(()) => {
            return Some("the launch of before is being ended".to_owned());
        }
    };
    let told = format!("the launch of before could not be ended: {}: {}", trouble.reason, trouble.message);
    // From when on these nodes are complete and nothing else is waited for.
    let since = [draft.since(conditions::RUNNING, false), draft.since(conditions::PROVISIONED, true)];
    let since = since.into_iter().flatten().max().unwrap_or(draft.now);
    if draft.left(since, STOP_LIMIT).is_some() {
        draft.retry(step);
        return Some(format!("{told}; it is tried again"));
    }
    let pods: Vec<_> = nodes
        .members
        .iter()
        .filter_map(|member| member.pod.as_ref().map(|pod| (member.name.clone(), pod)))
        .collect();
    nodes::delete(draft, &pods);
    Some(format!("{told}; its nodes are replaced"))
}

fn interrupted_wait(draft: &Draft<'_>) -> Option<Duration> {
    let running = draft.condition(conditions::RUNNING).filter(|running| running.reason == "Interrupted")?;
    let since = running.last_transition_time.0;
    INTERRUPTED_EVERY.checked_sub(elapsed(since, draft.now)).filter(|left| !left.is_zero())
}

/// The number of the launch, and the pods on which it runs: one that is observed on other pods has lost some.
pub(super) fn next_launch(before: Option<&str>, membership: &str) -> String {
    let number =
        before.and_then(|id| id.split('-').next()).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
    format!("{}-{membership}", number + 1)
}
