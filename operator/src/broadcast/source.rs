//! Where does a dataset come from, and how is the pod that reads it?

use std::{collections::BTreeMap, path::Path};

use gridcast_control::StepFailure;
use gridcast_crds::{Broadcast, broadcast::SourcePod, source::Source};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod, Secret},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Resource as _, ResourceExt as _};

use super::targets::phase;
use crate::{
    auxiliary_pod::{AuxiliaryPod, Mount, ORIGIN, Role},
    stores::{BROADCAST_UID, MANAGED_BY, node_of},
};

/// What kind of source it is, and where its data lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A path of a Kubernetes node; the first target's node where none is named.
    Node {
        /// The node.
        name: Option<String>,
        /// The path.
        path: String,
    },
    /// What a source pod mounts.
    Pod {
        /// What it mounts.
        mount: Mount,
        /// The dataset, as the pod sees it.
        path: String,
    },
}

impl Origin {
    /// Of a spec's source; the field that is not offered where there is none.
    pub(crate) fn of(source: &Source) -> Result<Self, &'static str> {
        let pod = |mount, path: &str| Ok(Self::Pod { mount, path: path.to_owned() });
        if let Some(node) = &source.node {
            return Ok(Self::Node { name: node.name.clone(), path: node.path.clone() });
        }
        if let Some(claim) = &source.persistent_volume_claim {
            let path = claim.path.as_ref().map_or_else(|| ORIGIN.into(), |path| Path::new(ORIGIN).join(path));
            // `join` would take an absolute path instead; the schema refuses one.
            let path = if path.starts_with(ORIGIN) { path } else { ORIGIN.into() };
            let mount = Mount::Claim { claim: claim.claim_name.clone(), read_only: true };
            return pod(mount, &path.to_string_lossy());
        }
        if let Some(map) = &source.config_map {
            return pod(Mount::ConfigMap { name: map.name.clone() }, ORIGIN);
        }
        if let Some(secret) = &source.secret {
            return pod(Mount::Secret { name: secret.secret_name.clone() }, ORIGIN);
        }
        if let Some(http) = &source.http {
            let mount = Mount::Fetch { url: http.url.clone(), authorization: http.secret_name.clone() };
            return pod(mount, ORIGIN);
        }
        Err(if source.s3.is_some() { "spec.source.s3" } else { "spec.source" })
    }
}

/// A source pod at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodView {
    /// Its name.
    pub(crate) name: String,
    /// Its UID.
    pub(crate) uid: String,
    /// Which one it is: it is in the name.
    pub(crate) number: u32,
    /// When it was made.
    pub(crate) created: Option<Timestamp>,
    /// Where it is.
    pub(crate) node: Option<String>,
    /// It is on its way out.
    pub(crate) going: bool,
    /// How it is.
    pub(crate) state: PodState,
}

/// How a source pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    /// It will be there in a moment, as far as can be seen.
    Starting,
    /// Its agent runs.
    Running {
        /// Where it answers.
        address: String,
    },
    /// It cannot start, and will when the cause goes.
    Held(StepFailure),
    /// It ended; another one may do better.
    Ended {
        /// Why.
        failure: StepFailure,
        /// When.
        at: Option<Timestamp>,
    },
}

impl PodView {
    /// Of a source pod of `broadcast`.
    pub(crate) fn of(pod: &Pod) -> Self {
        let name = pod.name_any();
        Self {
            uid: pod.uid().unwrap_or_default(),
            number: name.rsplit('-').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            node: node_of(pod).map(str::to_owned),
            going: pod.metadata.deletion_timestamp.is_some(),
            state: state(pod, &name),
            name,
        }
    }
}

fn state(pod: &Pod, name: &str) -> PodState {
    let Some(status) = &pod.status else { return PodState::Starting };
    let containers = || {
        let all = [&status.init_container_statuses, &status.container_statuses];
        all.into_iter().flatten().flatten()
    };
    match phase(pod) {
        "Failed" | "Succeeded" => {
            let (failure, at) = end(pod, name, containers());
            return PodState::Ended { failure, at };
        }
        "Running" => {
            let runs = status
                .container_statuses
                .iter()
                .flatten()
                .any(|container| container.state.as_ref().is_some_and(|state| state.running.is_some()));
            if let (true, Some(address)) = (runs, status.pod_ip.clone().filter(|ip| !ip.is_empty())) {
                return PodState::Running { address };
            }
        }
        _ => {}
    }
    let unscheduled = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unscheduled {
        let why = condition.message.as_deref().unwrap_or("no node admits it");
        return PodState::Held(StepFailure::new("SourceUnschedulable", format!("source pod {name}: {why}")));
    }
    match containers().find_map(|container| held(container, name)) {
        Some(failure) => PodState::Held(failure),
        None => PodState::Starting,
    }
}

