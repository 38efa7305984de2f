//! What does the API server get to know of the three kinds?
//!
//! [`crds`] is what `crds/*.yaml` holds and what the local run validates by: the schemas that the derive makes, put
//! into the form that the API server takes without a warning and `kubectl apply` without a refusal.
//!
//! A group embeds the core pod template whole, with its schema rather than as a free-form object: a misspelt field of a
//! pod is then refused when the manifest is applied, not when the operator makes pods. The price is size, and four
//! fifths of that are descriptions, which `kubectl explain pod.spec` has anyway: they are stripped. What is left stays
//! below the 256 KiB that an annotation may have (a test holds it), so client-side `kubectl apply` works too.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::{Broadcast, NetworkMap, VirtualCluster};

/// The definitions of all kinds, in the order in which they are documented.
pub fn crds() -> Vec<CustomResourceDefinition> {
    [VirtualCluster::crd(), Broadcast::crd(), NetworkMap::crd()].into_iter().map(published).collect()
}

/// The schema of one definition's only version.
pub(crate) fn open_api_schema(crd: &CustomResourceDefinition) -> Value {
    crd.spec
        .versions
        .first()
        .and_then(|version| version.schema.as_ref())
        .and_then(|schema| serde_json::to_value(&schema.open_api_v3_schema).ok())
        .unwrap_or_default()
}

/// Names of the fields that hold a core type whole: what is in them is that type's own business.
pub const CORE_FIELDS: [&str; 3] = ["pod", "securityContext", "tolerations"];

/// Where a core type is embedded whole.
const CORE_TYPES: [&str; 3] = [
    "/properties/spec/properties/groups/items/properties/pod",
    "/properties/spec/properties/sourcePod/properties/securityContext",
    "/properties/spec/properties/sourcePod/properties/tolerations",
];

fn published(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let Ok(mut value) = serde_json::to_value(&crd) else { return crd };
    if let Some(schema) = value.pointer_mut("/spec/versions/0/schema/openAPIV3Schema") {
        // A rule's `fieldPath` must lead to a declared property, and of the metadata only the name may be declared.
        schema["properties"]["metadata"] =
            json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        for place in CORE_TYPES {
            let Some(core) = schema.pointer_mut(place) else { continue };
            let own = core.get("description").cloned();
            strip_descriptions(core);
            if let Some(own) = own {
                core["description"] = own;
            }
        }
        refuse_nulls(schema);
    }
    serde_json::from_value(value).unwrap_or(crd)
}

/// Drops `format: uint*`, which the API server warns of, and writes integral bounds without a fraction.
fn normalize(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                map.remove("format");
            }
            for bound in ["minimum", "maximum"] {
                if let Some(whole) =
                    map.get(bound).and_then(Value::as_f64).filter(|b| b.fract() == 0.0 && b.abs() < 9.1e15)
                {
                    map.insert(bound.into(), json!(whole as i64));
                }
            }
            map.values_mut().for_each(normalize);
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        _ => {}
    }
}

/// Optional fields are left out, not null: the API server then drops a null, while `has()` in a rule would take one that
/// may be there for a value. In lists, as in matrices, a null is a value of its own.
fn refuse_nulls(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties {
            if CORE_FIELDS.contains(&name.as_str()) {
                continue;
            }
            if let Some(property) = property.as_object_mut() {
                property.remove("nullable");
            }
            refuse_nulls(property);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            refuse_nulls(inner);
        }
    }
}

/// Removes descriptions of schemas, not properties that happen to be called so.
fn strip_descriptions(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.remove("description");
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(strip_descriptions);
    }
    for key in ["items", "additionalProperties", "not"] {
        if let Some(inner) = map.get_mut(key) {
            strip_descriptions(inner);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        if let Some(branches) = map.get_mut(key).and_then(Value::as_array_mut) {
            branches.iter_mut().for_each(strip_descriptions);
        }
    }
}

/// The definitions as YAML, each with the name of its file.
pub fn yaml() -> Vec<(String, String)> {
    crds()
        .iter()
        .map(|crd| {
            let name = format!("{}.{}.yaml", crd.spec.names.plural, crd.spec.group);
            let mut value = serde_json::to_value(crd).unwrap_or_default();
            normalize(&mut value);
            let body = serde_saphyr::to_string(&value).unwrap_or_default();
            (name, format!("# Generated from the Rust types by `make crds`. Do not edit.\n{body}"))
        })
        .collect()
}
