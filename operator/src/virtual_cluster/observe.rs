//! What is there? From caches and operations; nothing here takes time.

use std::sync::Arc;

use gridcast_crds::VirtualCluster;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{
    members::{Asked, Made, collect_claims, creation_key, membership},
    objects::{APP, APP_CLUSTER, collect::collect_pod_name, places},
    observed::{HelperPod, Member, Observed, Operations, Trouble, Work},
    plan::ObjectKind,
    pods,
};
use crate::{
    auxiliary_pod::Role,
    context::Context,
    kind::Owner,
    operations::{self, State},
};

/// Looks at a cluster and all that belongs to it.
pub fn observe(context: &Context, cluster: &Arc<VirtualCluster>) -> Observed {
    let owner = Owner::of(&**cluster);
    let uid = owner.uid.as_str();
    let now = (context.now)();
    let pods = context.stores.pods_of_owner(uid);
    let memory = &context.clusters;
    let (members, strangers) = members(cluster, &Asked::of(cluster, memory), &pods);
    let (applied, applied_since) = memory.applied(uid, |kind| kind.version(cluster));
    Observed {
        broadcasts: {
            let mut broadcasts = context.stores.broadcasts_of_owner(uid);
            broadcasts.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
            broadcasts
        },
        network_map: context.stores.network_maps_of_owner(uid).into_iter().next(),
        collect_pods: collect_pods(cluster, &pods),
        applied,
        applied_since,
        budget: memory.exists(uid, ObjectKind::DisruptionBudget),
        operations: operations(context, cluster, &owner, &members, now),
        last_write: memory.last_write(uid),
        placed_since: {
            let has_place = |member: &Member| member.pod.as_ref().is_some_and(|pod| pod.node.is_some());
            memory.placed_since(uid, !members.is_empty() && members.iter().all(has_place), now)
        },
        refused: memory.refused(uid),
        cluster: cluster.clone(),
        members,
        strangers,
    }
}

/// The nodes that are asked for, each with its pod, and the other pods that are nodes of the cluster.
fn members(cluster: &VirtualCluster, asked: &Asked, pods: &[Arc<Pod>]) -> (Vec<Member>, Vec<HelperPod>) {
    let mut nodes: std::collections::BTreeMap<&str, &Pod> = pods
        .iter()
        .filter(|pod| label(pod, APP) == Some(APP_CLUSTER))
        .filter_map(|pod| Some((pod.metadata.name.as_deref()?, pod.as_ref())))
        .collect();
    let mut members = Vec::new();
    if !cluster.spec.suspend {
        for place in places(cluster) {
            let found = nodes.get(place.name.as_str()).copied();
            let right = found.filter(|pod| asked.takes(place.group_index, Made::of(pod).as_ref()));
            if right.is_some() {
                nodes.remove(place.name.as_str());
            }
            members.push(Member {
                occupied: found.is_some() && right.is_none(),
                pod: right.map(pods::read),
                group: place.group.name.clone(),
                index: place.index,
                slots: place.group.slots(),
                name: place.name,
            });
        }
    }
    let strangers = nodes
        .into_iter()
        .map(|(name, pod)| HelperPod { name: name.to_owned(), pod: pods::read(pod) })
        .collect();
    (members, strangers)
}

/// In the order of the claims, as their names count them.
fn collect_pods(cluster: &VirtualCluster, pods: &[Arc<Pod>]) -> Vec<HelperPod> {
    let claims = cluster.spec.run.as_ref().map_or(0, |run| collect_claims(run).len());
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let place =
        |pod: &str| (0..claims).position(|index| collect_pod_name(name, index) == pod).unwrap_or(claims);
    let mut found: Vec<HelperPod> = pods
        .iter()
        .filter(|pod| label(pod, APP) == Some(Role::Collect.app()))
        .filter_map(|pod| Some(HelperPod { name: pod.metadata.name.clone()?, pod: pods::read(pod) }))
        .collect();
    found.sort_by_key(|pod| (place(&pod.name), pod.name.clone()));
    found
}

fn label<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn operations(
    context: &Context,
    cluster: &VirtualCluster,
    owner: &Owner,
    members: &[Member],
    now: Timestamp,
) -> Operations {
    let all = &context.operations;
    let names = all.names(owner);
    let launch =
        cluster.status.as_ref().and_then(|status| status.run.as_ref()).and_then(|run| run.launch.as_deref());
    let membership = membership(members);
    let of_members = |step: &str| membership.as_ref().map(|membership| format!("{step}/{membership}"));
    let of_launch = |step: &str| launch.map(|launch| format!("{step}/{launch}"));
    let create = Some(format!("create/{}", creation_key(cluster)));
    let mut found = Operations {
        create: work(all, owner, create.as_deref()),
        gate: work(all, owner, of_members("gate").as_deref()),
        tune: work(all, owner, of_members("tune").as_deref()),
        launch: work(all, owner, of_launch("launch").as_deref()),
        stop: work(all, owner, of_launch("stop").as_deref()),
        collect: work(all, owner, of_launch("collect").as_deref()),
        release: work(all, owner, Some("release")),
        over_since: std::collections::BTreeMap::new(),
        names,
    };
    let over = [
        (create, found.create.is_over()),
        (of_members("gate"), found.gate.is_over()),
        (of_members("tune"), found.tune.is_over()),
        (of_launch("launch"), found.launch.is_over()),
        (of_launch("stop"), found.stop.is_over()),
        (of_launch("collect"), found.collect.is_over()),
    ];
    let over = over.into_iter().filter(|(_, over)| *over).filter_map(|(name, _)| name).collect();
    found.over_since = context.clusters.over_since(&owner.uid, over, now);
    found
}

fn work<T: Clone + Send + Sync + 'static>(
    all: &operations::Operations,
    owner: &Owner,
    name: Option<&str>,
) -> Work<T> {
    match name.and_then(|name| all.state::<T>(owner, name)) {
        None => Work::Absent,
        Some(State::Running(report)) => Work::Running(report),
        Some(State::Done(report)) => Work::Done(report),
        Some(State::Failed(failure)) => Work::Failed(Trouble::new(failure.reason, failure.message)),
    }
}
