//! How are objects written?
//!
//! Pods and Secrets by POST, which says when one of the name is there; what else belongs to a cluster by [`own`], which
//! never touches what is somebody else's; every status by server-side apply; always as field manager [`FIELD_MANAGER`].
//! Every write is counted, and what it brought about is on its shelf at once, so that the next plan knows. A write that
//! would change nothing is not sent.

mod own;

pub use own::{delete_own, own};

use std::{fmt::Debug, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::{NamespaceResourceScope, Request},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{context::Context, failure::Error, kind::Watched, metrics::Verb, slim::SlimPod};

/// Field manager of every write.
pub const FIELD_MANAGER: &str = "gridcast-operator";

/// The finalizer of objects that leave something on nodes.
pub const FINALIZER: &str = "gridcast.io/release";

/// Creations of one cluster's pods in flight. Measured: the API server is busy with fewer, and another cluster's
/// creations go between these.
const CREATIONS: usize = 50;

/// Longest wait for the answer to a write; the API server itself ends one after a minute at the latest.
const LONGEST_WRITE: Duration = Duration::from_mins(1);

/// Conditions that gridcast sets; others are others' and stay.
const OWN_CONDITIONS: [&str; 12] = [
    "Ready",
    "Reconciling",
    "Stalled",
    "Provisioned",
    "Measured",
    "Tuned",
    "Staged",
    "Accepted",
    "Running",
    "Complete",
    "Failed",
    "Suspended",
];

/// Whether a creation created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Creation {
    /// It is there now; its UID.
    Created(String),
    /// One of this name was there before.
    Exists,
}

/// Any namespaced kind.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Creates `object`. One of the name that is there already is left as it is.
pub async fn create_if_absent<K: Object>(context: &Context, object: &K) -> Result<Creation, Error> {
    let (api, name) = (api::<K>(context, object), object.name_any());
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    match settle::<K, _>(context, Verb::Create, &name, api.create(&parameters, object)).await {
        Ok(created) => Ok(Creation::Created(created.meta().uid.clone().unwrap_or_default())),
        Err(error) if error.code() == Some(409) => Ok(Creation::Exists),
        Err(error) => Err(error),
    }
}

/// Creates the pods of one cluster, many at a time; each is asked of `pods` only when its turn comes. Ends at the first that
/// is refused; those in flight by then are finished or not, and the next call meets them.
pub async fn create_pods(context: &Context, pods: impl IntoIterator<Item = Pod>) -> Result<(), Error> {
    stream::iter(pods)
        .map(|pod| async move { create_pod(context, &pod).await.map(drop) })
        .buffer_unordered(CREATIONS)
        .try_collect::<()>()
        .await
}

/// Creates one pod and puts it on the shelf.
pub async fn create_pod(context: &Context, pod: &Pod) -> Result<Creation, Error> {
    let name = pod.name_any();
    match settle::<Pod, _>(context, Verb::Create, &name, post_pod(context, pod)).await {
        Ok(SlimPod(created)) => {
            let uid = created.metadata.uid.clone().unwrap_or_default();
            context.stores.pods.written(created);
            Ok(Creation::Created(uid))
        }
        Err(error) if error.code() == Some(409) => Ok(Creation::Exists),
        Err(error) => Err(error),
    }
}

/// As [`Api::create`], but reads of the answer only what is kept.
async fn post_pod(context: &Context, pod: &Pod) -> Result<SlimPod, kube::Error> {
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let body = serde_json::to_vec(pod).map_err(kube::Error::SerdeError)?;
    let request = Request::new(Pod::url_path(&(), pod.metadata.namespace.as_deref()));
    let mut request = request.create(&parameters, body).map_err(kube::Error::BuildRequest)?;
    request.extensions_mut().insert("create");
    context.client.request(request).await
}

/// Deletes the pod of this name and UID; `grace_seconds` as its own spec says if absent. One that is gone is as wanted.
pub async fn delete_pod(context: &Context, pod: &Pod, grace_seconds: Option<u32>) -> Result<(), Error> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let api: Api<SlimPod> = Api::namespaced(context.client.clone(), &namespace);
    match delete_by_uid(context, &api, &name, pod.uid(), grace_seconds).await? {
        Some(SlimPod(dying)) => context.stores.pods.written(dying),
        None => context.stores.pods.removed(&namespace, &name, &uid),
    }
    Ok(())
}

/// Deletes `object`, if it still has the UID that it has here. One that is gone is as wanted.
pub async fn delete<K: Object>(
    context: &Context,
    object: &K,
    grace_seconds: Option<u32>,
) -> Result<(), Error> {
    let api = api::<K>(context, object);
    delete_by_uid(context, &api, &object.name_any(), object.uid(), grace_seconds).await.map(drop)
}

