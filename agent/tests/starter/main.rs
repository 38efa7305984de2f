//! The starter as others use it: real processes on loopback, real keys, real `mpirun`.

// Tests stop at what they do not expect; clippy knows that of functions marked as tests only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod exec;
mod fetch;
mod gate;
mod init;
mod install;
mod ipv6;
mod launch;
mod mpirun;
mod ranks;
mod remote;
mod support;
