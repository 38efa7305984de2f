//! What does a controller ask of agents and starters, and what does it make of their answers?
//!
//! `gridcast local` and the operator do the same things to a cluster; how they reach its nodes, when they do what and
//! whom they tell is their own. Each step here takes [`Remote`]s, talks gRPC, and returns what the report holds, or a
//! [`StepFailure`].
//!
//! ```text
//! measure     probes every ordered pair                      -> report::Network
//! tune        plans settings, writes them, puts them back    -> report::TcpSetting
//! stage       has one dataset carried to all nodes           -> report::Dataset
//! gate        do names, keys and programs work everywhere?
//! launch      the command line, and what came of it          -> report::PlacedRanks
//! collect     brings results together on one node
//! ```
//!
//! Whoever drops a step's future cancels what it asked for; the exceptions say so.

mod failure;
mod remote;

pub mod collect;
pub mod gate;
pub mod launch;
pub mod measure;
pub mod stage;
pub mod tune;

pub use failure::StepFailure;
pub use remote::{AGENT_PORT, PROBE_PORT, Remote, STARTER_PORT, is_gone};
