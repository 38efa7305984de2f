//! What are people told of, in `kubectl describe`?
//!
//! Transitions only, after the status that shows them was written. An event of the same reason and message about the same
//! object within six minutes is counted on the first (`kube`'s Recorder does so).

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event as KubeEvent, Recorder, Reporter},
};

pub use kube::runtime::events::EventType;

use crate::{
    apply::FIELD_MANAGER,
    failure::chain,
    metrics::{Metrics, Verb},
    verdict::bounded,
};

/// Longest note that the API server takes.
const LONGEST_NOTE: usize = 1024;
/// Events of one publication; more at once is a fault of the plan, and people read none of them.
const MOST: usize = 16;

/// One thing that happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether it asks for attention.
    pub type_: EventType,
    /// One PascalCase word.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

impl Event {
    /// Something that went as it should.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_: EventType::Normal, reason: reason.into(), message: message.into() }
    }

    /// Something to look at.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_: EventType::Warning, reason: reason.into(), message: message.into() }
    }
}

/// Publishes events. Clones share what was published.
#[derive(Clone)]
pub struct Events {
    recorder: Arc<Recorder>,
    metrics: Metrics,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Publishes as the operator, whose pod is the reporting instance.
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self { recorder: Arc::new(Recorder::new(client, Reporter::from(FIELD_MANAGER))), metrics }
    }

    /// Publishes `events` about `object`. One that cannot be published is logged: the status has said the same.
    pub async fn publish<K: Resource<DynamicType = ()>>(&self, object: &K, events: Vec<Event>) {
        self.publish_about(&object.object_ref(&()), events).await;
    }

    /// The same for an object that is only known by reference.
    pub async fn publish_about(&self, object: &ObjectReference, events: Vec<Event>) {
        for Event { type_, reason, message } in events.into_iter().take(MOST) {
            let event = KubeEvent {
                type_,
                action: reason.clone(),
                reason,
                note: Some(bounded(&message, LONGEST_NOTE)),
                secondary: None,
            };
            let result = self.recorder.publish(&event, object).await;
            self.metrics.write(Verb::Create, "Event", result.as_ref().err());
            match result {
                Ok(()) => {}
                Err(error) if namespace_goes(&error) => {
                    tracing::debug!(reason = event.reason, "nobody will read an event: its namespace goes");
                }
                Err(error) => {
                    tracing::warn!(reason = event.reason, error = chain(&error), "cannot publish an event");
                }
            }
        }
    }
}

/// Whether a write was refused because its namespace is being deleted, and its object with it.
fn namespace_goes(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403 && status.message.contains("being terminated"))
}
