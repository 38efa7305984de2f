//! The objects of the fake API server, and what a request does to them.

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, StatusCode};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

/// `group/version/plural`
pub(super) type Collection = String;
/// `(collection, namespace, name)`
pub(super) type Key = (Collection, String, String);

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    pub(super) kind: &'static str,
    pub(super) collection: Collection,
    pub(super) namespace: String,
    pub(super) object: Value,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) version: u64,
    pub(super) objects: BTreeMap<Key, Value>,
    /// Last configuration applied by each field manager.
    pub(super) applied: BTreeMap<(Key, String), Value>,
    pub(super) log: Vec<Event>,
    /// Every write seen: `METHOD path`.
    pub(super) requests: Vec<String>,
    /// The next writes answer so: the code, and how many more.
    pub(super) refuse: Option<(StatusCode, usize)>,
    /// What callers may do; everything, if absent.
    pub(super) rules: Option<Rules>,
    /// Status of a review, by token.
    pub(super) tokens: BTreeMap<String, Value>,
    /// What they may not do, and tried.
    pub(super) refused: Vec<String>,
    /// What callers did: `group/resource verb`.
    pub(super) used: BTreeSet<String>,
}

/// A ClusterRole, and a Role in one namespace.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) cluster: Vec<PolicyRule>,
    pub(super) namespace: String,
    pub(super) own: Vec<PolicyRule>,
}

impl Rules {
    fn grant(&self, group: &str, resource: &str, verb: &str, route: &Route) -> bool {
        let has = |list: Option<&Vec<String>>, item: &str| list.is_some_and(|l| l.iter().any(|i| i == item));
        let named = |rule: &PolicyRule| match &rule.resource_names {
            Some(names) => route.name.as_ref().is_some_and(|name| names.contains(name)),
            None => true,
        };
        let grants = |rule: &PolicyRule| {
            has(rule.api_groups.as_ref(), group)
                && has(rule.resources.as_ref(), resource)
                && has(Some(&rule.verbs), verb)
                && named(rule)
        };
        self.cluster.iter().any(grants) || (route.namespace == self.namespace && self.own.iter().any(grants))
    }
}

