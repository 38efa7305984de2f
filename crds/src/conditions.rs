//! Which conditions does gridcast publish, and in which shape?
//!
//! They are `metav1.Condition`, with the bounds that the core type's schema lacks: without them the API server would
//! have to assume the worst of every rule that looks at a status.

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::{Schema, SchemaGenerator, json_schema};

/// True once the object is as asked, and stays so with reason `Completed`.
pub const READY: &str = "Ready";
/// On the way; absent otherwise.
pub const RECONCILING: &str = "Reconciling";
/// Nothing will happen until someone changes something; absent otherwise.
pub const STALLED: &str = "Stalled";
/// Every node exists and answers.
pub const PROVISIONED: &str = "Provisioned";
/// The network between the nodes was measured.
pub const MEASURED: &str = "Measured";
/// The TCP settings are in force.
pub const TUNED: &str = "Tuned";
/// Every dataset is on every node, verified.
pub const STAGED: &str = "Staged";
/// Every acceptance test passed.
pub const ACCEPTED: &str = "Accepted";
/// The program runs.
pub const RUNNING: &str = "Running";
/// The program ended well, where the machinefile says.
pub const COMPLETE: &str = "Complete";
/// The object ended and was not complete.
pub const FAILED: &str = "Failed";
/// There is no compute, as asked.
pub const SUSPENDED: &str = "Suspended";

/// The schema of `status.conditions`.
pub(crate) fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {
            "type": "object",
            "description": "One aspect of the object's state.",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "description": "The aspect, in CamelCase.",
                    "type": "string", "maxLength": 316, "pattern": "^[A-Z][A-Za-z]*$"
                },
                "status": {
                    "description": "Whether it holds.",
                    "type": "string", "enum": ["True", "False", "Unknown"]
                },
                "reason": {
                    "description": "One word, in CamelCase.",
                    "type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
                },
                "message": { "description": "A sentence for people.", "type": "string", "maxLength": 32768 },
                "lastTransitionTime": {
                    "description": "When the status last changed.", "type": "string", "format": "date-time"
                },
                "observedGeneration": {
                    "description": "Generation of the spec that this describes.",
                    "type": "integer", "format": "int64", "minimum": 0
                }
            }
        }
    })
}
