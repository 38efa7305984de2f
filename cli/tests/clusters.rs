//! Clusters that stay: `up`, `ps`, `exec`, `down`, `clean`; and several of them at once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{fs, process::Stdio};

use common::{Place, Running, kill_hard, manifest, script};
use nix::sys::signal::Signal;

const THREE: [(&str, u32, u32); 1] = [("n", 3, 2)];
const TWO: [(&str, u32, u32); 1] = [("n", 2, 1)];

fn up(place: &Place, groups: &[(&str, u32, u32)]) {
    let done = place.start_up(&manifest(groups, &script(2, "echo ignored")), &[]).end();
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert_eq!(done.out(), "");
}

fn down(place: &Place) {
    let done = place.on_state("down", &[]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    place.nothing_left();
}

/// The keeper of the only cluster.
fn keeper(place: &Place) -> i32 {
    let found =
        place.processes().into_iter().find(|(_, a)| a.get(1..3) == Some(&["local".into(), "keep".into()]));
    found.expect("a keeper").0
}

fn exec(place: &Place, command: &[&str]) -> common::Done {
    place.on_state("exec", &[&["m-n-0", "--"], command].concat())
}

#[test]
fn a_cluster_stays_until_it_is_taken_down() {
    let place = Place::new();
    let rest =
        format!("network: {{probe: {{policy: Never}}, tcp: {{mode: Apply}}}}\n{}", script(2, "echo ignored"));
    let done = place.start_up(&manifest(&THREE, &rest), &[]).end();
    assert_eq!((done.code(), done.out().as_str()), (0, ""), "{}", done.stderr);
    let report = place.report();
    assert_eq!((&report["outcome"], &report["run"]), (&"Complete".into(), &serde_json::Value::Null));
    assert!(
        report["timeline"]["tuned"].is_number() && report["timeline"]["launched"].is_null(),
        "{report:#}"
    );

    let ps = place.on_state("ps", &[]).out();
    for word in ["m ", "up", "ready", "m-n-0=10.42.1.1", "m-n-2=10.42.1.3"] {
        assert!(ps.contains(word), "{word} is not in {ps}");
    }
    let second = place.start_up(&manifest(&THREE, ""), &[]).end();
    assert_eq!(second.code(), 2);
    assert!(second.stderr.contains("metadata.name") && second.stderr.contains("down"), "{}", second.stderr);

    // Round-robin over nodes by slots, without options.
    let ran = exec(&place, &["mpirun.openmpi", "-np", "4", "hostname"]);
    assert_eq!(ran.lines(), ["m-n-0", "m-n-0", "m-n-1", "m-n-1"], "{}", ran.stderr);
    assert_eq!(exec(&place, &["sh", "-c", "exit 7"]).code(), 7);
    assert_eq!(exec(&place, &["sh", "-c", "kill -KILL $$"]).code(), 137);
    let unknown = place.on_state("exec", &["m-n-9", "--", "true"]);
    assert_eq!(unknown.code(), 2);
    assert!(unknown.stderr.contains("m-n-9") && unknown.stderr.contains("m-n-2"), "{}", unknown.stderr);
    let absent = exec(&place, &["/no/such/program"]);
    assert!(
        absent.code() != 0 && absent.stderr.contains("/no/such/program"),
        "{} {}",
        absent.code(),
        absent.stderr
    );
    assert_eq!(place.on_state("exec", &["--name", "x", "m-n-0", "--", "true"]).code(), 2);
    down(&place);
    let report = place.report();
    let settings = report["tcp"].as_array().unwrap();
    assert!(settings.iter().all(|s| s["restored"] == true), "{settings:#?}");
    assert_eq!(place.on_state("down", &[]).code(), 2, "there is none any more");
}

#[test]
fn of_two_clusters_of_one_name_one_comes_up() {
    let place = Place::new();
    let text = manifest(&TWO, "");
    let both = [place.start_up(&text, &[]), place.start_up(&text, &[])];
    let mut codes = both.map(|up| up.end().code());
    codes.sort_unstable();
    assert_eq!(codes, [0, 2]);
    down(&place);
}

#[test]
fn exec_carries_input_output_and_signals() {
    let place = Place::new();
    up(&place, &TWO);
    let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut command = place.state_command("exec", &["m-n-1", "--", "cat"]);
    command.stdin(Stdio::piped());
    let mut cat = Running::start(command);
    cat.feed(&bytes);
    let done = cat.end();
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert!(done.stdout == bytes, "{} bytes of {} came back", done.stdout.len(), bytes.len());

    let here = exec(&place, &["sh", "-c", "pwd; hostname; echo err >&2"]);
    let expected = format!("{}\nm-n-0\n", place.path("").display().to_string().trim_end_matches('/'));
    assert_eq!((here.out(), here.stderr.as_str()), (expected, "err\n"));

    for (signal, code) in [(Signal::SIGINT, 42), (Signal::SIGTERM, 43)] {
        let script = "trap 'exit 42' INT; trap 'exit 43' TERM; echo ready >&2; while :; do sleep 0.05; done";
        let run = Running::start(place.state_command("exec", &["m-n-0", "--", "sh", "-c", script]));
        run.said("ready");
        run.signal_group(signal);
        assert_eq!(run.end().code(), code);
    }
    down(&place);
}

#[test]
fn up_that_is_stopped_leaves_nothing() {
    let place = Place::new();
    let probed = "network: {probe: {policy: BeforeRun, count: 1000, bandwidth: Pairs}}\n";
    let up = place.start_up(&manifest(&THREE, probed), &[]);
    up.said("round-trip times");
    up.signal_group(Signal::SIGINT);
    assert_eq!(up.end().code(), 130);
    assert_eq!(place.report()["outcome"], "Interrupted");
    place.nothing_left();

    // Killed, it takes its keeper along, which undoes what it has done.
    let up = place.start_up(&manifest(&THREE, probed), &[]);
    up.said("round-trip times");
    kill_hard(up.pid());
    up.end();
    place.nothing_left();
}

#[test]
fn a_keeper_that_is_killed_takes_its_cluster_along() {
    let place = Place::new();
    up(&place, &TWO);
    kill_hard(keeper(&place));
    place.no_process_left();
    let ps = place.on_state("ps", &[]).out();
    assert!(ps.contains("dead"), "{ps}");
    let exec = exec(&place, &["true"]);
    assert_eq!(exec.code(), 2);
    assert!(exec.stderr.contains("clean"), "{}", exec.stderr);
    assert_eq!(place.on_state("clean", &[]).code(), 0);
    place.nothing_left();
}

#[test]
fn a_loss_is_noted_and_the_rest_goes_on() {
    let place = Place::new();
    up(&place, &THREE);
    let noted = |count: usize| loop {
        let ps = place.on_state("ps", &[]).out();
        if ps.matches("lost:").count() == count {
            return ps;
        }
    };
    kill_hard(place.agent("m-n-1"));
    let ps = noted(1);
    assert!(ps.contains("degraded") && ps.contains("m-n-1: its agent is gone"), "{ps}");
    // Programs need no agent.
    let ran = exec(&place, &["mpirun.openmpi", "-np", "6", "hostname"]);
    assert_eq!(ran.lines(), ["m-n-0", "m-n-0", "m-n-1", "m-n-1", "m-n-2", "m-n-2"], "{}", ran.stderr);
    kill_hard(place.starter("m-n-2"));
    let ps = noted(2);
    assert!(ps.contains("m-n-2: its first process"), "{ps}");
    let ran = exec(&place, &["mpirun.openmpi", "--host", "m-n-0:2,m-n-1:2", "-np", "4", "hostname"]);
    assert_eq!(ran.lines(), ["m-n-0", "m-n-0", "m-n-1", "m-n-1"], "{}", ran.stderr);
    let gone = place.on_state("exec", &["m-n-2", "--", "true"]);
    assert_eq!(gone.code(), 1);
    assert!(gone.stderr.contains("m-n-2"), "{}", gone.stderr);
    down(&place);
}

#[test]
fn two_runs_of_one_manifest_do_not_disturb_each_other() {
    let place = Place::new();
    // One that was killed, for the others to remove.
    let killed = place.start(&manifest(&TWO, &script(2, "sleep 1000")), &[]);
    place.process(&["sleep", "1000"]);
    kill_hard(killed.pid());
    killed.end();

    let text = manifest(&TWO, &script(2, "sleep 2; hostname; cat /proc/sys/net/ipv4/tcp_rmem > /scratch/x"));
    let first = place.start(&text, &[]);
    let mut other = place.gridcast(&["local", "run", "-f", "manifest.yaml", "--state-dir", "state"]);
    other.args(["--report", "other.json"]);
    let second = Running::start(other);
    place.process(&["sleep", "2"]);
    assert_eq!(place.on_state("clean", &[]).code(), 0);
    for run in [first, second] {
        let done = run.end();
        assert_eq!(
            (done.code(), done.lines()),
            (0, vec!["m-n-0".to_owned(), "m-n-1".to_owned()]),
            "{}",
            done.stderr
        );
    }
    for report in ["report.json", "other.json"] {
        assert!(fs::read_to_string(place.path(report)).unwrap().contains("Complete"));
    }
    place.nothing_left();
}

#[test]
fn kept_files_stay_until_clean() {
    let place = Place::new();
    let done = place.run(&manifest(&TWO, &script(2, "hostname > /scratch/who")), &["--keep"]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    place.no_process_left();
    let run = fs::read_dir(place.path("state/runs")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_to_string(run.join("nodes/m-n-1/scratch/who")).unwrap(), "m-n-1\n");
    assert!(!run.join("keys").exists(), "keys are not kept");
    let ps = place.on_state("ps", &[]).out();
    assert!(ps.contains("kept"), "{ps}");
    // Another run leaves them alone.
    assert_eq!(place.run(&manifest(&TWO, &script(2, "true")), &[]).code(), 0);
    assert!(run.exists());
    assert_eq!(place.on_state("clean", &[]).code(), 0);
    place.nothing_left();
}

#[test]
fn what_up_keeps_is_kept_after_down() {
    let place = Place::new();
    let done = place.start_up(&manifest(&TWO, ""), &["--keep"]).end();
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert_eq!(exec(&place, &["sh", "-c", "echo x > /data/mine"]).code(), 0);
    assert_eq!(place.on_state("down", &[]).code(), 0);
    place.no_process_left();
    let run = fs::read_dir(place.path("state/runs")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_to_string(run.join("nodes/m-n-0/data/mine")).unwrap(), "x\n");
    assert_eq!(place.on_state("clean", &[]).code(), 0);
    place.nothing_left();
}

#[test]
fn exec_reaches_a_run_while_it_runs() {
    let place = Place::new();
    let run = place.start(&manifest(&TWO, &script(2, "touch /scratch/here; sleep 1000")), &[]);
    place.process(&["sleep", "1000"]);
    let ps = place.on_state("ps", &[]).out();
    assert!(ps.contains("running"), "{ps}");
    assert_eq!(exec(&place, &["test", "-e", "/scratch/here"]).code(), 0);
    run.signal(Signal::SIGINT);
    assert_eq!(run.end().code(), 130);
    place.nothing_left();
}
