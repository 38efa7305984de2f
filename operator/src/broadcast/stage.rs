//! How is a dataset brought to its nodes, and taken back?
//!
//! One operation per object, one attempt at a time: nodes that should give it back are asked to release it, nodes that
//! should have it prepare for it, and those that do not have it yet are brought it by one transfer from the source. What
//! came of it is in the [`Knowledge`] that the operation ends with; it never fails as such, so that nothing is forgotten.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use gridcast_control::{Remote, StepFailure, is_gone};
use gridcast_crds::BroadcastSpec;
use gridcast_proto::v1::{PrepareReply, PrepareRequest, ReleaseReply, ReleaseRequest};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams, core::PartialObjectMeta};
use tonic::Status;

use super::{
    knowledge::{Facts, Knowledge, Measured, Trouble},
    transfer,
};
use crate::{failure::chain, operations::Reporter};

/// Agents that are asked at once.
const AT_ONCE: usize = 32;
/// How long an agent may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Pods of one namespace among which names are looked for.
const MOST_PODS: u32 = 1000;

/// Everything that an attempt needs.
#[derive(Debug)]
pub(crate) struct Work {
    /// The object's spec.
    pub(crate) spec: BroadcastSpec,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its UID.
    pub(crate) uid: String,
    /// The name under which the source will call.
    pub(crate) driver: String,
    /// Nodes that prepare, and are brought the dataset.
    pub(crate) nodes: Vec<Remote>,
    /// Nodes that give it back.
    pub(crate) release: Vec<Remote>,
    /// Whether what they have stays on their disks.
    pub(crate) keep_data: bool,
    /// Where it comes from; without it nodes prepare only.
    pub(crate) source: Option<Source>,
    /// Where the pods are that may have it mounted; without it they are told of by UID.
    pub(crate) pods: Option<Api<PartialObjectMeta<Pod>>>,
    /// What somebody else measured between the nodes.
    pub(crate) mapped: Option<Measured>,
    /// The clock.
    pub(crate) now: fn() -> Timestamp,
}

/// The source of an attempt.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its agent.
    pub(crate) remote: Remote,
    /// The dataset, as it sees it.
    pub(crate) path: String,
    /// The agent of the node that a source pod is on, where there is one.
    pub(crate) carrier: Option<Remote>,
    /// Where the data is, in the user's words: what messages say instead of a path in the source pod.
    pub(crate) told: Option<String>,
}

/// Makes one attempt. `knowledge` is what is known at first.
pub(crate) async fn attempt(
    work: Work,
    mut knowledge: Knowledge,
    reporter: Reporter<Knowledge>,
) -> Result<Knowledge, StepFailure> {
    if !work.release.is_empty() {
        release(&work, &mut knowledge).await;
    }
    if !work.nodes.is_empty() {
        let target = prepare(&work, &mut knowledge).await;
        if let (Some(target), Some(source)) = (target, &work.source) {
            transfer::transfer(&work, source, &target, &mut knowledge, &reporter).await;
        }
    }
    Ok(knowledge)
}

