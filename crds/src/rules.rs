//! Does an object keep the CEL rules of its definition?
//!
//! The rules are read from the very schema that the API server gets and evaluated by `kube-cel`, so a rule cannot hold
//! here and fail there.

use kube::core::cel::{ErrorKind, RootContext, Validator};
use serde_json::Value;

use crate::{GROUP, VERSION, schema::Problem};

/// Every rule of `schema` that `value` breaks; `old` is the object before an update.
///
/// With `fits` false the value does not fit the schema. Then a rule may be unable to look at it, which is no fault of its
/// own: only rules that were evaluated and are broken count.
pub(crate) fn check(
    schema: &Value,
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
    let Err(errors) = Validator::new().validate_with_context(schema, value, old, Some(&context)) else {
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
