//! See fuzz/README.md.

#![no_main]

#[path = "../checks/schedule.rs"]
mod schedule;

libfuzzer_sys::fuzz_target!(|data: &[u8]| schedule::check(data));
