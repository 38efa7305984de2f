//! How are the nodes: which exist, run, answer, and what is in the way of the others?

use std::{sync::Arc, time::Duration};

use gridcast_crds::{
    conditions,
    virtual_cluster::{Data, status::PlacedNode},
};
use jiff::Timestamp;

use super::{
    Action, ObjectKind, Part, Step,
    draft::{Draft, elapsed},
};
use crate::virtual_cluster::{
    members::{creation_key, member_selector, membership, reachable},
    observed::{Host, Member, MemberPod, Phase, Refusal, Trouble, Work},
};

/// Nodes that a message names.
const NAMED: usize = 3;
/// Nodes that a status lists.
const LISTED: usize = 64;
/// After its time of grace a pod that is still there is waited for this long; then no kubelet is expected to answer.
const BEYOND_GRACE: Duration = Duration::from_secs(30);
/// A pod that is deleted and still there so long after its time is told of.
const LATE: Duration = Duration::from_secs(5);
/// Least and longest wait before a pod that ended is made anew.
const REPLACE_AFTER: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
/// Pods that were made so shortly before it was seen that a dataset's name is taken were made with it.
const BESIDE: Duration = Duration::from_mins(1);
/// kubelet makes volumes and network within this time; what takes longer is told.
const SANDBOX: Duration = Duration::from_secs(10);

pub(super) struct Nodes<'a> {
    pub(super) members: &'a [Member],
    /// Pods that are asked for.
    pub(super) exist: usize,
    /// Of them, those with a place.
    pub(super) placed: usize,
    /// Of them, those that run.
    pub(super) running: usize,
    /// Identifies them; none unless all can be reached.
    pub(super) membership: Option<String>,
    /// Those that can be reached.
    pub(super) hosts: Arc<[Host]>,
}

impl<'a> Nodes<'a> {
    pub(super) fn of(members: &'a [Member]) -> Self {
        let pods = || members.iter().filter_map(|member| member.pod.as_ref());
        let hosts: Vec<Host> = members.iter().filter_map(host).collect();
        Self {
            members,
            exist: pods().count(),
            placed: pods().filter(|pod| pod.node.is_some()).count(),
            running: members.iter().filter_map(reachable).filter(|pod| pod.phase == Phase::Running).count(),
            membership: membership(members),
            hosts: hosts.into(),
        }
    }

    pub(super) fn total(&self) -> usize {
        self.members.len()
    }

    /// The first node, if it runs: the launcher's.
    pub(super) fn first(&self) -> Option<Host> {
        host(self.members.first()?)
    }

    /// Nodes whose pod ended, is on its way out, or does not exist.
    pub(super) fn lost(&self) -> impl Iterator<Item = &'a Member> {
        self.members.iter().filter(|member| member.pod.as_ref().is_none_or(is_broken))
    }

    /// What keeps a node from running: the first of its kind, and how many more nodes share it.
    pub(super) fn trouble(&self, now: Timestamp, data_is_there: bool) -> Option<Trouble> {
        // What has ended is replaced in a moment; what waits can be told of later, too.
        let has_ended = |member: &&Member| member.pod.as_ref().is_some_and(|pod| pod.phase == Phase::Failed);
        let (ended, others): (Vec<_>, Vec<_>) = self.members.iter().partition(has_ended);
        let members = ended.into_iter().chain(others);
        let troubles: Vec<Trouble> =
            members.filter_map(|member| trouble_of(member, now, data_is_there)).collect();
        let first = troubles.first()?;
        let alike = troubles.iter().filter(|trouble| trouble.reason == first.reason).count();
        if alike == 1 {
            return Some(first.clone());
        }
        let (told, more) = (first.message.trim_end_matches('.'), alike - 1);
        let nodes = if more == 1 { "node" } else { "nodes" };
        Some(Trouble::new(first.reason.clone(), format!("{told}; and {more} more {nodes}")))
    }

    /// Nodes that keep the cluster from being ready, and what each lacks: the first few, and how many more; none if all
    /// answer.
    pub(super) fn missing(&self, answers: impl Fn(&Host) -> bool) -> Option<String> {
        let missing: Vec<String> = self.members.iter().filter_map(|member| lack(member, &answers)).collect();
        let more = missing.len().saturating_sub(NAMED);
        let named = missing.get(..NAMED).unwrap_or(&missing).join(", ");
        match (missing.is_empty(), more) {
            (true, _) => None,
            (false, 0) => Some(named),
            (false, more) => Some(format!("{named}, and {more} more")),
        }
    }

    /// Counts for people, as in "2 of 3 nodes run, 3 have a place".
    pub(super) fn counts(&self) -> String {
        let total = self.total();
        let nodes = if total == 1 { "node" } else { "nodes" };
        if self.exist < total {
            format!(
                "{} of {total} {nodes} made, {} have a place, {} run",
                self.exist, self.placed, self.running
            )
        } else if self.placed < total {
            format!("{} of {total} {nodes} have a place, {} run", self.placed, self.running)
        } else {
            format!("{} of {total} {nodes} run", self.running)
        }
    }
}

