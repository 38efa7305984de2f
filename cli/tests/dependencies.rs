//! Do the arrows of the workspace point one way, and is there one of each library that must be one?

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

fn metadata() -> Metadata {
    MetadataCommand::new().manifest_path("../Cargo.toml").exec().unwrap()
}

/// Which crates of ours each crate of ours may build on.
const ALLOWED: [(&str, &[&str]); 8] = [
    ("gridcast-core", &[]),
    ("gridcast-crds", &[]),
    ("gridcast-proto", &[]),
    ("gridcast-lab", &["gridcast-core"]),
    ("gridcast-agent", &["gridcast-core", "gridcast-proto"]),
    ("gridcast-control", &["gridcast-core", "gridcast-crds", "gridcast-proto"]),
    ("gridcast-operator", &["gridcast-control", "gridcast-core", "gridcast-crds", "gridcast-proto"]),
    ("gridcast", &["gridcast-control", "gridcast-core", "gridcast-crds", "gridcast-lab", "gridcast-proto"]),
];

#[test]
fn dependencies_point_one_way() {
    let metadata = metadata();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into_iter().collect();
    let ours: BTreeSet<&str> = metadata.workspace_packages().iter().map(|p| p.name.as_str()).collect();
    assert_eq!(ours, allowed.keys().copied().collect(), "a new crate needs a line in this test");
    for package in metadata.workspace_packages() {
        for dependency in package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development) {
            if ours.contains(dependency.name.as_str()) {
                assert!(
                    allowed[package.name.as_str()].contains(&dependency.name.as_str()),
                    "{} must not depend on {}",
                    package.name,
                    dependency.name
                );
            }
        }
    }
}

#[test]
fn core_and_contracts_do_no_io() {
    let metadata = metadata();
    let direct = |name: &str| -> BTreeSet<String> {
        let package = metadata.workspace_packages().into_iter().find(|p| p.name.as_str() == name).unwrap();
        let normal = package.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal);
        normal.map(|d| d.name.clone()).collect()
    };
    for forbidden in ["tokio", "tonic", "kube", "nix", "libc", "reqwest", "futures"] {
        assert!(!direct("gridcast-core").contains(forbidden), "core must not know {forbidden}");
    }
    // The API types derive `CustomResource`, so crds knows kube; only who owns a client may know more.
    for forbidden in ["tokio", "tonic", "nix", "libc", "reqwest"] {
        assert!(!direct("gridcast-crds").contains(forbidden), "crds must not know {forbidden}");
    }
    // A node's image holds the agent: it has no business with the API server.
    for forbidden in ["kube", "k8s-openapi"] {
        assert!(!direct("gridcast-agent").contains(forbidden), "the agent must not know {forbidden}");
        assert!(!direct("gridcast-proto").contains(forbidden), "proto must not know {forbidden}");
    }
    assert!(!direct("gridcast-proto").contains("nix"), "proto must not know the system");
}

/// Versions of each package that a build of the workspace compiles, on any platform. `cargo metadata` also lists optional
/// packages that no enabled feature asks for, so this asks `cargo tree`.
fn built() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = [
        "tree",
        "--workspace",
        "--target",
        "all",
        "--edges",
        "normal,build,dev",
        "--prefix",
        "none",
        "--locked",
    ];
    let tree = std::process::Command::new(cargo).args(arguments).current_dir("..").output().unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in String::from_utf8(tree.stdout).unwrap().lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            versions.entry(name.to_owned()).or_default().insert(version.to_owned());
        }
    }
    versions
}

#[test]
fn one_crypto_provider_and_one_of_each_transport_library() {
    let versions = built();
    // With a second provider in the graph rustls panics at its first use.
    assert!(!versions.contains_key("ring"), "ring beside aws-lc-rs");
    assert!(versions.contains_key("aws-lc-rs"));
    for single in ["tokio", "hyper", "h2", "rustls", "prost"] {
        assert_eq!(versions[single].len(), 1, "{single}: {:?}", versions[single]);
    }
}
