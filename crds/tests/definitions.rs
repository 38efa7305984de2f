//! The definitions as the API server gets them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

use gridcast_crds::{crds, definitions, reference};
use serde_json::Value;

fn schema(kind: &str) -> Value {
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    serde_json::to_value(&crd).unwrap().pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap().clone()
}

/// Calls `visit` with every schema below `schema` and its path, but not inside the core pod template.
fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        if !definitions::CORE_FIELDS.contains(&name.as_str()) {
            walk(inner, &format!("{path}.{name}"), visit);
        }
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            walk(&schema[key], &format!("{path}[]"), visit);
        }
    }
}

const KINDS: [&str; 3] = ["VirtualCluster", "Broadcast", "NetworkMap"];

#[test]
fn the_generated_files_are_those_of_the_types() {
    for (name, text) in definitions::yaml() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
        let held = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(held == text, "crds/{name} differs from the types; run `make crds`");
    }
}

#[test]
fn the_reference_has_every_field() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/api.md");
    let held = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(held == reference::update(&held), "docs/api.md differs from the types; run `make crds`");
    let open: Vec<&str> =
        held.lines().filter(|line| line.ends_with(&format!("| {} |", reference::UNKNOWN))).collect();
    assert!(open.is_empty(), "docs/api.md does not say what a local run makes of:\n{}", open.join("\n"));
}

#[test]
fn names_are_those_that_users_type() {
    let names: Vec<_> = crds()
        .into_iter()
        .map(|crd| {
            assert_eq!(crd.spec.group, "gridcast.io");
            assert_eq!(crd.spec.versions[0].name, "v1alpha1");
            assert_eq!(crd.spec.names.categories, Some(vec!["gridcast".to_owned()]));
            (crd.metadata.name.unwrap(), crd.spec.names.short_names.unwrap().join(","))
        })
        .collect();
    let expected = [
        ("virtualclusters.gridcast.io", "vcl"),
        ("broadcasts.gridcast.io", "bc"),
        ("networkmaps.gridcast.io", "nmap"),
    ];
    assert_eq!(names, expected.map(|(name, short)| (name.to_owned(), short.to_owned())));
}

