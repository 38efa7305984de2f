//! The real controllers against an in-process API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

mod command;
mod controller;
mod fakeapi;
