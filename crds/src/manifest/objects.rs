//! ConfigMaps and Secrets: what `source.configMap` and `source.secret` of the same file may refer to.

use k8s_openapi::{
    ByteString, Metadata,
    api::core::v1::{ConfigMap, Secret},
};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;

use crate::schema::{self, Problem, child};

/// Most bytes of all values together, as the API server has it (etcd would take no more).
const MOST_BYTES: usize = 1024 * 1024;

/// The schema of a core type, as the API server publishes it.
pub(crate) fn core_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    SchemaGenerator::new(settings).into_root_schema_for::<T>().to_value()
}

/// Reads a ConfigMap.
pub(crate) fn config_map(mut value: Value) -> Result<ConfigMap, Vec<Problem>> {
    let schema = core_schema::<ConfigMap>();
    schema::prune_nulls(&schema, &mut value);
    let mut problems = schema::check(&schema, &value);
    problems.extend(keys(&value, &["data", "binaryData"]));
    let map: ConfigMap = typed(value, problems)?;
    let text = map.data.iter().flatten().map(|(_, text)| text.len());
    let bytes = map.binary_data.iter().flatten().map(|(_, ByteString(bytes))| bytes.len());
    fits(text.chain(bytes).sum(), "data")?;
    Ok(map)
}

/// Reads a Secret and merges `stringData` into `data`, as the API server does.
pub(crate) fn secret(mut value: Value) -> Result<Secret, Vec<Problem>> {
    let schema = core_schema::<Secret>();
    schema::prune_nulls(&schema, &mut value);
    let mut problems = schema::check(&schema, &value);
    problems.extend(keys(&value, &["data", "stringData"]));
    let mut secret: Secret = typed(value, problems)?;
    let plain = secret.string_data.take().unwrap_or_default();
    let data = secret.data.get_or_insert_default();
    data.extend(plain.into_iter().map(|(key, text)| (key, ByteString(text.into_bytes()))));
    fits(data.values().map(|ByteString(bytes)| bytes.len()).sum(), "data")?;
    Ok(secret)
}

fn typed<T>(value: Value, problems: Vec<Problem>) -> Result<T, Vec<Problem>>
where
    T: serde::de::DeserializeOwned + Metadata,
{
    if problems.is_empty() {
        serde_json::from_value(value)
            .map_err(|error| vec![Problem { path: String::new(), message: error.to_string() }])
    } else {
        Err(problems)
    }
}

fn fits(bytes: usize, path: &str) -> Result<(), Vec<Problem>> {
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    Err(vec![Problem {
        path: path.to_owned(),
        message: format!(
            "must have at most {MOST_BYTES} bytes in all, but has {bytes}; use another source for large data"
        ),
    }])
}

/// Keys become file names, so what is no plain file name is refused, with the API server's own rule.
fn keys(value: &Value, fields: &[&str]) -> Vec<Problem> {
    let allowed = |key: &str| {
        (1..=253).contains(&key.len())
            && key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
            && key != "."
            && !key.starts_with("..")
    };
    fields
        .iter()
        .flat_map(|field| {
            value
                .get(*field)
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(move |(key, _)| (field, key))
        })
        .filter(|(_, key)| !allowed(key))
        .map(|(field, key)| Problem {
            path: child(field, key),
            message: "must be a file name of letters, digits, '-', '_' and '.', not beginning with '..'"
                .into(),
        })
        .collect()
}
