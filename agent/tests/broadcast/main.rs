//! Broadcasts between real services over loopback with mutual TLS, each in a runtime of its own so that it can be killed.
//! Faults are injected by a proxy that stands in front of a member under the member's own name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod cluster;
mod collect;
mod faults;
mod proxy;
mod transfer;
mod tree;
