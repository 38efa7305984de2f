//! What should be done for a Broadcast? Pure: no client, no clock, no randomness.

use std::time::Duration;

use gridcast_crds::{broadcast::BroadcastStatus, conditions::Condition};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    choice::{self, Attempt, Census},
    knowledge::{backoff, since},
    observed::Observed,
    publish, release,
    source::{Origin, PodState, PodView},
    standing::{self, Standing},
    targets::{NodeAgent, Targets},
};
use crate::apply::has_finalizer;

/// What to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Of the object's finalizer.
    pub(crate) finalizer: Finalizer,
    /// Whether the operation that stages is ended.
    pub(crate) stop: bool,
    /// What it does next.
    pub(crate) attempt: Option<Attempt>,
    /// Of the source pod.
    pub(crate) source: SourceStep,
    /// UID of the pod whose volumes take long.
    pub(crate) look_at: Option<String>,
    /// What stays on nodes though the object goes, in a sentence.
    pub(crate) left_behind: Option<String>,
    /// The object has lived for as long as it should.
    pub(crate) expired: bool,
    /// What to publish; `None` where the published status says it.
    pub(crate) status: Option<BroadcastStatus>,
    /// When to look again though nothing changed.
    pub(crate) again: Option<Duration>,
}

/// What becomes of the finalizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Finalizer {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is put on.
    Add,
    /// It is taken off.
    Remove,
}

/// What becomes of the source pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SourceStep {
    /// It stays as it is.
    #[default]
    Keep,
    /// One is made, with this number, and all others go.
    Make(u32),
    /// All go, and the keys.
    Remove,
}

impl Plan {
    /// Looks again after this, or sooner.
    pub(crate) fn look_again(&mut self, wait: Duration) {
        // A timer of zero would be a loop.
        let wait = wait.max(Duration::from_millis(50));
        self.again = Some(self.again.map_or(wait, |again| again.min(wait)));
    }
}

/// A pod whose volumes are not there after this is asked about.
const VOLUMES_TAKE: Duration = Duration::from_secs(3);
/// Losses of a source pod's agent in a row after which another pod is made, perhaps elsewhere.
const LOSSES: u32 = 3;
/// How often it is seen whether a path has become free: nothing tells.
const PATH_CHECK: Duration = Duration::from_secs(5);

/// Decides what is done for a Broadcast.
pub(crate) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    if observed.object.metadata.deletion_timestamp.is_some() {
        return release::plan(observed, now);
    }
    if let Some((reason, message)) = refusal(observed) {
        return refuse(observed, reason, &message, now);
    }
    let census = Census::of(observed);
    let mut plan = Plan::default();
    if !has_finalizer(&*observed.object) {
        plan.finalizer = Finalizer::Add;
    }
    source_step(observed, &census, now, &mut plan);
    choice::choose(observed, &census, now, &mut plan);
    let status = publish::status(observed, &census, now, &mut plan);
    if census.complete(observed) {
        expire(observed, &status, now, &mut plan);
    }
    plan.status = publish::unless_shown(observed, status);
    plan
}

/// Why the object cannot be carried out as it is.
fn refusal(observed: &Observed) -> Option<(&'static str, String)> {
    let spec = &observed.object.spec;
    let unsupported = |field: &str, next: &str| {
        Some(("Unsupported", format!("`{field}` is not supported by this version; {next}")))
    };
    if let Err(field) = observed.origin {
        return unsupported(field, "use `node`, `persistentVolumeClaim`, `configMap`, `secret` or `http`");
    }
    if spec.rate_limit_mbps.is_some() {
        return unsupported("spec.rateLimitMbps", "remove it: sources send as fast as their nodes receive");
    }
    if matches!(observed.origin, Ok(Origin::Node { name: None, .. })) && spec.to.virtual_cluster.is_none() {
        return unsupported(
            "spec.source.node without a name",
            "set `spec.source.node.name`, or `spec.to.virtualCluster`",
        );
    }
    let holder = observed.holder.as_ref()?;
    let message = format!(
        "Broadcast {holder} has the path {:?} of this namespace, or one above or below it; choose another `spec.path` in \
         a new Broadcast, or delete {holder}",
        observed.path()
    );
    Some(("PathTaken", message))
}

fn refuse(observed: &Observed, reason: &str, message: &str, now: Timestamp) -> Plan {
    let mut plan = Plan { stop: observed.running, ..Plan::default() };
    if !observed.pods.is_empty() {
        plan.source = SourceStep::Remove;
    }
    let final_word = reason != "PathTaken";
    if !final_word {
        plan.look_again(PATH_CHECK);
    }
    let mut status = publish::base(observed);
    status.conditions = publish::conditions(observed, Standing::Stalled, (reason, message), now);
    if final_word {
        let shown = status.completion_time.take();
        status.completion_time = shown.or_else(|| Some(crate::verdict::whole_seconds(now)));
        expire(observed, &status, now, &mut plan);
    }
    plan.status = publish::unless_shown(observed, status);
    plan
}

