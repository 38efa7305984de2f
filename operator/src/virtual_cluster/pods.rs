//! What does a pod say of the node that it is, or should become?

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodStatus};

use super::{
    members::Made,
    observed::{MemberPod, Phase, Trouble},
};

/// Longest part of a message that comes from kubelet or scheduler, characters.
const TOLD: usize = 400;

/// What is known of `pod`. Its first container is the node: without it the pod does not run, whatever else runs in it.
pub fn read(pod: &Pod) -> MemberPod {
    let status = pod.status.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let node_container =
        spec.and_then(|spec| spec.containers.first()).map(|container| container.name.as_str());
    let node = status
        .container_statuses
        .iter()
        .flatten()
        .find(|container| Some(container.name.as_str()) == node_container);
    let phase = phase(&status, node);
    let address = status.pod_ip.clone().filter(|address| !address.is_empty());
    let has_place = spec.and_then(|spec| spec.node_name.as_ref()).is_some();
    MemberPod {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        node: spec.and_then(|spec| spec.node_name.clone()),
        waits_for_sandbox: phase == Phase::Pending && has_place && waits_for_sandbox(&status),
        address,
        keys: Made::of(pod).map(|made| made.keys),
        phase,
        created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        deleting: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        trouble: trouble(name, &status, node, phase),
    }
}

fn phase(status: &PodStatus, node: Option<&ContainerStatus>) -> Phase {
    let state = node.and_then(|node| node.state.as_ref());
    match status.phase.as_deref() {
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        Some("Running") if state.is_some_and(|state| state.terminated.is_some()) => Phase::Failed,
        Some("Running") if state.is_none_or(|state| state.running.is_some()) => Phase::Running,
        _ => Phase::Pending,
    }
}

fn waits_for_sandbox(status: &PodStatus) -> bool {
    condition(status, "PodReadyToStartContainers")
        .map_or_else(|| status.pod_ip.is_none(), |condition| condition.status == "False")
}

fn condition<'a>(status: &'a PodStatus, type_: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// The most telling thing first: what happened to the pod, to its init containers, to its node; what is waited for.
fn trouble(name: &str, status: &PodStatus, node: Option<&ContainerStatus>, phase: Phase) -> Option<Trouble> {
    let init = || status.init_container_statuses.iter().flatten();
    let all = || init().chain(status.container_statuses.iter().flatten());
    of_pod(name, status, phase)
        .or_else(|| init().find_map(|container| init_failed(name, container)))
        .or_else(|| node.and_then(|node| node_ended(name, node)))
        .or_else(|| all().find_map(|container| waiting(name, container)))
        .or_else(|| unplaced(name, status))
}

fn of_pod(name: &str, status: &PodStatus, phase: Phase) -> Option<Trouble> {
    let disrupted = condition(status, "DisruptionTarget").filter(|condition| condition.status == "True");
    if let Some(disrupted) = disrupted {
        let told = disrupted.message.as_deref().unwrap_or("the pod was disrupted");
        let reason = disrupted.reason.as_deref().unwrap_or("Disrupted");
        return Some(Trouble::new(word(reason), format!("{name}: {}", short(told))));
    }
    let reason = status.reason.as_deref().filter(|_| phase == Phase::Failed)?;
    let told = status.message.as_deref().unwrap_or("the pod failed");
    Some(Trouble::new(word(reason), format!("{name}: {}", short(told))))
}

fn init_failed(name: &str, container: &ContainerStatus) -> Option<Trouble> {
    let ended = container.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
    Some(Trouble::new("InitFailed", format!("{name}: init container {} {}", container.name, how(ended))))
}

fn node_ended(name: &str, container: &ContainerStatus) -> Option<Trouble> {
    let ended = container.state.as_ref()?.terminated.as_ref()?;
    if ended.reason.as_deref() == Some("OOMKilled") {
        let text =
            format!("{name}: container {} was killed: it took more memory than its limit", container.name);
        return Some(Trouble::new("OutOfMemory", text));
    }
    Some(Trouble::new("NodeEnded", format!("{name}: container {}, the node, {}", container.name, how(ended))))
}

fn how(ended: &ContainerStateTerminated) -> String {
    let mut text = match ended.signal {
        Some(signal) if signal != 0 => format!("was ended by signal {signal}"),
        _ => format!("ended with code {}", ended.exit_code),
    };
    // Writing into a String cannot fail.
    if let Some(reason) = ended.reason.as_deref().filter(|reason| !matches!(*reason, "Error" | "Completed")) {
        let _ = write!(text, " ({reason})");
    }
    if let Some(message) = ended.message.as_deref().filter(|message| !message.trim().is_empty()) {
        let _ = write!(text, ": {}", short(message));
    }
    text
}

