//! What a local run that completes has done, as its user sees it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
};

use common::{Done, Place, manifest, script};
use serde_json::{Value, json};

const TWO: [(&str, u32, u32); 1] = [("n", 2, 1)];
const THREE: [(&str, u32, u32); 1] = [("n", 3, 1)];

#[track_caller]
fn complete(place: &Place, done: &Done) -> Value {
    let report = place.report();
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert_eq!(
        (&report["outcome"], &report["reason"], &report["message"], &report["exitCode"]),
        (&json!("Complete"), &json!(""), &json!(""), &json!(0))
    );
    place.nothing_left();
    report
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Times of the timeline that are there, in the order in which they must have come.
fn times(report: &Value) -> Vec<f64> {
    let names = ["created", "ready", "measured", "tuned", "staged", "launched", "firstRank", "finished"];
    names.iter().filter_map(|name| report["timeline"][name].as_f64()).collect()
}

#[test]
fn any_program_runs_on_groups_of_different_slots() {
    let place = Place::new();
    let groups = [("head", 1, 2), ("thin", 2, 1)];
    let done = place.run(&manifest(&groups, "run: {processes: 4, command: [hostname]}\n"), &[]);
    assert_eq!(done.lines(), ["m-head-0", "m-head-0", "m-thin-0", "m-thin-1"], "the program's output alone");
    assert!(done.stderr.contains("image i is not used"), "{}", done.stderr);
    let report = complete(&place, &done);
    assert_eq!(
        report["run"],
        json!({"exitCode": 0, "placement": [
            {"host": "m-head-0", "ranks": [0, 1]},
            {"host": "m-thin-0", "ranks": [2]},
            {"host": "m-thin-1", "ranks": [3]},
        ]})
    );
    let expected = ["outcome", "reason", "message", "exitCode", "name", "timeline", "run"].into();
    assert_eq!(keys(&report), expected, "steps that did not happen have no key");
    assert_eq!(keys(&report["timeline"]), ["created", "ready", "launched", "firstRank", "finished"].into());
}

#[test]
fn every_step_is_in_the_report() {
    let place = Place::new();
    place.write("in/a", vec![7; 300_000]);
    place.write("in/empty", "");
    let rest = format!(
        "network:\n  probe: {{policy: BeforeRun, count: 3, bandwidth: Pairs}}\n  tcp: {{mode: Apply}}\n\
         data:\n- {{name: d, mountPath: /data/d, source: {{node: {{path: {}}}}}}}\n{}",
        place.path("in").display(),
        script(2, "test -s /data/d/a && cat /data/d/empty")
    );
    let done = place.run(&manifest(&TWO, &rest), &[]);
    let report = complete(&place, &done);
    let order = times(&report);
    assert_eq!(order.len(), 8, "{report:#}");
    assert!(order.is_sorted(), "{order:?}");

    let network = &report["network"];
    assert_eq!(network["hosts"], json!(["m-n-0", "m-n-1"]));
    for matrix in [&network["rttMilliseconds"]["64"], &network["bandwidthMbps"]] {
        assert!(matrix[0][0].is_null() && matrix[1][1].is_null(), "{network:#}");
        assert!(matrix[0][1].as_f64().unwrap() > 0.0 && matrix[1][0].as_f64().unwrap() > 0.0, "{network:#}");
    }
    assert!(
        network["rttMilliseconds"]["64"][0][1].as_f64().unwrap() >= 0.2,
        "two links of 0.1 ms, there and back"
    );
    for matrix in [&network["jitterMilliseconds"]["64"], &network["lossPercent"]["64"]] {
        assert!(matrix[1][0].is_number(), "{network:#}");
    }
    assert!(
        place.path("report.bandwidth-mbps.csv").is_file() && place.path("report.rtt-ms-64.csv").is_file()
    );

    let settings = report["tcp"].as_array().unwrap();
    assert!(!settings.is_empty());
    assert!(settings.iter().all(|s| s["restored"] == true), "{settings:#?}");
    assert_eq!(settings.iter().map(|s| s["host"].as_str().unwrap()).collect::<BTreeSet<_>>().len(), 2);

    let data = &report["data"][0];
    assert_eq!(
        (&data["name"], &data["sizeBytes"], &data["files"]),
        (&json!("d"), &json!(300_000), &json!(2))
    );
    assert_eq!(data["nodes"].as_array().unwrap().len(), 1, "all but the source");
    assert_eq!((&data["nodes"][0]["name"], &data["nodes"][0]["verified"]), (&json!("m-n-1"), &json!(true)));
    let seconds = data["seconds"].as_f64().unwrap();
    assert!(seconds > 0.0 && seconds <= order[4] - order[3], "{seconds} of {order:?}");
    let rate = data["nodes"][0]["rateMbps"].as_f64().unwrap();
    assert!((rate - data["aggregateMbps"].as_f64().unwrap()).abs() < 1e-6, "{data:#}");
    assert!((rate * seconds - 2.4).abs() < 0.6, "rate x time is the size: {data:#}");
    assert!((data["boundMbps"].as_f64().unwrap() - 1000.0).abs() < 1e-6, "{data:#}");
}

#[test]
fn output_environment_and_directory_are_the_programs() {
    let place = Place::new();
    let rest = "run:\n  processes: 3\n  tagOutput: true\n  workingDirectory: /scratch/x\n  \
                environment: [{name: COLOUR, value: deep blue}]\n  \
                command: [sh, -c, 'echo $COLOUR; echo in $(pwd) >&2; touch mine; ls']\n";
    let done = place.run(&manifest(&THREE, rest), &[]);
    let lines = done.lines();
    assert_eq!(lines.len(), 6, "{lines:?}");
    for host in ["m-n-0", "m-n-1", "m-n-2"] {
        for text in ["deep blue", "mine"] {
            assert!(lines.iter().any(|l| l.contains(host) && l.ends_with(text)), "{host} {text}: {lines:?}");
        }
        let said = |l: &str| l.contains(host) && l.ends_with("in /scratch/x");
        assert!(done.stderr.lines().any(said), "{}", done.stderr);
    }
    complete(&place, &done);
}

#[test]
fn data_of_every_source_is_there_and_read_only() {
    let place = Place::new();
    let single = place.write("in/one.txt", "a single file\n");
    place.write("claim/sub/deep", "from a claim\n");
    let (port, server) = serve_once("from a server\n");
    let rest = format!(
        "data:\n\
         - {{name: one, mountPath: /data/one, source: {{node: {{path: {single}}}}}}}\n\
         - {{name: map, mountPath: /opt/m-map, source: {{configMap: {{name: settings}}}}}}\n\
         - {{name: secret, mountPath: /data/secret, source: {{secret: {{secretName: token}}}}}}\n\
         - {{name: claim, mountPath: /scratch/claim, source: {{persistentVolumeClaim: {{claimName: c, path: sub}}}}}}\n\
         - {{name: web, mountPath: /data/web, source: {{http: {{url: \"http://127.0.0.1:{port}/f.txt\"}}}}}}\n{}",
        script(
            2,
            "cat /data/one/one.txt /opt/m-map/a.nml /data/secret/key /scratch/claim/deep /data/web/f.txt; \
             touch /data/one/x /opt/m-map/x /data/secret/x /scratch/claim/x /data/web/x 2>/dev/null && echo WRITABLE; true"
        ),
        single = single.display(),
    );
    let text = manifest(&TWO, &rest)
        + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a.nml: \"&run /\\n\"}\n\
           ---\napiVersion: v1\nkind: Secret\nmetadata: {name: token}\nstringData: {key: \"sesame\\n\"}\n";
    let volume = format!("c={}", place.path("claim").display());
    let done = place.run(&text, &["--volume", &volume]);
    server.join().unwrap();
    let report = complete(&place, &done);
    let one = ["&run /", "a single file", "from a claim", "from a server", "sesame"];
    assert_eq!(done.lines(), one.iter().flat_map(|l| [*l, *l]).collect::<Vec<_>>());
    let names: Vec<&str> =
        report["data"].as_array().unwrap().iter().map(|d| d["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "map", "secret", "claim", "web"]);
    assert!(!fs::exists("/opt/m-map").unwrap(), "nothing is made on the machine's own root");
}

/// A server that answers one request.
fn serve_once(body: &'static str) -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        let length = body.len();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
            .unwrap();
    });
    (port, server)
}

#[test]
fn one_node_is_a_cluster_too() {
    let place = Place::new();
    place.write("in/a", "x\n");
    let rest = format!(
        "network: {{probe: {{policy: BeforeRun, count: 2, bandwidth: Pairs}}, tcp: {{mode: Apply}}}}\n\
         data:\n- {{name: d, mountPath: /data/d, source: {{node: {{path: {}}}}}}}\n{}",
        place.path("in").display(),
        script(3, "cat /data/d/a")
    );
    let done = place.run(&manifest(&[("n", 1, 3)], &rest), &[]);
    assert_eq!(done.out(), "x\nx\nx\n", "{}", done.stderr);
    let report = complete(&place, &done);
    assert_eq!(report["run"]["placement"], json!([{"host": "m-n-0", "ranks": [0, 1, 2]}]));
    assert_eq!(report["data"][0]["nodes"], json!([]));
}

#[test]
fn results_of_all_nodes_come_home() {
    let place = Place::new();
    let rest = "run:\n  processes: 3\n  workingDirectory: /scratch\n  \
                command: [sh, -c, 'mkdir -p out && echo $OMPI_COMM_WORLD_RANK > out/rank$OMPI_COMM_WORLD_RANK']\n  \
                collect: [{path: out, to: {persistentVolumeClaim: {claimName: results, path: run1}}}]\n";
    let volume = format!("results={}", place.path("results").display());
    let done = place.run(&manifest(&THREE, rest), &["--volume", &volume]);
    complete(&place, &done);
    for rank in 0..3 {
        let path = place.path("results/run1/out").join(format!("rank{rank}"));
        assert_eq!(fs::read_to_string(path).unwrap(), format!("{rank}\n"));
    }
}

#[test]
fn nodes_keep_to_themselves() {
    let place = Place::new();
    let rest = script(
        2,
        "cat /etc/hosts /proc/sys/kernel/hostname; ip -o link 2>/dev/null | wc -l >/dev/null; \
         for d in /data /scratch /dev/shm /m-new; do ls -A $d 2>/dev/null; mkdir -p $d; echo x > $d/$(hostname); done; \
         sleep 1; ls /data /scratch /dev/shm | grep m-n | sort | uniq -c",
    );
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let done = place.run(&manifest(&TWO, &rest), &[]);
    complete(&place, &done);
    let out = done.out();
    for host in ["m-n-0", "m-n-1"] {
        assert_eq!(out.lines().filter(|l| *l == host).count(), 1, "its own name: {out}");
        assert_eq!(
            out.lines().filter(|l| l.trim() == format!("3 {host}")).count(),
            1,
            "its files alone: {out}"
        );
        assert_eq!(
            out.lines().filter(|l| l.starts_with("10.42.1.") && l.ends_with(host)).count(),
            2,
            "{out}"
        );
    }
    assert_eq!(out.lines().count(), 2 + 2 + 2 * 3, "empty at the start: {out}");
    assert_eq!(fs::read_to_string("/proc/sys/kernel/hostname").unwrap(), machine);
    assert!(!fs::exists("/m-new").unwrap() && !fs::exists("/scratch/m-n-0").unwrap());
    assert!(!fs::exists("/dev/shm/m-n-0").unwrap());
}

/// From the 65th host on by default: then daemons start daemons, and everything must cross from worker to worker.
#[test]
fn a_radix_in_the_environment_makes_workers_start_their_fellows() {
    let place = Place::new();
    let rest = "run:\n  processes: 5\n  tagOutput: true\n  command: [sh, -c, \"ps -eo args | grep -c \
                '^/gridcast/bin/gridcast-starter exec' || true\"]\n  environment:\n  - {name: \
                OMPI_MCA_routed_radix, value: \"2\"}\n  - {name: PRTE_MCA_routed_radix, value: \"2\"}\n";
    let done = place.run(&manifest(&[("n", 5, 1)], rest), &[]);
    complete(&place, &done);
    let lines = done.lines();
    let started = |node: &str| -> u32 {
        let line = lines.iter().find_map(|line| line.strip_prefix(&format!("{node}: "))).unwrap();
        line.parse().unwrap()
    };
    assert_eq!(started("m-n-0"), 2, "{lines:?}");
    let by_workers: u32 = (1..5).map(|index| started(&format!("m-n-{index}"))).sum();
    assert_eq!(by_workers, 2, "{lines:?}");
}
