//! `gridcast validate`, as a user meets it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

use std::{path::Path, process::Command};

/// Exit code, standard output and standard error.
fn validate(files: &[&Path]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gridcast")).arg("validate").args(files).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const GOOD: &str = "\
apiVersion: gridcast.io/v1alpha1
kind: VirtualCluster
metadata: {name: ring}
spec:
  groups: [{name: node, replicas: 4, pod: {spec: {containers: [{name: node, image: mpi}]}}}]
  run: {processes: 4, command: [ring]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {a.nml: x}
";

#[test]
fn a_good_file_is_named_with_what_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ring.yaml");
    std::fs::write(&file, GOOD).unwrap();
    let (code, out, error) = validate(&[&file]);
    assert_eq!((code, error.as_str()), (0, ""));
    let file = file.display();
    assert_eq!(out, format!("{file}:1: virtualcluster/ring valid\n{file}:8: configmap/conf valid\n"));
}

#[test]
fn everything_wrong_in_any_file_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (bad, absent, empty) = (
        directory.path().join("bad.yaml"),
        directory.path().join("absent.yaml"),
        directory.path().join("empty.yaml"),
    );
    std::fs::write(
        &bad,
        GOOD.replace("replicas: 4", "replicas: 4, slotz: 1").replace("processes: 4", "processes: 5"),
    )
    .unwrap();
    std::fs::write(&empty, "---\n# nothing\n").unwrap();
    let (code, _, error) = validate(&[&bad, &absent, &empty]);
    assert_eq!(code, 2, "{error}");
    for part in [
        "bad.yaml:5: spec.groups[0].slotz: unknown field",
        "bad.yaml:6: spec.run.processes: must not exceed the sum of replicas times slots: 5 processes on 4 slots",
        "absent.yaml: cannot be read",
        "empty.yaml: holds no object",
    ] {
        assert!(error.contains(part), "{part:?} is missing in:\n{error}");
    }
}

#[test]
fn the_examples_are_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    for name in ["ring.yaml", "sedov.yaml"] {
        let (code, _, error) = validate(&[&examples.join(name)]);
        assert_eq!(code, 0, "{name}: {error}");
    }
}
