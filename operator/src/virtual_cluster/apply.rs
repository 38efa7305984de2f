//! Does what a plan says: publishes first, so that what was decided is known before it is done.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gridcast_crds::{VirtualCluster, virtual_cluster::Data};
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::ResourceExt as _;

use super::{
    create,
    members::{Made, key_generation},
    objects::Blueprint,
    observed::{Creation, Observed, Trouble},
    plan::{self, Action, Finalizer, ObjectKind, Part, Plan, Step},
    steps,
};
use crate::{
    apply,
    auxiliary_pod::AgentImage,
    context::Context,
    failure::{Error, chain},
    kind::{Kind, Owner, Watched},
};

/// Deletions of one cluster's pods in flight.
const DELETIONS: usize = 32;
/// When a cluster is looked at again of which something was refused, or is no longer.
const NEWS: Duration = Duration::from_millis(100);

impl Kind for VirtualCluster {
    type Observed = Observed;
    type Plan = Plan;

    fn observe(context: &Context, object: &Arc<Self>) -> Result<Observed, Error> {
        Ok(super::observe::observe(context, object))
    }

    fn plan(observed: &Observed, now: Timestamp) -> Plan {
        plan::plan(observed, now)
    }

    async fn apply(
        context: &Arc<Context>,
        object: &Arc<Self>,
        plan: Plan,
    ) -> Result<Option<Duration>, Error> {
        let Plan { status, finalizer, actions, events, requeue } = plan;
        let uid = object.uid().unwrap_or_default();
        if finalizer == Finalizer::Add {
            apply::add_finalizer(context, object.as_ref()).await?;
        }
        let written = match &status {
            Some(status) => apply::publish_status(context, object.as_ref(), status).await?,
            None => false,
        };
        if written {
            context.clusters.note_write(&uid, (context.now)());
        }
        let done = act(context, object, actions).await;
        if written {
            context.events.publish(object.as_ref(), events).await;
        }
        let news = done?;
        if finalizer == Finalizer::Remove {
            let latest =
                context.stores.clusters.get(&object.namespace().unwrap_or_default(), &object.name_any());
            let latest =
                latest.filter(|latest| latest.uid() == object.uid()).unwrap_or_else(|| object.clone());
            apply::remove_finalizer(context, latest.as_ref()).await?;
            context.clusters.forget(&uid);
        }
        Ok(if news { Some(NEWS) } else { requeue })
    }
}

/// Does all of it; what the API server refuses keeps nothing else from being done. Says whether something was refused, or is
/// no longer, which the next plan tells.
async fn act(
    context: &Arc<Context>,
    cluster: &Arc<VirtualCluster>,
    actions: Vec<Action>,
) -> Result<bool, Error> {
    let mut news = false;
    for action in actions {
        match action {
            Action::ApplyObjects(kinds) => {
                let writes = kinds.into_iter().map(|kind| async move {
                    noted(context, cluster, Part::Object(kind), object(context, cluster, kind).await)
                });
                for result in futures::future::join_all(writes.collect::<Vec<_>>()).await {
                    news |= result?;
                }
            }
            Action::ApplyBroadcast(index) => {
                let Some(data) = cluster.spec.data.get(index) else { continue };
                let result = broadcast(context, cluster, data).await;
                news |= noted(context, cluster, Part::Broadcast(data.name.clone()), result)?;
            }
            Action::ApplyNetworkMap => {
                let result = network_map(context, cluster).await;
                news |= noted(context, cluster, Part::NetworkMap, result)?;
            }
            Action::CreateCollectPods(keys) => {
                let result = collect_pods(context, cluster, keys).await;
                news |= noted(context, cluster, Part::CollectPods, result)?;
            }
            action => one(context, cluster, action).await?,
        }
    }
    Ok(news)
}

