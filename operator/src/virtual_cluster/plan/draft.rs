//! A plan in the making: the next status, by comparison with the published one.

use std::time::Duration;

use gridcast_crds::{
    VirtualClusterSpec, conditions,
    virtual_cluster::{VirtualClusterStatus, status::Timeline},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};

use super::{Action, Event, ObjectKind, Part, Plan, Step, events};
use crate::virtual_cluster::observed::{Observed, Refusal, Trouble};

/// The conditions that this operator sets, in the order of a cluster's life; others belong to others.
const OWN: [&str; 11] = [
    conditions::READY,
    conditions::RECONCILING,
    conditions::STALLED,
    conditions::SUSPENDED,
    conditions::PROVISIONED,
    conditions::STAGED,
    conditions::MEASURED,
    conditions::TUNED,
    conditions::RUNNING,
    conditions::COMPLETE,
    conditions::FAILED,
];
/// Status writes that show nothing but progress are at least this far apart: each wakes every watcher, and a small cluster
/// is up before the second.
pub(super) const WRITE_EVERY: Duration = Duration::from_secs(2);
/// A failed operation that may go well another time is begun again after this.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Least and longest wait before what the API server refused is asked for again: soon at first, since what belonged to a
/// cluster of the same name goes within a second of it; ever more seldom later.
const REFUSED_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Longest message of a condition: it is read by people, in one table or one line.
const LONGEST_MESSAGE: usize = 1024;

