//! An in-process Kubernetes API server: one tower service, no sockets.
//!
//! Enough of the real semantics to drive `kube::runtime::Controller`: list and watch with resource versions, optimistic
//! locking, generation, the status subresource, finalizers, owner-reference garbage collection, merge, JSON and
//! (approximate: lists are atomic, ownership never conflicts) server-side-apply patches, token reviews, and RBAC.

mod state;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

/// How long every request takes.
const LATENCY: std::time::Duration = std::time::Duration::from_millis(20);

use state::{Failure, Key, Route, Rules, State, check_version, isolate};

type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// The server. Clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
}

impl Default for FakeApi {
    fn default() -> Self {
        Self { state: Arc::default(), changed: watch::channel(0).0 }
    }
}

impl FakeApi {
    /// A client whose requests end here.
    pub(crate) fn client(&self) -> kube::Client {
        let this = self.clone();
        kube::Client::new(
            tower::service_fn(move |request| {
                let this = this.clone();
                async move { Ok::<_, Infallible>(this.handle(request).await) }
            }),
            "default",
        )
    }

    /// A client whose requests end here while `cut` is false, and nowhere while it is true.
    pub(crate) fn client_behind(&self, cut: Arc<AtomicBool>) -> kube::Client {
        let this = self.clone();
        kube::Client::new(
            tower::service_fn(move |request| {
                let (this, cut) = (this.clone(), cut.clone());
                async move {
                    if cut.load(Ordering::Relaxed) {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Infallible>(this.handle(request).await)
                }
            }),
            "default",
        )
    }

    /// Answers 403 to whatever `cluster` does not grant anywhere and `own` does not grant in `namespace`.
    pub(crate) fn enforce(&self, cluster: Vec<PolicyRule>, namespace: &str, own: Vec<PolicyRule>) {
        self.lock().rules = Some(Rules { cluster, namespace: namespace.to_owned(), own });
    }

    /// Answers so to reviews of `token`; unknown ones are not authenticated.
    pub(crate) fn accept_token(&self, token: &str, status: Value) {
        self.lock().tokens.insert(token.to_owned(), status);
    }

    /// Answers `code` to the next `count` writes.
    pub(crate) fn refuse_writes(&self, code: StatusCode, count: usize) {
        self.lock().refuse = Some((code, count));
    }

    /// Stores `object` as its owner would, outside any client's permissions.
    pub(crate) fn put<K>(&self, object: &K)
    where
        K: kube::Resource<DynamicType = ()> + serde::Serialize,
    {
        let collection = format!("{}/{}/{}", K::group(&()), K::version(&()), K::plural(&()));
        self.put_value(&collection, serde_json::to_value(object).expect("objects serialize"));
    }

    /// Stores any object, also one that no type can read.
    pub(crate) fn put_value(&self, collection: &str, value: Value) {
        let text =
            |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key: Key = (collection.to_owned(), text("/metadata/namespace"), text("/metadata/name"));
        let mut state = self.lock();
        let merged = match state.objects.get(&key) {
            Some(old) => isolate(old, value, None),
            None => value,
        };
        state.write(&key, merged);
        let version = state.version;
        drop(state);
        self.changed.send_replace(version);
    }

    /// Takes all finalizers from an object, as their owners would.
    pub(crate) fn release(&self, collection: &str, namespace: &str, name: &str) {
        let key: Key = (collection.to_owned(), namespace.to_owned(), name.to_owned());
        let mut state = self.lock();
        let mut object = state.get(&key).expect("it is there").clone();
        object["metadata"]["finalizers"] = json!([]);
        state.write(&key, object);
        let version = state.version;
        drop(state);
        self.changed.send_replace(version);
    }

    /// Deletes an object as its owner would; finalizers hold it.
    pub(crate) fn ask_to_go(&self, collection: &str, namespace: &str, name: &str) {
        let mut state = self.lock();
        state.delete(&(collection.to_owned(), namespace.to_owned(), name.to_owned())).expect("it is there");
        let version = state.version;
        drop(state);
        self.changed.send_replace(version);
    }

    /// All objects of a collection.
    pub(crate) fn objects(&self, collection: &str) -> Vec<Value> {
        let state = self.lock();
        state
            .objects
            .iter()
            .filter(|(key, _)| key.0 == collection)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// The permissions exercised so far, as `group/resource verb`.
    pub(crate) fn used(&self) -> Vec<String> {
        self.lock().used.iter().cloned().collect()
    }

    /// What was refused for want of a permission.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.lock().refused.clone()
    }

    /// The write requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panics while locked")
    }

