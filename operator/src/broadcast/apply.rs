//! How is a plan for a Broadcast carried out?

use std::{net::SocketAddr, sync::Arc, time::Duration};

use gridcast_control::{AGENT_PORT, Remote, StepFailure};
use gridcast_crds::{Broadcast, broadcast::Retain, conditions::READY};
use gridcast_proto::v1::Peer;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, ResourceExt as _};

use super::{
    choice::{Attempt, SourceAt},
    knowledge::Trouble,
    making,
    observed::{Making, SOURCE, STAGE, VOLUMES},
    plan::{Finalizer, Plan, SourceStep},
    publish,
    source::{self, Origin},
    stage::{self, Source, Work},
    standing,
};
use crate::{
    apply,
    auxiliary_pod::{Mount, ORIGIN},
    context::Context,
    events::Event,
    failure::Error,
    operations::{Owner, State},
};

/// Carries out a plan; says when to look again.
pub(crate) async fn apply(
    context: &Arc<Context>,
    object: &Arc<Broadcast>,
    plan: Plan,
) -> Result<Option<Duration>, Error> {
    let Plan { finalizer, stop, attempt, source, look_at, left_behind, expired, status, again } = plan;
    let owner = Owner::of(&**object);
    if finalizer == Finalizer::Add {
        // Before anything is asked of a node: what is left there must be found again.
        apply::add_finalizer(context, &**object).await?;
    }
    if let Some(status) = status {
        let told = transition(object, standing::find(&status.conditions, READY));
        if apply::publish_status(context, &**object, &status).await? {
            context.events.publish(&**object, told).await;
        }
    }
    if stop {
        context.operations.cancel(&owner, STAGE);
    }
    if let Some(attempt) = attempt {
        begin(context, object, &owner, attempt);
    }
    volumes(context, &owner, look_at);
    carry_out(context, object, &owner, source).await?;
    if let Some(what) = left_behind {
        tracing::warn!(namespace = owner.namespace, broadcast = owner.name, "{what}");
        context.events.publish(&**object, vec![Event::warning("DataLeftBehind", what)]).await;
    }
    if finalizer == Finalizer::Remove {
        apply::remove_finalizer(context, &**object).await?;
        return Ok(None);
    }
    if expired {
        apply::delete(context, &**object, None).await?;
        return Ok(None);
    }
    Ok(again)
}

/// What people are told of, as the difference between what is published and what will be.
fn transition(object: &Broadcast, ready: Option<&gridcast_crds::conditions::Condition>) -> Vec<Event> {
    let shown = object.status.as_ref().and_then(|status| standing::find(&status.conditions, READY));
    let Some(ready) = ready else { return Vec::new() };
    if shown.is_some_and(|shown| (&shown.status, &shown.reason) == (&ready.status, &ready.reason)) {
        return Vec::new();
    }
    let (reason, message) = (ready.reason.clone(), ready.message.clone());
    if ready.status == "True" {
        vec![Event::normal(reason, message)]
    } else if publish::is_quiet(&reason) || reason == "Releasing" {
        Vec::new()
    } else {
        vec![Event::warning(reason, message)]
    }
}

fn begin(context: &Arc<Context>, object: &Arc<Broadcast>, owner: &Owner, attempt: Attempt) {
    let Attempt { mut first, nodes, driver, source, release, mapped } = attempt;
    let now = (context.now)();
    let mut remotes = |names: Vec<String>| -> Vec<Remote> {
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            match context.agents.of_node(&name) {
                Ok(remote) => found.push(remote),
                Err(failure) => {
                    if let Some(copy) = first.copies.get_mut(&name) {
                        copy.trouble = Some(Trouble::after(copy.trouble.as_ref(), failure, now));
                    }
                }
            }
        }
        found
    };
    let (nodes, release) = (remotes(nodes), remotes(release));
    let source = match source.map(|at| find(context, object, at)).transpose() {
        Ok(source) => source,
        Err(failure) => {
            first.source = Some(Trouble::after(first.source.as_ref(), failure, now));
            None
        }
    };
    let work = Work {
        spec: object.spec.clone(),
        namespace: owner.namespace.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        driver,
        nodes,
        release,
        keep_data: object.spec.retain == Retain::Keep,
        source,
        pods: Some(Api::namespaced(context.client.clone(), &owner.namespace)),
        mapped,
        now: context.now,
    };
    // What it ended with before is in `first`.
    context.operations.cancel(owner, STAGE);
    let known = first.clone();
    context.operations.begin(owner, STAGE, first, |reporter| stage::attempt(work, known, reporter));
}

