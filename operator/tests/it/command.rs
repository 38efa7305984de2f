//! What the binary prints.

use std::process::Command;

fn operator(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gridcast-operator"))
        .args(arguments)
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("KUBECONFIG", "/nonexistent")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn crds_prints_what_kubectl_applies() {
    let (success, out, _) = operator(&["crds"]);
    assert!(success);
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&out).unwrap();
    let names: Vec<_> = documents.iter().map(|crd| crd["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["virtualclusters.gridcast.io", "broadcasts.gridcast.io", "networkmaps.gridcast.io"]);
}

#[test]
fn without_a_cluster_it_says_what_to_do() {
    let (success, _, error) = operator(&[]);
    assert!(!success);
    assert!(error.contains("cannot find a cluster; set KUBECONFIG or run in a pod"), "{error}");
}

#[test]
fn help_names_the_options() {
    let (success, out, _) = operator(&["--help"]);
    assert!(success);
    for word in ["--namespace", "--log-format", "crds", "gridcast local run"] {
        assert!(out.contains(word), "{word} is missing:\n{out}");
    }
}
