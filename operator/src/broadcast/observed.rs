//! What does a plan for a Broadcast look at?

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use gridcast_control::StepFailure;
use gridcast_crds::{Broadcast, NetworkMap};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    knowledge::{Knowledge, Measured, Trouble},
    source::{Origin, PodView},
    standing,
    targets::{NodeAgent, Targets, agent_of, resolve},
};
use crate::{
    context::Context,
    operations::{Owner, State},
};

/// Name of the operation that stages and releases; its state is the [`Knowledge`].
pub(crate) const STAGE: &str = "stage";
/// Name of the operation that makes the source pod; its state is [`Making`].
pub(crate) const SOURCE: &str = "source";
/// Begin of the names of operations that read what kubelet says of a source pod's volumes; the pod's UID follows.
pub(crate) const VOLUMES: &str = "volumes/";

/// How the making of a source pod goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Making {
    /// Why the last was refused.
    pub(crate) trouble: Option<Trouble>,
}

/// Everything that a plan for a Broadcast may look at.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The object.
    pub(crate) object: Arc<Broadcast>,
    /// Where the data is; the field that is not offered otherwise.
    pub(crate) origin: Result<Origin, &'static str>,
    /// Who should have it.
    pub(crate) targets: Targets,
    /// The agent of each node that matters.
    pub(crate) agents: BTreeMap<String, NodeAgent>,
    /// This process has known the object from its beginning: there are no copies that it does not know of.
    pub(crate) whole: bool,
    /// All nodes whose agent answers; only where everybody is asked to release.
    pub(crate) everybody: Vec<String>,
    /// Source pods, the newest last.
    pub(crate) pods: Vec<PodView>,
    /// What kubelet says of the newest source pod's volumes.
    pub(crate) volumes: Option<StepFailure>,
    /// The Broadcast that has the path already.
    pub(crate) holder: Option<String>,
    /// What is known of the copies.
    pub(crate) knowledge: Knowledge,
    /// The operation that stages goes on.
    pub(crate) running: bool,
    /// How the making of the source pod goes.
    pub(crate) making: Making,
    /// It goes on.
    pub(crate) is_making: bool,
    /// Bandwidths that somebody else's NetworkMap knows.
    pub(crate) mapped: Option<Measured>,
}

impl Observed {
    pub(crate) fn new(context: &Context, object: &Arc<Broadcast>) -> Self {
        let owner = Owner::of(&**object);
        let (knowledge, running) = read::<Knowledge>(context, &owner, STAGE);
        let (making, is_making) = read::<Making>(context, &owner, SOURCE);
        let targets = resolve(&context.stores, &owner.namespace, &object.spec.to);
        let mut pods: Vec<PodView> =
            context.stores.pods_of_broadcast(&owner.uid).iter().map(|pod| PodView::of(pod)).collect();
        pods.sort_by_key(|pod| pod.number);
        let newest = pods.last().map(|pod| format!("{VOLUMES}{}", pod.uid));
        let volumes = newest.and_then(|name| read::<Option<StepFailure>>(context, &owner, &name).0);
        let origin = Origin::of(&object.spec.source);
        let dying = object.metadata.deletion_timestamp.is_some();
        let whole = object.creation_timestamp().is_some_and(|time| time.0 > first_look((context.now)()));
        let names = relevant(object, &targets, &knowledge, &origin);
        Self {
            agents: names
                .into_iter()
                .map(|node| (agent_of(context, &node), node))
                .map(|(a, n)| (n, a))
                .collect(),
            whole,
            everybody: if dying && !whole { context.agents.nodes() } else { Vec::new() },
            holder: holder(context, object),
            mapped: mapped(context, &targets),
            object: object.clone(),
            origin,
            targets,
            pods,
            volumes,
            knowledge,
            running,
            making,
            is_making,
        }
    }

    /// The namespace and the path below it, where nodes keep the dataset.
    pub(crate) fn path(&self) -> String {
        path(&self.object)
    }
}