/// Why a container does not start, where it says more than that it takes a while.
fn held(container: &ContainerStatus, pod: &str) -> Option<StepFailure> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let word = waiting.reason.as_deref()?;
    let reason = match word {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable"
        | "ImageInspectError" => "ImagePullFailed",
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "CreatePodSandboxError" => "SourcePodFailed",
        _ => return None,
    };
    let detail = waiting.message.as_deref().unwrap_or(word);
    Some(StepFailure::new(reason, format!("source pod {pod}: {detail}")))
}

/// Why a pod ended, and when.
fn end<'a>(
    pod: &Pod,
    name: &str,
    containers: impl Iterator<Item = &'a ContainerStatus>,
) -> (StepFailure, Option<Timestamp>) {
    let status = pod.status.as_ref();
    let ended: Vec<_> = containers
        .filter_map(|container| Some((container, container.state.as_ref()?.terminated.as_ref()?)))
        .collect();
    let at =
        ended.iter().filter_map(|(_, terminated)| terminated.finished_at.as_ref()).map(|time| time.0).max();
    let Some((container, terminated)) = ended.iter().find(|(_, terminated)| terminated.exit_code != 0) else {
        let word = status.and_then(|status| status.reason.as_deref()).unwrap_or("it ended");
        let detail = status.and_then(|status| status.message.as_deref()).unwrap_or(word);
        return (StepFailure::new("SourcePodFailed", format!("source pod {name}: {word}: {detail}")), at);
    };
    let told = terminated.message.as_deref().map(str::trim).filter(|told| !told.is_empty());
    let detail = told.map_or_else(
        || format!("container {} ended with exit code {}", container.name, terminated.exit_code),
        ToOwned::to_owned,
    );
    let reason = if container.name == "fetch" { "FetchFailed" } else { "SourcePodFailed" };
    (StepFailure::new(reason, format!("source pod {name}: {detail}")), at)
}

/// Name of the Secret with the source pods' keys, and of their NetworkPolicy. A Broadcast that was deleted and made again has keys of its own, and
/// those of its predecessor may still be there.
pub(crate) fn keys_name(broadcast: &Broadcast) -> String {
    let uid = broadcast.uid().unwrap_or_default();
    format!("{}-source-{}", broadcast.name_any(), uid.split('-').next().unwrap_or_default())
}

/// The Secret with the source pod's keys.
pub(crate) fn keys_secret(broadcast: &Broadcast, keys: BTreeMap<String, String>) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(keys_name(broadcast)), ..metadata(broadcast) },
        immutable: Some(true),
        string_data: Some(keys),
        ..Secret::default()
    }
}

/// Source pod number `number`. The name has no number at its end: that of every member of a cluster has, so that the
/// two cannot meet.
pub(crate) fn pod(broadcast: &Broadcast, mount: Mount, number: u32) -> Option<AuxiliaryPod> {
    let name = broadcast.name_any();
    let given: SourcePod = broadcast.spec.source_pod.clone().unwrap_or_default();
    let mut labels = labels(broadcast);
    // Those are the pod's own business.
    labels.remove(MANAGED_BY);
    Some(AuxiliaryPod {
        name: format!("{name}-{number}-source"),
        namespace: broadcast.namespace()?,
        owner: owner(broadcast)?,
        role: Role::Source,
        labels,
        peer_name: broadcast.uid()?,
        keys_secret: keys_name(broadcast),
        mount,
        security_context: given.security_context,
        node_selector: given.node_selector,
        tolerations: given.tolerations,
    })
}

pub(super) fn metadata(broadcast: &Broadcast) -> ObjectMeta {
    ObjectMeta {
        namespace: broadcast.namespace(),
        labels: Some(labels(broadcast)),
        owner_references: Some(owner(broadcast).into_iter().collect()),
        ..ObjectMeta::default()
    }
}

pub(super) fn labels(broadcast: &Broadcast) -> BTreeMap<String, String> {
    [(MANAGED_BY, "gridcast".to_owned()), (BROADCAST_UID, broadcast.uid().unwrap_or_default())]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
}

/// Not blocking: the object waits for its nodes, and its namespace may be on its way out.
fn owner(broadcast: &Broadcast) -> Option<OwnerReference> {
    let reference = broadcast.controller_owner_ref(&())?;
    Some(OwnerReference { block_owner_deletion: None, ..reference })
}

