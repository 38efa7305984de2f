//! The program runs, or ran: is it still on the nodes that it was started on, how did it end, and is it started again?

use std::time::Duration;

use gridcast_crds::{conditions, virtual_cluster::RestartAction};

use super::{
    ObjectKind, Part, Step,
    draft::{Draft, tail},
    finish::{self, LOG_TAIL, Outcome},
    nodes::{self, Nodes},
    prepare::launch_of,
};
use crate::virtual_cluster::{
    members::creation_key,
    observed::{Launch, LaunchEnd, Trouble, Work},
};

/// Where a program fails because a node was lost, the loss may be heard of after the failure.
const LOSS_HEARD: Duration = Duration::from_secs(3);
/// The reason of a cluster whose program runs.
pub(super) const RUNS: &str = "Running";
/// From the end of a launch until its last words arrive.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(super) fn run(draft: &mut Draft<'_>) {
    let nodes = Nodes::of(&draft.observed.members);
    let operations = &draft.observed.operations;
    let Some(id) = launch_of(draft) else { return };
    keep_operations(draft, &id, &nodes);
    let launch = operations.launch.report().cloned().unwrap_or_default();
    note(draft, &launch);
    nodes::publish(draft, &nodes, |_| true);
    if let Work::Done(Launch { end: Some(end), .. }) = &operations.launch {
        ended(draft, &nodes, &id, &launch, end);
    } else if finish::is_past_deadline(draft) {
        let trouble = finish::deadline_trouble(draft);
        fail(draft, &nodes, &id, &launch, trouble);
    } else if let Some((loss, unreachable)) = loss(draft, &nodes, &id) {
        lost(draft, &nodes, &id, &launch, &loss, &unreachable);
    } else {
        finish::watch_deadline(draft);
        begin(draft, &nodes);
        tell_protection(draft);
    }
}

/// A program runs without a disruption budget rather than not at all, and people are told.
fn tell_protection(draft: &mut Draft<'_>) {
    let Some(launched) = draft.condition(conditions::RUNNING).map(|running| running.message.clone()) else {
        return;
    };
    match draft.refusal(&Part::Object(ObjectKind::DisruptionBudget)) {
        Some(refused) => {
            let message = format!("{launched}; a drain may take a node away: {}", refused.message);
            draft.ready(&refused.reason, &message);
        }
        None if draft.condition(conditions::READY).is_some_and(|ready| ready.reason != RUNS) => {
            draft.ready(RUNS, &launched);
        }
        None => {}
    }
}

/// What a running program needs.
pub(super) fn begin(draft: &mut Draft<'_>, nodes: &Nodes<'_>) {
    let Some(id) = launch_of(draft) else { return };
    let same = draft.old.run.as_ref().and_then(|run| run.launch.as_ref()) == Some(&id);
    // The state that was observed is that of the launch that was published.
    if !same || draft.observed.operations.launch.is_absent() {
        draft.begin(Step::Launch { id, hosts: nodes.hosts.clone() });
    }
    // With each launch: somebody may have removed it since the one before.
    if !same || !draft.observed.applied.contains(&ObjectKind::DisruptionBudget) {
        draft.apply_objects(vec![ObjectKind::DisruptionBudget]);
    }
}

fn keep_operations(draft: &mut Draft<'_>, id: &str, nodes: &Nodes<'_>) {
    let mut keep = vec![
        format!("create/{}", creation_key(&draft.observed.cluster)),
        format!("launch/{id}"),
        format!("stop/{id}"),
    ];
    if let Some(membership) = &nodes.membership {
        keep.extend([format!("gate/{membership}"), format!("tune/{membership}")]);
    }
    draft.keep_operations(&keep);
}

/// That it was seen to run is published with the first rank: from then on a starter that does not know it has lost it.
fn note(draft: &mut Draft<'_>, launch: &Launch) {
    if let Some(first_rank) = launch.first_rank {
        draft.reached(|timeline| &mut timeline.first_rank, first_rank);
        if let Some(running) = draft.condition(conditions::RUNNING).filter(|running| running.status == "True")
        {
            let message = running.message.clone();
            draft.set(conditions::RUNNING, true, "Running", &message);
        }
    }
}

/// A node that the launch runs on and that is not there any more, or not the same; and those of them that the API server
/// still takes for running.
fn loss(draft: &Draft<'_>, nodes: &Nodes<'_>, id: &str) -> Option<(Trouble, Vec<String>)> {
    if let Some(member) = nodes.lost().next() {
        return Some((nodes::loss_of(member), Vec::new()));
    }
    let first = || nodes.first().map(|first| first.name).into_iter().collect();
    match &draft.observed.operations.launch {
        Work::Failed(trouble) => return Some((trouble.clone(), first())),
        Work::Done(_) => {
            return Some((Trouble::new("LauncherLost", "the launcher ended without a word"), Vec::new()));
        }
        Work::Absent | Work::Running(_) => {}
    }
    let membership = nodes.membership.as_ref()?;
    let replaced = || Trouble::new("NodeLost", "a node was replaced while the program ran on it");
    (!id.ends_with(membership.as_str())).then(|| (replaced(), Vec::new()))
}

