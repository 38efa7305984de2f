//! What goes wrong in a local run ends with the right code, a report that says where, and nothing left behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{fs, os::unix::fs::PermissionsExt as _, process::Stdio};

use common::{Done, Place, Running, kill_hard, manifest, script, topology};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const TWO: [(&str, u32, u32); 1] = [("n", 2, 1)];
const THREE: [(&str, u32, u32); 1] = [("n", 3, 1)];
/// At 10 Mbit/s this dataset takes several seconds.
const SLOW_MBPS: f64 = 10.0;
const SLOW_BYTES: usize = 8 << 20;

/// Bytes that no compression and no hole detection shortens.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    (0..bytes).map(|_| next()).collect()
}

/// A manifest with one dataset, `in/big`, and the arguments that make its staging slow.
fn slow(place: &Place, groups: &[(&str, u32, u32)], rest: &str) -> (String, [&'static str; 2]) {
    place.write("in/big", noise(SLOW_BYTES));
    let hosts: Vec<String> = (0..groups[0].1).map(|i| format!("m-n-{i}")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    place.write("topology.yaml", topology(&hosts, SLOW_MBPS));
    (manifest(groups, &format!("{}{rest}", data(place))), ["--topology", "topology.yaml"])
}

fn data(place: &Place) -> String {
    format!(
        "data:\n- {{name: d, mountPath: /data/d, source: {{node: {{path: {}}}}}}}\n",
        place.path("in").display()
    )
}

fn staging(run: &Running) {
    run.said("outside holes");
}

/// `sleep` is there as soon as a rank is.
fn sleeping(place: &Place, manifest: &str) -> Running {
    let run = place.start(manifest, &[]);
    place.process(&["sleep", "1000"]);
    run
}

fn sleepers(processes: u32) -> String {
    format!("run: {{processes: {processes}, command: [sleep, \"1000\"]}}\n")
}

#[test]
fn a_program_that_fails_gives_its_code() {
    let place = Place::new();
    let program = script(3, "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exit 3; fi; sleep 1000");
    let done = place.run(&manifest(&THREE, &program), &[]);
    let report = place.failed(&done, "RankFailed", &["rank 1", "m-n-1", "code 3"]);
    assert_eq!((&report["exitCode"], &report["run"]["exitCode"]), (&3.into(), &3.into()));
    place.nothing_left();
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let place = Place::new();
    let done = place.run(&manifest(&TWO, "run: {processes: 2, command: [/no/such/program]}\n"), &[]);
    place.failed(&done, "ProgramNotFound", &["/no/such/program", "m-n-"]);
    place.nothing_left();
}

#[test]
fn a_program_that_cannot_be_executed_is_named() {
    let place = Place::new();
    let program = place.write("plain", "not a program\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    let rest = format!("run: {{processes: 2, command: [{}]}}\n", program.display());
    let done = place.run(&manifest(&TWO, &rest), &[]);
    place.failed(&done, "NotExecutable", &["plain", "m-n-"]);
    place.nothing_left();
}

#[test]
fn a_rank_killed_from_outside_is_named() {
    let place = Place::new();
    let program = script(2, "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec sleep 999; fi; exec sleep 1000");
    let run = place.start(&manifest(&TWO, &program), &[]);
    kill_hard(place.process(&["sleep", "999"]));
    let report = place.failed(&run.end(), "RankKilled", &["rank 1", "m-n-1", "signal 9"]);
    assert_eq!(report["exitCode"], 137);
    place.nothing_left();
}

#[test]
fn a_rank_that_crashes_is_named() {
    let place = Place::new();
    let program = script(2, "if [ $OMPI_COMM_WORLD_RANK = 0 ]; then kill -SEGV $$; fi; exec sleep 1000");
    let report = place.failed(
        &place.run(&manifest(&TWO, &program), &[]),
        "RankKilled",
        &["rank 0", "m-n-0", "signal 11"],
    );
    assert_eq!(report["exitCode"], 139);
    place.nothing_left();
}

#[test]
fn a_launcher_that_is_killed_takes_its_ranks_along() {
    let place = Place::new();
    let run = sleeping(&place, &manifest(&TWO, &sleepers(2)));
    kill_hard(place.process(&["mpirun.openmpi", "--hostfile"]));
    let report = place.failed(&run.end(), "LauncherKilled", &["mpirun.openmpi", "m-n-0", "signal 9"]);
    assert_eq!(report["exitCode"], 137);
    place.nothing_left();
}

#[test]
fn an_agent_that_dies_while_data_is_staged_is_named() {
    let place = Place::new();
    let (text, topology) = slow(&place, &THREE, "");
    let run = place.start(&text, &topology);
    staging(&run);
    kill_hard(place.agent("m-n-1"));
    let report = place.failed(&run.end(), "AgentLost", &["m-n-1"]);
    assert_eq!(report["data"], serde_json::Value::Null, "nothing was staged");
    assert_eq!(report["exitCode"], 1);
    place.nothing_left();
}

#[test]
fn the_agent_at_the_source_is_named_too() {
    let place = Place::new();
    let (text, topology) = slow(&place, &TWO, "");
    let run = place.start(&text, &topology);
    staging(&run);
    kill_hard(place.agent("m-n-0"));
    place.failed(&run.end(), "AgentLost", &["m-n-0"]);
    place.nothing_left();
}

#[test]
fn an_agent_that_dies_while_the_program_runs_ends_it() {
    let place = Place::new();
    let run = sleeping(&place, &manifest(&TWO, &sleepers(2)));
    kill_hard(place.agent("m-n-1"));
    let report = place.failed(&run.end(), "AgentLost", &["m-n-1"]);
    // It was stopped, by SIGTERM; where its ranks were is known all the same.
    assert_eq!(report["run"]["exitCode"], 143);
    assert_eq!(report["run"]["placement"][0]["host"], "m-n-0");
    assert!(report["timeline"]["firstRank"].is_number(), "{:#}", report["timeline"]);
    place.nothing_left();
}

#[test]
fn a_node_that_dies_while_the_program_runs_is_named() {
    for node in ["m-n-0", "m-n-1"] {
        let place = Place::new();
        let run = sleeping(&place, &manifest(&TWO, &sleepers(2)));
        kill_hard(place.starter(node));
        place.failed(&run.end(), "NodeLost", &[node]);
        place.nothing_left();
    }
}

#[test]
fn a_network_that_dies_is_noticed() {
    let place = Place::new();
    let run = sleeping(&place, &manifest(&TWO, &sleepers(2)));
    kill_hard(place.fabric());
    place.failed(&run.end(), "FabricLost", &["network"]);
    place.nothing_left();

    let (text, topology) = slow(&place, &TWO, "");
    let run = place.start(&text, &topology);
    staging(&run);
    kill_hard(place.fabric());
    place.failed(&run.end(), "FabricLost", &["network"]);
    place.nothing_left();
}

#[test]
fn a_disk_that_is_too_small_is_seen_before_anything_is_sent() {
    let place = Place::with_small_state(4 << 20);
    place.write("in/big", noise(SLOW_BYTES));
    let done = place.run(&manifest(&TWO, &data(&place)), &[]);
    place.failed(&done, "DiskFull", &["m-n-", "disk full", "free"]);
    place.nothing_left();
}

#[test]
fn a_disk_that_becomes_full_names_the_node() {
    // Each node alone would find room; all three together do not.
    let place = Place::with_small_state(20 << 20);
    place.write("in/big", noise(SLOW_BYTES));
    let done = place.run(&manifest(&THREE, &data(&place)), &[]);
    place.failed(&done, "DiskFull", &["m-n-", "disk full"]);
    place.nothing_left();
}

#[test]
fn a_source_that_changes_while_it_is_read_is_named() {
    let place = Place::new();
    let (text, topology) = slow(&place, &TWO, "");
    let run = place.start(&text, &topology);
    staging(&run);
    fs::write(place.path("in/big"), noise(SLOW_BYTES + 1)).unwrap();
    place.failed(&run.end(), "SourceChanged", &["m-n-0", "big", "changed"]);
    place.nothing_left();
}

#[test]
fn a_deadline_counts_from_the_creation() {
    let place = Place::new();
    let (text, topology) = slow(&place, &TWO, "activeDeadlineSeconds: 4\n");
    place.failed(
        &place.run(&text, &topology),
        "DeadlineExceeded",
        &["activeDeadlineSeconds", "data was staged"],
    );
    place.nothing_left();

    let rest = format!("activeDeadlineSeconds: 4\n{}", sleepers(2));
    let report = place.failed(&place.run(&manifest(&TWO, &rest), &[]), "DeadlineExceeded", &["program ran"]);
    let finished = report["timeline"]["finished"].as_f64().unwrap();
    assert!((4.0..6.0).contains(&finished), "{finished}");
    place.nothing_left();
}

#[test]
fn a_network_below_what_is_required_ends_the_run_before_its_program() {
    let place = Place::new();
    let rest = format!(
        "network:\n  probe: {{policy: BeforeRun, count: 2, bandwidth: Pairs}}\n  \
         tcp: {{mode: \"Off\"}}\n  require: {{minBandwidthMbps: 500, onViolation: Fail}}\n{}",
        script(2, "echo ran")
    );
    place.write("topology.yaml", topology(&["m-n-0", "m-n-1"], 50.0));
    let done = place.run(&manifest(&TWO, &rest), &["--topology", "topology.yaml"]);
    let report = place.failed(&done, "NetworkBelowRequirement", &["m-n-0", "m-n-1", "minBandwidthMbps"]);
    assert!(report["network"]["bandwidthMbps"].is_array(), "what was measured is reported");
    assert_eq!(done.out(), "");
    place.nothing_left();
}

#[test]
fn results_that_are_not_there_are_named() {
    let place = Place::new();
    fs::create_dir(place.path("results")).unwrap();
    let rest = "run:\n  processes: 2\n  command: [\"true\"]\n  workingDirectory: /scratch\n  \
                collect: [{path: output_00002, to: {persistentVolumeClaim: {claimName: results}}}]\n";
    let volume = format!("results={}", place.path("results").display());
    let done = place.run(&manifest(&TWO, rest), &["--volume", &volume]);
    let report = place.report();
    assert_eq!(done.code(), 1, "{report:#}");
    assert!(report["message"].as_str().unwrap().contains("output_00002"), "{report:#}");
    assert_eq!(report["exitCode"], 0, "the program's own code");
    place.nothing_left();
}

fn interrupted(place: &Place, done: &Done, when: &str) {
    let report = place.report();
    assert_eq!(done.code(), 130, "{}", done.stderr);
    assert_eq!(report["outcome"], "Interrupted");
    assert!(report["message"].as_str().unwrap().contains(when), "{report:#}");
    place.nothing_left();
}

const PROBED: &str =
    "network: {probe: {policy: BeforeRun, count: 1000, bandwidth: Pairs}, tcp: {mode: \"Off\"}}\n";

#[test]
fn ctrl_c_undoes_everything_in_each_step() {
    let place = Place::new();
    let run = place.start(&manifest(&THREE, PROBED), &[]);
    run.said("round-trip times");
    run.signal_group(Signal::SIGINT);
    interrupted(&place, &run.end(), "network was measured");

    let (text, topology) = slow(&place, &TWO, "");
    let run = place.start(&text, &topology);
    staging(&run);
    run.signal_group(Signal::SIGINT);
    interrupted(&place, &run.end(), "data was staged");

    let tuned = "network: {probe: {policy: Never}, tcp: {mode: Apply}}\n";
    let run = sleeping(&place, &manifest(&TWO, &format!("{tuned}{}", sleepers(2))));
    run.signal_group(Signal::SIGINT);
    interrupted(&place, &run.end(), "program ran");
    let report = place.report();
    let settings = report["tcp"].as_array().unwrap();
    assert!(!settings.is_empty() && settings.iter().all(|s| s["restored"] == true), "{settings:#?}");
}

#[test]
fn other_signals_mean_the_same() {
    let place = Place::new();
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let run = sleeping(&place, &manifest(&TWO, &sleepers(2)));
        run.signal(signal);
        interrupted(&place, &run.end(), "program ran");
    }
}

#[test]
fn impatience_does_not_break_the_release() {
    let place = Place::new();
    let run = sleeping(&place, &manifest(&THREE, &sleepers(3)));
    for _ in 0..20 {
        run.signal_group(Signal::SIGINT);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    interrupted(&place, &run.end(), "program ran");
}

/// Kills a run when `ready` returns: all of its processes end, and the next command removes its files.
fn killed(place: &Place, run: Running, ready: impl Fn(&Running)) {
    ready(&run);
    kill_hard(run.pid());
    assert_eq!(run.end().code(), 137);
    place.no_process_left();
    assert_eq!(fs::read_dir(place.path("state/runs")).unwrap().count(), 1, "its files are left for now");
}

#[test]
fn kill_9_leaves_only_files_and_clean_removes_them() {
    let place = Place::new();
    let run = place.start(&manifest(&THREE, PROBED), &[]);
    killed(&place, run, |_| _ = place.agent("m-n-0"));
    let clean = place.on_state("clean", &[]);
    assert_eq!(clean.code(), 0);
    assert!(clean.stderr.contains("removed 1"), "{}", clean.stderr);
    place.nothing_left();

    let run = place.start(&manifest(&THREE, PROBED), &[]);
    killed(&place, run, |run| run.said("round-trip times"));
    // Nobody needs to call `clean`: the next run does it.
    let done = place.run(&manifest(&TWO, &script(2, "true")), &[]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert!(done.stderr.contains("removed what was left"), "{}", done.stderr);
    place.nothing_left();

    let (text, topology) = slow(&place, &TWO, "");
    let run = place.start(&text, &topology);
    killed(&place, run, staging);
    place.on_state("clean", &[]);
    place.nothing_left();

    let run = place.start(&manifest(&TWO, &sleepers(2)), &[]);
    killed(&place, run, |_| _ = place.process(&["sleep", "1000"]));
    place.on_state("clean", &[]);
    place.nothing_left();
}

#[test]
fn a_reader_that_goes_away_does_not_stop_the_release() {
    let place = Place::new();
    let mut command = place.gridcast(&["local", "run", "-f", "manifest.yaml", "--state-dir", "state"]);
    place.write("manifest.yaml", manifest(&TWO, &sleepers(2)));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.process(&["sleep", "1000"]);
    // As by `2>&1 | head`: progress, table and messages have nowhere to go.
    drop((child.stdout.take(), child.stderr.take()));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(place.path("state/reports")).unwrap().count(), 1);
    place.nothing_left();
}
