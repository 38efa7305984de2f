//! What is watched, and whose reconciliation does a change trigger?
//!
//! ```text
//! VirtualCluster      itself; Broadcasts and NetworkMaps that go to it
//! Broadcast, Map      itself; the cluster that owns it
//! pod                 its owner; and what goes to its cluster, when it got a place, an address or an end
//! agent               everything, when it became ready or ceased to be
//! node                everything, when it came, went or changed its labels
//! ```

use std::{fmt::Debug, sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    core::{DeserializeGuard, PartialObjectMeta, error_boundary::InvalidObject},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::{
    agents::is_ready,
    context::Context,
    events,
    failure::chain,
    kind::{Owner, Watched},
    slim::SlimPod,
    stores::{AGENT_APP, APP, CLUSTER, Change, MANAGED_BY, Shelf, node_of},
};

/// Changes of nodes and agents come in rows, a row of thousands at a start; what waits for one looks after the row.
const SETTLE: Duration = Duration::from_millis(250);

/// Watches everything until it is dropped.
pub async fn watch(context: Arc<Context>) {
    let scope = context.settings.watch_namespace.clone();
    let own = context.settings.namespace.clone();
    let everything = Notify::new();
    let pods = watcher::Config::default().labels(&format!("{MANAGED_BY}=gridcast"));
    let agents = watcher::Config::default().labels(&format!("{APP}={AGENT_APP}"));
    tokio::join!(
        follow_kind(&context, &context.stores.clusters, |change| cluster_changed(&context, change)),
        follow_kind(&context, &context.stores.broadcasts, |change| child_changed(&context, change)),
        follow_kind(&context, &context.stores.network_maps, |change| child_changed(&context, change)),
        follow(scoped(&context.client, scope.as_deref()), pods, &context.stores.pods, slim, |change| {
            pod_changed(&context, change);
        }),
        follow(scoped(&context.client, Some(&own)), agents, &context.stores.agents, slim, |change| {
            agent_changed(&everything, change);
        }),
        follow(
            Api::<PartialObjectMeta<Node>>::all(context.client.clone()),
            watcher::Config::default(),
            &context.stores.nodes,
            without_annotations,
            |change| node_changed(&everything, change),
        ),
        trigger_all(&context, &everything),
    );
}

fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Follows one of the three kinds. An object that cannot be read is told of and left out; it holds up no other.
async fn follow_kind<K: Watched>(context: &Context, shelf: &Shelf<K>, mut changed: impl FnMut(&Change<K>)) {
    let api: Api<DeserializeGuard<K>> = match &context.settings.watch_namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event.map(readable) {
            Ok(Ok(event)) => take(shelf, event, &mut changed),
            Ok(Err(object)) => unreadable::<K>(context, *object).await,
            Err(error) => log(&error, &K::plural(&())),
        }
    }
}

/// Follows `W` as it is read, and keeps `keep` of it.
async fn follow<W, K>(
    api: Api<W>,
    config: watcher::Config,
    shelf: &Shelf<K>,
    keep: fn(W) -> K,
    mut changed: impl FnMut(&Change<K>),
) where
    W: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    K: Resource,
{
    let mut events = watcher(api, config).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => take(shelf, map(event, keep), &mut changed),
            Err(error) => log(&error, &W::plural(&())),
        }
    }
}