#[test]
fn everything_is_bounded_and_described() {
    let mut faults = Vec::new();
    for kind in KINDS {
        walk(&schema(kind), kind, &mut |path, schema| {
            let has = |word: &str| schema.get(word).is_some();
            let fault = match schema["type"].as_str() {
                Some("string") if path.ends_with("metadata.name") => None,
                Some("string") => {
                    (!has("maxLength") && !has("enum") && !has("format")).then_some("no maxLength")
                }
                Some("array") if !has("maxItems") => Some("no maxItems"),
                Some("array") if !has("x-kubernetes-list-type") => Some("no list type"),
                Some("integer" | "number") if path.ends_with("observedGeneration") => None,
                Some("integer" | "number") => (!has("minimum") || !has("maximum")).then_some("no bounds"),
                Some("object") if has("additionalProperties") => {
                    (!has("maxProperties")).then_some("no maxProperties")
                }
                _ => None,
            };
            faults.extend(fault.map(|fault| format!("{path}: {fault}")));
            let named = !path.ends_with("[]") && path.contains('.') && !path.contains("metadata");
            if named && schema["description"].as_str().is_none_or(str::is_empty) {
                faults.push(format!("{path}: no description"));
            }
            if schema["format"].as_str().is_some_and(|format| format.starts_with("uint")) {
                faults.push(format!("{path}: unsigned"));
            }
        });
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn no_defaults_inside_list_items() {
    for kind in KINDS {
        walk(&schema(kind), kind, &mut |path, schema| {
            assert!(
                !path.contains("[]") || schema.get("default").is_none(),
                "{path} has a default inside a list item"
            );
        });
    }
}

#[test]
fn printer_columns_lead_to_declared_fields() {
    for crd in crds() {
        let schema = schema(&crd.spec.names.kind);
        for column in crd.spec.versions[0].additional_printer_columns.iter().flatten() {
            let path = column.json_path.trim_start_matches('.');
            if path.starts_with("metadata") {
                continue;
            }
            let mut at = &schema;
            for part in path.split('.').map(|part| part.split('[').next().unwrap()) {
                if at["type"] == "array" {
                    at = &at["items"];
                }
                at = &at["properties"][part];
                assert!(!at.is_null() || path.contains("?("), "{} leads nowhere", column.json_path);
                if at.is_null() {
                    break;
                }
            }
        }
    }
}

#[test]
fn every_rule_is_one_that_the_api_server_takes() {
    use kube::core::cel::compile_schema;
    for kind in KINDS {
        let mut rules = 0;
        walk(&schema(kind), kind, &mut |path, schema| {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                rules += 1;
                let computed = rule["messageExpression"].as_str();
                assert!(rule["message"].is_string() || computed.is_some(), "{path}: {rule}");
                // The API server cannot bound the size of `string(number)`, so it finds a sum with it too dear, and
                // refuses the whole definition. A single `format` costs the length of its text.
                assert!(
                    computed.is_none_or(|text| text.contains("'.format([")
                        && !text.contains("string(")
                        && !text.contains("' +")),
                    "{path}: {rule}"
                );
                let field = rule["fieldPath"].as_str().unwrap_or_default();
                let mut at = schema;
                for part in field.split('.').filter(|part| !part.is_empty()) {
                    at = &at["properties"][part];
                }
                assert!(!at.is_null(), "{path}: the API server refuses the field path {field:?}");
            }
            assert!(compile_schema(schema).validations.iter().all(Result::is_ok), "{path}");
        });
        assert!(rules >= 3, "{kind}");
    }
}

#[test]
fn client_side_apply_can_keep_them_in_an_annotation() {
    for crd in crds() {
        let size = serde_json::to_string(&crd).unwrap().len();
        assert!(size < 200 * 1024, "{:?} has {size} bytes", crd.metadata.name);
    }
}

/// The words that our walk shares with JSON Schema mean the same in both.
#[test]
fn our_walk_agrees_with_json_schema() {
    let value = |text: &str| -> Value { serde_saphyr::from_str(text).unwrap() };
    let base = "{groups: [{name: a, replicas: 1, pod: {spec: {containers: [{name: a}]}}}], run: {processes: 1, command: [a]}}";
    let spec = schema("VirtualCluster")["properties"]["spec"].clone();
    let validator = jsonschema::draft7::new(&spec).unwrap();
    for (from, to) in [
        ("replicas: 1", "replicas: 1"),
        ("replicas: 1", "replicas: -1"),
        ("replicas: 1", "replicas: 1000"),
        ("replicas: 1", "replicas: 1001"),
        ("replicas: 1", "replicas: '1'"),
        ("replicas: 1", "replicas: 1.0"),
        ("replicas: 1", "replicas: 1.5"),
        ("name: a, ", ""),
        ("name: a, ", "name: A, "),
        ("name: a, ", "name: aaaaaaaaaaaaaaaaaaaaaaaaa, "),
        ("command: [a]", "command: []"),
        ("command: [a]", "command: {}"),
        ("command: [a]", "command: [a], implementation: MPICH"),
        ("command: [a]", "command: [a], implementation: LAM"),
        ("command: [a]", "command: [a], tagOutput: 1"),
    ] {
        let spec = base.replacen(from, to, 1);
        let theirs = validator.is_valid(&value(&spec));
        let manifest = format!(
            "apiVersion: gridcast.io/v1alpha1\nkind: VirtualCluster\nmetadata: {{name: a}}\nspec: {spec}\n"
        );
        assert_eq!(gridcast_crds::parse(&manifest).is_ok(), theirs, "{from} -> {to}");
    }
}

#[test]
fn the_examples_are_accepted() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(&examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            // Topologies lie beside the manifests, and what fills a volume for one.
            if text.lines().any(|line| line.starts_with("apiVersion: gridcast.io/")) {
                gridcast_crds::manifest::read(&path).unwrap();
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "no manifest in {}", examples.display());
}
