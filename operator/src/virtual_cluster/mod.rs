//! What does a VirtualCluster need next, on a real Kubernetes?
//!
//! ```text
//! observe    the object, its pods, Broadcasts, NetworkMap and operations, from caches   -> Observed
//! plan       what to publish, make, delete and begin (pure)                             -> Plan
//! apply      publishes first, then does the rest; every action may be done twice
//! objects    what the things that are made look like
//! steps      the operations: gate, tune, launch, stop, collect, release
//! ```
//!
//! What has to survive the operator is in the object's status and nowhere else: the conditions are latches, `run.launch`
//! and `run.restarts` are published before the launch that they name begins. Everything else is observed anew.

mod apply;
mod create;
pub mod members;
pub mod memory;
pub mod objects;
pub mod observe;
pub mod observed;
pub mod plan;
pub mod pods;
pub mod steps;

pub use members::{collect_claims, incarnation, key_generation};
pub use memory::Memory;
pub use observed::{
    Creation, Gate, HelperPod, Host, Launch, LaunchEnd, Member, MemberPod, Observed, Operations, Phase,
    Refusal, Released, Trouble, Tuned, Work,
};
pub use plan::{Action, Event, Finalizer, ObjectKind, Part, Plan, Step, plan};

/// The finalizer of a cluster whose nodes may have settings to restore.
pub const FINALIZER: &str = "gridcast.io/release";
