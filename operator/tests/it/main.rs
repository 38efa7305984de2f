//! The real controllers against an in-process API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

mod broadcast;
mod certificates;
mod command;
mod controller;
mod fakeapi;
mod http;
mod lease;
mod own;
mod uninstall;

use jiff::Timestamp;

/// The wall clock of the simulation: tokio's paused clock, never the machine's.
fn virtual_now() -> Timestamp {
    static START: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    let start = *START.get_or_init(tokio::time::Instant::now);
    Timestamp::UNIX_EPOCH + tokio::time::Instant::now().saturating_duration_since(start)
}
