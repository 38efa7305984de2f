//! What does gridcast do about a NetworkMap?
//!
//! It measures the pods of a cluster, each in its own network namespace, or Kubernetes nodes; once, or again and again;
//! anew when the pods are others. What was found is the status: matrices, or of many hosts the link of each.

mod measuring;
mod observed;
mod plan;
mod published;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use gridcast_control::{Remote, StepFailure, measure::ProbeAsk};
use gridcast_crds::{NetworkMap, conditions::READY};
use jiff::Timestamp;

pub use observed::Observed;
use observed::{Host, MEASURE, Measurement};
use plan::Order;
pub use plan::Plan;

use crate::{
    apply,
    broadcast::{knowledge::Trouble, standing},
    context::Context,
    events::Event,
    failure::Error,
    kind::Kind,
    operations::Owner,
};

impl Kind for NetworkMap {
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
        let Plan { order, status, again } = plan;
        if let Some(order) = order {
            begin(context, object, order);
        }
        if let Some(status) = status {
            let told = transition(object, standing::find(&status.conditions, READY));
            if apply::publish_status(context, &**object, &status).await? {
                context.events.publish(&**object, told).await;
            }
        }
        Ok(again)
    }
}

fn begin(context: &Arc<Context>, object: &NetworkMap, order: Order) {
    let Order { hosts, first } = order;
    let owner = Owner::of(object);
    let remotes: Result<Vec<Remote>, StepFailure> = hosts.iter().map(|host| remote(context, host)).collect();
    let machines: Vec<String> = hosts.into_iter().map(|host| host.node).collect();
    let (ask, now, before) = (ProbeAsk::from(&object.spec), context.now, first.clone());
    // What it ended with before is in `first`.
    context.operations.cancel(&owner, MEASURE);
    context.operations.begin(&owner, MEASURE, first, |_| async move {
        let result = match remotes {
            Ok(remotes) => measuring::measure(&remotes, &machines, &ask).await,
            Err(failure) => Err(failure),
        };
        // Never fails as such, so that nothing is forgotten.
        Ok(match result {
            Ok(found) => Measurement { found: Some((now(), found)), trouble: None, ..before },
            Err(failure) => {
                let trouble = Trouble::after(before.trouble.as_ref(), failure, now());
                Measurement { trouble: Some(trouble), ..before }
            }
        })
    });
}

fn remote(context: &Context, host: &Host) -> Result<Remote, StepFailure> {
    match &host.pod {
        Some(pod) => context.agents.pod(&host.name, &pod.uid, &pod.address, &host.node),
        None => context.agents.of_node(&host.node),
    }
}

/// What people are told of, as the difference between what is published and what will be.
fn transition(object: &NetworkMap, ready: Option<&gridcast_crds::conditions::Condition>) -> Vec<Event> {
    let shown = object.status.as_ref().and_then(|status| standing::find(&status.conditions, READY));
    let Some(ready) = ready else { return Vec::new() };
    if shown.is_some_and(|shown| (&shown.status, &shown.reason) == (&ready.status, &ready.reason)) {
        return Vec::new();
    }
    let (reason, message) = (ready.reason.clone(), ready.message.clone());
    match (ready.status.as_str(), plan::is_quiet(&reason)) {
        ("True", _) => vec![Event::normal(reason, message)],
        (_, true) => Vec::new(),
        (_, false) => vec![Event::warning(reason, message)],
    }
}