#[derive(Debug)]
pub(super) struct Failure(pub(super) StatusCode, pub(super) &'static str, pub(super) String);

pub(super) struct Route {
    pub(super) collection: Collection,
    pub(super) namespace: String,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

impl Route {
    /// Reads `/api/v1/...` and `/apis/group/version/...`.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.split('/').filter(|p| !p.is_empty()).peekable();
        let (group, version) = match parts.next()? {
            "api" => ("", parts.next()?),
            "apis" => (parts.next()?, parts.next()?),
            _ => return None,
        };
        let mut namespace = String::new();
        if parts.peek() == Some(&"namespaces") {
            let rest: Vec<_> = parts.clone().collect();
            if rest.len() > 2 {
                parts.next();
                parts.next()?.clone_into(&mut namespace);
            }
        }
        let plural = parts.next()?;
        Some(Self {
            collection: format!("{group}/{version}/{plural}"),
            namespace,
            name: parts.next().map(str::to_owned),
            subresource: parts.next().map(str::to_owned),
        })
    }

    pub(super) fn key(&self) -> Key {
        (self.collection.clone(), self.namespace.clone(), self.name.clone().unwrap_or_default())
    }
}

impl State {
    pub(super) fn next_refusal(&mut self) -> Option<Failure> {
        let (code, left) = self.refuse?;
        self.refuse = (left > 1).then_some((code, left - 1));
        Some(Failure(code, "Refused", "as the test asks".into()))
    }

    pub(super) fn authorize(
        &mut self,
        method: &Method,
        route: &Route,
        watching: bool,
    ) -> Result<(), Failure> {
        let verb = match (method.as_str(), &route.name) {
            ("GET", _) if watching => "watch",
            ("GET", None) => "list",
            ("GET", Some(_)) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", Some(_)) => "delete",
            _ => "deletecollection",
        };
        let group = route.collection.split('/').next().unwrap_or_default();
        let plural = route.collection.rsplit('/').next().unwrap_or_default();
        let resource = match &route.subresource {
            Some(subresource) => format!("{plural}/{subresource}"),
            None => plural.to_owned(),
        };
        self.used.insert(format!("{group}/{resource} {verb}"));
        let granted = self.rules.as_ref().is_none_or(|rules| rules.grant(group, &resource, verb, route));
        if granted {
            return Ok(());
        }
        self.refused.push(format!("{verb} {}", route.key().0));
        Err(Failure(StatusCode::FORBIDDEN, "Forbidden", format!("cannot {verb} {resource}.{group}")))
    }

    /// Answers a TokenReview.
    pub(super) fn review(&self, review: &Value) -> Value {
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        let status = self.tokens.get(token).cloned();
        let mut answer = review.clone();
        answer["status"] =
            status.unwrap_or_else(|| json!({"authenticated": false, "error": "unknown token"}));
        answer
    }

    pub(super) fn get(&self, key: &Key) -> Result<&Value, Failure> {
        self.objects.get(key).ok_or_else(|| Failure(StatusCode::NOT_FOUND, "NotFound", key.2.clone()))
    }

    pub(super) fn list(&self, route: &Route, query: &BTreeMap<String, String>) -> Value {
        let wanted = |object: &Value| {
            query.get("labelSelector").is_none_or(|selector| {
                selector.split(',').filter(|s| !s.is_empty()).all(|term| {
                    term.split_once('=').is_none_or(|(k, v)| {
                        object["metadata"]["labels"][k].as_str() == Some(v.trim_start_matches('='))
                    })
                })
            })
        };
        let items: Vec<_> = self
            .objects
            .iter()
            .filter(|(key, object)| {
                key.0 == route.collection
                    && (route.namespace.is_empty() || key.1 == route.namespace)
                    && wanted(object)
            })
            .map(|(_, object)| object.clone())
            .collect();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }

    /// Stores `object`; a write that changes nothing is not a write.
    pub(super) fn write(&mut self, key: &Key, mut object: Value) -> Value {
        let old = self.objects.get(key).cloned();
        let meta = &mut object["metadata"];
        meta["name"] = json!(key.2);
        if !key.1.is_empty() {
            meta["namespace"] = json!(key.1);
        }
        if let Some(old) = &old {
            for field in ["uid", "creationTimestamp", "generation", "resourceVersion"] {
                meta[field] = old["metadata"][field].clone();
            }
            if &object == old {
                return object;
            }
            if object["spec"] != old["spec"] {
                let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
                object["metadata"]["generation"] = json!(generation);
            }
        } else {
            meta["uid"] = json!(format!("uid-{}", self.version + 1));
            meta["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
            meta["generation"] = json!(1);
        }
        let dying = object["metadata"]["deletionTimestamp"].is_string();
        let finalizers = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
        if dying && !finalizers {
            self.remove(key, object.clone());
            return object;
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key.clone(), object.clone());
        self.emit(if old.is_some() { "MODIFIED" } else { "ADDED" }, key, object.clone());
        object
    }

    fn emit(&mut self, kind: &'static str, key: &Key, object: Value) {
        self.log.push(Event {
            version: self.version,
            kind,
            collection: key.0.clone(),
            namespace: key.1.clone(),
            object,
        });
    }

    pub(super) fn patch(
        &mut self,
        route: &Route,
        query: &BTreeMap<String, String>,
        content_type: &str,
        patch: &Value,
    ) -> Result<Value, Failure> {
        let key = route.key();
        let bad = |e: String| Failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", e);
        let existing = self.objects.get(&key).cloned();
        let uid = patch["metadata"]["uid"].as_str();
        // Where a status is written, the metadata stay as they are, and what a patch says of them is not looked at.
        if route.subresource.is_none()
            && let (Some(existing), Some(uid)) = (&existing, uid)
            && existing["metadata"]["uid"] != uid
        {
            return Err(bad(format!("metadata.uid: Invalid value: {uid:?}: field is immutable")));
        }
        // Server-side apply makes an object, but never one that has only a status.
        if existing.is_none() && route.subresource.is_some() {
            return Err(Failure(StatusCode::NOT_FOUND, "NotFound", key.2));
        }
        if existing.is_none() && uid.is_some() && content_type == "application/apply-patch+yaml" {
            return Err(Failure(StatusCode::CONFLICT, "Conflict", "uid mismatch: no existing object".into()));
        }
        let patched = match content_type {
            "application/apply-patch+yaml" => {
                let manager = query.get("fieldManager").cloned().unwrap_or_default();
                let mut next = existing.clone().unwrap_or_else(|| json!({}));
                check_version(&next, patch)?;
                let scope =
                    (key.clone(), format!("{manager}/{}", route.subresource.as_deref().unwrap_or("")));
                if let Some(previous) = self.applied.get(&scope) {
                    withdraw(&mut next, previous, patch);
                }
                merge(&mut next, patch);
                self.applied.insert(scope, patch.clone());
                next
            }
            "application/json-patch+json" => {
                let mut next = self.get(&key)?.clone();
                let ops: json_patch::Patch =
                    serde_json::from_value(patch.clone()).map_err(|e| bad(e.to_string()))?;
                json_patch::patch(&mut next, &ops).map_err(|e| bad(e.to_string()))?;
                next
            }
            _ => {
                let mut next = self.get(&key)?.clone();
                check_version(&next, patch)?;
                json_patch::merge(&mut next, patch);
                next
            }
        };
        let isolated = match &existing {
            Some(old) => isolate(old, patched, route.subresource.as_deref()),
            None => patched,
        };
        Ok(self.write(&key, isolated))
    }

    /// As a client asks for it, who may say which UID it means.
    pub(super) fn delete_if(&mut self, key: &Key, options: &Value) -> Result<Value, Failure> {
        match options["preconditions"]["uid"].as_str() {
            Some(uid) if self.get(key)?["metadata"]["uid"] != uid => {
                Err(Failure(StatusCode::CONFLICT, "Conflict", "another UID".into()))
            }
            _ => self.delete(key),
        }
    }

    pub(super) fn delete(&mut self, key: &Key) -> Result<Value, Failure> {
        let mut object = self.get(key)?.clone();
        if object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()) {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
            return Ok(self.write(key, object));
        }
        self.remove(key, object.clone());
        Ok(object)
    }

    fn remove(&mut self, key: &Key, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.remove(key);
        self.emit("DELETED", key, object.clone());
        let uid = object["metadata"]["uid"].clone();
        let orphans: Vec<Key> = self
            .objects
            .iter()
            .filter(|(_, o)| {
                o["metadata"]["ownerReferences"]
                    .as_array()
                    .is_some_and(|refs| refs.iter().any(|r| r["uid"] == uid))
            })
            .map(|(k, _)| k.clone())
            .collect();
        for orphan in orphans {
            let _ = self.delete(&orphan);
        }
    }
}

/// Keeps `/status` writes out of the rest of the object, and the reverse.
pub(super) fn isolate(old: &Value, mut new: Value, subresource: Option<&str>) -> Value {
    if subresource == Some("status") {
        let mut kept = old.clone();
        kept["status"] = new["status"].take();
        return kept;
    }
    if old["status"].is_null() {
        if let Some(map) = new.as_object_mut() {
            map.remove("status");
        }
    } else {
        new["status"] = old["status"].clone();
    }
    new
}

pub(super) fn check_version(old: &Value, new: &Value) -> Result<(), Failure> {
    match new["metadata"]["resourceVersion"].as_str() {
        Some(version) if Some(version) != old["metadata"]["resourceVersion"].as_str() => {
            Err(Failure(StatusCode::CONFLICT, "Conflict", "the object has been modified".into()))
        }
        _ => Ok(()),
    }
}

/// Applies `patch` over `target`; lists are atomic in this approximation.
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// Removes what `previous` set and `next` no longer does.
fn withdraw(target: &mut Value, previous: &Value, next: &Value) {
    let (Value::Object(target), Value::Object(previous)) = (target, previous) else { return };
    for (key, value) in previous {
        match next.get(key) {
            None => {
                target.remove(key);
            }
            Some(next) => {
                if let Some(inner) = target.get_mut(key) {
                    withdraw(inner, value, next);
                }
            }
        }
    }
}
