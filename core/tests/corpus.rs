//! Does what the fuzzer found stay found? Its faults and its messages again; see fuzz/README.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

#[path = "../../fuzz/checks/fault.rs"]
mod fault;
#[path = "../../fuzz/checks/schedule.rs"]
mod schedule;

fn replay(name: &str, check: fn(&[u8])) {
    let directory = format!("{}/tests/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut replayed = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        check(&std::fs::read(entry.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed > 0);
}

#[test]
fn faults_are_refused_or_survived() {
    replay("fault", fault::check);
}

#[test]
fn no_message_makes_a_host_panic() {
    replay("schedule", schedule::check);
}