/// Deletes what a plan only knows by name. One that is gone is as wanted.
pub async fn delete_named<K: Object>(context: &Context, namespace: &str, name: &str) -> Result<(), Error> {
    let api: Api<K> = Api::namespaced(context.client.clone(), namespace);
    let parameters = DeleteParams::background();
    match settle::<K, _>(context, Verb::Delete, name, api.delete(name, &parameters)).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some(404) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn delete_by_uid<K>(
    context: &Context,
    api: &Api<K>,
    name: &str,
    uid: Option<String>,
    grace_seconds: Option<u32>,
) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let parameters = DeleteParams {
        grace_period_seconds: grace_seconds,
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::background()
    };
    match settle::<K, _>(context, Verb::Delete, name, api.delete(name, &parameters)).await {
        Ok(either) => Ok(either.left()),
        // Gone, or another of the same name.
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Publishes `status`, unless what is there says the same. Says whether it was written. An object that is gone by now
/// needs nothing.
pub async fn publish_status<K: Watched>(
    context: &Context,
    object: &K,
    status: &K::Status,
) -> Result<bool, Error> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    // What was written a moment ago may be newer than what the plan saw.
    let current = K::shelf(&context.stores).get(&namespace, &name);
    let shown =
        current.as_deref().filter(|current| current.meta().uid == object.meta().uid).unwrap_or(object);
    if shown.status().is_some_and(|shown| same(shown, status)) {
        return Ok(false);
    }
    let api: Api<K> = Api::namespaced(context.client.clone(), &namespace);
    let patch = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()),
        // An object that was deleted and made again is not given the state of its predecessor. The UID alone does not say
        // so: where a status is written, the API server takes the metadata as they are.
        "metadata": { "uid": object.uid(), "resourceVersion": shown.resource_version() },
        "status": status,
    });
    let (parameters, patch) = (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(patch));
    let write = api.patch_status(&name, &parameters, &patch);
    match settle::<K, _>(context, Verb::PatchStatus, &name, write).await {
        Ok(mut written) => {
            count_stages(context, object, shown.status(), status);
            written.managed_fields_mut().clear();
            K::shelf(&context.stores).written(written);
            Ok(true)
        }
        Err(error) if error.code() == Some(404) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Counts the stages that `new` shows and `old` did not.
fn count_stages<K: Watched>(context: &Context, object: &K, old: Option<&K::Status>, new: &K::Status) {
    let Some(created) = object.meta().creation_timestamp.as_ref() else { return };
    let before = old.map(K::reached).unwrap_or_default();
    for (stage, at) in K::reached(new) {
        if before.iter().all(|(known, _)| *known != stage) {
            let after = Duration::try_from(at.duration_since(created.0)).unwrap_or_default();
            context.metrics.cluster_reached(stage, after);
        }
    }
}

/// Whether two statuses say the same, conditions of others apart.
fn same<S: Serialize + PartialEq>(shown: &S, wanted: &S) -> bool {
    if shown == wanted {
        return true;
    }
    let ours = |status: &S| {
        let mut value = serde_json::to_value(status).unwrap_or_default();
        if let Some(conditions) = value.get_mut("conditions").and_then(Value::as_array_mut) {
            conditions.retain(|condition| {
                condition["type"].as_str().is_some_and(|type_| OWN_CONDITIONS.contains(&type_))
            });
            conditions.sort_by(|a, b| a["type"].as_str().cmp(&b["type"].as_str()));
        }
        value
    };
    ours(shown) == ours(wanted)
}

/// Puts [`FINALIZER`] on `object`, if it is not there.
pub async fn add_finalizer<K: Watched>(context: &Context, object: &K) -> Result<(), Error> {
    if has_finalizer(object) || object.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    let mut finalizers = object.finalizers().to_vec();
    finalizers.push(FINALIZER.to_owned());
    set_finalizers(context, object, &finalizers).await
}

/// Takes [`FINALIZER`] from `object`, if it is there.
pub async fn remove_finalizer<K: Watched>(context: &Context, object: &K) -> Result<(), Error> {
    if !has_finalizer(object) {
        return Ok(());
    }
    let finalizers: Vec<String> =
        object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
    set_finalizers(context, object, &finalizers).await
}

/// Whether `object` carries [`FINALIZER`].
pub fn has_finalizer<K: Resource>(object: &K) -> bool {
    object.meta().finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

/// The list is replaced as a whole, so the resource version guards it: of two writers one is refused and tries again.
async fn set_finalizers<K: Watched>(
    context: &Context,
    object: &K,
    finalizers: &[String],
) -> Result<(), Error> {
    let (api, name) = (api::<K>(context, object), object.name_any());
    let patch = json!({"metadata": {
        "finalizers": finalizers, "resourceVersion": object.resource_version(), "uid": object.uid(),
    }});
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = Patch::Merge(patch);
    match settle::<K, _>(context, Verb::Patch, &name, api.patch(&name, &parameters, &patch)).await {
        Ok(mut written) => {
            written.managed_fields_mut().clear();
            K::shelf(&context.stores).written(written);
            Ok(())
        }
        Err(error) if error.code() == Some(404) => Ok(()),
        Err(error) => Err(error),
    }
}

fn api<K: Object>(context: &Context, object: &K) -> Api<K> {
    Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default())
}

/// Waits for a write, counts it, and names it where it failed.
async fn settle<K: Resource<DynamicType = ()>, T>(
    context: &Context,
    verb: Verb,
    name: &str,
    write: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    // A connection that died without a word would hold the object for ever.
    let answer = tokio::time::timeout(LONGEST_WRITE, write).await;
    let no_answer = || kube::Error::Service(format!("no answer within {} s", LONGEST_WRITE.as_secs()).into());
    let result = answer.unwrap_or_else(|_| Err(no_answer()));
    context.metrics.write(verb, &K::kind(&()), result.as_ref().err());
    result.map_err(|source| Error::Write {
        verb: verb.word(),
        what: K::kind(&()).into_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    })
}
