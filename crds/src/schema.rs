//! Does a value fit a structural schema, as the API server would judge it?
//!
//! A walk of our own rather than a JSON Schema validator, because the answers must be those of the API server: unknown
//! fields refused at their own path (strict field validation), `x-kubernetes-int-or-string`,
//! `x-kubernetes-preserve-unknown-fields`, `nullable` and the uniqueness of list-map keys are not JSON Schema. The
//! words of OpenAPI that the walk shares with JSON Schema are held equal to the `jsonschema` crate by a test.

use regex::Regex;
use serde_json::{Map, Value};

/// One thing that does not fit: the field's path and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) path: String,
    pub(crate) message: String,
}

/// Everything in `value` that does not fit `schema`, in the order of the value.
pub(crate) fn check(schema: &Value, value: &Value) -> Vec<Problem> {
    let mut walk = Walk::default();
    walk.value(schema, value, "");
    walk.problems
}

/// Removes nulls of fields that may not be null, as the API server does before it looks: `data:` with nothing behind it
/// is no `data` at all. Nulls in lists stay, and are refused unless the item may be null.
pub(crate) fn prune_nulls(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let inner = |name: &str| {
                schema
                    .get("properties")
                    .and_then(|known| known.get(name))
                    .or_else(|| schema.get("additionalProperties"))
            };
            fields.retain(|name, field| {
                !field.is_null()
                    || inner(name).is_none_or(|inner| !inner.is_object() || flag(inner, "nullable"))
            });
            for (name, field) in fields {
                if let Some(inner) = inner(name) {
                    prune_nulls(inner, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.get("items") {
                for item in items {
                    prune_nulls(inner, item);
                }
            }
        }
        _ => {}
    }
}

/// `path.name`, as the API server writes it.
pub(crate) fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[derive(Default)]
struct Walk {
    problems: Vec<Problem>,
}

impl Walk {
    fn refuse(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Problem { path: path.to_owned(), message: message.into() });
    }

    fn value(&mut self, schema: &Value, value: &Value, path: &str) {
        if value.is_null() && flag(schema, "nullable") {
            return;
        }
        if flag(schema, "x-kubernetes-int-or-string") {
            if !(value.is_string() || is_integer(value)) {
                self.refuse(path, format!("must be an integer or a string, but is {}", kind(value)));
            }
            return;
        }
        let expected = schema.get("type").and_then(Value::as_str);
        if let Some(expected) = expected.filter(|expected| !has_type(value, expected)) {
            self.refuse(path, format!("must be {}, but is {}", article(expected), kind(value)));
            return;
        }
        if let Some(allowed) =
            schema.get("enum").and_then(Value::as_array).filter(|allowed| !allowed.contains(value))
        {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            self.refuse(path, format!("must be one of {}, but is {value}", allowed.join(", ")));
        }
        match value {
            Value::Object(fields) => self.object(schema, fields, path),
            Value::Array(items) => self.list(schema, items, path),
            Value::String(text) => self.string(schema, text, path),
            Value::Number(_) => self.number(schema, value, path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn object(&mut self, schema: &Value, fields: &Map<String, Value>, path: &str) {
        let known = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties").filter(|additional| additional.is_object());
        for required in
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            if !fields.contains_key(required) {
                self.refuse(&child(path, required), "is required");
            }
        }
        for (name, value) in fields {
            let path = child(path, name);
            match (known.and_then(|known| known.get(name)), additional) {
                (Some(inner), _) | (None, Some(inner)) => self.value(inner, value, &path),
                (None, None) if flag(schema, "x-kubernetes-preserve-unknown-fields") => {}
                // `type: object` alone, as in `managedFields.fieldsV1`, holds anything.
                (None, None) if known.is_none() => {}
                (None, None) => self.refuse(&path, unknown_field(known)),
            }
        }
        if let Some(most) = limit(schema, "maxProperties").filter(|most| fields.len() > *most) {
            self.refuse(path, format!("must have at most {most} keys, but has {}", fields.len()));
        }
    }

    fn list(&mut self, schema: &Value, items: &[Value], path: &str) {
        if let Some(most) = limit(schema, "maxItems").filter(|most| items.len() > *most) {
            self.refuse(path, format!("must have at most {most} items, but has {}", items.len()));
        }
        if let Some(least) = limit(schema, "minItems").filter(|least| items.len() < *least) {
            self.refuse(path, format!("must have at least {least} items, but has {}", items.len()));
        }
        if let Some(inner) = schema.get("items") {
            for (index, item) in items.iter().enumerate() {
                self.value(inner, item, &format!("{path}[{index}]"));
            }
        }
        self.uniqueness(schema, items, path);
    }

    /// Keys of a list-map and items of a set are unique.
    fn uniqueness(&mut self, schema: &Value, items: &[Value], path: &str) {
        let list_type = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
        let keys: Vec<&str> = match list_type {
            Some("map") => schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect(),
            Some("set") => Vec::new(),
            _ => return,
        };
        let identity = |item: &Value| -> Value {
            if keys.is_empty() { item.clone() } else { keys.iter().map(|key| item[*key].clone()).collect() }
        };
        let mut seen: Vec<Value> = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let identity = identity(item);
            if let Some(first) = seen.iter().position(|other| *other == identity) {
                let what: Vec<String> = if keys.is_empty() {
                    vec![item.to_string()]
                } else {
                    keys.iter().map(|key| format!("{key} {}", item[*key])).collect()
                };
                self.refuse(
                    &format!("{path}[{index}]"),
                    format!("has the {} of {path}[{first}]; each must be different", what.join(", ")),
                );
            }
            seen.push(identity);
        }
    }

    fn string(&mut self, schema: &Value, text: &str, path: &str) {
        let length = text.chars().count();
        if let Some(most) = limit(schema, "maxLength").filter(|most| length > *most) {
            self.refuse(path, format!("must be at most {most} characters long, but has {length}"));
            return;
        }
        if let Some(least) = limit(schema, "minLength").filter(|least| length < *least) {
            self.refuse(path, format!("must be at least {least} characters long, but has {length}"));
            return;
        }
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
            match Regex::new(pattern) {
                Ok(regex) if regex.is_match(text) => {}
                Ok(_) => self.refuse(path, format!("must match {pattern}, but is {text:?}")),
                Err(error) => self.refuse(path, format!("has a pattern that cannot be read: {error}")),
            }
        }
        if schema.get("format").and_then(Value::as_str) == Some("byte")
            && serde_json::from_value::<k8s_openapi::ByteString>(Value::String(text.to_owned())).is_err()
        {
            self.refuse(path, "must be base64");
        }
    }

    fn number(&mut self, schema: &Value, value: &Value, path: &str) {
        let Some(number) = value.as_f64() else { return };
        if let Some(least) = schema.get("minimum").and_then(Value::as_f64).filter(|least| number < *least) {
            self.refuse(path, format!("must be at least {least}, but is {value}"));
        }
        if let Some(most) = schema.get("maximum").and_then(Value::as_f64).filter(|most| number > *most) {
            self.refuse(path, format!("must be at most {most}, but is {value}"));
        }
        let range = match schema.get("format").and_then(Value::as_str) {
            Some("int32") => i64::from(i32::MIN)..=i64::from(i32::MAX),
            Some("int64") => i64::MIN..=i64::MAX,
            _ => return,
        };
        let bounded = schema.get("minimum").is_some() && schema.get("maximum").is_some();
        if !bounded && value.as_i64().is_none_or(|number| !range.contains(&number)) {
            self.refuse(
                path,
                format!("must be between {} and {}, but is {value}", range.start(), range.end()),
            );
        }
    }
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn limit(schema: &Value, name: &str) -> Option<usize> {
    schema.get(name).and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok())
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn has_type(value: &Value, expected: &str) -> bool {
    match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => is_integer(value),
        "number" => value.is_number(),
        _ => true,
    }
}

fn article(expected: &str) -> String {
    match expected {
        "object" => "a mapping".into(),
        "array" => "a list".into(),
        "integer" => "an integer".into(),
        other => format!("a {other}"),
    }
}

/// What a value is, with the value where that is short.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "empty".into(),
        Value::Bool(_) => format!("the boolean {value}"),
        Value::Number(_) => format!("the number {value}"),
        Value::String(text) if text.len() <= 40 => format!("the string {value}"),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a mapping".into(),
    }
}

/// Names the fields that are known, where they are few enough to read.
fn unknown_field(known: Option<&Map<String, Value>>) -> String {
    match known {
        Some(known) if known.len() <= 16 => {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            format!("unknown field; known here: {}", names.join(", "))
        }
        _ => "unknown field".into(),
    }
}