/// Deletes what ended long enough ago.
fn expire(observed: &Observed, status: &BroadcastStatus, now: Timestamp, plan: &mut Plan) {
    let (Some(seconds), Some(end)) =
        (observed.object.spec.ttl_seconds_after_finished, &status.completion_time)
    else {
        return;
    };
    let left = Duration::from_secs(seconds.unsigned_abs().into()).saturating_sub(since(end.0, now));
    if left.is_zero() {
        plan.expired = true;
    } else {
        plan.look_again(left);
    }
}

/// Whether a source is there to be read, or should be.
pub(crate) fn needs_source(observed: &Observed, census: &Census) -> bool {
    let new = !standing::is_ready(conditions(observed));
    match &observed.targets {
        Targets::Waiting { soon, .. } => *soon && new,
        Targets::Nodes(_) => !census.missing.is_empty() || (new && !census.unknown.is_empty()),
    }
}

fn source_step(observed: &Observed, census: &Census, now: Timestamp, plan: &mut Plan) {
    if !matches!(observed.origin, Ok(Origin::Pod { .. })) || observed.running && observed.knowledge.releasing
    {
        return;
    }
    if !needs_source(observed, census) {
        // Whoever reads from it at this moment goes on.
        if !observed.pods.is_empty() && !observed.running && !observed.is_making {
            plan.source = SourceStep::Remove;
        }
        return;
    }
    if observed.is_making {
        return;
    }
    let highest = observed.pods.last().map_or(0, |pod| pod.number.saturating_add(1));
    match newest(observed) {
        None => {
            let wait = observed.making.trouble.as_ref().map_or(Duration::ZERO, |trouble| trouble.wait(now));
            if wait.is_zero() {
                plan.source = SourceStep::Make(highest);
            } else {
                plan.look_again(wait);
            }
        }
        Some(pod) => match &pod.state {
            PodState::Ended { at, .. } => {
                let ended = at.or(pod.created).unwrap_or(now);
                let wait = backoff(pod.number.saturating_add(1)).saturating_sub(since(ended, now));
                if wait.is_zero() {
                    plan.source = SourceStep::Make(highest);
                } else {
                    plan.look_again(wait);
                }
            }
            PodState::Starting => {
                let left =
                    VOLUMES_TAKE.saturating_sub(pod.created.map_or(Duration::ZERO, |then| since(then, now)));
                if left.is_zero() && pod.node.is_some() {
                    plan.look_at = Some(pod.uid.clone());
                } else if !left.is_zero() {
                    plan.look_again(left);
                }
            }
            PodState::Running { .. } if is_lost(observed, pod) && !observed.running => {
                plan.source = SourceStep::Make(highest);
            }
            PodState::Running { .. } | PodState::Held(_) => {}
        },
    }
}

/// The pod says that it runs, but nobody answers.
fn is_lost(observed: &Observed, pod: &PodView) -> bool {
    observed.knowledge.source.as_ref().is_some_and(|trouble| {
        trouble.failure.reason == "AgentLost"
            && trouble.count >= LOSSES
            && pod.created.is_none_or(|created| created < trouble.at)
    })
}

/// The source pod that counts.
pub(crate) fn newest(observed: &Observed) -> Option<&PodView> {
    observed.pods.iter().rev().find(|pod| !pod.going)
}

/// What is wrong with the source, where that can be seen before it is asked for anything.
pub(crate) fn source_trouble(observed: &Observed, census: &Census) -> Option<(String, String)> {
    let of =
        |failure: &gridcast_control::StepFailure| Some((failure.reason.clone(), failure.message.clone()));
    match &observed.origin {
        Ok(Origin::Node { .. }) => {
            let node = census.source_node.as_deref()?;
            match observed.agents.get(node) {
                Some(NodeAgent::Missing { message, .. }) => Some(("NoAgent".to_owned(), message.clone())),
                Some(NodeAgent::Gone) | None => Some((
                    "NoSourceNode".to_owned(),
                    format!("there is no Kubernetes node {node}, from which the data should come"),
                )),
                Some(NodeAgent::Ready { .. }) => None,
            }
        }
        Ok(Origin::Pod { .. }) => match newest(observed).map(|pod| &pod.state) {
            Some(PodState::Held(failure) | PodState::Ended { failure, .. }) => of(failure),
            Some(PodState::Starting) => observed.volumes.as_ref().and_then(of),
            Some(PodState::Running { .. }) => None,
            None => observed.making.trouble.as_ref().and_then(|trouble| of(&trouble.failure)),
        },
        Err(_) => None,
    }
}

/// The conditions that are published.
pub(crate) fn conditions(observed: &Observed) -> &[Condition] {
    observed.object.status.as_ref().map_or(&[], |status| &status.conditions)
}

/// How old the object is.
pub(crate) fn age(observed: &Observed, now: Timestamp) -> Duration {
    observed.object.creation_timestamp().map_or(Duration::ZERO, |time| since(time.0, now))
}