fn waiting(name: &str, container: &ContainerStatus) -> Option<Trouble> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    let told = waiting.message.as_deref().unwrap_or_default();
    match reason {
        "ContainerCreating" | "PodInitializing" => None,
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable" => {
            let detail = pull_detail(told);
            let image = &container.image;
            let mut text = format!("{name}: image {image} of container {} cannot be pulled", container.name);
            if !detail.is_empty() {
                let _ = write!(text, ": {}", short(detail));
            }
            Some(Trouble::new("ImagePullFailed", text))
        }
        _ => Some(Trouble::new(
            word(reason),
            format!("{name}: container {} cannot be started: {}", container.name, short(told)),
        )),
    }
}

/// What is told of one failed pull, whether kubelet is at it or waits for the next: it would look like news each time.
fn pull_detail(told: &str) -> &str {
    let told = match told.strip_prefix("Back-off pulling image \"") {
        Some(rest) => rest.split_once('"').map_or("", |(_, rest)| rest.trim_start_matches(':').trim_start()),
        None => told,
    };
    told.strip_prefix("ErrImagePull: ").unwrap_or(told)
}

fn unplaced(name: &str, status: &PodStatus) -> Option<Trouble> {
    let placed = condition(status, "PodScheduled").filter(|condition| condition.status == "False")?;
    let reason = placed.reason.as_deref().unwrap_or("Unschedulable");
    let told = placed.message.as_deref().unwrap_or("the scheduler finds no place for it");
    // What the scheduler tried besides says nothing about the cause.
    let end =
        [" no new claims to deallocate", " preemption: "].iter().filter_map(|tried| told.find(tried)).min();
    Some(Trouble::new(word(reason), format!("{name}: {}", short(&told[..end.unwrap_or(told.len())]))))
}

/// A reason as conditions take it.
fn word(reason: &str) -> String {
    let word: String = reason.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    if word.starts_with(|c: char| c.is_ascii_alphabetic()) { word } else { "NodeFailed".to_owned() }
}

/// On one line, not too long.
fn short(told: &str) -> String {
    let line = told.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(TOLD) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: &Value) -> MemberPod {
        let pod = json!({
            "metadata": { "name": "ring-node-1", "uid": "u" },
            "spec": { "nodeName": "k1", "containers": [{ "name": "node" }, { "name": "sidecar" }] },
            "status": status,
        });
        read(&serde_json::from_value(pod).unwrap())
    }

    fn told(status: &Value) -> String {
        let trouble = pod(status).trouble.unwrap();
        format!("{}: {}", trouble.reason, trouble.message)
    }

    fn container(name: &str, state: &Value) -> Value {
        json!({ "name": name, "image": "registry.example/x:1", "imageID": "", "ready": false, "restartCount": 0, "state": state })
    }

    #[test]
    fn what_is_in_the_way_is_told_in_one_sentence() {
        assert_eq!(
            told(&json!({ "phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, preemption: 0/3 nodes are \
                            available: 3 No preemption victims found for incoming pod."
            }] })),
            "Unschedulable: ring-node-1: 0/3 nodes are available: 3 Insufficient cpu."
        );
        let init = container("prepare", &json!({ "terminated": { "exitCode": 3, "reason": "Error" } }));
        assert_eq!(
            told(&json!({ "phase": "Failed", "initContainerStatuses": [init] })),
            "InitFailed: ring-node-1: init container prepare ended with code 3"
        );
        assert_eq!(
            told(
                &json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory." })
            ),
            "Evicted: ring-node-1: The node was low on resource: memory."
        );
        let node = container("node", &json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } }));
        assert!(
            told(&json!({ "phase": "Failed", "containerStatuses": [node] })).starts_with("OutOfMemory: ")
        );
    }

    #[test]
    fn a_pull_that_is_tried_again_and_again_is_one_trouble() {
        let waiting = |reason: &str, message: &str| {
            let node = container("node", &json!({ "waiting": { "reason": reason, "message": message } }));
            told(&json!({ "phase": "Pending", "containerStatuses": [node] }))
        };
        let now = waiting("ErrImagePull", "not found");
        assert_eq!(
            now,
            "ImagePullFailed: ring-node-1: image registry.example/x:1 of container node cannot be pulled: not found"
        );
        let later = "Back-off pulling image \"registry.example/x:1\": ErrImagePull: not found";
        assert_eq!(waiting("ImagePullBackOff", later), now);
    }

    #[test]
    fn a_pod_whose_first_container_ended_does_not_run() {
        let sidecar = container("sidecar", &json!({ "running": {} }));
        let ended = container("node", &json!({ "terminated": { "exitCode": 1 } }));
        let running = container("node", &json!({ "running": {} }));
        let creating = container("node", &json!({ "waiting": { "reason": "ContainerCreating" } }));
        let of = |node: &Value| {
            pod(&json!({ "phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [sidecar.clone(), node.clone()] })).phase
        };
        assert_eq!(of(&ended), Phase::Failed);
        assert_eq!(of(&running), Phase::Running);
        assert_eq!(of(&creating), Phase::Pending);
    }

    #[test]
    fn a_reason_fits_a_condition() {
        assert_eq!(word("OutOfcpu"), "OutOfcpu");
        assert_eq!(word("3 strange-words"), "NodeFailed");
        assert_eq!(word("EvictionByEvictionAPI"), "EvictionByEvictionAPI");
    }
}