/// What a node lacks, as in "ring-node-1: not scheduled (Unschedulable)"; none if it answers.
fn lack(member: &Member, answers: impl Fn(&Host) -> bool) -> Option<String> {
    let lacks = match &member.pod {
        None if member.occupied => "its name is held by a pod that goes",
        None => "not made",
        Some(pod) if pod.deleting.is_some() => "its pod is being deleted",
        Some(pod) if is_broken(pod) => "its pod ended",
        Some(pod) if pod.node.is_none() => "not scheduled",
        Some(pod) => match host(member) {
            Some(host) if answers(&host) => return None,
            Some(_) if pod.phase == Phase::Running => "does not answer",
            _ => "does not run",
        },
    };
    let reason = member.pod.as_ref().and_then(|pod| pod.trouble.as_ref());
    let reason = reason.map(|trouble| format!(" ({})", trouble.reason)).unwrap_or_default();
    Some(format!("{}: {lacks}{reason}", member.name))
}

fn host(member: &Member) -> Option<Host> {
    let pod = reachable(member)?;
    Some(Host {
        name: member.name.clone(),
        uid: pod.uid.clone(),
        address: pod.address.clone()?,
        node: pod.node.clone()?,
        slots: member.slots,
        keys: pod.keys,
    })
}

/// It will not run (any more).
fn is_broken(pod: &MemberPod) -> bool {
    pod.deleting.is_some() || matches!(pod.phase, Phase::Failed | Phase::Succeeded)
}

fn trouble_of(member: &Member, now: Timestamp, data_is_there: bool) -> Option<Trouble> {
    let pod = member.pod.as_ref()?;
    let name = &member.name;
    if let Some(expected) = pod.deleting {
        // Its end is as wanted, unless it does not come.
        let late = elapsed(expected, now) >= LATE;
        return late.then(|| {
            Trouble::new(
                "NodeLeaving",
                format!("{name}: its pod should be gone, but kubelet has not removed it yet"),
            )
        });
    }
    if let Some(trouble) = &pod.trouble {
        return Some(trouble.clone());
    }
    let waits = pod.waits_for_sandbox && pod.node.is_some() && data_is_there;
    let long = pod.created.is_some_and(|made| elapsed(made, now) >= SANDBOX);
    (waits && long).then(|| {
        Trouble::new(
            "VolumesPending",
            format!("{name}: kubelet waits for a volume or the network of the pod; `kubectl describe pod {name}` says which"),
        )
    })
}

/// Why nodes end again and again. It is told from the first time on until all run or something else is in the way: between
/// two tries there is nothing to see, and each try would be news.
pub(super) fn last_end(draft: &Draft<'_>, nodes: &Nodes<'_>) -> Option<Trouble> {
    const ENDS: [&str; 4] = ["InitFailed", "NodeEnded", "OutOfMemory", "StartError"];
    let told = draft.condition(conditions::PROVISIONED).filter(|told| told.status == "False")?;
    if !ENDS.contains(&told.reason.as_str()) {
        return None;
    }
    let host = told.message.split(':').next().unwrap_or_default();
    let now = nodes.members.iter().filter_map(|member| trouble_of(member, draft.now, true));
    let mut other = None;
    for trouble in now {
        if trouble.reason == told.reason && trouble.message.split(':').next() == Some(host) {
            return Some(trouble);
        }
        if trouble.reason != told.reason {
            other.get_or_insert(trouble);
        }
    }
    Some(other.unwrap_or_else(|| Trouble::new(told.reason.clone(), told.message.clone())))
}

/// What became of a lost node, for people.
pub(super) fn loss_of(member: &Member) -> Trouble {
    let name = &member.name;
    match &member.pod {
        None => Trouble::new("NodeLost", format!("{name}: its pod is gone")),
        Some(MemberPod { trouble: Some(trouble), .. }) => trouble.clone(),
        Some(pod) if pod.deleting.is_some() => {
            Trouble::new("NodeLost", format!("{name}: its pod is being deleted"))
        }
        Some(_) => Trouble::new("NodeLost", format!("{name}: its pod ended")),
    }
}

/// Nodes that have no pod, and whose name is free.
fn to_make<'a>(nodes: &Nodes<'a>) -> impl Iterator<Item = &'a Member> {
    nodes.members.iter().filter(|member| member.pod.is_none() && !member.occupied)
}

/// Whether [`provide`] begins to make pods.
pub(super) fn begins_creation(draft: &Draft<'_>, nodes: &Nodes<'_>) -> bool {
    matches!(draft.observed.operations.create, Work::Absent | Work::Done(_))
        && to_make(nodes).next().is_some()
}

/// A quarter of the time for which nodes have been missing, within these bounds.
pub(super) fn patience(draft: &Draft<'_>, (least, longest): (Duration, Duration)) -> Duration {
    let missing_since = draft.since(conditions::PROVISIONED, false).unwrap_or_else(|| draft.start());
    (elapsed(missing_since, draft.now) / 4).clamp(least, longest)
}

