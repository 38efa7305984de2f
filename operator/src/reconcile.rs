//! The loop: observe, plan, apply, for every object of every kind.

use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::{
    Api, Client,
    core::DeserializeGuard,
    runtime::{
        controller::{self, Action, Config, Controller},
        watcher,
    },
};

use crate::{
    apply::apply,
    failure::{Backoff, Error, Retry, chain},
    kind::{Identity, Kind},
    observe::observe,
    plan::plan,
};

/// Objects of one kind that are reconciled at once. kube's own default has no bound.
const CONCURRENCY: u16 = 8;

/// What every reconciliation needs.
pub struct Context {
    client: Client,
    /// The only namespace that is watched, if there is one.
    namespace: Option<String>,
    now: fn() -> Timestamp,
    backoff: Mutex<Backoff>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("namespace", &self.namespace)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// `now` is the clock, so that a test can have its own.
    pub fn new(client: Client, namespace: Option<String>, now: fn() -> Timestamp) -> Self {
        Self { client, namespace, now, backoff: Mutex::default() }
    }

    fn backoff<T>(&self, act: impl FnOnce(&mut Backoff) -> T) -> T {
        act(&mut self.backoff.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Brings the cluster one step closer to what `object` asks for.
pub async fn reconcile<K: Kind>(
    object: Arc<DeserializeGuard<K>>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let observed = observe(&object)?;
    let plan = plan(&observed, (context.now)());
    apply(&context.client, &observed.object, &plan).await?;
    context.backoff(|backoff| backoff.succeeded(&Identity::of(&*object)));
    Ok(Action::await_change())
}

#[allow(clippy::needless_pass_by_value, reason = "the signature is kube's")]
fn error_policy<K: Kind>(object: Arc<DeserializeGuard<K>>, error: &Error, context: Arc<Context>) -> Action {
    tracing::warn!(kind = %K::kind(&()), reason = error.reason(), error = chain(error), "reconciliation failed");
    match error.retry() {
        Retry::Soon => Action::requeue(context.backoff(|backoff| backoff.failed(&Identity::of(&*object)))),
        Retry::After(wait) => Action::requeue(wait),
        Retry::OnChange => Action::await_change(),
    }
}

/// Watches all objects of one kind until `stop` resolves.
pub async fn control<K: Kind>(context: Arc<Context>, stop: impl Future<Output = ()> + Send + Sync + 'static) {
    let api: Api<DeserializeGuard<K>> = match &context.namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    Controller::new(api, watcher::Config::default())
        .with_config(Config::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(stop)
        .run(reconcile::<K>, error_policy::<K>, context)
        .for_each(|result| async move {
            match result {
                // `error_policy` has told it, or the object went away while it waited its turn.
                Ok(_)
                | Err(controller::Error::ReconcilerFailed(..) | controller::Error::ObjectNotFound(_)) => {}
                Err(error) => tracing::warn!(kind = %K::kind(&()), error = chain(&error), "{}", hint(&error)),
            }
        })
        .await;
}

/// What to do about a watch that fails.
fn hint<E: std::error::Error>(error: &controller::Error<Error, E>) -> &'static str {
    let text = chain(error);
    if text.contains("404") || text.contains("NotFound") {
        "cannot watch; install the definitions with `gridcast-operator crds | kubectl apply -f -`"
    } else if text.contains("403") || text.contains("Forbidden") {
        "cannot watch; grant the rules of operator/role.yaml"
    } else {
        "cannot watch; trying again"
    }
}
