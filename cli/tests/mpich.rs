//! Are programs started by MPICH's Hydra through the starters too?
//!
//! What runs is no MPI program: how ranks are started, seen and judged does not depend on what they do. MPICH 4.0 of
//! Debian 12, over UCX 1.13's TCP, now and then does not come back from `MPI_Finalize`, with or without gridcast.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::format_collect, reason = "a test")]

mod common;

use common::{Place, manifest};
use serde_json::json;

fn run(processes: u32, more: &str, script: &str) -> String {
    format!(
        "run:\n  implementation: MPICH\n  processes: {processes}\n  command: [sh, -c, {script:?}]\n{}",
        more.lines().map(|line| format!("  {line}\n")).collect::<String>()
    )
}

#[test]
fn ranks_are_where_the_machinefile_says_and_know_their_number() {
    let place = Place::new();
    let groups = [("head", 1, 2), ("thin", 2, 1)];
    let script = "echo $PMI_RANK of $PMI_SIZE on $(hostname)";
    let done = place.run(&manifest(&groups, &run(4, "tagOutput: true", script)), &[]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert_eq!(
        done.lines(),
        [
            "m-head-0: 0 of 4 on m-head-0",
            "m-head-0: 1 of 4 on m-head-0",
            "m-thin-0: 2 of 4 on m-thin-0",
            "m-thin-1: 3 of 4 on m-thin-1"
        ]
    );
    let report = place.report();
    assert_eq!(
        report["run"]["placement"],
        json!([
            {"host": "m-head-0", "ranks": [0, 1]},
            {"host": "m-thin-0", "ranks": [2]},
            {"host": "m-thin-1", "ranks": [3]},
        ])
    );
    assert_eq!(report["outcome"], "Complete");
    place.nothing_left();
}

#[test]
fn ranks_beyond_the_slots_go_round_again_as_hydra_has_it() {
    let place = Place::new();
    let groups = [("head", 1, 2), ("thin", 1, 1)];
    let done = place.run(&manifest(&groups, &run(5, "allowOversubscribe: true", "true")), &[]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert_eq!(
        place.report()["run"]["placement"],
        json!([{"host": "m-head-0", "ranks": [0, 1, 3, 4]}, {"host": "m-thin-0", "ranks": [2]}])
    );
}

#[test]
fn the_environment_of_the_manifest_reaches_launcher_and_ranks() {
    let place = Place::new();
    let more = "environment: [{name: HYDRA_TOPO_DEBUG, value: \"0\"}, {name: ANSWER, value: \"6 x 7\"}]";
    let done = place.run(&manifest(&[("n", 2, 1)], &run(2, more, "echo $ANSWER")), &[]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert_eq!(done.lines(), ["6 x 7", "6 x 7"]);
}

#[test]
fn a_program_that_fails_is_a_failure_with_its_code() {
    let place = Place::new();
    let script = "test $PMI_RANK != 1 || exit 3";
    let done = place.run(&manifest(&[("n", 2, 1)], &run(2, "", script)), &[]);
    assert_ne!(done.code(), 0);
    let report = place.report();
    assert_eq!((&report["outcome"], &report["exitCode"]), (&json!("Failed"), &json!(3)));
    // Which rank it was only the kernel knows, from Linux 6.15 on: Hydra does not say.
    let message = report["message"].as_str().unwrap();
    match report["reason"].as_str().unwrap() {
        "RankFailed" => assert!(message.contains("rank 1 on m-n-1 exited with code 3"), "{message}"),
        reason => assert_eq!(reason, "ProgramFailed"),
    }
    place.nothing_left();
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let place = Place::new();
    let rest = "run: {implementation: MPICH, processes: 2, command: [no-such-program]}\n";
    let done = place.run(&manifest(&[("n", 2, 1)], rest), &[]);
    assert!(done.stderr.contains("`no-such-program` was not found"), "{}", done.stderr);
    assert_eq!(place.report()["exitCode"], 127);
}

#[test]
fn a_machine_without_mpich_is_told_what_to_install() {
    let place = Place::new();
    place.write("manifest.yaml", manifest(&[("n", 1, 1)], &run(1, "", "true")));
    let mut command = place.gridcast(&["local", "run", "-f", "manifest.yaml", "--state-dir", "state"]);
    command.env("PATH", "");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("mpiexec.mpich") && said.contains("apt-get install mpich"), "{said}");
}
