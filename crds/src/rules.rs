//! Does an object keep the CEL rules of its definition?
//!
//! The rules are read from the very schema that the API server gets and evaluated by `kube-cel`, so a rule cannot hold
//! here and fail there.

use kube::core::cel::{CompiledSchema, ErrorKind, RootContext, Validator};
use serde_json::Value;

use crate::{GROUP, VERSION, schema::Problem};

/// Every rule of the compiled schema of `kind` that `value` breaks; `old` is the object before an update.
///
/// With `fits` false the value does not fit the schema. Then a rule may be unable to look at it, which is no fault of its
/// own: only rules that were evaluated and are broken count.
pub(crate) fn check(
    schema: &CompiledSchema,
    kind: &str,
    value: &Value,
    old: Option<&Value>,
    fits: bool,
) -> Vec<Problem> {
    let context = RootContext {
        api_version: format!("{GROUP}/{VERSION}"),
        api_group: GROUP.to_owned(),
        kind: kind.to_owned(),
    };
    let Err(errors) = Validator::new().validate_compiled_with_context(schema, value, old, Some(&context))
    else {
        return Vec::new();
    };
    errors
        .into_vec()
        .into_iter()
        .filter(|error| fits || error.kind == ErrorKind::ValidationFailure)
        // `kube-cel` leaves the dot of a root rule's `fieldPath`; the API server does not.
        .map(|error| Problem {
            path: error.field_path.trim_start_matches('.').to_owned(),
            message: error.message,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use kube::core::cel::compile_schema;
    use serde_json::{Value, json};

    use super::*;
    use crate::{crds, definitions::open_api_schema};

    /// Field path and message of every rule that the change from `old` to `new` breaks.
    fn refused(kind: &str, old: &Value, new: &Value) -> Vec<(String, String)> {
        let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        check(&compile_schema(&open_api_schema(&crd)), kind, new, Some(old), true)
            .into_iter()
            .map(|problem| (problem.path, problem.message))
            .collect()
    }

    fn cluster(suspend: bool, image: &str, replicas: i32, data: &[&str], command: Option<&str>) -> Value {
        let data: Vec<Value> = data
            .iter()
            .map(|name| json!({ "name": name, "mountPath": format!("/data/{name}"), "source": { "node": { "path": "/srv" } } }))
            .collect();
        let mut spec = json!({
            "suspend": suspend,
            "groups": [{
                "name": "node", "replicas": replicas,
                "pod": { "spec": { "containers": [{ "name": "node", "image": image }] } }
            }],
        });
        if !data.is_empty() {
            spec["data"] = json!(data);
        }
        if let Some(command) = command {
            spec["run"] = json!({ "processes": 1, "command": [command] });
        }
        json!({ "apiVersion": "gridcast.io/v1alpha1", "kind": "VirtualCluster", "metadata": { "name": "a" }, "spec": spec })
    }

    #[test]
    fn what_a_running_cluster_cannot_honour_may_change_only_while_it_is_suspended() {
        let running = cluster(false, "a", 2, &["x"], Some("ring"));
        let field = |new: &Value| {
            refused("VirtualCluster", &running, new).into_iter().map(|(path, _)| path).collect::<Vec<_>>()
        };
        assert_eq!(field(&running), Vec::<String>::new());
        assert_eq!(field(&cluster(false, "b", 2, &["x"], Some("ring"))), ["spec.groups"]);
        assert_eq!(field(&cluster(false, "a", 3, &["x"], Some("ring"))), ["spec.groups"]);
        assert_eq!(field(&cluster(false, "a", 2, &["y"], Some("ring"))), ["spec.data"]);
        assert_eq!(field(&cluster(false, "a", 2, &[], Some("ring"))), ["spec"]);
        assert_eq!(field(&cluster(false, "a", 2, &["x"], Some("other"))), ["spec.run"]);
        assert_eq!(field(&cluster(false, "a", 2, &["x"], None)), ["spec"]);
        // Suspending and changing in one go, changing while suspended, and resuming with a change.
        let suspended = cluster(true, "b", 3, &["y"], Some("other"));
        assert_eq!(refused("VirtualCluster", &running, &suspended), []);
        assert_eq!(refused("VirtualCluster", &suspended, &cluster(true, "c", 1, &[], None)), []);
        assert_eq!(refused("VirtualCluster", &suspended, &running), []);
    }

    #[test]
    fn a_cluster_without_a_run_can_be_scaled() {
        let (two, three) = (cluster(false, "a", 2, &[], None), cluster(false, "a", 3, &[], None));
        assert_eq!(refused("VirtualCluster", &two, &three), []);
    }

    #[test]
    fn a_broadcast_is_of_one_source_and_path() {
        let broadcast = |url: &str, path: Option<&str>, nodes: &[&str]| {
            let mut spec = json!({ "source": { "http": { "url": url } }, "to": { "nodes": nodes } });
            if let Some(path) = path {
                spec["path"] = json!(path);
            }
            json!({ "metadata": { "name": "a" }, "spec": spec })
        };
        let old = broadcast("https://a/b", Some("x"), &["n"]);
        let path = |new: &Value| {
            refused("Broadcast", &old, new).into_iter().map(|(path, _)| path).collect::<Vec<_>>()
        };
        assert_eq!(path(&broadcast("https://a/b", Some("x"), &["n", "m"])), Vec::<String>::new());
        assert_eq!(path(&broadcast("https://a/c", Some("x"), &["n"])), ["spec.source"]);
        assert_eq!(path(&broadcast("https://a/b", Some("y"), &["n"])), ["spec.path"]);
        assert_eq!(path(&broadcast("https://a/b", None, &["n"])), ["spec"]);
    }
}
