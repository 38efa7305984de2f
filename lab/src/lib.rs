//! How can one machine be many hosts?
//!
//! A [`node`] is a process tree in network, mount, UTS, IPC and PID namespaces of its own: it has its own hostname,
//! its own `/data`, its own interfaces, and otherwise sees the machine as it is. The [`fabric`] is one process that
//! joins nodes: it moves their packets along emulated links with a rate, a delay, a queue and loss.
//!
//! Nothing here has a name on the machine: namespaces are unnamed, mounts are private to them, interfaces live in
//! them. When the processes end, all is gone; and they end when the pipe of a [`Lifetime`] closes, be it by
//! `kill -9` of its owner.
//!
//! Nodes and fabric are started by executing the current program again with a hidden argument, because new PID
//! and mount namespaces want a process without threads. The program's `main` therefore begins with
//! [`node::run_init_if_asked`].
#![cfg(target_os = "linux")]

pub mod fabric;
pub mod lifetime;
pub mod node;
mod os;
mod program;

pub use lifetime::Lifetime;
pub use program::use_program;