#[cfg(test)]
mod tests {
    use gridcast_crds::source::{ClaimPath, HttpSource, NodeSource, S3Source};
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "literals are passed")]
    fn view(status: Value) -> PodView {
        let pod = json!({
            "metadata": {"name": "ics-3-source"}, "spec": {"containers": []}, "status": status,
        });
        PodView::of(&serde_json::from_value(pod).unwrap())
    }

    fn told(status: Value) -> (String, String) {
        match view(status).state {
            PodState::Held(failure) | PodState::Ended { failure, .. } => (failure.reason, failure.message),
            other => panic!("{other:?} tells nothing"),
        }
    }

    #[test]
    fn a_pod_that_runs_says_where() {
        let running = json!({"phase": "Running", "podIP": "10.0.0.9",
            "containerStatuses": [{"name": "agent", "state": {"running": {}}}]});
        assert_eq!(view(running.clone()).state, PodState::Running { address: "10.0.0.9".into() });
        assert_eq!(view(running).number, 3);
        assert_eq!(view(json!({"phase": "Running", "podIP": ""})).state, PodState::Starting);
        assert_eq!(view(json!({"phase": "Pending"})).state, PodState::Starting);
        assert_eq!(view(json!({})).state, PodState::Starting);
    }

    #[test]
    fn each_way_not_to_start_has_a_word_and_a_sentence() {
        let (reason, message) = told(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled",
            "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: persistentvolumeclaim \"ics\" not found."}]}));
        assert_eq!(reason, "SourceUnschedulable");
        assert!(
            message
                .contains("ics-3-source: 0/3 nodes are available: persistentvolumeclaim \"ics\" not found")
        );

        let waiting = |container: &str, reason: &str| {
            json!({"phase": "Pending", container: [{"name": "agent",
            "state": {"waiting": {"reason": reason, "message": "what kubelet says"}}}]})
        };
        for (word, reason) in [
            ("ImagePullBackOff", "ImagePullFailed"),
            ("ErrImageNeverPull", "ImagePullFailed"),
            ("CreateContainerConfigError", "SourcePodFailed"),
        ] {
            assert_eq!(
                told(waiting("containerStatuses", word)),
                (reason.into(), "source pod ics-3-source: what kubelet says".into())
            );
            assert_eq!(told(waiting("initContainerStatuses", word)).0, reason);
        }
        assert_eq!(view(waiting("containerStatuses", "ContainerCreating")).state, PodState::Starting);
    }

    #[test]
    fn a_failed_fetch_is_told_in_its_own_words() {
        let failed = json!({"phase": "Failed", "initContainerStatuses": [{"name": "fetch", "state": {"terminated":
            {"exitCode": 1, "finishedAt": "2026-01-01T00:00:05Z", "message": "http://x/y: 404 Not Found\n"}}}],
            "containerStatuses": [{"name": "agent", "state": {"waiting": {"reason": "PodInitializing"}}}]});
        let PodState::Ended { failure, at } = view(failed).state else { panic!("it ended") };
        assert_eq!(failure.reason, "FetchFailed");
        assert_eq!(failure.message, "source pod ics-3-source: http://x/y: 404 Not Found");
        assert_eq!(at, Some("2026-01-01T00:00:05Z".parse().unwrap()));

        let silent = json!({"phase": "Failed", "containerStatuses": [{"name": "agent", "state": {"terminated": {"exitCode": 137}}}]});
        assert_eq!(told(silent).1, "source pod ics-3-source: container agent ended with exit code 137");
        let evicted =
            json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."});
        assert_eq!(told(evicted).1, "source pod ics-3-source: Evicted: The node was low on memory.");
    }

    #[test]
    fn where_the_data_lies() {
        let node = NodeSource { path: "/data/ics".into(), name: None };
        let source = Source { node: Some(node), ..Source::default() };
        assert_eq!(Origin::of(&source), Ok(Origin::Node { name: None, path: "/data/ics".into() }));
        let path = |path: Option<&str>| {
            let claim = ClaimPath { claim_name: "c".into(), path: path.map(str::to_owned) };
            let source = Source { persistent_volume_claim: Some(claim), ..Source::default() };
            match Origin::of(&source) {
                Ok(Origin::Pod { path, mount: Mount::Claim { read_only: true, .. } }) => path,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(path(None), "/gridcast/origin");
        assert_eq!(path(Some("sedov/a")), "/gridcast/origin/sedov/a");
        assert_eq!(path(Some("/etc")), "/gridcast/origin", "refused by the schema, and harmless");
        let http = HttpSource { url: "http://a/b".into(), secret_name: Some("s".into()) };
        let source = Source { http: Some(http), ..Source::default() };
        assert!(matches!(
            Origin::of(&source),
            Ok(Origin::Pod { mount: Mount::Fetch { authorization: Some(_), .. }, .. })
        ));
        let s3 =
            S3Source { bucket: "b".into(), prefix: None, endpoint: None, region: None, secret_name: None };
        assert_eq!(Origin::of(&Source { s3: Some(s3), ..Source::default() }), Err("spec.source.s3"));
    }
}