/// The source, connected.
fn find(context: &Context, object: &Broadcast, at: SourceAt) -> Result<Source, StepFailure> {
    match at {
        SourceAt::Node { node, path } => {
            Ok(Source { remote: context.agents.of_node(&node)?, path, carrier: None, told: None })
        }
        SourceAt::Pod { address, node, path } => {
            let uid = object.uid().unwrap_or_default();
            let ip = address.parse().map_err(|_| {
                StepFailure::new(
                    "NoAddress",
                    format!("the source pod's address {address:?} is no IP address"),
                )
            })?;
            // The pod's own, whatever port nodes' agents listen at.
            let port = AGENT_PORT;
            let channel = context
                .authority
                .source_channel(&uid, SocketAddr::new(ip, port))
                .map_err(|error| StepFailure::new(error.reason(), error.to_string()))?;
            let peer = Peer { name: uid.clone(), address, port: port.into(), ..Peer::default() };
            Ok(Source {
                remote: Remote::new(uid, peer, channel, None),
                path,
                carrier: node.and_then(|node| context.agents.of_node(&node).ok()),
                told: Some(place(&object.spec.source)),
            })
        }
    }
}

/// What a source pod has at [`ORIGIN`], in the user's words.
fn place(source: &gridcast_crds::Source) -> String {
    match Origin::of(source) {
        Ok(Origin::Pod { mount, .. }) => match mount {
            Mount::Claim { claim, .. } => format!("PersistentVolumeClaim {claim}:"),
            Mount::ConfigMap { name } => format!("ConfigMap {name}:"),
            Mount::Secret { name } => format!("Secret {name}:"),
            Mount::Fetch { url, .. } => url,
        },
        _ => ORIGIN.to_owned(),
    }
}

/// Begins to read what kubelet says of a pod, or stops.
fn volumes(context: &Arc<Context>, owner: &Owner, look_at: Option<String>) {
    let wanted = look_at.as_ref().map(|uid| format!("{VOLUMES}{uid}"));
    for name in context.operations.names(owner) {
        if name.starts_with(VOLUMES) && wanted.as_ref() != Some(&name) {
            context.operations.cancel(owner, &name);
        }
    }
    if let (Some(uid), Some(name)) = (look_at, wanted) {
        let (context_, namespace) = (context.clone(), owner.namespace.clone());
        context
            .operations
            .begin(owner, &name, None, |reporter| making::volumes(context_, namespace, uid, reporter));
    }
}

async fn carry_out(
    context: &Arc<Context>,
    object: &Arc<Broadcast>,
    owner: &Owner,
    step: SourceStep,
) -> Result<(), Error> {
    match step {
        SourceStep::Keep => Ok(()),
        SourceStep::Make(number) => {
            let Ok(origin) = Origin::of(&object.spec.source) else { return Ok(()) };
            let before = match context.operations.state::<Making>(owner, SOURCE) {
                Some(State::Running(_)) => return Ok(()),
                Some(State::Done(before)) => before,
                Some(State::Failed(_)) | None => Making::default(),
            };
            remove_pods(context, owner).await?;
            context.operations.cancel(owner, SOURCE);
            let (context_, object) = (context.clone(), object.clone());
            context.operations.begin(owner, SOURCE, before.clone(), |_| {
                making::make(context_, object, origin, number, before)
            });
            Ok(())
        }
        SourceStep::Remove => {
            let begun = context.operations.state::<Making>(owner, SOURCE).is_some();
            let stays = |pod: &Arc<Pod>| pod.metadata.deletion_timestamp.is_none();
            // Once: what is on its way out was told to go, and the keys with it.
            if begun || context.stores.pods_of_broadcast(&owner.uid).iter().any(stays) {
                apply::delete_named::<Secret>(context, &owner.namespace, &source::keys_name(object)).await?;
            }
            context.operations.cancel(owner, SOURCE);
            remove_pods(context, owner).await
        }
    }
}

async fn remove_pods(context: &Context, owner: &Owner) -> Result<(), Error> {
    for pod in context.stores.pods_of_broadcast(&owner.uid) {
        if pod.metadata.deletion_timestamp.is_none() {
            apply::delete_pod(context, &pod, None).await?;
        }
    }
    Ok(())
}
