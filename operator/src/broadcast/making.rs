//! How does a source pod come, and what does kubelet say of one that does not start?

use std::{sync::Arc, time::Duration};

use gridcast_control::StepFailure;
use gridcast_crds::Broadcast;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{
    knowledge::Trouble,
    network_policy::network_policy,
    observed::Making,
    source::{self, Origin},
};
use crate::{
    apply::{self, Creation},
    auxiliary_pod::AgentImage,
    context::Context,
    failure::{Error, chain},
    operations::Reporter,
    stores::trim_pod,
};

/// How often kubelet's events are read while a pod does not start.
const EVENTS_EVERY: Duration = Duration::from_secs(2);
/// How often at most: kubelet gives up none of this, and an hour tells enough.
const MOST_READS: usize = 1800;
/// Events of one pod that are looked at.
const MOST_EVENTS: u32 = 50;

/// Makes the keys and source pod number `number`. Never fails as such: a refusal is part of what it ends with.
pub(crate) async fn make(
    context: Arc<Context>,
    broadcast: Arc<Broadcast>,
    origin: Origin,
    number: u32,
    before: Making,
) -> Result<Making, StepFailure> {
    let trouble = match try_make(&context, &broadcast, origin, number).await {
        Ok(()) => None,
        Err(failure) => Some(Trouble::after(before.trouble.as_ref(), failure, (context.now)())),
    };
    Ok(Making { trouble })
}

async fn try_make(
    context: &Context,
    broadcast: &Broadcast,
    origin: Origin,
    number: u32,
) -> Result<(), StepFailure> {
    let Origin::Pod { mount, .. } = origin else { return Ok(()) };
    let Some(wanted) = source::pod(broadcast, mount, number) else { return Ok(()) };
    let keys = context.authority.source_keys(&wanted.peer_name).map_err(|error| {
        StepFailure::new(error.reason(), format!("source pod {}: {}", wanted.name, chain(&error)))
    })?;
    let refused = |error: Error| refusal(&wanted.name, &error);
    let (secret, policy) = (source::keys_secret(broadcast, keys), network_policy(broadcast));
    let written = tokio::try_join!(
        apply::create_if_absent(context, &secret),
        apply::create_if_absent(context, &policy)
    );
    written.map_err(refused)?;
    let image = AgentImage::from(&context.settings);
    match apply::create_pod(context, &wanted.pod(&image)).await.map_err(refused)? {
        Creation::Created(_) => Ok(()),
        Creation::Exists => adopt(context, broadcast, &wanted.name).await,
    }
}

/// A pod of the name is there: ours, which the watch has not told of yet, or somebody else's.
async fn adopt(context: &Context, broadcast: &Broadcast, name: &str) -> Result<(), StepFailure> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &broadcast.namespace().unwrap_or_default());
    let found = api.get_opt(name).await;
    let found = found.map_err(|error| {
        StepFailure::new("SourcePodRefused", format!("source pod {name}: {}", chain(&error)))
    })?;
    let Some(mut pod) = found else { return Ok(()) };
    let ours = pod.owner_references().iter().any(|owner| Some(&owner.uid) == broadcast.metadata.uid.as_ref());
    if !ours {
        let message = format!(
            "source pod {name}: another pod of this name is there; it is waited for until that is gone"
        );
        return Err(StepFailure::new("NameTaken", message));
    }
    trim_pod(&mut pod);
    context.stores.pods.written(pod);
    Ok(())
}

/// Why the API server refused, in one word.
fn refusal(pod: &str, error: &Error) -> StepFailure {
    let text = chain(error);
    let reason = match error.code() {
        Some(403) if text.contains("quota") => "QuotaExceeded",
        Some(403) if text.contains("PodSecurity") => "PodSecurity",
        _ => "SourcePodRefused",
    };
    StepFailure::new(reason, format!("source pod {pod}: {text}"))
}

/// Reads what kubelet says of the volumes of a pod that does not start, until the caller has seen enough.
pub(crate) async fn volumes(
    context: Arc<Context>,
    namespace: String,
    uid: String,
    reporter: Reporter<Option<StepFailure>>,
) -> Result<Option<StepFailure>, StepFailure> {
    let api: Api<Event> = Api::namespaced(context.client.clone(), &namespace);
    let parameters = ListParams::default().fields(&format!("involvedObject.uid={uid}")).limit(MOST_EVENTS);
    let mut told = None;
    for _ in 0..MOST_READS {
        match api.list(&parameters).await {
            Ok(events) => {
                let now = told_of(&events.items);
                if now != told {
                    told.clone_from(&now);
                    reporter.report(now);
                }
            }
            Err(error) => {
                tracing::debug!(namespace, uid, error = chain(&error), "cannot read a pod's events");
            }
        }
        tokio::time::sleep(EVENTS_EVERY).await;
    }
    Ok(told)
}

/// The last complaint about a volume.
fn told_of(events: &[Event]) -> Option<StepFailure> {
    let complaints = events.iter().filter(|event| {
        event.type_.as_deref() == Some("Warning")
            && matches!(
                event.reason.as_deref(),
                Some("FailedMount" | "FailedAttachVolume" | "FailedMapVolume")
            )
    });
    let when =
        |event: &Event| event.last_timestamp.as_ref().or(event.first_timestamp.as_ref()).map(|time| time.0);
    let last = complaints.max_by_key(|event| when(event))?;
    let pod = last.involved_object.name.as_deref().unwrap_or_default();
    let message = last.message.as_deref().unwrap_or_default();
    Some(StepFailure::new("MountFailed", format!("source pod {pod}: {message}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(reason: &str, second: u8, message: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {}, "type": "Warning", "reason": reason, "message": message,
            "involvedObject": {"name": "ics-0-source"}, "lastTimestamp": format!("2026-01-01T00:00:0{second}Z"),
        }))
        .unwrap()
    }

    #[test]
    fn the_last_complaint_about_a_volume_is_told() {
        let events = [
            event("FailedMount", 1, "configmap \"ics\" not found"),
            event("FailedMount", 3, "secret \"keys\" not found"),
            event("BackOff", 5, "restarting"),
        ];
        let told = told_of(&events).unwrap();
        assert_eq!(told.reason, "MountFailed");
        assert_eq!(told.message, "source pod ics-0-source: secret \"keys\" not found");
        assert_eq!(told_of(&events[2..]), None);
    }

    #[test]
    fn a_refusal_has_a_word() {
        let refused = |code: u16, message: &str| {
            let status = kube::core::Status { code, ..kube::core::Status::failure(message, "Forbidden") };
            let source = Box::new(kube::Error::Api(Box::new(status)));
            refusal("p", &Error::Write { verb: "create", what: "Pod".into(), name: "p".into(), source })
                .reason
        };
        assert_eq!(refused(403, "exceeded quota: small"), "QuotaExceeded");
        assert_eq!(refused(403, "violates PodSecurity \"restricted\""), "PodSecurity");
        assert_eq!(refused(422, "invalid"), "SourcePodRefused");
    }
}
