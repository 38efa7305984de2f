//! How does a cluster get from pods to a result?
//!
//! Each step is long work that a plan begins ([`begin`]) and whose state its next plans observe. What a step needs of the
//! cluster is in the plan's [`Step`]; whom it talks to it finds here. Every step may be begun again by another operator.
//!
//! ```text
//! reach     the channels to starters and agents
//! gate      everybody knows everybody, and the launcher is there        -> Gate
//! tune      TCP settings in the members' network namespaces, and back   -> Tuned, Released
//! launch    the program, from its start to what its end means           -> Launch
//! log_tail  the end of what it wrote
//! collect   results into claims
//! ```

pub mod collect;
pub mod gate;
pub mod launch;
pub mod log_tail;
pub mod reach;
pub mod tune;

mod begin;

pub use begin::{LAUNCH_GRACE, begin};

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
