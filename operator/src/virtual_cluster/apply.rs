//! Does what a plan says: publishes first, so that what was decided is known before it is done.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gridcast_crds::VirtualCluster;
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::ResourceExt as _;

use super::{
    create,
    members::key_generation,
    objects::Blueprint,
    observed::{Creation, Observed, Trouble},
    plan::{self, Action, Finalizer, ObjectKind, Plan, Step},
    steps,
};
use crate::{
    apply,
    auxiliary_pod::AgentImage,
    context::Context,
    failure::{Error, chain},
    kind::{Kind, Owner},
};

/// Deletions of one cluster's pods in flight.
const DELETIONS: usize = 32;
/// When what was refused is looked at again.
const REFUSED: Duration = Duration::from_millis(100);

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
        let refused = done?;
        if finalizer == Finalizer::Remove {
            let latest =
                context.stores.clusters.get(&object.namespace().unwrap_or_default(), &object.name_any());
            let latest =
                latest.filter(|latest| latest.uid() == object.uid()).unwrap_or_else(|| object.clone());
            apply::remove_finalizer(context, latest.as_ref()).await?;
            context.clusters.forget(&uid);
        }
        Ok(if refused { Some(REFUSED) } else { requeue })
    }
}

/// Does all of it. Says whether the API server refused something, which the next plan tells.
async fn act(
    context: &Arc<Context>,
    cluster: &Arc<VirtualCluster>,
    actions: Vec<Action>,
) -> Result<bool, Error> {
    let uid = cluster.uid().unwrap_or_default();
    for action in actions {
        let writes_objects = matches!(
            action,
            Action::ApplyObjects(_)
                | Action::ApplyBroadcast(_)
                | Action::ApplyNetworkMap
                | Action::CreateCollectPods
        );
        match one(context, cluster, action).await {
            Ok(()) if writes_objects => context.clusters.note_accepted(&uid),
            Ok(()) => {}
            Err(error) if writes_objects && is_refusal(&error) => {
                tracing::warn!(cluster = cluster.name_any(), error = chain(&error), "refused");
                let told = error.refusal().map_or_else(|| chain(&error), str::to_owned);
                let told = Trouble::new("ObjectRefused", format!("{error}: {told}"));
                context.clusters.note_refused(&uid, told, (context.now)());
                return Ok(true);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The API server's own word, rather than a conflict or a failure on the way.
fn is_refusal(error: &Error) -> bool {
    matches!(error.code(), Some(400 | 403 | 404 | 422)) || matches!(error, Error::Keys { .. })
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
        Action::ApplyObjects(kinds) => {
            let writes = kinds.into_iter().map(|kind| object(context, cluster, kind));
            let results = futures::future::join_all(writes.collect::<Vec<_>>()).await;
            results.into_iter().collect::<Result<Vec<()>, Error>>()?;
        }
        Action::ApplyBroadcast(index) => broadcast(context, cluster, index).await?,
        Action::DeleteBroadcast(name, uid) => {
            let found = context.stores.broadcasts.get(&namespace, &name);
            if let Some(found) = found.filter(|found| found.uid().as_deref() == Some(&uid)) {
                apply::delete(context, found.as_ref(), None).await?;
            }
        }
        Action::ApplyNetworkMap => {
            let image = image(context);
            let mut map =
                apply::server_side(context, &blueprint(context, cluster, &image).network_map()).await?;
            map.managed_fields_mut().clear();
            context.stores.network_maps.written(map);
        }
        Action::DeleteNetworkMap(name, uid) => {
            let found = context.stores.network_maps.get(&namespace, &name);
            if let Some(found) = found.filter(|found| found.uid().as_deref() == Some(&uid)) {
                apply::delete(context, found.as_ref(), None).await?;
            }
        }
        Action::DeletePods { pods, force } => delete_pods(context, &namespace, pods, force).await?,
        Action::DeleteDisruptionBudget => {
            apply::delete_named::<PodDisruptionBudget>(context, &namespace, &cluster.name_any()).await?;
            let uid = cluster.uid().unwrap_or_default();
            context.clusters.note_deleted(&uid, ObjectKind::DisruptionBudget);
        }
        Action::CreateCollectPods => {
            let image = image(context);
            for pod in blueprint(context, cluster, &image).collect_pods() {
                apply::create_pod(context, &pod).await?;
            }
        }
        Action::Begin(step) => begin(context, cluster, step),
        Action::DeleteSelf => apply::delete(context, cluster.as_ref(), None).await?,
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

fn blueprint<'a>(context: &'a Context, cluster: &'a VirtualCluster, image: &'a AgentImage) -> Blueprint<'a> {
    Blueprint { cluster, image, operator_namespace: &context.settings.namespace }
}

async fn object(context: &Context, cluster: &VirtualCluster, kind: ObjectKind) -> Result<(), Error> {
    let image = image(context);
    let blueprint = blueprint(context, cluster, &image);
    match kind {
        ObjectKind::Service => drop(apply::server_side(context, &blueprint.service()).await?),
        ObjectKind::NetworkPolicy => drop(apply::server_side(context, &blueprint.network_policy()).await?),
        ObjectKind::DisruptionBudget => {
            drop(apply::server_side(context, &blueprint.disruption_budget()).await?);
        }
        // A record; a cluster whose machinefile cannot be written is stopped by its gate, which says why.
        ObjectKind::ConfigMap => {
            if let Ok(map) = blueprint.machinefile_config_map() {
                apply::server_side(context, &map).await?;
            }
        }
        ObjectKind::Secret => {
            let uid = cluster.uid().unwrap_or_default();
            let keys = |source| Error::Keys { name: cluster.name_any(), source };
            let generation = u32::try_from(key_generation(cluster)).unwrap_or(u32::MAX);
            let authority = context.authority.cluster(&uid, generation).map_err(keys)?;
            let secret = blueprint.keys_secret(authority.member_keys().map_err(keys)?);
            apply::create_if_absent(context, &secret).await?;
        }
    }
    let generation = cluster.metadata.generation.unwrap_or_default();
    context.clusters.note_applied(&cluster.uid().unwrap_or_default(), generation, kind);
    Ok(())
}

async fn broadcast(context: &Context, cluster: &VirtualCluster, index: usize) -> Result<(), Error> {
    let image = image(context);
    let blueprint = blueprint(context, cluster, &image);
    let Some(data) = cluster.spec.data.get(index) else { return Ok(()) };
    let namespace = cluster.namespace().unwrap_or_default();
    let first = super::objects::places(cluster).next();
    let first = first.and_then(|first| context.stores.pods.get(&namespace, &first.name));
    let node = first.as_deref().and_then(crate::stores::node_of);
    let Some(broadcast) = blueprint.broadcast(data, node) else { return Ok(()) };
    let mut applied = apply::server_side(context, &broadcast).await?;
    applied.managed_fields_mut().clear();
    context.stores.broadcasts.written(applied);
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
