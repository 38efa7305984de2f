//! What does each field mean, in a form that people read?
//!
//! `docs/api.md` is prose with tables between marks. [`update`] writes the tables anew from the definitions and keeps
//! everything else, also the last column of a table, which no schema knows: what a local run makes of the field.

use std::{collections::HashMap, fmt::Write as _};

use serde_json::Value;

use crate::{
    crds,
    definitions::{CORE_FIELDS, open_api_schema},
};

/// Stands where a field is new and nobody has said yet what a local run makes of it.
pub const UNKNOWN: &str = "?";

/// `document` with its tables as the definitions have them. Marks: `<!-- fields: KIND.spec [local] -->`,
/// `<!-- rules: KIND -->`, each up to `<!-- end -->`.
pub fn update(document: &str) -> String {
    let local = local_column(document);
    let mut out = String::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(block) = block(line) else { continue };
        out.push('\n');
        out.push_str(&block.text(&local));
        out.push('\n');
        for skipped in lines.by_ref() {
            if skipped.trim() == "<!-- end -->" {
                out.push_str("<!-- end -->\n");
                break;
            }
        }
    }
    out
}

enum Block<'a> {
    Fields { kind: &'a str, part: &'a str, local: bool },
    Rules { kind: &'a str },
}

fn block(line: &str) -> Option<Block<'_>> {
    let (word, rest) = line.trim().strip_prefix("<!-- ")?.strip_suffix(" -->")?.split_once(": ")?;
    match word {
        "fields" => {
            let (path, local) = rest.strip_suffix(" local").map_or((rest, false), |path| (path, true));
            let (kind, part) = path.split_once('.')?;
            Some(Block::Fields { kind, part, local })
        }
        "rules" => Some(Block::Rules { kind: rest }),
        _ => None,
    }
}

/// The last cell of each row of each four-column table, by the field's path.
fn local_column(document: &str) -> HashMap<String, String> {
    document
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ").collect();
            match cells.as_slice() {
                [path, _, _, local] => Some((path.trim_end_matches('`').to_owned(), (*local).to_owned())),
                _ => None,
            }
        })
        .collect()
}

impl Block<'_> {
    fn text(&self, local: &HashMap<String, String>) -> String {
        let mut out = String::new();
        match self {
            Self::Fields { kind, part, local: with_local } => {
                let (head, rule) = if *with_local { (" Locally |", "---|") } else { ("", "") };
                let _ = writeln!(out, "| field | type | meaning |{head}\n|---|---|---|{rule}");
                let schema = schema_of(kind);
                fields(&schema["properties"][*part], "", &mut |path, schema, required| {
                    let description = text(schema, "description").replace('\n', " ");
                    let _ = write!(out, "| `{path}` | {} | {description} |", type_of(schema, required));
                    if *with_local {
                        let _ = write!(out, " {} |", local.get(path).map_or(UNKNOWN, String::as_str));
                    }
                    out.push('\n');
                });
            }
            Self::Rules { kind } => rules(&schema_of(kind), "", &mut |path, rule| {
                let message = text(rule, "message");
                // A message that is computed: the text, without its values.
                let computed = text(rule, "messageExpression").split('\'').nth(1).unwrap_or_default();
                let said =
                    if message.is_empty() { computed.replace("%d", "…") } else { message.to_owned() };
                let _ = writeln!(out, "- `{path}{}`: {said}", text(rule, "fieldPath"));
            }),
        }
        out
    }
}

fn schema_of(kind: &str) -> Value {
    crds().iter().find(|crd| crd.spec.names.kind == kind).map(open_api_schema).unwrap_or_default()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Visits every field below `schema`, parents first, in the order of the alphabet; not inside the core pod template.
fn fields(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value, bool)) {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        visit(&path, inner, required.contains(&name.as_str()));
        if !CORE_FIELDS.contains(&name.as_str()) {
            fields(inner, &path, visit);
            fields(&inner["items"], &format!("{path}[]"), visit);
        }
    }
}

/// Visits every rule with the path of the schema that has it.
fn rules(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        visit(path, rule);
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        rules(inner, &path, visit);
        rules(&inner["items"], &format!("{path}[]"), visit);
    }
}

/// Type, bounds, default: `integer 0..1000, required`.
fn type_of(schema: &Value, required: bool) -> String {
    let mut words = vec![plain_type(schema)];
    if let Some(default) = schema.get("default") {
        words.push(format!(
            "default `{}`",
            default.as_str().map_or_else(|| default.to_string(), ToOwned::to_owned)
        ));
    }
    if required {
        words.push("required".into());
    }
    words.join(", ")
}

fn plain_type(schema: &Value) -> String {
    let range = |low: &str, high: &str| {
        let bound =
            |key: &str| schema.get(key).and_then(Value::as_f64).map_or_else(String::new, |b| b.to_string());
        match (bound(low), bound(high)) {
            (low, high) if low.is_empty() && high.is_empty() => String::new(),
            (low, high) if low.is_empty() => format!(" 0..{high}"),
            (low, high) => format!(" {low}..{high}"),
        }
    };
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let values: Vec<String> =
            values.iter().filter_map(Value::as_str).map(|value| format!("`{value}`")).collect();
        return values.join(" ");
    }
    match text(schema, "type") {
        "array" => format!("list{} of {}", range("minItems", "maxItems"), plain_type(&schema["items"])),
        "string" if schema.get("format").is_some() => text(schema, "format").to_owned(),
        "string" => {
            let pattern = match text(schema, "pattern") {
                "" => String::new(),
                pattern => format!(" matching `{}`", pattern.replace('|', "\\|")),
            };
            match range("minLength", "maxLength") {
                bounds if bounds.is_empty() => format!("string{pattern}"),
                bounds => format!("string of{bounds} characters{pattern}"),
            }
        }
        kind @ ("integer" | "number") => format!("{kind}{}", range("minimum", "maximum")),
        "object" if schema.get("additionalProperties").is_some() => {
            format!(
                "map{} of {}",
                range("minProperties", "maxProperties"),
                plain_type(&schema["additionalProperties"])
            )
        }
        other => other.to_owned(),
    }
}