    async fn handle(self, request: Request<Body>) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        let query: BTreeMap<String, String> =
            form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let Some(route) = Route::parse(parts.uri.path()) else {
            return status(&Failure(StatusCode::NOT_FOUND, "NotFound", "no such path".into()));
        };
        let bytes = body.collect_bytes().await.unwrap_or_default();
        // Virtual time must pass, or a loop that rewrites timestamps looks quiet.
        tokio::time::sleep(LATENCY).await;
        let watching = query.get("watch").is_some_and(|w| w == "true" || w == "1");
        if let Err(failure) = self.lock().authorize(&parts.method, &route, watching) {
            return status(&failure);
        }
        if parts.method == Method::GET && query.get("watch").is_some_and(|w| w == "true" || w == "1") {
            return self.watch(&route, &query);
        }
        let content_type = parts
            .headers
            .get(http::header::CONTENT_TYPE)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        if parts.method != Method::GET {
            self.lock().requests.push(format!("{} {}", parts.method, parts.uri.path()));
        }
        if parts.method != Method::GET
            && let Some(failure) = self.lock().next_refusal()
        {
            return status(&failure);
        }
        let result = self.dispatch(&parts.method, &route, &query, &content_type, &bytes);
        self.changed.send_replace(self.lock().version);
        match result {
            Ok(value) => ok(&value),
            Err(failure) => status(&failure),
        }
    }

    fn dispatch(
        &self,
        method: &Method,
        route: &Route,
        query: &BTreeMap<String, String>,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<Value, Failure> {
        let mut state = self.lock();
        let body = || {
            serde_json::from_slice::<Value>(bytes)
                .map_err(|e| Failure(StatusCode::BAD_REQUEST, "BadRequest", e.to_string()))
        };
        match (method, &route.name) {
            (&Method::GET, None) => Ok(state.list(route, query)),
            (&Method::GET, Some(_)) => state.get(&route.key()).cloned(),
            (&Method::POST, None) if route.collection == "authentication.k8s.io/v1/tokenreviews" => {
                Ok(state.review(&body()?))
            }
            (&Method::POST, None) => {
                let mut object = body()?;
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let key = (route.collection.clone(), route.namespace.clone(), name);
                if state.objects.contains_key(&key) {
                    return Err(Failure(StatusCode::CONFLICT, "AlreadyExists", key.2));
                }
                if let Some(map) = object.as_object_mut() {
                    map.remove("status");
                }
                Ok(state.write(&key, object))
            }
            (&Method::PUT, Some(_)) => {
                let object = body()?;
                let old = state.get(&route.key())?.clone();
                check_version(&old, &object)?;
                let merged = isolate(&old, object, route.subresource.as_deref());
                Ok(state.write(&route.key(), merged))
            }
            (&Method::PATCH, Some(_)) => {
                // Server-side apply that makes the object needs the permission to create it as well.
                if content_type == "application/apply-patch+yaml" && state.get(&route.key()).is_err() {
                    state.authorize(&Method::POST, route, false)?;
                }
                state.patch(route, query, content_type, &body()?)
            }
            (&Method::DELETE, Some(_)) => {
                let options = if bytes.is_empty() { json!({}) } else { body()? };
                state.delete_if(&route.key(), &options)
            }
            _ => Err(Failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", method.to_string())),
        }
    }

    fn watch(&self, route: &Route, query: &BTreeMap<String, String>) -> Response<ResponseBody> {
        let cursor: u64 = query.get("resourceVersion").and_then(|v| v.parse().ok()).unwrap_or(0);
        let (collection, namespace) = (route.collection.clone(), route.namespace.clone());
        let state = Arc::clone(&self.state);
        let changed = self.changed.subscribe();
        let frames = stream::unfold((cursor, changed), move |(mut cursor, mut changed)| {
            let (state, collection, namespace) = (Arc::clone(&state), collection.clone(), namespace.clone());
            async move {
                loop {
                    let next = {
                        let state = state.lock().expect("no panics while locked");
                        let new = state.log.partition_point(|event| event.version <= cursor);
                        state.log[new..]
                            .iter()
                            .find(|e| {
                                e.collection == collection
                                    && (namespace.is_empty() || e.namespace == namespace)
                            })
                            .cloned()
                    };
                    if let Some(event) = next {
                        cursor = event.version;
                        let mut line = json!({"type": event.kind, "object": event.object}).to_string();
                        line.push('\n');
                        let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(line)));
                        return Some((frame, (cursor, changed)));
                    }
                    changed.changed().await.ok()?;
                }
            }
        });
        Response::new(StreamBody::new(frames.boxed()).boxed_unsync())
    }
}

fn full(value: &Value) -> ResponseBody {
    http_body_util::Full::new(Bytes::from(value.to_string())).boxed_unsync()
}

fn ok(value: &Value) -> Response<ResponseBody> {
    Response::new(full(value))
}

fn status(Failure(code, reason, message): &Failure) -> Response<ResponseBody> {
    // A field that is not taken is among the causes; a patch that cannot be applied names none.
    let causes: Vec<Value> =
        message.split_once(": Invalid value").map(|(field, _)| json!({"field": field})).into_iter().collect();
    let mut response = Response::new(full(&json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code.as_u16(), "reason": reason, "message": message, "details": {"causes": causes},
    })));
    *response.status_mut() = *code;
    response
}