/// Makes what is missing, replaces what ended, removes what is no longer asked for. Says what is in the way, and whether
/// only a change of the spec helps.
pub(super) fn provide(draft: &mut Draft<'_>, nodes: &Nodes<'_>) -> Option<(Trouble, bool)> {
    remove_strangers(draft);
    if let Some(trouble) = keep_from_foreign_data(draft, nodes) {
        return Some((trouble, false));
    }
    replace_broken(draft, nodes);
    let missing: Vec<String> = to_make(nodes).map(|member| member.name.clone()).collect();
    let step = Step::Create { key: creation_key(&draft.observed.cluster), names: missing };
    let Step::Create { names, .. } = &step else { return None };
    match &draft.observed.operations.create {
        Work::Failed(trouble) if !names.is_empty() => Some((trouble.clone(), true)),
        Work::Running(creation) => creation.refused.clone().map(|trouble| (trouble, false)),
        Work::Absent if !names.is_empty() => {
            draft.begin(step);
            None
        }
        Work::Done(_) if !names.is_empty() => {
            draft.act(Action::Cancel(vec![step.operation()]));
            draft.begin(step);
            None
        }
        Work::Absent | Work::Done(_) | Work::Failed(_) => None,
    }
}

fn remove_strangers(draft: &mut Draft<'_>) {
    // What takes their place could not start without its keys.
    if draft.refusal(&Part::Object(ObjectKind::Secret)).is_some() {
        return;
    }
    let strangers = draft.observed.strangers.iter();
    let pods: Vec<(String, &MemberPod)> =
        strangers.map(|stranger| (stranger.name.clone(), &stranger.pod)).collect();
    delete(draft, &pods);
}

/// While a dataset's name is somebody else's Broadcast, nodes would be given what that brought. None is made; and those that
/// were made beside the first try to make ours go, since what they mount could not be removed.
fn keep_from_foreign_data(draft: &mut Draft<'_>, nodes: &Nodes<'_>) -> Option<Trouble> {
    let refused = &draft.observed.refused;
    let of = |data: &Data| refused.get(&Part::Broadcast(data.name.clone()));
    let taken =
        draft.spec().data.iter().find_map(|data| of(data).filter(|r| r.trouble.reason == "NameTaken"));
    let Refusal { trouble, since, .. } = taken?;
    let beside = |pod: &&MemberPod| pod.created.is_some_and(|made| elapsed(made, *since) < BESIDE);
    let pods = nodes.members.iter().filter_map(|member| Some((member.name.clone(), member.pod.as_ref()?)));
    let pods: Vec<_> = pods.filter(|(_, pod)| beside(pod)).collect();
    delete(draft, &pods);
    Some(trouble.clone())
}

/// A pod that fails again and again is made anew ever more seldom: after a quarter of the time for which nodes have been
/// missing, so that its last state can be looked at in between.
fn replace_broken(draft: &mut Draft<'_>, nodes: &Nodes<'_>) {
    let wait = patience(draft, REPLACE_AFTER);
    let mut due = Vec::new();
    for member in nodes.members {
        let Some(pod) = member.pod.as_ref().filter(|pod| is_broken(pod)) else { continue };
        let made = pod.created.unwrap_or(draft.now);
        if pod.deleting.is_some() || draft.left(made, wait).is_none() {
            // Why it ended goes with it.
            draft.last_chance |= pod.deleting.is_none() && pod.trouble.is_some();
            due.push((member.name.clone(), pod));
        }
    }
    delete(draft, &due);
}

/// Deletes pods; those that are on their way out already only when their kubelet does not do it.
pub(super) fn delete(draft: &mut Draft<'_>, pods: &[(String, &MemberPod)]) {
    let (mut gently, mut by_force) = (Vec::new(), Vec::new());
    for (name, pod) in pods {
        let named = (name.clone(), pod.uid.clone());
        match pod.deleting {
            None => gently.push(named),
            Some(expected) if draft.left(expected, BEYOND_GRACE).is_none() => by_force.push(named),
            Some(_) => {}
        }
    }
    for (pods, force) in [(gently, false), (by_force, true)] {
        if !pods.is_empty() {
            draft.act(Action::DeletePods { pods, force });
        }
    }
}

/// Puts counts, selector and the list of nodes into the status.
pub(super) fn publish(draft: &mut Draft<'_>, nodes: &Nodes<'_>, answers: impl Fn(&Host) -> bool) {
    let cluster = draft.observed.cluster.metadata.name.as_deref().unwrap_or_default();
    let answering = nodes.hosts.iter().filter(|host| answers(host)).count();
    let status = &mut draft.status;
    status.replicas = Some(count(nodes.exist));
    status.ready_replicas = Some(count(answering));
    status.selector = Some(member_selector(cluster));
    status.nodes = nodes
        .members
        .iter()
        .take(LISTED)
        .map(|member| {
            let pod = member.pod.as_ref();
            PlacedNode {
                name: member.name.clone(),
                node: pod.and_then(|pod| pod.node.clone()),
                address: pod.and_then(|pod| pod.address.clone()),
                ready: host(member).is_some_and(|host| answers(&host)),
                reason: pod.and_then(|pod| pod.trouble.as_ref()).map(|trouble| trouble.reason.clone()),
            }
        })
        .collect();
}

pub(super) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
