//! Schemas that several fields share and that attributes cannot say.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The core type, whole. [`crate::definitions`] strips its descriptions, which would make up four fifths of the CRD.
pub(crate) fn pod_template(generator: &mut SchemaGenerator) -> Schema {
    <k8s_openapi::api::core::v1::PodTemplateSpec as schemars::JsonSchema>::json_schema(generator)
}

/// The core type, whole, without its descriptions.
pub(crate) fn pod_security_context(generator: &mut SchemaGenerator) -> Schema {
    <k8s_openapi::api::core::v1::PodSecurityContext as schemars::JsonSchema>::json_schema(generator)
}

/// Tolerations of a pod.
pub(crate) fn tolerations(generator: &mut SchemaGenerator) -> Schema {
    let item = <k8s_openapi::api::core::v1::Toleration as schemars::JsonSchema>::json_schema(generator);
    json_schema!({ "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic", "items": item })
}

/// An object of someone else's API, which that API's own server checks.
pub(crate) fn foreign_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Labels or annotations: as many as an object can reasonably have.
pub(crate) fn string_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 4096 }
    })
}

/// A node selector, as in `matchLabels`.
pub(crate) fn label_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 16,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$" }
    })
}

/// A matrix, destination by row and source by column; null where nothing was measured.
pub(crate) fn matrix(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic",
            "items": { "type": "number", "nullable": true, "minimum": 0, "maximum": 1_000_000_000 }
        }
    })
}

/// Matrices by payload size in bytes.
pub(crate) fn matrices(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "maxProperties": 4, "additionalProperties": matrix(generator) })
}
