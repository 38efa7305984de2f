//! `gridcast status` and `gridcast report` against an API server that is a few lines of this test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};

/// What is answered: a code, and parts of a body that come one after the other. After more than one the stream stays open.
type Answer = (u16, Vec<String>);
/// Answers a GET of a path with its query.
type Answers = dyn Fn(&str, &str) -> Answer + Send + Sync;

/// A server that answers until the test ends; returns a directory with a kubeconfig for it.
fn server(answers: Arc<Answers>) -> tempfile::TempDir {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // By name, so that names are resolved as well.
    let url = format!("http://localhost:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let answers = Arc::clone(&answers);
            std::thread::spawn(move || serve(stream.unwrap(), &*answers));
        }
    });
    kubeconfig(&url)
}

fn kubeconfig(url: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "hpc"}}],
    });
    std::fs::write(place.path().join("config"), config.to_string()).unwrap();
    place
}

fn serve(stream: TcpStream, answers: &Answers) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut stream = stream;
    let Some(Ok(first)) = lines.next() else { return };
    for line in lines.by_ref() {
        if line.is_ok_and(|line| line.is_empty()) {
            break;
        }
    }
    let target = first.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (code, parts) = answers(path, query);
    let head = format!("HTTP/1.1 {code} -\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n");
    // A client that has seen enough closes first.
    let _ = stream.write_all(head.as_bytes());
    for part in &parts {
        let _ = stream.write_all(part.as_bytes());
        if parts.len() > 1 {
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    if parts.len() > 1 {
        std::thread::sleep(Duration::from_mins(1));
    }
}

fn refusal(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message});
    (code, vec![status.to_string()])
}

const COLLECTION: &str = "/apis/gridcast.io/v1alpha1/namespaces/hpc/";

fn ring() -> Value {
    json!({
        "apiVersion": "gridcast.io/v1alpha1", "kind": "VirtualCluster",
        "metadata": {"name": "ring", "namespace": "hpc", "uid": "1", "resourceVersion": "5", "creationTimestamp": "2026-11-30T10:00:00Z"},
        "spec": {"groups": [{"name": "node", "replicas": 2, "pod": {"spec": {"containers": []}}}],
                 "run": {"processes": 2, "command": ["ring"]}},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Waiting", "message": "for a node",
                                   "lastTransitionTime": "2026-11-30T10:00:01Z"}]},
    })
}

fn gridcast(place: &tempfile::TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridcast"));
    command.args(arguments).env("KUBECONFIG", place.path().join("config")).current_dir(place.path());
    command.output().unwrap()
}

#[track_caller]
fn ends(output: &Output, code: i32, told: &[&str]) {
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for told in told {
        assert!(text.contains(told), "{told} is not in: {text}");
    }
}

/// The cluster, and nothing else.
fn only_ring(path: &str, _: &str) -> Answer {
    if path == format!("{COLLECTION}virtualclusters/ring") {
        return (200, vec![ring().to_string()]);
    }
    refusal(404, "NotFound", "there is none")
}

#[test]
fn a_cluster_is_shown_and_reported_on_by_the_namespace_of_the_context() {
    let place = server(Arc::new(only_ring));
    ends(&gridcast(&place, &["status", "ring"]), 0, &["ring in namespace hpc", "Waiting: for a node"]);
    let output = gridcast(&place, &["status", "vcl/ring", "-o", "json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["status"]["conditions"][0]["reason"], "Waiting");
    let output = gridcast(&place, &["report", "ring", "-o", "json", "--html", "ring.html"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["outcome"], &report["reason"]), (&json!("Unfinished"), &json!("Waiting")));
    assert!(std::fs::read_to_string(place.path().join("ring.html")).unwrap().contains("for a node"));
}

#[test]
fn what_is_not_there_ends_with_1_and_the_next_step() {
    let place = server(Arc::new(only_ring));
    ends(
        &gridcast(&place, &["status", "none"]),
        1,
        &["no virtualcluster none in namespace hpc", "kubectl get vcl"],
    );
    ends(&gridcast(&place, &["status", "ring", "-n", "other"]), 1, &["namespace other"]);
    ends(&gridcast(&place, &["report", "none"]), 1, &["NotFound"]);
    ends(&gridcast(&place, &["status", "ring", "--context", "no"]), 1, &["no"]);
    let forbidden = server(Arc::new(|_, _| refusal(403, "Forbidden", "user u may not")));
    ends(&gridcast(&forbidden, &["status", "ring"]), 1, &["Forbidden", "user u may not"]);
    for nobody in ["http://127.0.0.1:1", "http://no-such-host.invalid"] {
        let output = gridcast(&kubeconfig(nobody), &["status", "ring", "-w"]);
        ends(&output, 1, &["ApiUnreachable", nobody]);
    }
}

#[test]
fn wrong_arguments_end_with_2() {
    let place = kubeconfig("http://127.0.0.1:1");
    ends(&gridcast(&place, &["status", "Ring"]), 2, &["lower-case letters"]);
    ends(&gridcast(&place, &["status"]), 2, &["NAME"]);
    std::fs::write(place.path().join("ring"), "{}").unwrap();
    ends(&gridcast(&place, &["report", "ring", "-n", "hpc"]), 2, &["./ring", "vcl/ring"]);
    ends(&gridcast(&place, &["report", "ring"]), 2, &["ring is no report"]);
    ends(&gridcast(&place, &["report", "gone.json"]), 2, &["cannot read gone.json"]);
}

#[test]
fn a_watch_shows_each_change_once_and_ends_with_the_cluster() {
    let mut running = ring();
    running["status"]["conditions"][0]["reason"] = "Running".into();
    running["metadata"]["resourceVersion"] = "6".into();
    let answers = move |path: &str, query: &str| {
        if path == format!("{COLLECTION}virtualclusters") && query.contains("watch=true") {
            // The same again is no change to look at.
            let events = [("MODIFIED", &running), ("MODIFIED", &running), ("DELETED", &running)];
            let line = |(kind, object)| json!({"type": kind, "object": object}).to_string() + "\n";
            return (200, events.map(line).to_vec());
        }
        if query.contains("watch=true") {
            return (200, vec![String::new(), String::new()]);
        }
        if path.trim_start_matches(COLLECTION).contains('/') {
            return only_ring(path, query);
        }
        let clusters = if path.ends_with("virtualclusters") { vec![ring()] } else { vec![] };
        let kind = if path.ends_with("virtualclusters") { "VirtualClusterList" } else { "List" };
        let list = json!({"apiVersion": "gridcast.io/v1alpha1", "kind": kind, "metadata": {"resourceVersion": "5"}, "items": clusters});
        (200, vec![list.to_string()])
    };
    let place = server(Arc::new(answers));
    let output = gridcast(&place, &["status", "ring", "-w", "-o", "json"]);
    ends(&output, 0, &["virtualcluster ring was deleted"]);
    let shown: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let reasons: Vec<&Value> = shown.iter().map(|seen| &seen["status"]["conditions"][0]["reason"]).collect();
    assert_eq!(reasons, ["Waiting", "Running"]);
}
