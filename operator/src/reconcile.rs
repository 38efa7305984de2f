//! The loop: observe, plan, apply, for every object of every kind.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kube::ResourceExt as _;
use tokio::task::JoinSet;

use crate::{
    context::Context,
    failure::{Error, Retry, chain},
    kind::{Kind, Owner},
    queue::Key,
};

/// Objects of one kind that are reconciled at once. A reconciliation waits for the API server, not for the processor; a
/// cluster that makes a thousand pods holds one of these.
const CONCURRENCY: usize = 32;

/// Reconciles all objects of one kind, as their queue says, until it is dropped: reconciliations end with it.
pub async fn control<K: Kind>(context: Arc<Context>) {
    let queue = K::queue(&context.queues).clone();
    let mut running: JoinSet<(Key, Option<Duration>)> = JoinSet::new();
    let mut names = std::collections::HashMap::new();
    loop {
        tokio::select! {
            key = queue.next(), if running.len() < CONCURRENCY => {
                let task = running.spawn(one::<K>(context.clone(), key.clone()));
                names.insert(task.id(), key);
            }
            Some(ended) = running.join_next_with_id() => match ended {
                Ok((id, (key, again))) => {
                    names.remove(&id);
                    queue.finished(&key, again);
                }
                Err(error) => {
                    let Some(key) = names.remove(&error.id()) else { continue };
                    let again = panicked::<K>(&context, &key, &error.to_string());
                    queue.finished(&key, again);
                }
            },
        }
    }
}

async fn one<K: Kind>(context: Arc<Context>, key: Key) -> (Key, Option<Duration>) {
    let Some(object) = K::shelf(&context.stores).get(&key.0, &key.1) else { return (key, None) };
    let began = Instant::now();
    let result = reconcile(&context, &object).await;
    let word = result.as_ref().map_or_else(Error::reason, |_| "ok");
    context.metrics.reconciled(&K::kind(&()), word, began.elapsed());
    let uid = object.uid().unwrap_or_default();
    let again = match result {
        Ok(again) => {
            context.backoff(|backoff| backoff.succeeded(&uid));
            again
        }
        Err(error) => failed(&context, &Owner::of(&*object), &error),
    };
    (key, again)
}

/// Brings the cluster one step closer to what `object` asks for, and says when to look again.
pub async fn reconcile<K: Kind>(context: &Arc<Context>, object: &Arc<K>) -> Result<Option<Duration>, Error> {
    let observed = K::observe(context, object)?;
    let plan = K::plan(&observed, (context.now)());
    K::apply(context, object, plan).await
}

fn failed(context: &Context, object: &Owner, error: &Error) -> Option<Duration> {
    let again = match error.retry() {
        Retry::Soon => Some(context.backoff(|backoff| backoff.failed(&object.uid))),
        Retry::After(wait) => Some(wait),
        Retry::OnChange => None,
    };
    tracing::warn!(
        kind = %object.kind, namespace = object.namespace, name = object.name, reason = error.reason(),
        error = chain(error), again_seconds = again.map(|wait| wait.as_secs()), "reconciliation failed"
    );
    again
}

/// A fault of one object's reconciliation must not end those of others.
fn panicked<K: Kind>(context: &Context, key: &Key, detail: &str) -> Option<Duration> {
    let error = Error::Panicked(detail.to_owned());
    context.metrics.reconciled(&K::kind(&()), error.reason(), Duration::ZERO);
    let object = K::shelf(&context.stores).get(&key.0, &key.1)?;
    failed(context, &Owner::of(&*object), &error)
}
