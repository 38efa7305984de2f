//! How does one transfer go from its source to its nodes?
//!
//! The source says how large the dataset is; the network is measured first if that pays; the plan goes to the agent at the
//! source, which coordinates. Who has it verified is noted as it happens, and stays noted when the transfer ends by the
//! failure of another node.

use std::time::Duration;

use gridcast_control::{Remote, StepFailure, measure, stage as control};
use gridcast_core::report::{self, Dataset};
use gridcast_crds::broadcast::BoundKind;
use gridcast_proto::v1::{InspectRequest, Opened, StartBroadcastRequest};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    knowledge::{Arrival, Facts, Knowledge, Measured, Trouble, since},
    routes::{self, Routes, Site},
    stage::{Source, Target, Work, answer_soon, failed},
};
use crate::{auxiliary_pod::ORIGIN, operations::Reporter};

/// How long the agent of a source pod that runs may need to answer.
const SOURCE_TAKES: Duration = Duration::from_secs(3);
/// A transfer that is over before this shows nothing on the way.
const FIRST_REPORT: Duration = Duration::from_secs(1);
/// How often a transfer shows how far it is.
const REPORTS: Duration = Duration::from_secs(5);
/// Most members of one transfer; the others are brought it by the next.
const MOST_MEMBERS: usize = 2000;
/// What the copy at the source fails by: the node is at fault as a receiver, not as the source.
const OF_A_COPY: [&str; 4] = ["DiskFull", "TargetExists", "TargetIsMount", "TargetUnusable"];

/// Brings the dataset to the nodes of `target`.
pub(crate) async fn transfer(
    work: &Work,
    source: &Source,
    target: &Target,
    knowledge: &mut Knowledge,
    reporter: &Reporter<Knowledge>,
) {
    let members: Vec<&Remote> =
        work.nodes.iter().filter(|node| target.nodes.contains(&node.name)).take(MOST_MEMBERS).collect();
    let receivers: Vec<&Remote> =
        members.iter().copied().filter(|node| node.name != source.remote.name).collect();
    match open(source).await {
        Ok(opened) => {
            knowledge.dataset =
                Some(Facts { size_bytes: opened.size_bytes, files: opened.files, digest: None });
            knowledge.measured = figures(work, source, &receivers, opened.size_bytes, knowledge).await;
        }
        Err(failure) => return blame_source(work, source, failure, knowledge),
    }
    let names: Vec<String> = receivers.iter().map(|node| node.name.clone()).collect();
    let site = Site {
        source: &source.remote.name,
        carrier: source.carrier.as_ref().map(|carrier| carrier.name.as_str()),
        destinations: &names,
    };
    match routes::routes(&work.spec, &site, knowledge.measured.as_ref()) {
        Ok(routes) => carry(work, source, target, &members, &routes, knowledge, reporter).await,
        Err(failure) => blame_source(work, source, failure, knowledge),
    }
}

async fn open(source: &Source) -> Result<Opened, StepFailure> {
    let request = InspectRequest { source_path: source.path.clone() };
    let reply = answer_soon(SOURCE_TAKES, || {
        let (mut broadcasts, request) = (source.remote.broadcasts(), request.clone());
        async move { broadcasts.inspect(request).await }
    });
    reply
        .await
        .map_err(|status| failed(&source.remote, "SourceUnreadable", "looking at the dataset", &status))
}

/// Bandwidths for the plan: known ones that are fresh, or measured now where that pays.
async fn figures(
    work: &Work,
    source: &Source,
    receivers: &[&Remote],
    size_bytes: u64,
    knowledge: &Knowledge,
) -> Option<Measured> {
    let names = || receivers.iter().map(|node| node.name.as_str());
    let now = (work.now)();
    let known = [&knowledge.measured, &work.mapped].into_iter().flatten();
    if let Some(known) = known.filter(|known| known.covers(names(), now)).max_by_key(|known| known.at) {
        return Some(known.clone());
    }
    if !routes::worth_measuring(size_bytes, receivers.len()) {
        return None;
    }
    let mut remotes: Vec<Remote> = receivers.iter().map(|&node| node.clone()).collect();
    // A node's own agent measures for its source pod, whose link is the node's.
    let place = source.carrier.as_ref().or_else(|| source.told.is_none().then_some(&source.remote));
    remotes.extend(place.filter(|place| receivers.iter().all(|node| node.name != place.name)).cloned());
    let hosts: Vec<String> = remotes.iter().map(|node| node.name.clone()).collect();
    let shared = measure::machines(&hosts);
    let limits = measure::Limits::machines();
    match measure::bandwidths(&remotes, &measure::Quick::default(), &shared, &limits).await {
        Ok(mbps) => Some(Measured { hosts, mbps, at: (work.now)() }),
        Err(failure) => {
            // The transfer itself will tell if a node cannot be reached.
            tracing::warn!(broadcast = work.name, namespace = work.namespace, %failure, "staging without figures of the network");
            None
        }
    }
}

async fn carry(
    work: &Work,
    source: &Source,
    target: &Target,
    members: &[&Remote],
    routes: &Routes,
    knowledge: &mut Knowledge,
    reporter: &Reporter<Knowledge>,
) {
    let at_source = members.iter().any(|node| node.name == source.remote.name);
    let request = StartBroadcastRequest {
        id: format!("{}-{}", work.uid, knowledge.attempt),
        source: Some(source.remote.peer()),
        source_path: source.path.clone(),
        members: members
            .iter()
            .filter(|node| node.name != source.remote.name)
            .map(|node| node.peer())
            .collect(),
        target: target.path.clone(),
        store_at_source: at_source,
        ..StartBroadcastRequest::default()
    };
    begin(knowledge, routes, members.len(), (work.now)());
    let mut record = Record { knowledge, routes, reporter, reported: Instant::now() + FIRST_REPORT };
    let kind = report::BoundKind::Measured;
    let result =
        control::stage(&source.remote, request, &routes.plan, kind, &mut |event| record.note(event)).await;
    match result {
        Ok(dataset) => finish(work, members, dataset, knowledge),
        Err(failure) => {
            knowledge.campaign.seconds = elapsed(knowledge, (work.now)());
            blame(work, source, members, at_source, failure, knowledge);
        }
    }
}