/// Remembers what became of `part`. Whether it was refused, or is no longer; an error is what is neither accepted nor
/// refused.
fn noted(
    context: &Context,
    cluster: &VirtualCluster,
    part: Part,
    result: Result<(), Error>,
) -> Result<bool, Error> {
    let uid = cluster.uid().unwrap_or_default();
    match result {
        Ok(()) => Ok(context.clusters.note_accepted(&uid, &part)),
        Err(error) if is_refusal(&error) => {
            tracing::warn!(cluster = cluster.name_any(), error = chain(&error), "refused");
            context.clusters.note_refused(&uid, part, trouble(&error), (context.now)());
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

fn trouble(error: &Error) -> Trouble {
    if matches!(error, Error::NameTaken { .. }) {
        return Trouble::new(error.reason(), error.to_string());
    }
    let told = error.refusal().map_or_else(|| chain(error), str::to_owned);
    Trouble::new("ObjectRefused", format!("{error}: {told}"))
}

/// The API server's own word, rather than a conflict or a failure on the way.
fn is_refusal(error: &Error) -> bool {
    matches!(error.code(), Some(400 | 403 | 404 | 422))
        || matches!(error, Error::Keys { .. } | Error::NameTaken { .. })
}

async fn one(context: &Arc<Context>, cluster: &Arc<VirtualCluster>, action: Action) -> Result<(), Error> {
    let namespace = cluster.namespace().unwrap_or_default();
    match action {
        Action::Cancel(names) => {
            let owner = Owner::of(cluster.as_ref());
            for name in &names {
                context.operations.cancel(&owner, name);
            }
        }
        Action::DeleteBroadcast(name, uid) => {
            let found = context.stores.broadcasts.get(&namespace, &name);
            if let Some(found) = found.filter(|found| found.uid().as_deref() == Some(&uid)) {
                apply::delete(context, found.as_ref(), None).await?;
            }
        }
        Action::DeleteNetworkMap(name, uid) => {
            let found = context.stores.network_maps.get(&namespace, &name);
            if let Some(found) = found.filter(|found| found.uid().as_deref() == Some(&uid)) {
                apply::delete(context, found.as_ref(), None).await?;
            }
        }
        Action::DeletePods { pods, force } => delete_pods(context, &namespace, pods, force).await?,
        Action::DeleteDisruptionBudget => delete_disruption_budget(context, cluster).await?,
        Action::Begin(step) => begin(context, cluster, step),
        Action::DeleteSelf => apply::delete(context, cluster.as_ref(), None).await?,
        // What the API server may refuse: see `act`.
        Action::ApplyObjects(_)
        | Action::ApplyBroadcast(_)
        | Action::ApplyNetworkMap
        | Action::CreateCollectPods(_) => {}
    }
    Ok(())
}

fn begin(context: &Arc<Context>, cluster: &Arc<VirtualCluster>, step: Step) {
    let name = step.operation();
    tracing::debug!(cluster = cluster.name_any(), step = name, "begins");
    match step {
        Step::Create { names, .. } => {
            let (owner, on) = (Owner::of(cluster.as_ref()), (context.clone(), cluster.clone()));
            context.operations.begin(&owner, &name, Creation::default(), |reporter| {
                create::create(on.0, on.1, names, reporter)
            });
        }
        step => {
            steps::begin(context, cluster, step);
        }
    }
}

/// Our image, as pods in users' namespaces get it.
pub(super) fn image(context: &Context) -> AgentImage {
    AgentImage::from(&context.settings)
}

/// What objects and pods are made from, with the keys that the spec asks for.
pub(super) fn blueprint<'a>(
    context: &'a Context,
    cluster: &'a VirtualCluster,
    image: &'a AgentImage,
) -> Blueprint<'a> {
    let keys = key_generation(cluster);
    Blueprint { cluster, image, operator_namespace: &context.settings.namespace, keys }
}

async fn object(context: &Context, cluster: &VirtualCluster, kind: ObjectKind) -> Result<(), Error> {
    let image = image(context);
    let blueprint = blueprint(context, cluster, &image);
    let made = match kind {
        ObjectKind::Service => own(context, cluster, kind, &blueprint.service()).await?,
        ObjectKind::NetworkPolicy => own(context, cluster, kind, &blueprint.network_policy()).await?,
        ObjectKind::DisruptionBudget => own(context, cluster, kind, &blueprint.disruption_budget()).await?,
        // A record; a cluster whose machinefile cannot be written is stopped by its gate, which says why.
        ObjectKind::ConfigMap => match blueprint.machinefile_config_map() {
            Ok(map) => own(context, cluster, kind, &map).await?,
            Err(_) => None,
        },
        ObjectKind::Secret => {
            let uid = cluster.uid().unwrap_or_default();
            let keys = |source| Error::Keys { name: cluster.name_any(), source };
            let generation = u32::try_from(blueprint.keys).unwrap_or(u32::MAX);
            let authority = context.authority.cluster(&uid, generation).map_err(keys)?;
            let secret = blueprint.keys_secret(authority.member_keys().map_err(keys)?);
            match apply::create_if_absent(context, &secret).await {
                // A quota that is used up speaks before it is seen that the Secret is there, which pods tell that have it.
                Err(error)
                    if error.code() == Some(403) && has_nodes_with(context, cluster, blueprint.keys) => {}
                result => drop(result?),
            }
            None
        }
    };
    let uid = cluster.uid().unwrap_or_default();
    context.clusters.note_applied(&uid, kind, kind.version(cluster), made, (context.now)());
    Ok(())
}

/// Whether a node of `cluster` runs with these keys.
fn has_nodes_with(context: &Context, cluster: &VirtualCluster, keys: u64) -> bool {
    let namespace = cluster.namespace().unwrap_or_default();
    super::objects::places(cluster).any(|place| {
        let pod = context.stores.pods.get(&namespace, &place.name);
        let runs = |pod: &Arc<Pod>| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        pod.filter(runs).and_then(|pod| Made::of(&pod)).is_some_and(|made| made.keys == keys)
    })
}

/// Makes or changes `object` as one of `cluster`'s; its UID.
async fn own<K: apply::Object>(
    context: &Context,
    cluster: &VirtualCluster,
    kind: ObjectKind,
    object: &K,
) -> Result<Option<String>, Error> {
    let known = context.clusters.object(&cluster.uid().unwrap_or_default(), kind);
    Ok(apply::own(context, object, &Owner::of(cluster), known).await?.uid())
}

async fn delete_disruption_budget(context: &Context, cluster: &VirtualCluster) -> Result<(), Error> {
    let (uid, kind) = (cluster.uid().unwrap_or_default(), ObjectKind::DisruptionBudget);
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let known = context.clusters.object(&uid, kind);
    apply::delete_own::<PodDisruptionBudget>(context, &namespace, &name, &Owner::of(cluster), known).await?;
    context.clusters.note_deleted(&uid, kind);
    Ok(())
}

async fn broadcast(context: &Context, cluster: &VirtualCluster, data: &Data) -> Result<(), Error> {
    let image = image(context);
    let blueprint = blueprint(context, cluster, &image);
    let namespace = cluster.namespace().unwrap_or_default();
    let first = super::objects::places(cluster).next();
    let first = first.and_then(|first| context.stores.pods.get(&namespace, &first.name));
    let node = first.as_deref().and_then(crate::stores::node_of);
    let Some(broadcast) = blueprint.broadcast(data, node) else { return Ok(()) };
    child(context, cluster, &broadcast).await
}

async fn network_map(context: &Context, cluster: &VirtualCluster) -> Result<(), Error> {
    let image = image(context);
    child(context, cluster, &blueprint(context, cluster, &image).network_map()).await
}

/// Makes or changes an object that is watched: whose it is can be seen.
async fn child<K: Watched>(context: &Context, cluster: &VirtualCluster, object: &K) -> Result<(), Error> {
    let (owner, shelf) = (Owner::of(cluster), K::shelf(&context.stores));
    let seen = shelf.get(&object.namespace().unwrap_or_default(), &object.name_any());
    let ours = |seen: &Arc<K>| seen.owner_references().first().is_some_and(|first| first.uid == owner.uid);
    let known = seen.filter(ours).and_then(|seen| seen.uid());
    let mut made = apply::own(context, object, &owner, known).await?;
    made.managed_fields_mut().clear();
    shelf.written(made);
    Ok(())
}

async fn collect_pods(context: &Context, cluster: &VirtualCluster, keys: u64) -> Result<(), Error> {
    let image = image(context);
    let blueprint = Blueprint { keys, ..blueprint(context, cluster, &image) };
    let owner = Owner::of(cluster);
    for pod in blueprint.collect_pods() {
        if apply::create_pod(context, &pod).await? != apply::Creation::Exists {
            continue;
        }
        let found = context.stores.pods.get(&pod.namespace().unwrap_or_default(), &pod.name_any());
        let is_ours =
            |found: &Pod| found.owner_references().first().is_some_and(|first| first.uid == owner.uid);
        if found.as_deref().is_none_or(|found| !is_ours(found)) {
            let (what, name) = ("Pod".to_owned(), pod.name_any());
            return Err(Error::NameTaken { what, name, owner: owner.to_string() });
        }
    }
    Ok(())
}

async fn delete_pods(
    context: &Context,
    namespace: &str,
    pods: Vec<(String, String)>,
    force: bool,
) -> Result<(), Error> {
    stream::iter(pods)
        .map(|(name, uid)| async move {
            let mut pod = Pod::default();
            pod.metadata.namespace = Some(namespace.to_owned());
            pod.metadata.name = Some(name);
            pod.metadata.uid = Some(uid);
            apply::delete_pod(context, &pod, force.then_some(0)).await
        })
        .buffer_unordered(DELETIONS)
        .try_collect::<()>()
        .await
}
