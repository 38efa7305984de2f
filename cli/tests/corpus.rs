//! Does what the fuzzer found stay found? Its topology files again; see fuzz/README.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

#[path = "../../fuzz/checks/topology.rs"]
mod topology;

#[test]
fn topology_files_are_refused_or_planned_on() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/corpus/topology");
    let mut replayed = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        topology::check(&std::fs::read(entry.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed > 0);
}
