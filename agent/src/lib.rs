//! The agent: one per node. It measures the network, tunes it, carries datasets, and (as the starter) runs the
//! cluster's commands.
//!
//! Question that each module answers:
//!
//! - [`tls`]: who am I, and whom do I believe?
//! - [`probe`]: how fast and how steady is the way to a peer?
//! - [`tune`]: which kernel settings of this node does a run change, and how are they put back?
//! - [`broadcast`]: how does a dataset travel from one node to all others?
//! - [`csi`]: how does a pod get to see a dataset, and not before it is whole?
//! - [`fetch`]: how does a file behind a URL come into a source pod?
//! - [`node`]: what does the agent of a Kubernetes node do beside what every agent does?
//! - [`namespace`]: how does one process work in several network namespaces?
//! - [`memory`]: how does an agent stay small beside the program that it works for?
//! - [`starter`]: what runs inside a node on behalf of its cluster?

mod access;
mod bind;
pub mod broadcast;
pub mod csi;
mod facts;
pub mod fetch;
mod listener;
pub mod memory;
pub mod namespace;
pub mod node;
pub mod probe;
mod service;
mod space;
pub mod starter;
pub mod tls;
pub mod tune;

pub use service::{Options, serve};
