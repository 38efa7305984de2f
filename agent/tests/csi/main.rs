//! The volume plugin as kubelet sees it: the real process, its real sockets, real mounts in a namespace of the test's own.

// Tests stop at what they do not expect; clippy knows that of functions marked as tests only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agent;
mod faults;
mod node;
mod publish;
mod registration;
