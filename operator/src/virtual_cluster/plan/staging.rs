//! Is every dataset on every node?

use gridcast_crds::{
    Broadcast, conditions,
    source::Source,
    virtual_cluster::{Data, status::StagedData},
};

use super::{
    Action, Part,
    draft::Draft,
    network::Progress,
    nodes::Nodes,
    standing::{Standing, standing},
};
use crate::virtual_cluster::observed::Trouble;

/// Sees to it that each dataset has its Broadcast, and no Broadcast is left of a dataset that is no longer asked for.
pub(super) fn stage(draft: &mut Draft<'_>, nodes: &Nodes<'_>) -> Progress {
    let cluster = draft.observed.cluster.metadata.name.clone().unwrap_or_default();
    let name_of = |data: &Data| format!("{cluster}-{}", data.name);
    let data = &draft.spec().data;
    for broadcast in &draft.observed.broadcasts {
        let asked = data.iter().find(|data| broadcast.metadata.name.as_deref() == Some(&name_of(data)));
        if asked.is_none_or(|data| !is_from(&broadcast.spec.source, &data.source)) {
            remove(draft, broadcast);
        }
    }
    if data.is_empty() {
        draft.clear(conditions::STAGED);
        draft.status.data = Vec::new();
        return Progress::Done;
    }
    let mut all = Vec::new();
    for (index, wanted) in data.iter().enumerate() {
        let name = name_of(wanted);
        let found =
            draft.observed.broadcasts.iter().find(|found| found.metadata.name.as_deref() == Some(&name));
        all.push(one(draft, nodes, index, wanted, found.map(AsRef::as_ref)));
    }
    draft.status.data = data
        .iter()
        .map(|wanted| {
            let name = name_of(wanted);
            let found =
                draft.observed.broadcasts.iter().find(|found| found.metadata.name.as_deref() == Some(&name));
            staged(wanted, name, found.map(AsRef::as_ref))
        })
        .collect();
    let progress = worst(all);
    match &progress {
        Progress::Done => {
            let message = if data.len() == 1 {
                "1 dataset is".to_owned()
            } else {
                format!("{} datasets are", data.len())
            };
            draft.set(conditions::STAGED, true, "Staged", &format!("{message} on every node, verified"));
            draft.reached(|timeline| &mut timeline.staged, draft.now);
        }
        Progress::Going(message) => draft.set(conditions::STAGED, false, "Staging", message),
        Progress::Hindered(trouble) | Progress::Stuck(trouble) | Progress::Failed(trouble) => {
            draft.set(conditions::STAGED, false, &trouble.reason, &trouble.message);
        }
    }
    progress
}

fn one(
    draft: &mut Draft<'_>,
    nodes: &Nodes<'_>,
    index: usize,
    wanted: &Data,
    found: Option<&Broadcast>,
) -> Progress {
    let part = Part::Broadcast(wanted.name.clone());
    let told =
        |trouble: Trouble| Trouble::new(trouble.reason, format!("{}: {}", wanted.name, trouble.message));
    let Some(broadcast) = found else {
        let on_first = wanted.source.node.as_ref().is_some_and(|node| node.name.is_none());
        let first_has_place =
            nodes.members.first().and_then(|first| first.pod.as_ref()).is_some_and(|pod| pod.node.is_some());
        if on_first && !first_has_place {
            return Progress::Going(format!(
                "{}: waits for the first node, which has the data, to have a place",
                wanted.name
            ));
        }
        draft.write(&part, Action::ApplyBroadcast(index));
        return match draft.refusal(&part) {
            Some(refused) => Progress::Hindered(told(refused)),
            None => Progress::Going(format!("{}: is about to be staged", wanted.name)),
        };
    };
    if broadcast.metadata.deletion_timestamp.is_some() || !is_from(&broadcast.spec.source, &wanted.source) {
        return Progress::Going(format!("{}: what was staged before is being removed", wanted.name));
    }
    if broadcast.spec.strategy != wanted.strategy() {
        draft.write(&part, Action::ApplyBroadcast(index));
    }
    let status = broadcast.status.as_ref();
    let said = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    match standing(said, status.and_then(|status| status.observed_generation), broadcast.metadata.generation)
    {
        Standing::Ready => Progress::Done,
        Standing::Going(Some(trouble)) => Progress::Going(told(trouble).message),
        Standing::Going(None) => Progress::Going(format!("{}: is about to be staged", wanted.name)),
        Standing::Stalled(trouble) => Progress::Stuck(told(trouble)),
        Standing::Failed(trouble) => Progress::Failed(told(trouble)),
    }
}

/// Of several, what has to be told.
fn worst(all: Vec<Progress>) -> Progress {
    let rank = |progress: &Progress| match progress {
        Progress::Failed(_) => 0,
        Progress::Stuck(_) => 1,
        Progress::Hindered(_) => 2,
        Progress::Going(_) => 3,
        Progress::Done => 4,
    };
    all.into_iter().min_by_key(rank).unwrap_or(Progress::Done)
}

fn remove(draft: &mut Draft<'_>, broadcast: &Broadcast) {
    if broadcast.metadata.deletion_timestamp.is_none() {
        let meta = &broadcast.metadata;
        let (name, uid) = (meta.name.clone().unwrap_or_default(), meta.uid.clone().unwrap_or_default());
        draft.act(Action::DeleteBroadcast(name, uid));
    }
}

/// Whether `found` is what is rendered for `asked`: a source on the first node is given that node's name.
fn is_from(found: &Source, asked: &Source) -> bool {
    let mut found = found.clone();
    if let (Some(found), Some(asked)) = (&mut found.node, &asked.node)
        && asked.name.is_none()
    {
        found.name = None;
    }
    found == *asked
}

fn staged(wanted: &Data, name: String, found: Option<&Broadcast>) -> StagedData {
    let status = found.and_then(|broadcast| broadcast.status.as_ref());
    StagedData {
        name: wanted.name.clone(),
        size_bytes: status.and_then(|status| status.size_bytes),
        nodes_staged: status.and_then(|status| status.nodes_staged).unwrap_or(0),
        broadcast_name: Some(name),
        strategy: status.and_then(|status| status.strategy.clone()),
        aggregate_mbps: status.and_then(|status| status.aggregate_mbps),
        bound_mbps: status.and_then(|status| status.bound_mbps),
        seconds: status.and_then(|status| status.seconds),
    }
}