fn ended(draft: &mut Draft<'_>, nodes: &Nodes<'_>, id: &str, launch: &Launch, end: &LaunchEnd) {
    let Some(trouble) = &end.trouble else {
        finish::conclude(draft, Outcome::ended(None, launch, end));
        return;
    };
    if finish::is_past_deadline(draft) {
        let trouble = finish::deadline_trouble(draft);
        finish::conclude(draft, Outcome::ended(Some(trouble), launch, end));
        return;
    }
    if let Some(member) = nodes.lost().next() {
        lost(draft, nodes, id, launch, &nodes::loss_of(member), &[]);
        return;
    }
    if !end.lost.is_empty() {
        let names = end.lost.join(", ");
        let trouble = Trouble::new("NodeLost", format!("{names}: no longer answers"));
        lost(draft, nodes, id, launch, &trouble, &end.lost);
        return;
    }
    if draft.left(end.at.unwrap_or(draft.now), LOSS_HEARD).is_some() {
        return;
    }
    match action(draft, end.exit_code) {
        RestartAction::Fail => finish::conclude(draft, Outcome::ended(Some(trouble.clone()), launch, end)),
        RestartAction::Ignore => again(draft, "Interrupted", trouble, launch),
        RestartAction::Restart => match exhausted(draft, trouble) {
            Some(trouble) => finish::conclude(draft, Outcome::ended(Some(trouble), launch, end)),
            None => counted(draft, trouble, launch),
        },
    }
}

/// The first rule that names the exit code decides; without one a failure is final.
fn action(draft: &Draft<'_>, exit_code: i32) -> RestartAction {
    let rules = draft.spec().restart.iter().flat_map(|restart| &restart.rules);
    rules
        .filter(|rule| rule.exit_codes.contains(&exit_code))
        .map(|rule| rule.action)
        .next()
        .unwrap_or(RestartAction::Fail)
}

/// Why it cannot be started again, if it cannot.
fn exhausted(draft: &Draft<'_>, cause: &Trouble) -> Option<Trouble> {
    let most = draft.spec().restart.as_ref().map_or(0, |restart| restart.max_restarts);
    if restarts(draft) < most {
        return None;
    }
    Some(match most {
        0 => cause.clone(),
        _ => Trouble::new(
            "RestartBudgetExceeded",
            format!(
                "all {most} restarts (restart.maxRestarts) are used up; {}: {}",
                cause.reason, cause.message
            ),
        ),
    })
}

fn restarts(draft: &Draft<'_>) -> i32 {
    draft.status.run.as_ref().map_or(0, |run| run.restarts)
}

/// A lost node takes the whole launch with it.
fn lost(
    draft: &mut Draft<'_>,
    nodes: &Nodes<'_>,
    id: &str,
    launch: &Launch,
    cause: &Trouble,
    unreachable: &[String],
) {
    if let Some(trouble) = exhausted(draft, cause) {
        fail(draft, nodes, id, launch, trouble);
        return;
    }
    counted(draft, cause, launch);
    if nodes.membership.is_none() {
        draft.set(conditions::PROVISIONED, false, "Provisioning", &nodes.counts());
    }
    if !draft.observed.operations.launch.is_over()
        && draft.observed.operations.stop.is_absent()
        && let Some(first) = nodes.first()
    {
        draft.begin(Step::Stop { id: id.to_owned(), first });
    }
    // The API server still takes these for running; their replacements cannot come before they go.
    let pods: Vec<_> = nodes
        .members
        .iter()
        .filter(|member| unreachable.contains(&member.name))
        .filter_map(|member| member.pod.as_ref().map(|pod| (member.name.clone(), pod)))
        .collect();
    nodes::delete(draft, &pods);
}

fn counted(draft: &mut Draft<'_>, cause: &Trouble, launch: &Launch) {
    draft.status.run.get_or_insert_default().restarts += 1;
    let most = draft.spec().restart.as_ref().map_or(0, |restart| restart.max_restarts);
    let count = format!("restart {} of {most}", restarts(draft));
    let cause = Trouble::new(cause.reason.clone(), format!("{count}: {}: {}", cause.reason, cause.message));
    again(draft, "Restarting", &cause, launch);
}

/// Back to the gate. Published before anything is done about it, so that an operator that dies in between counts once.
fn again(draft: &mut Draft<'_>, reason: &str, cause: &Trouble, launch: &Launch) {
    let run = draft.status.run.get_or_insert_default();
    run.exit_code = None;
    run.placement = Vec::new();
    if !launch.log_tail.is_empty() {
        run.log_tail = Some(tail(&launch.log_tail, LOG_TAIL));
    }
    draft.set(conditions::RUNNING, false, reason, &cause.message);
    draft.reconciling("Restarting", &cause.message);
    // What comes next is decided on what is observed then.
    draft.look_again(Duration::ZERO);
}

/// Ends the launch, hears its last words, and fails.
fn fail(draft: &mut Draft<'_>, nodes: &Nodes<'_>, id: &str, launch: &Launch, trouble: Trouble) {
    let operations = &draft.observed.operations;
    let over = operations.over_since.get(&format!("stop/{id}")).copied();
    match &operations.launch {
        Work::Done(Launch { end: Some(end), .. }) => {
            finish::conclude(draft, Outcome::ended(Some(trouble), launch, end));
        }
        // Attaches, to hear them.
        Work::Absent if nodes.membership.is_some() => begin(draft, nodes),
        Work::Running(_) if operations.stop.is_absent() && nodes.first().is_some() => {
            if let Some(first) = nodes.first() {
                draft.begin(Step::Stop { id: id.to_owned(), first });
            }
        }
        Work::Running(_) if matches!(operations.stop, Work::Running(())) => {}
        Work::Running(_) if over.is_some_and(|over| draft.left(over, LAST_WORDS).is_some()) => {}
        _ => {
            finish::conclude(
                draft,
                Outcome { log_tail: launch.log_tail.clone(), ..Outcome::failed(trouble) },
            );
        }
    }
}
