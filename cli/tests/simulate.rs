//! Does `gridcast simulate` say what its documents promise, to people and to scripts?

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

use std::process::{Command, Output};

use serde_json::{Value, json};

/// The example of the documents.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/two-switches.yaml");

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gridcast")).arg("simulate").args(arguments).output().unwrap()
}

/// One gigabyte on the example.
fn example(arguments: &[&str]) -> Output {
    simulate(&[&[EXAMPLE, "--source", "S", "--size", "1GB"], arguments].concat())
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The JSON, which holds to the schema, of a command that ends so.
fn told(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema: Value = serde_json::from_str(include_str!("../../docs/simulate.schema.json")).unwrap();
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&told)
        .map(|error| error.to_string())
        .collect();
    assert_eq!(errors, Vec::<String>::new());
    told
}

fn node<'a>(told: &'a Value, name: &str) -> &'a Value {
    let nodes = told["strategies"][0]["nodes"].as_array().unwrap();
    nodes.iter().find(|node| node["name"] == name).unwrap()
}

#[test]
fn the_json_is_the_contract() {
    let output = example(&["-o", "json"]);
    let told = told(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(r#"{"sizeBytes":1000000000,"boundMbps":2000.0,"strategies":[{"strategy":"stable","relay":"asynchronous","aggregateMbps":"#));
    // Keys in their order; those that are not in the contract come behind.
    let places: Vec<usize> = ["aggregateMbps", "seconds", "duplicateBytes", "nodes", "wastedBytes"]
        .iter()
        .map(|key| text.find(&format!("\"{key}\":")).unwrap())
        .collect();
    assert!(places.is_sorted(), "{text}");
    assert!(text.contains(r#""nodes":[{"name":"A","seconds":"#));
    let strategy = &told["strategies"][0];
    assert_eq!(strategy["duplicateBytes"], 0);
    assert!(strategy["aggregateMbps"].as_f64().unwrap() > 1980.0);
    // Each host at its own rate: size / rate, and little more.
    for (name, seconds) in [("A", 8.0), ("B", 80.0), ("C", 13.333), ("D", 26.667)] {
        let took = node(&told, name)["seconds"].as_f64().unwrap();
        assert!((seconds..seconds * 1.02).contains(&took), "{name} {took}");
    }
    // What B does not get through its link of 100 Mbit/s does not come.
    let link = strategy["links"].as_array().unwrap().iter().find(|link| link["a"] == "B").unwrap();
    assert_eq!(link["backBytes"], 1_000_000_000);
}

#[test]
fn the_same_call_gives_the_same_bytes() {
    let run =
        || example(&["-o", "json", "--strategy", "all", "--seed", "7", "--fault", "at=3s kill=B"]).stdout;
    assert_eq!(run(), run());
}

#[test]
fn all_strategies_are_compared() {
    let told = told(&example(&["-o", "json", "--strategy", "all", "--relay", "synchronous"]), 0);
    let strategies = told["strategies"].as_array().unwrap();
    let names: Vec<&Value> = strategies.iter().map(|strategy| &strategy["strategy"]).collect();
    let all = ["stable", "flat", "random", "depth-first", "fpfr", "dijkstra", "dijkstra-earliest", "chain"];
    assert_eq!(names, all);
    let stable = strategies[0]["aggregateMbps"].as_f64().unwrap();
    for strategy in strategies {
        assert_eq!(strategy["relay"], "synchronous");
        assert!(strategy["aggregateMbps"].as_f64().unwrap() <= stable * 1.001, "{strategy}");
    }
}

#[test]
fn who_is_killed_is_named_and_the_others_have_everything() {
    let told = told(&example(&["-o", "json", "--fault", "at=3s kill=B"]), 0);
    assert_eq!(node(&told, "B")["seconds"], Value::Null);
    assert!(node(&told, "B")["failed"].is_string());
    assert!(["A", "C", "D"].iter().all(|name| node(&told, name)["seconds"].is_number()));
    assert_eq!(told["faults"], json!([{"seconds": 3.0, "fault": "kill=B"}]));
}

#[test]
fn a_survivor_without_all_data_is_exit_code_1_and_named_with_the_reason() {
    let output = example(&["-o", "json", "--fault", "at=3s cut=X,Y"]);
    let text = said(&output);
    assert!(text.contains("`C`, `D`: no way leads to it"), "{text}");
    let told = told(&output, 1);
    assert!(node(&told, "C")["failed"].is_string() && node(&told, "A")["seconds"].is_number());
    let lost = example(&["--fault", "at=1s kill=S"]);
    assert_eq!(lost.status.code(), Some(1));
    assert!(said(&lost).contains("lost with hosts that are gone"), "{}", said(&lost));
}

#[test]
fn every_kind_of_fault_is_carried_out() {
    for fault in [
        "at=3s kill=B",
        "at=3s full=B",
        "at=3s spoil=B",
        "at=3s slow=B,50",
        "at=3s link=X,Y,200",
        "at=0.5s join=D",
        "at=250ms cut=Y,C",
    ] {
        let to: &[&str] = if fault.contains("join") { &["--to", "A,B"] } else { &[] };
        let healed: &[&str] = match fault {
            "at=3s kill=B" => &["--fault", "at=5s back=B"],
            "at=250ms cut=Y,C" => &["--fault", "at=5s heal=C,Y"],
            _ => &[],
        };
        let output = example(&[&["-o", "json", "--fault", fault], to, healed].concat());
        let told = told(&output, 0);
        for node in told["strategies"][0]["nodes"].as_array().unwrap() {
            assert!(node["seconds"].is_number() || fault.contains("full"), "{fault}: {node}");
        }
        if fault.contains("join") {
            assert_eq!(node(&told, "D")["joinedSeconds"], 0.5);
        }
    }
}

#[test]
fn the_table_fits_and_names_who_fails() {
    let long = |host: usize| format!("{}-{host:03}.cluster.example.org", "a-long-name".repeat(8));
    let hosts: Vec<String> = (0..200).map(long).collect();
    let links: Vec<Value> = hosts.iter().map(|host| json!({"a": host, "b": "X", "mbps": 100})).collect();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.json");
    let text = json!({"hosts": hosts, "switches": ["X"], "links": links}).to_string();
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let kill = format!("at=1s kill={}", hosts[17]);
    for arguments in
        [&["--chunk", "100MB"][..], &["--chunk", "100MB", "--strategy", "all"], &["--fault", &kill]]
    {
        let call = [&[file, "--source", &hosts[0], "--size", "1GB"], arguments].concat();
        let output = simulate(&call);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
        assert_eq!(table.contains("never"), arguments.contains(&kill.as_str()), "{table}");
    }
}

#[test]
fn the_chart_has_a_mark_for_each_host_and_strategy() {
    for (arguments, marks) in [(&[][..], 4), (&["--strategy", "all"], 4 * 8)] {
        let output = example(&[arguments, &["-o", "svg", "--fault", "at=2s slow=A,500"]].concat());
        assert_eq!(output.status.code(), Some(0));
        let svg = String::from_utf8(output.stdout).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("slow=A,500"));
        // One more of each in the legend.
        assert_eq!(svg.matches("stroke-width=\"0.7\"").count(), marks + marks / 4);
    }
}

#[test]
fn wrong_input_is_exit_code_2_and_names_the_field() {
    for (arguments, words) in [
        (&["--fault", "kill=B"][..], &["--fault", "at=3s"][..]),
        (&["--fault", "at=3 kill=B"], &["--fault", "no time"]),
        (&["--fault", "at=nans kill=B"], &["--fault", "no time"]),
        (&["--fault", "at=3s eat=B"], &["--fault", "no fault"]),
        (&["--fault", "at=3s kill=Q"], &["--fault", "`Q`"]),
        (&["--fault", "at=3s kill=X"], &["--fault", "`X`"]),
        (&["--fault", "at=3s cut=A,B"], &["--fault", "no link joins"]),
        (&["--fault", "at=3s slow=A,1e300"], &["--fault", "no rate"]),
        (&["--fault", "at=3s link=X,Y,0"], &["--fault", "no rate"]),
        (&["--fault", ""], &["--fault"]),
        (&["--to", ""], &["--to"]),
        (&["--to", "A,,B"], &["--to", "empty"]),
        (&["--to", "S"], &["--to", "`S` is the source"]),
        (&["--to", "Q"], &["--to", "`Q`"]),
        (&["--chunk", "1B"], &["--chunk", "too many"]),
        (&["--chunk", "0"], &["--chunk"]),
        (&["--strategy", "best"], &["--strategy"]),
    ] {
        let output = example(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(output.stdout.is_empty());
        assert!(words.iter().all(|word| said(&output).contains(word)), "{arguments:?}: {}", said(&output));
    }
    for size in ["0", "-1GB", "1e99", "10 parsecs", "", "2000TB", "NaN"] {
        let output = simulate(&[EXAMPLE, "--source", "S", &format!("--size={size}")]);
        assert_eq!(output.status.code(), Some(2), "{size}");
        assert!(said(&output).contains("--size"), "{}", said(&output));
    }
    let ages = simulate(&[EXAMPLE, "--source", "S", "--size", "1TB", "--fault", "at=1s link=X,Y,0.001"]);
    assert_eq!(ages.status.code(), Some(2));
    assert!(
        said(&ages).contains("--fault: the data needs 92593 days with link=X,Y,0.001"),
        "{}",
        said(&ages)
    );
    let slow = simulate(&[EXAMPLE, "--source", "S", "--size", "1000TB"]);
    assert_eq!(slow.status.code(), Some(2));
    assert!(said(&slow).contains("--size: the data needs 926 days to `B`"), "{}", said(&slow));
}

#[test]
fn who_cannot_be_reached_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.yaml");
    std::fs::write(&file, "{hosts: [S, A, B], links: [{a: S, b: A, mbps: 5}]}").unwrap();
    let output = simulate(&[file.to_str().unwrap(), "--source", "S", "--size", "1MB"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty() && said(&output).contains("`B` cannot be reached from `S`"));
}