async fn release(work: &Work, knowledge: &mut Knowledge) {
    let request = ReleaseRequest { uid: work.uid.clone(), keep_data: work.keep_data };
    let calls = work.release.iter().map(|remote| {
        let request = request.clone();
        async move { (remote, answer(remote.datasets().release(request)).await) }
    });
    let replies: Vec<_> = stream::iter(calls.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await;
    let now = (work.now)();
    knowledge.released_at = Some(now);
    for (remote, reply) in replies {
        match reply {
            Ok(ReleaseReply { released: true, .. }) => {
                knowledge.copies.remove(&remote.name);
            }
            Ok(ReleaseReply { pods, .. }) => {
                // One that nothing was known of is kept in mind from now on.
                let copy = knowledge.copies.entry(remote.name.clone()).or_default();
                copy.held = pods;
                copy.trouble = None;
            }
            Err(status) => {
                if let Some(copy) = knowledge.copies.get_mut(&remote.name) {
                    let failure = failed(remote, "ReleaseFailed", "releasing the dataset", &status);
                    copy.held.clear();
                    copy.trouble = Some(Trouble::after(copy.trouble.as_ref(), failure, now));
                }
            }
        }
    }
    name_pods(work, knowledge).await;
}

/// Learns the names of the pods that have the dataset mounted: agents know their UIDs, which nobody can look up.
async fn name_pods(work: &Work, knowledge: &mut Knowledge) {
    let held: BTreeSet<&String> = knowledge.copies.values().flat_map(|copy| &copy.held).collect();
    knowledge.pods.retain(|uid, _| held.contains(uid));
    let unknown = held.into_iter().any(|uid| !knowledge.pods.contains_key(uid));
    let Some(pods) = work.pods.as_ref().filter(|_| unknown) else { return };
    let held: BTreeSet<String> = knowledge.copies.values().flat_map(|copy| copy.held.clone()).collect();
    match pods.list_metadata(&ListParams::default().limit(MOST_PODS)).await {
        Ok(found) => {
            let named = found.items.iter().filter_map(|pod| Some((pod.uid()?, pod.name_any())));
            knowledge.pods.extend(named.filter(|(uid, _)| held.contains(uid)));
        }
        Err(error) => tracing::debug!(
            broadcast = work.name,
            namespace = work.namespace,
            error = chain(&error),
            "cannot list pods"
        ),
    }
}

/// Has all nodes prepare; returns the directory that those without the dataset have in common.
async fn prepare(work: &Work, knowledge: &mut Knowledge) -> Option<Target> {
    let request = PrepareRequest {
        namespace: work.namespace.clone(),
        name: work.name.clone(),
        uid: work.uid.clone(),
        path: work.spec.path.clone().unwrap_or_default(),
        source: work.driver.clone(),
    };
    let calls = work.nodes.iter().map(|remote| {
        let request = request.clone();
        async move { (remote, answer(remote.datasets().prepare(request)).await) }
    });
    let replies: BTreeMap<String, (&Remote, Result<PrepareReply, Status>)> =
        stream::iter(calls.collect::<Vec<_>>())
            .buffer_unordered(AT_ONCE)
            .map(|(remote, reply)| (remote.name.clone(), (remote, reply)))
            .collect()
            .await;
    let mut target: Option<Target> = None;
    for (node, (remote, reply)) in replies {
        let copy = knowledge.copies.entry(node.clone()).or_default();
        match reply {
            Ok(reply) if reply.verified => {
                copy.prepared = true;
                copy.verified = true;
                copy.trouble = None;
                let digest = Some(reply.digest).filter(|digest| !digest.is_empty());
                knowledge.dataset = Some(Facts { size_bytes: reply.size_bytes, files: reply.files, digest });
            }
            Ok(reply) => {
                copy.prepared = true;
                copy.verified = false;
                copy.bytes = 0;
                let target =
                    target.get_or_insert_with(|| Target { path: reply.target.clone(), nodes: Vec::new() });
                // Agents that keep their data elsewhere are brought it by a transfer of their own, the next.
                if target.path == reply.target {
                    target.nodes.push(node);
                }
            }
            Err(status) => {
                let failure = failed(remote, "PrepareFailed", "preparing for the dataset", &status);
                copy.trouble = Some(Trouble::after(copy.trouble.as_ref(), failure, (work.now)()));
            }
        }
    }
    target
}

/// Why an agent did not do as asked: its own word and sentence where it gives them.
pub(crate) fn failed(remote: &Remote, otherwise: &str, what: &str, status: &Status) -> StepFailure {
    let word = status.metadata().get("gridcast-reason").and_then(|reason| reason.to_str().ok());
    if !is_gone(status) && status.message().starts_with(&format!("{}: ", remote.name)) {
        return StepFailure::new(word.unwrap_or(otherwise), status.message());
    }
    remote.failed(word.unwrap_or(otherwise), what, status)
}

/// The nodes of one transfer, and the directory that they publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The directory, absolute, on each of them.
    pub(crate) path: String,
    /// The nodes, by name.
    pub(crate) nodes: Vec<String>,
}

/// An answer, or that none came in time: a host that was switched off closes no connection.
async fn answer<T>(call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(ANSWER, call).await {
        Ok(reply) => reply.map(tonic::Response::into_inner),
        Err(_) => Err(Status::unavailable(format!("no answer within {} s", ANSWER.as_secs()))),
    }
}

/// The same, again and again for as long as nobody answers, up to `patience`: the agent of a pod that has just started
/// needs a moment.
pub(crate) async fn answer_soon<T, F>(patience: Duration, mut call: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<tonic::Response<T>, Status>>,
{
    const PAUSE: Duration = Duration::from_millis(50);
    let mut tries = patience.as_millis() / PAUSE.as_millis();
    loop {
        match answer(call()).await {
            Err(status) if is_gone(&status) && tries > 0 => {
                tries -= 1;
                tokio::time::sleep(PAUSE).await;
            }
            reply => return reply,
        }
    }
}