pub(super) struct Draft<'a> {
    pub(super) observed: &'a Observed,
    pub(super) now: Timestamp,
    /// As published, conditions of others left out.
    pub(super) old: VirtualClusterStatus,
    pub(super) status: VirtualClusterStatus,
    pub(super) plan: Plan,
    /// What the status tells cannot be seen any more after this plan.
    pub(super) last_chance: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn new(observed: &'a Observed, now: Timestamp) -> Self {
        let mut old = observed.cluster.status.clone().unwrap_or_default();
        old.conditions.retain(|condition| OWN.contains(&condition.type_.as_str()));
        old.conditions.sort_by_key(|condition| place(&condition.type_));
        Self { observed, now, status: old.clone(), old, plan: Plan::default(), last_chance: false }
    }

    pub(super) fn spec(&self) -> &'a VirtualClusterSpec {
        &self.observed.cluster.spec
    }

    /// Whether the condition is true in the status as it is drafted.
    pub(super) fn holds(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status == "True")
    }

    pub(super) fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// When the condition last changed its status, if it has this one.
    pub(super) fn since(&self, type_: &str, holds: bool) -> Option<Timestamp> {
        let status = if holds { "True" } else { "False" };
        self.condition(type_)
            .filter(|condition| condition.status == status)
            .map(|condition| condition.last_transition_time.0)
    }

    /// Sets a condition. Its transition time moves only with its status.
    pub(super) fn set(&mut self, type_: &str, holds: bool, reason: &str, message: &str) {
        let status = if holds { "True" } else { "False" };
        let published = self.old.conditions.iter().find(|old| old.type_ == type_ && old.status == status);
        let condition = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: shortened(message, LONGEST_MESSAGE),
            observed_generation: None,
            last_transition_time: published
                .map_or_else(|| Time(whole_seconds(self.now)), |old| old.last_transition_time.clone()),
        };
        self.clear(type_);
        self.status.conditions.push(condition);
    }

    pub(super) fn clear(&mut self, type_: &str) {
        self.status.conditions.retain(|condition| condition.type_ != type_);
    }

    /// It is as asked.
    pub(super) fn ready(&mut self, reason: &str, message: &str) {
        self.clear(conditions::RECONCILING);
        self.clear(conditions::STALLED);
        self.set(conditions::READY, true, reason, message);
    }

    /// It is on its way, or waits for what may come by itself.
    pub(super) fn reconciling(&mut self, reason: &str, message: &str) {
        self.clear(conditions::STALLED);
        self.set(conditions::READY, false, reason, message);
        self.set(conditions::RECONCILING, true, reason, message);
    }

    /// Nothing will happen until someone changes something.
    pub(super) fn stalled(&mut self, trouble: &Trouble) {
        self.clear(conditions::RECONCILING);
        self.set(conditions::READY, false, &trouble.reason, &trouble.message);
        self.set(conditions::STALLED, true, &trouble.reason, &trouble.message);
    }

    /// Notes when a state was first reached.
    pub(super) fn reached(&mut self, moment: fn(&mut Timeline) -> &mut Option<MicroTime>, at: Timestamp) {
        let timeline = self.status.timeline.get_or_insert_default();
        moment(timeline).get_or_insert(MicroTime(whole_micros(at)));
    }

    pub(super) fn finished(&self) -> bool {
        self.status.timeline.as_ref().is_some_and(|timeline| timeline.finished.is_some())
    }

    /// Complete or failed, for good.
    pub(super) fn is_over(&self) -> bool {
        self.holds(conditions::COMPLETE) || self.holds(conditions::FAILED)
    }

    /// When the cluster was made, or last resumed.
    pub(super) fn start(&self) -> Timestamp {
        let made = self.observed.cluster.metadata.creation_timestamp.as_ref().map_or(self.now, |time| time.0);
        self.since(conditions::SUSPENDED, false).map_or(made, |resumed| resumed.max(made))
    }

    /// What is left of `limit` from `base` on; looked at again when it is over. None if it is over.
    pub(super) fn left(&mut self, base: Timestamp, limit: Duration) -> Option<Duration> {
        let passed = elapsed(base, self.now);
        let left = limit.checked_sub(passed).filter(|left| !left.is_zero());
        if let Some(left) = left {
            self.look_again(left);
        }
        left
    }

    pub(super) fn look_again(&mut self, after: Duration) {
        self.plan.requeue = Some(self.plan.requeue.map_or(after, |before| before.min(after)));
    }

    pub(super) fn act(&mut self, action: Action) {
        self.plan.actions.push(action);
    }

    /// Does what writes `part`, unless the API server refused that a moment ago.
    pub(super) fn write(&mut self, part: &Part, action: Action) {
        if self.may_write(part) {
            self.act(action);
        }
    }

    /// Applies objects, but not those that the API server refused a moment ago.
    pub(super) fn apply_objects(&mut self, mut kinds: Vec<ObjectKind>) {
        kinds.retain(|kind| self.may_write(&Part::Object(*kind)));
        if !kinds.is_empty() {
            self.act(Action::ApplyObjects(kinds));
        }
    }

    fn may_write(&mut self, part: &Part) -> bool {
        let Some(Refusal { since, at, .. }) = self.observed.refused.get(part) else { return true };
        let (since, at) = (*since, *at);
        let wait = (elapsed(since, at) / 4).clamp(REFUSED_AFTER.0, REFUSED_AFTER.1);
        self.left(at, wait).is_none()
    }

    /// Why the API server does not take it, if it does not.
    pub(super) fn refusal(&self, part: &Part) -> Option<Trouble> {
        self.observed.refused.get(part).map(|refused| refused.trouble.clone())
    }

    pub(super) fn begin(&mut self, step: Step) {
        self.act(Action::Begin(step));
    }

    /// Begins a failed operation again once it has been over for a while.
    pub(super) fn retry(&mut self, step: Step) {
        let name = step.operation();
        let over = self.observed.operations.over_since.get(&name).copied().unwrap_or(self.now);
        if self.left(over, RETRY_AFTER).is_none() {
            self.act(Action::Cancel(vec![name]));
            self.begin(step);
        }
    }

    /// Ends and forgets the operations that are not among these.
    pub(super) fn keep_operations(&mut self, keep: &[String]) {
        let names = self.observed.operations.names.iter();
        let stale: Vec<String> = names.filter(|name| !keep.contains(name)).cloned().collect();
        if !stale.is_empty() {
            self.act(Action::Cancel(stale));
        }
    }

    /// The plan, with a status only where there is something to write and it may not wait.
    pub(super) fn done(mut self) -> Plan {
        let generation = self.observed.cluster.metadata.generation;
        self.status.observed_generation = generation;
        for condition in &mut self.status.conditions {
            condition.observed_generation = generation;
        }
        self.status.conditions.sort_by_key(|condition| place(&condition.type_));
        if self.status == self.old {
            return self.plan;
        }
        if !self.last_chance
            && !is_urgent(&self.old, &self.status)
            && let Some(last) = self.observed.last_write
            && self.left(last, WRITE_EVERY).is_some()
        {
            return self.plan;
        }
        let events: Vec<Event> = events::between(&self.old, &self.status);
        self.plan.events = events;
        self.plan.status = Some(self.status);
        self.plan
    }
}

/// Whether the difference is more than progress.
fn is_urgent(old: &VirtualClusterStatus, new: &VirtualClusterStatus) -> bool {
    let standing = |status: &VirtualClusterStatus| -> Vec<(String, String)> {
        status.conditions.iter().map(|c| (c.type_.clone(), c.status.clone())).collect()
    };
    let launch = |status: &VirtualClusterStatus| {
        status.run.as_ref().map(|run| (run.launch.clone(), run.restarts, run.exit_code))
    };
    old.observed_generation != new.observed_generation
        || old.completion_time != new.completion_time
        || standing(old) != standing(new)
        || launch(old) != launch(new)
}

fn place(type_: &str) -> usize {
    OWN.iter().position(|own| *own == type_).unwrap_or(OWN.len())
}

pub(super) fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from).max(SignedDuration::ZERO)).unwrap_or_default()
}

/// `metav1.Time` has no fraction: one that is written with it comes back without, and would look changed.
pub(super) fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// `metav1.MicroTime` has six digits.
fn whole_micros(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

/// The beginning of a text, at most `most` bytes of it.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most - '…'.len_utf8()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// The end of a text, at most `most` bytes of it.
pub(super) fn tail(text: &str, most: usize) -> String {
    let from = text.len().saturating_sub(most);
    let start = (from..=text.len()).find(|start| text.is_char_boundary(*start)).unwrap_or(text.len());
    text[start..].to_owned()
}
