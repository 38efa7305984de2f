//! How does a broadcast go? The machines that the agents run, in simulated time.
//!
//! [`simulate`] lets a [`Node`](super::schedule::Node) for each host carry a plan out, chunk by chunk. Each hop sends one
//! chunk after another at most at the planned rate of its tree; all hops that run share arcs, budgets of hosts and disks
//! max-min fairly. A relay passes a chunk on when it has all of it. Messages take the delay of their way and no bandwidth.
//!
//! Faults come at their times. That a host is gone is noticed after [`NOTICE`]; that a hop is slow by the
//! [`Watch`](super::schedule::Watch); the [`Coordinator`](super::schedule::Coordinator) then asks for a new plan on the
//! network as it is. A chunk that is under way when a new plan begins is lost.
//!
//! The same input gives the same outcome. Time is counted in nanoseconds. O(log) for each chunk and hop while the planned
//! rates fit.

use std::time::Duration;

use super::plan::{Options, Plan};
use super::topology::Topology;

mod fault;
mod hosts;
mod links;
mod outcome;
mod perform;
mod replan;
mod world;

pub use fault::{Fault, FaultError, FaultKind};
pub use outcome::{LinkBytes, Moment, NodeOutcome, Outcome};

/// Until others notice that a host is gone.
pub const NOTICE: Duration = Duration::from_millis(500);
/// How often hops are looked at.
pub const LOOK: Duration = Duration::from_millis(500);
/// Most plans of one broadcast: after these it is given up.
pub const MAX_PLANS: u64 = 500;
/// Events in vain before it is given up.
const PATIENCE: u64 = 4_000_000;
/// Chunks that a dataset is cut into where no size of chunks is given.
const CHUNKS: u64 = 2048;
/// Most chunks.
const MAX_CHUNKS: u64 = 1 << 20;

/// What is to be simulated beside network and plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Size of the dataset, bytes.
    pub size_bytes: u64,
    /// Size of a chunk, bytes; without it 2048 chunks, whatever the size.
    pub chunk_bytes: Option<u64>,
    /// Entries of a tree that a relay with backpressure is ahead of those that it feeds.
    pub relay_queue: u32,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// How new plans are made.
    pub options: Options,
    /// Events after which it is given up if nobody gets anything new meanwhile.
    pub patience: u64,
}

impl Settings {
    /// Without faults.
    pub fn new(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            chunk_bytes: None,
            relay_queue: 4,
            faults: Vec::new(),
            options: Options::default(),
            patience: PATIENCE,
        }
    }
}

/// Why nothing can be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says it")]
pub enum SimulateError {
    #[error("a dataset of 0 bytes takes no time; give it a size")]
    Empty,
    #[error("{chunks} chunks are too many; use chunks of {at_least} bytes or more")]
    TooManyChunks { chunks: u64, at_least: u64 },
    #[error("the fault `{fault}` names `{name}`, which is no host of the topology")]
    UnknownHost { fault: String, name: String },
    #[error("the fault `{fault}` names `{a}` and `{b}`, which no link joins")]
    UnknownLink { fault: String, a: String, b: String },
    #[error("the hop from `{from}` to `{to}` does not follow the links of the topology")]
    NoWay { from: String, to: String },
}

/// Carries `plan` out on `topology`.
pub fn simulate(topology: &Topology, plan: &Plan, settings: &Settings) -> Result<Outcome, SimulateError> {
    let cut = Cut::new(settings)?;
    replan::check(topology, settings)?;
    let mut world = world::World::new(topology, plan, settings, cut)?;
    world.run();
    Ok(world.outcome())
}

/// How the dataset is cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    size_bytes: u64,
    chunk_bytes: u64,
    chunks: u32,
}

impl Cut {
    fn new(settings: &Settings) -> Result<Self, SimulateError> {
        let size_bytes = settings.size_bytes;
        if size_bytes == 0 {
            return Err(SimulateError::Empty);
        }
        let chunk_bytes = settings.chunk_bytes.unwrap_or_else(|| size_bytes.div_ceil(CHUNKS)).max(1);
        let chunks = size_bytes.div_ceil(chunk_bytes);
        match u32::try_from(chunks) {
            Ok(count) if chunks <= MAX_CHUNKS => Ok(Self { size_bytes, chunk_bytes, chunks: count }),
            _ => Err(SimulateError::TooManyChunks { chunks, at_least: size_bytes.div_ceil(MAX_CHUNKS) }),
        }
    }

    fn bytes(self, chunk: u32) -> u64 {
        self.size_bytes.saturating_sub(u64::from(chunk) * self.chunk_bytes).min(self.chunk_bytes)
    }
}

#[cfg(test)]
mod tests;