fn map<W, K>(event: Event<W>, keep: fn(W) -> K) -> Event<K> {
    match event {
        Event::Apply(object) => Event::Apply(keep(object)),
        Event::Delete(object) => Event::Delete(keep(object)),
        Event::InitApply(object) => Event::InitApply(keep(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

fn take<K: Resource>(shelf: &Shelf<K>, event: Event<K>, changed: &mut impl FnMut(&Change<K>)) {
    for change in shelf.take(event) {
        changed(&change);
    }
}

/// The event with its object, or the object that cannot be read.
fn readable<K: Watched>(event: Event<DeserializeGuard<K>>) -> Result<Event<K>, Box<InvalidObject>> {
    let object = |guard: DeserializeGuard<K>| -> Result<K, Box<InvalidObject>> {
        let mut object = guard.0.map_err(Box::new)?;
        object.managed_fields_mut().clear();
        Ok(object)
    };
    Ok(match event {
        Event::Apply(guard) => Event::Apply(object(guard)?),
        Event::Delete(guard) => Event::Delete(object(guard)?),
        Event::InitApply(guard) => Event::InitApply(object(guard)?),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    })
}

async fn unreadable<K: Watched>(context: &Context, object: InvalidObject) {
    let InvalidObject { error, metadata } = object;
    let (kind, name) = (K::kind(&()), metadata.name.clone().unwrap_or_default());
    tracing::warn!(%kind, namespace = metadata.namespace, name, error, "cannot read an object");
    let reference = k8s_openapi::api::core::v1::ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(kind.into_owned()),
        namespace: metadata.namespace,
        name: metadata.name,
        uid: metadata.uid,
        ..Default::default()
    };
    let message = format!(
        "this version cannot read the object: {error}; install the definitions of this version (`gridcast-operator crds`)"
    );
    context.events.publish_about(&reference, vec![events::Event::warning("Unreadable", message)]).await;
}

/// What to do about a watch that fails.
fn log(error: &watcher::Error, what: &str) {
    let text = chain(error);
    let hint = if text.contains("404") || text.contains("NotFound") {
        "cannot watch; install the definitions with `gridcast-operator crds | kubectl apply -f -`"
    } else if text.contains("403") || text.contains("Forbidden") {
        "cannot watch; grant the rules of operator/role.yaml"
    } else {
        "cannot watch; trying again"
    };
    tracing::warn!(what, error = text, "{hint}");
}

fn slim(SlimPod(pod): SlimPod) -> Pod {
    pod
}

fn without_annotations(mut node: PartialObjectMeta<Node>) -> PartialObjectMeta<Node> {
    node.metadata.managed_fields = None;
    node.metadata.annotations = None;
    node
}

fn cluster_changed(context: &Context, change: &Change<gridcast_crds::VirtualCluster>) {
    own_changed(context, change);
    let Some(object) = change.new.as_ref().or(change.old.as_ref()) else { return };
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    trigger_guests(context, &namespace, &name);
}

fn child_changed<K: Watched>(context: &Context, change: &Change<K>) {
    own_changed(context, change);
    if let Some(object) = change.new.as_ref().or(change.old.as_ref()) {
        trigger_owner(context, &**object);
    }
}

fn own_changed<K: Watched>(context: &Context, change: &Change<K>) {
    let queue = K::queue(&context.queues);
    match (&change.old, &change.new) {
        (_, Some(object)) => queue.trigger(&object.namespace().unwrap_or_default(), &object.name_any()),
        (Some(object), None) => {
            let owner = Owner::of(&**object);
            queue.forget(&owner.namespace, &owner.name);
            context.operations.forget(&owner);
            context.clusters.forget(&owner.uid);
            context.backoff(|backoff| backoff.succeeded(&owner.uid));
        }
        (None, None) => {}
    }
    // One that was deleted and made again between two looks.
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && old.meta().uid != new.meta().uid
    {
        context.operations.forget(&Owner::of(&**old));
    }
}

fn pod_changed(context: &Context, change: &Change<Pod>) {
    let Some(pod) = change.new.as_ref().or(change.old.as_ref()) else { return };
    trigger_owner(context, &**pod);
    let whereabouts = |pod: &Pod| {
        let status = pod.status.as_ref();
        (
            node_of(pod).map(str::to_owned),
            status.and_then(|status| status.pod_ip.clone()),
            status.and_then(|status| status.phase.clone()),
            pod.metadata.uid.clone(),
        )
    };
    if change.old.as_deref().map(whereabouts) != change.new.as_deref().map(whereabouts)
        && let Some(cluster) = pod.labels().get(CLUSTER)
    {
        trigger_guests(context, &pod.namespace().unwrap_or_default(), cluster);
    }
}

fn agent_changed(everything: &Notify, change: &Change<Pod>) {
    let serves = |pod: &Pod| {
        let host = pod.status.as_ref().and_then(|status| status.host_ip.clone());
        is_ready(pod).then_some((node_of(pod).map(str::to_owned), host))
    };
    let present = change.old.is_some() != change.new.is_some();
    if present || change.old.as_deref().and_then(serves) != change.new.as_deref().and_then(serves) {
        everything.notify_one();
    }
}

fn node_changed(everything: &Notify, change: &Change<PartialObjectMeta<Node>>) {
    let labels = |node: &PartialObjectMeta<Node>| (node.metadata.uid.clone(), node.metadata.labels.clone());
    if change.old.as_deref().map(labels) != change.new.as_deref().map(labels) {
        everything.notify_one();
    }
}

/// Triggers what controls `object`, if that is one of the three kinds.
fn trigger_owner<K: Resource>(context: &Context, object: &K) {
    let owners = object.meta().owner_references.iter().flatten();
    for owner in
        owners.filter(|owner| owner.controller == Some(true) && owner.api_version.starts_with("gridcast.io/"))
    {
        if let Some(queue) = context.queues.of(&owner.kind) {
            queue.trigger(object.meta().namespace.as_deref().unwrap_or_default(), &owner.name);
        }
    }
}

/// Triggers what goes to a cluster.
fn trigger_guests(context: &Context, namespace: &str, cluster: &str) {
    for broadcast in context.stores.broadcasts_to(namespace, cluster) {
        context.queues.broadcasts.trigger(namespace, &broadcast.name_any());
    }
    for map in context.stores.network_maps_to(namespace, cluster) {
        context.queues.network_maps.trigger(namespace, &map.name_any());
    }
}

/// Triggers everything after each row of changes: any object may wait for a node or an agent. A settled one costs a look.
async fn trigger_all(context: &Context, changed: &Notify) {
    loop {
        changed.notified().await;
        tokio::time::sleep(SETTLE).await;
        trigger_each(context);
    }
}

fn trigger_each(context: &Context) {
    fn all<K: Watched>(context: &Context) {
        for object in K::shelf(&context.stores).all() {
            let namespace = object.namespace().unwrap_or_default();
            K::queue(&context.queues).trigger(&namespace, &object.name_any());
        }
    }
    all::<gridcast_crds::VirtualCluster>(context);
    all::<gridcast_crds::Broadcast>(context);
    all::<gridcast_crds::NetworkMap>(context);
}
