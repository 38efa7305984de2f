//! See fuzz/README.md.

#![no_main]

#[path = "../checks/topology.rs"]
mod topology;

libfuzzer_sys::fuzz_target!(|data: &[u8]| topology::check(data));
