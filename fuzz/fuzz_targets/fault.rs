//! See fuzz/README.md.

#![no_main]

#[path = "../checks/fault.rs"]
mod fault;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fault::check(data));
