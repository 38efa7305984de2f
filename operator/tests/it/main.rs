//! The real controllers against an in-process API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

mod certificates;
mod command;
mod controller;
mod fakeapi;
mod lease;
mod uninstall;
