//! Does `gridcast plan` say what its documents promise, to people and to scripts?

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    time::{Duration, Instant},
};

use serde_json::Value;

/// The example of the documents.
fn example() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/two-switches.yaml").to_owned()
}

fn gridcast(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gridcast")).arg("plan").args(arguments).output().unwrap()
}

/// What is planned on this text, as a file.
fn on(name: &str, text: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file: PathBuf = directory.path().join(name);
    fs::write(&file, text).unwrap();
    gridcast(&[&[file.to_str().unwrap()], arguments].concat())
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_json_is_the_contract_and_the_schema_holds() {
    let schema: Value = serde_json::from_str(include_str!("../../docs/plan.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let all = ["stable", "flat", "random", "depth-first", "fpfr", "dijkstra", "dijkstra-earliest", "chain"];
    for strategy in all {
        for relay in ["asynchronous", "synchronous"] {
            let plan = json(&gridcast(&[
                &example(),
                "--source",
                "S",
                "--strategy",
                strategy,
                "--relay",
                relay,
                "-o",
                "json",
            ]));
            assert!(validator.is_valid(&plan), "{plan}");
            assert_eq!((&plan["strategy"], &plan["relay"]), (&strategy.into(), &relay.into()));
        }
    }
    let plan = json(&gridcast(&[&example(), "--source", "S", "-o", "json"]));
    let keys: Vec<&str> = plan.as_object().unwrap().keys().map(String::as_str).collect();
    let wanted = [
        "source",
        "strategy",
        "relay",
        "boundMbps",
        "aggregateMbps",
        "planMilliseconds",
        "destinations",
        "trees",
    ];
    assert_eq!(keys, wanted);
    assert_eq!(
        plan["destinations"][0],
        serde_json::json!({"name": "A", "rateMbps": 1000.0, "boundMbps": 1000.0})
    );
    let hop = serde_json::json!({"from": "S", "to": "A", "path": ["S", "X", "A"]});
    assert_eq!((&plan["trees"][0]["hops"][0], &plan["trees"][0]["rateMbps"]), (&hop, &100.0.into()));
    assert!(plan["planMilliseconds"].as_f64().unwrap() < 1000.0);
}

#[test]
fn only_those_asked_for_receive() {
    let plan = json(&gridcast(&[&example(), "--source", "B", "--to", "D,A", "-o", "json"]));
    let names: Vec<&Value> =
        plan["destinations"].as_array().unwrap().iter().map(|arrival| &arrival["name"]).collect();
    assert_eq!(names, ["A", "D"]);
}

#[test]
fn what_cannot_be_reached_is_named_or_left_out() {
    let text = "{hosts: [S, A, B, C], links: [{a: S, b: A, mbps: 5}, {a: B, b: C, mbps: 5}]}";
    let refused = on("t.yaml", text, &["--source", "S"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.stdout.is_empty() && said.contains("`B`, `C` cannot be reached from `S`"), "{said}");
    let plan = json(&on("t.yaml", text, &["--source", "S", "--partial", "-o", "json"]));
    assert_eq!(plan["unreachable"], serde_json::json!(["B", "C"]));
    let nobody = on("t.yaml", text, &["--source", "S", "--to", "B", "--partial"]);
    assert_eq!(nobody.status.code(), Some(1));
}

#[test]
fn wrong_input_names_file_line_and_field() {
    let good = "hosts: [S, A]\nlinks:\n- {a: S, b: A, mbps: 5}\n";
    for (text, arguments, words) in [
        (good, &["--source", "Q"][..], &["source `Q`"][..]),
        (good, &["--source", "S", "--to", "S"], &["`S` is the source"]),
        (good, &["--source", "S", "--to", "A,A"], &["`A` is named twice"]),
        (good, &["--source", "S", "--to", ""], &["--to"]),
        (good, &["--source", "S", "--to", "x"], &["`x` is no host"]),
        ("hosts: [S]\n", &["--source", "S"], &["t.yaml", "none but the source"]),
        (
            "hosts: [S, A]\nlinks:\n- {a: S, b: A, mbps: -5}\n",
            &["--source", "S"],
            &["t.yaml:3: links[0].mbps"],
        ),
        (
            "hosts: [S, A]\nlinks:\n- {a: S, b: A, mbps: .nan}\n",
            &["--source", "S"],
            &["t.yaml:3: links[0].mbps"],
        ),
        (
            "hosts: [S, A]\nlinks:\n- {a: S, b: A, mbps: 1e99}\n",
            &["--source", "S"],
            &["t.yaml:3: links[0].mbps"],
        ),
        ("hosts: [S, A]\nlinks:\n- {a: S, b: S, mbps: 5}\n", &["--source", "S"], &["t.yaml:3: links[0].b"]),
        (
            "hosts: [S, A]\nlinks:\n- {a: S, b: Z, mbps: 5}\n",
            &["--source", "S"],
            &["t.yaml:3: links[0].b", "`Z`"],
        ),
        ("hosts:\n- S\n- A\n- S\n", &["--source", "S"], &["t.yaml:4: hosts[2]", "`S`"]),
        (
            "hosts: [S, A]\nlinks: [{a: S, b: A}]\n",
            &["--source", "S"],
            &["t.yaml:2: links[0]: missing field `mbps`"],
        ),
        ("hosts: {", &["--source", "S"], &["t.yaml"]),
    ] {
        let start = Instant::now();
        let refused = on("t.yaml", text, arguments);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{text}: {said}");
        assert!(refused.stdout.is_empty() && start.elapsed() < Duration::from_secs(1));
        assert!(words.iter().all(|word| said.contains(word)), "{text}: {said}");
    }
    assert_eq!(gridcast(&["/nowhere.yaml", "--source", "S"]).status.code(), Some(2));
}

#[test]
fn what_is_far_too_large_is_refused_at_once() {
    let hosts = |count: usize| (0..count).map(|host| format!("h{host},")).collect::<String>();
    let links = "{a: S, b: A, mbps: 1},\n".repeat(100_001);
    let bomb = "x: &a [1,1,1,1,1,1,1,1,1]\n".to_owned()
        + &(b'b'..b'm')
            .map(|c| {
                format!("y{}: &{} [{}]\n", c as char, c as char, format!("*{},", (c - 1) as char).repeat(9))
            })
            .collect::<String>();
    for text in [
        format!("hosts: [{}]\n", hosts(20_001)),
        format!("hosts: [S, A]\nlinks: [{links}]\n"),
        format!("# {}\nhosts: [S, A]\n", "x".repeat(17 << 20)),
        bomb,
    ] {
        let start = Instant::now();
        let refused = on("t.yaml", &text, &["--source", "S"]);
        assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
        // Of an unoptimized program on a busy machine; the release takes less than a second.
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}

#[test]
fn the_same_network_in_another_order_has_the_same_plan() {
    let other = "{\"links\":[{\"b\":\"S\",\"a\":\"X\",\"mbps\":1000},{\"a\":\"D\",\"b\":\"Y\",\"mbps\":300},{\"a\":\"C\",\"b\":\"Y\",\"mbps\":1000},\
                 {\"a\":\"Y\",\"b\":\"X\",\"mbps\":600},{\"a\":\"B\",\"b\":\"X\",\"mbps\":60},{\"a\":\"X\",\"b\":\"B\",\"mbps\":40},\
                 {\"a\":\"A\",\"b\":\"X\",\"mbps\":1000}],\"switches\":[\"Y\",\"X\"],\"hosts\":[\"D\",\"C\",\"B\",\"A\",\"S\"]}";
    let without_time = |output: &Output| {
        let mut plan = json(output);
        plan.as_object_mut().unwrap().remove("planMilliseconds");
        plan.to_string()
    };
    let one = gridcast(&[&example(), "--source", "S", "-o", "json"]);
    let two = on("t.json", other, &["--source", "S", "-o", "json"]);
    assert_eq!(without_time(&one), without_time(&two));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let script =
        format!("{} plan {} --source S -o svg | head -c 1", env!("CARGO_BIN_EXE_gridcast"), example());
    let done = Command::new("bash").args(["-o", "pipefail", "-c", &script]).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
}
