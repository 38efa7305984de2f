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
        (good, &["--source", "S", "--to", ""], &["--to: a name is empty"]),
        (good, &["--source", "S", "--to", "A,,S"], &["--to: a name is empty"]),
        (good, &["--source", "", "--to", "A"], &["--source"]),
        (
            "hosts: [S, A]\nlinks:\n- {a: S, b: A, mbps: 0}\n",
            &["--source", "S"],
            &["t.yaml:3: links[0].mbps: 0"],
        ),
        ("hosts:\n- S\n- {name: A, diskMbps: -1}\n", &["--source", "S"], &["t.yaml:3: hosts[1].diskMbps"]),
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
}

#[test]
fn what_is_far_too_large_is_refused_at_once() {
    let hosts = |count: usize| (0..count).map(|host| format!("h{host}")).collect::<Vec<_>>().join(",");
    let links = "{a: S, b: A, mbps: 1},\n".repeat(100_001);
    let mut bomb = "hosts:\n- &a [1,1,1,1,1,1,1,1,1]\n".to_owned();
    for (last, name) in ('a'..'l').zip('b'..'m') {
        bomb.extend(["- &", &name.to_string(), " [", &format!("*{last},").repeat(9), "]\n"]);
    }
    for (text, words) in [
        (format!("hosts: [{}]\nlinks: [{{]", hosts(20_001)), "hosts: more than 20000"),
        (
            format!("hosts: [{}]\nswitches: [{}]\n", hosts(12_000), hosts(8_001).replace('h', "s")),
            "20001 are listed",
        ),
        (format!("hosts: [S, A]\nlinks: [{links}]\n"), "links: more than 100000"),
        (format!("# {}\nhosts: [S, A]\n", "x".repeat(16 << 20)), "has more than 16777216 bytes"),
        (format!("{}hosts: [S, A]\nlink: []\n", "#\n".repeat(1_900_000)), "unknown field `link`"),
        (format!("hosts: [\"{}\"]\n", "x".repeat(15 << 20)), "hosts[0]"),
        (bomb, "t.yaml:2: hosts[0]"),
        (
            format!("hosts: [S, A]\nlinks:\n- &l {{a: S, b: A, mbps: 1}}\n{}", "- *l\n".repeat(50_000)),
            "links[101]: too many aliases",
        ),
        (format!("hosts: {}", "[".repeat(200_000)), "nested too deeply"),
        (format!("hosts: {}", "{a: ".repeat(200_000)), "t.yaml:1"),
        (format!("{{\"hosts\":{}{}}}", "[".repeat(90_000), "]".repeat(90_000)), "nested too deeply"),
    ] {
        let start = Instant::now();
        let refused = on("t.yaml", &text, &["--source", "S"]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(words) && said.len() < 1000, "{words}: {said}");
        // Of a program that is not optimized, on a busy machine; the release takes less than a second.
        assert!(start.elapsed() < Duration::from_secs(10), "{words}: {:?}", start.elapsed());
    }
}

#[test]
fn what_is_no_text_or_no_topology_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let file = directory.path().join(name);
        fs::write(&file, bytes).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let good = "hosts: [S, A]\nlinks:\n- {a: S, b: A, mbps: 5}\n";
    for (file, words) in [
        (directory.path().to_str().unwrap().to_owned(), &["cannot be read", "give the path of a file"][..]),
        ("/nowhere.yaml".to_owned(), &["/nowhere.yaml: cannot be read"]),
        (write("empty.yaml", b""), &["empty.yaml:1"]),
        (write("null.yaml", b"null\n"), &["null.yaml", "a mapping with `hosts`"]),
        (write("list.yaml", b"- a\n- b\n"), &["list.yaml", "a mapping with `hosts`"]),
        (
            write("utf8.yaml", b"hosts: [S, A]\nlinks:\n- {a: S, b: \xff, mbps: 5}\n"),
            &["utf8.yaml:3", "UTF-8"],
        ),
        (write("nul.yaml", b"hosts: [S, A]\nlinks:\n- {a: S, b: A\0, mbps: 5}\n"), &["nul.yaml:3: links[0]"]),
        (write("two.yaml", format!("{good}---\n{good}").as_bytes()), &["two.yaml:4", "a second document"]),
        (
            write("key.yaml", b"hosts: [S]\nlinks:\n- {a: S, b: S, mbps: 5, mbps: 6}\n"),
            &["key.yaml:3", "mbps"],
        ),
        (write("tab.yaml", b"hosts:\n\t- S\n"), &["tab.yaml:2"]),
        (write("name.yaml", b"hosts: [S, \"a b\"]\n"), &["name.yaml:1: hosts[1]", "`a b` is no name"]),
        (
            write("long.yaml", format!("hosts: [{}]\n", "x".repeat(300)).as_bytes()),
            &["long.yaml:1: hosts[0]"],
        ),
    ] {
        let refused = gridcast(&[&file, "--source", "S"]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{file}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{file}: {said}");
        assert!(refused.stdout.is_empty() && !said.contains("panicked"));
    }
}

#[test]
fn switches_without_hosts_carry_nothing_and_do_no_harm() {
    let text = "hosts: [S, A]\nswitches: [X, Y, Z, U, V, W]\nlinks:\n- {a: S, b: A, mbps: 5}\n- {a: X, b: Y, mbps: 5}\n\
                - {a: Y, b: Z, mbps: 5}\n- {a: Z, b: X, mbps: 5}\n- {a: S, b: U, mbps: 5}\n- {a: U, b: V, mbps: 5}\n\
                - {a: V, b: W, mbps: 5}\n- {a: W, b: U, mbps: 5}\n";
    for strategy in ["stable", "flat", "fpfr", "dijkstra", "chain"] {
        let plan = json(&on("t.yaml", text, &["--source", "S", "--strategy", strategy, "-o", "json"]));
        assert_eq!(plan["aggregateMbps"], 5.0, "{strategy}");
    }
    let svg = on("t.yaml", text, &["--source", "S", "-o", "svg"]);
    assert!(svg.status.success() && svg.stdout.ends_with(b"</svg>\n"));
}

#[test]
fn the_table_fits_whatever_names_and_numbers_there_are() {
    let name = |host: usize| format!("{}-{host:03}.cluster.example.org", "a-long-name".repeat(19));
    let links: String = (0..200)
        .map(|host| format!("- {{a: {}, b: X, mbps: {}}}\n", name(host), 1e6 - 1234.5 * host as f64))
        .collect::<Vec<_>>()
        .concat();
    let hosts = (0..200).map(name).collect::<Vec<_>>().join(",");
    let text = format!("hosts: [{hosts}, lost]\nswitches: [X]\nlinks:\n{links}");
    for strategy in ["stable", "dijkstra-earliest", "random"] {
        let arguments = ["--source", &name(0), "--partial", "--relay", "synchronous", "--strategy", strategy];
        let planned = on("t.yaml", &text, &arguments);
        assert_eq!(planned.status.code(), Some(0), "{}", String::from_utf8_lossy(&planned.stderr));
        let table = String::from_utf8(planned.stdout).unwrap();
        assert!(table.contains("cannot be reached: lost"), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
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