/// When this process first looked at any Broadcast: what was made later is known from its beginning.
fn first_look(now: Timestamp) -> Timestamp {
    static FIRST: OnceLock<Timestamp> = OnceLock::new();
    *FIRST.get_or_init(|| now)
}

/// The state of an operation that carries what it knows whatever comes, and whether it goes on.
fn read<T: Clone + Default + Send + Sync + 'static>(
    context: &Context,
    owner: &Owner,
    name: &str,
) -> (T, bool) {
    match context.operations.state::<T>(owner, name) {
        Some(State::Running(state)) => (state, true),
        Some(State::Done(state)) => (state, false),
        // One that panicked knows nothing any more.
        Some(State::Failed(_)) | None => (T::default(), false),
    }
}

/// The nodes whose agents matter.
fn relevant(
    object: &Broadcast,
    targets: &Targets,
    knowledge: &Knowledge,
    origin: &Result<Origin, &'static str>,
) -> BTreeSet<String> {
    let mut nodes: BTreeSet<String> = knowledge.copies.keys().cloned().collect();
    match targets {
        Targets::Nodes(wanted) => nodes.extend(wanted.iter().cloned()),
        Targets::Waiting { placed, .. } => nodes.extend(placed.iter().cloned()),
    }
    if let Ok(Origin::Node { name: Some(name), .. }) = origin {
        nodes.insert(name.clone());
    }
    nodes.extend(shown(object));
    nodes
}

/// The nodes that the published status names: they may have copies, whatever this process knows.
pub(crate) fn shown(object: &Broadcast) -> impl Iterator<Item = String> {
    object.status.iter().flat_map(|status| &status.worst).map(|node| node.name.clone())
}

fn path(object: &Broadcast) -> String {
    object.spec.path.clone().unwrap_or_else(|| object.name_any())
}

/// The Broadcast of the same namespace that has this one's path, or one above or below it: the older one keeps it.
fn holder(context: &Context, object: &Broadcast) -> Option<String> {
    let mine = path(object);
    let age =
        |object: &Broadcast| (object.metadata.creation_timestamp.clone().map(|time| time.0), object.uid());
    let others = context.stores.broadcasts.all();
    let holds = |other: &&Arc<Broadcast>| {
        other.namespace() == object.namespace()
            && other.uid() != object.uid()
            && collide(&path(other), &mine)
            && age(other) < age(object)
    };
    others.iter().find(holds).map(|other| other.name_any())
}

/// Whether two paths are one, or one is below the other.
fn collide(a: &str, b: &str) -> bool {
    let below =
        |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    below(a, b) || below(b, a)
}

/// What a NetworkMap of all these nodes has measured, the freshest.
fn mapped(context: &Context, targets: &Targets) -> Option<Measured> {
    let Targets::Nodes(nodes) = targets else { return None };
    let now = (context.now)();
    let maps = context.stores.network_maps.all();
    maps.iter()
        .filter_map(|map| figures(map))
        .filter(|figures| figures.covers(nodes.iter().map(String::as_str), now))
        .max_by_key(|figures| figures.at)
}

/// Bandwidths between nodes, of a map that is of nodes and not of pods.
fn figures(map: &NetworkMap) -> Option<Measured> {
    let status = map.status.as_ref().filter(|_| map.spec.of.virtual_cluster.is_none())?;
    let matrices = status.matrices.as_ref().filter(|matrices| !matrices.bandwidth_mbps.is_empty())?;
    standing::is_ready(&status.conditions).then(|| Measured {
        hosts: matrices.hosts.clone(),
        mbps: matrices.bandwidth_mbps.clone(),
        at: status.measured_time.as_ref().map(|time| time.0).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_meet() {
        for (a, b, meet) in [
            ("ics", "ics", true),
            ("ics", "ics/a", true),
            ("ics/a/b", "ics", true),
            ("ics", "ics2", false),
            ("a/b", "a/c", false),
        ] {
            assert_eq!(collide(a, b), meet, "{a} {b}");
        }
    }
}
