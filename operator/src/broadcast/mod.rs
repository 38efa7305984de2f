//! What does gridcast do about a Broadcast?
//!
//! ```text
//! observed    the object, its nodes' agents, its source pod and what is known of the copies, from caches  -> Observed
//! plan        what should be done: pure                                                                   -> Plan
//!   choice      which nodes are brought the dataset next, and which give it back
//!   release     what happens when the object is deleted
//!   publish     what the status says
//! apply       writes, and begins the operations
//!   stage       one attempt: nodes release, prepare, and are brought the dataset
//!   transfer    from the source to the nodes, by the agent at the source; routes: on which network it is planned
//!   making      the source pod
//! ```
//!
//! Everything that is known of the copies lives in this process ([`knowledge`]); one that begins anew asks the agents.

mod apply;
mod choice;
pub(crate) mod knowledge;
mod making;
mod network_policy;
mod observed;
mod plan;
mod publish;
mod release;
mod routes;
mod source;
mod stage;
pub(crate) mod standing;
pub(crate) mod targets;
#[cfg(test)]
pub(crate) mod tests;
mod transfer;

use std::{sync::Arc, time::Duration};

use gridcast_crds::Broadcast;
use jiff::Timestamp;

pub use observed::Observed;
pub use plan::Plan;

use crate::{context::Context, failure::Error, kind::Kind};

impl Kind for Broadcast {
    type Observed = Observed;
    type Plan = Plan;

    fn observe(context: &Context, object: &Arc<Self>) -> Result<Observed, Error> {
        Ok(Observed::new(context, object))
    }

    fn plan(observed: &Observed, now: Timestamp) -> Plan {
        plan::plan(observed, now)
    }

    async fn apply(
        context: &Arc<Context>,
        object: &Arc<Self>,
        plan: Plan,
    ) -> Result<Option<Duration>, Error> {
        apply::apply(context, object, plan).await
    }
}