fn begin(knowledge: &mut Knowledge, routes: &Routes, members: usize, now: Timestamp) {
    let campaign = &mut knowledge.campaign;
    campaign.since.get_or_insert(now);
    campaign.transfers = campaign.transfers.saturating_add(1);
    if members > campaign.most {
        campaign.most = members;
        campaign.strategy = routes.plan.strategy.to_string();
        campaign.trees = u32::try_from(routes.plan.carried().len()).unwrap_or(u32::MAX);
        campaign.bound_kind = Some(routes.kind);
    }
    if routes.kind == BoundKind::Assumed {
        // One bound that is assumed makes the sum so.
        campaign.bound_kind = Some(BoundKind::Assumed);
    }
}

fn elapsed(knowledge: &Knowledge, now: Timestamp) -> f64 {
    knowledge.campaign.since.map_or(0.0, |then| since(then, now).as_secs_f64())
}

/// What happens, noted and shown now and then.
struct Record<'a> {
    knowledge: &'a mut Knowledge,
    routes: &'a Routes,
    reporter: &'a Reporter<Knowledge>,
    /// When it is shown next.
    reported: Instant,
}

impl Record<'_> {
    fn note(&mut self, event: control::StageEvent) {
        use control::StageEvent as Event;
        match event {
            Event::Opened { size_bytes, files } => {
                self.knowledge.dataset = Some(Facts { size_bytes, files, digest: None });
            }
            Event::Progress { node, bytes } => {
                if let Some(copy) = self.knowledge.copies.get_mut(&node) {
                    copy.bytes = bytes;
                }
            }
            Event::Published { node, seconds, rate_mbps } => {
                let size = self.knowledge.dataset.as_ref().map_or(0, |facts| facts.size_bytes);
                if let Some(copy) = self.knowledge.copies.get_mut(&node) {
                    copy.bytes = size;
                    // A copy at the source crosses no network: its rate is its bound.
                    let bound_mbps = self.routes.bounds.get(&node).copied().unwrap_or(rate_mbps);
                    copy.arrival = Some(Arrival { seconds, rate_mbps, bound_mbps });
                }
            }
            Event::Verified { node, verified: true, .. } => {
                if let Some(copy) = self.knowledge.copies.get_mut(&node) {
                    copy.verified = true;
                    copy.trouble = None;
                }
            }
            Event::Verified { .. } => {}
        }
        if Instant::now() >= self.reported {
            self.reported = Instant::now() + REPORTS;
            self.reporter.report(self.knowledge.clone());
        }
    }
}

fn finish(work: &Work, members: &[&Remote], dataset: Dataset, knowledge: &mut Knowledge) {
    let now = (work.now)();
    knowledge.source = None;
    knowledge.dataset =
        Some(Facts { size_bytes: dataset.size_bytes, files: dataset.files, digest: Some(dataset.digest) });
    for member in members {
        if let Some(copy) = knowledge.copies.get_mut(&member.name) {
            copy.verified = true;
            copy.trouble = None;
        }
    }
    let several = knowledge.campaign.transfers > 1;
    knowledge.campaign.seconds = if several { elapsed(knowledge, now) } else { dataset.seconds };
    knowledge.campaign.source_bytes_read += dataset.source_bytes_read;
}

/// Notes the failure with the one at fault: a message begins with its name.
fn blame(
    work: &Work,
    source: &Source,
    members: &[&Remote],
    at_source: bool,
    failure: StepFailure,
    knowledge: &mut Knowledge,
) {
    let is_copy = at_source && OF_A_COPY.contains(&failure.reason.as_str());
    let at_fault = members
        .iter()
        .filter(|node| node.name != source.remote.name || is_copy)
        .find(|node| names(&failure.message, &node.name));
    let Some(node) = at_fault else { return blame_source(work, source, failure, knowledge) };
    knowledge.source = None;
    let copy = knowledge.copies.entry(node.name.clone()).or_default();
    copy.verified = false;
    copy.arrival = None;
    copy.trouble = Some(Trouble::after(copy.trouble.as_ref(), told(source, failure), (work.now)()));
}

fn blame_source(work: &Work, source: &Source, failure: StepFailure, knowledge: &mut Knowledge) {
    let failure = told(source, failure);
    knowledge.source = Some(Trouble::after(knowledge.source.as_ref(), failure, (work.now)()));
}

/// Whether a message begins with this name, and not with a longer one.
fn names(message: &str, name: &str) -> bool {
    let rest = message.strip_prefix(name);
    rest.is_some_and(|rest| {
        !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '-' || next == '.')
    })
}

/// The message in the user's words: nobody knows a source pod by the UID of its Broadcast, or the path in it.
fn told(source: &Source, failure: StepFailure) -> StepFailure {
    let Some(place) = &source.told else { return failure };
    let message = failure.message.replace(&source.remote.name, "the source").replace(ORIGIN, place);
    StepFailure::new(failure.reason, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_one_node() {
        assert!(names("worker-1: disk full", "worker-1"));
        assert!(!names("worker-10: disk full", "worker-1"));
        assert!(!names("worker-1.example: disk full", "worker-1"));
        assert!(!names("the worker-1", "worker-1"));
    }
}
