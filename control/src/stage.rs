//! Has one dataset carried from its source to all nodes, by the agent at the source.

use std::collections::BTreeMap;

use gridcast_core::{
    broadcast::{
        plan::{self, Executable, Options, Plan, PlanError},
        topology::Topology,
    },
    report::{BoundKind, Dataset, StagedNode},
};
use gridcast_crds::source::Strategy;
use gridcast_proto::v1::{self as wire, Finished, StartBroadcastRequest, broadcast_event::Event};

use crate::{Remote, StepFailure};

/// What happens while a dataset is on its way.
#[derive(Clone, Debug, PartialEq)]
pub enum StageEvent {
    /// The source has been looked through.
    Opened {
        /// Bytes outside holes, a hard-linked file once.
        size_bytes: u64,
        /// Names of regular files.
        files: u64,
    },
    /// A node has stored so many bytes.
    Progress {
        /// The node.
        node: String,
        /// Stored so far.
        bytes: u64,
    },
    /// A node shows the whole dataset.
    Published {
        /// The node.
        node: String,
        /// Since the broadcast was started.
        seconds: f64,
        /// Size over that time, Mbit/s.
        rate_mbps: f64,
    },
    /// A node read what it shows again.
    Verified {
        /// The node.
        node: String,
        /// It equals the manifest.
        verified: bool,
        /// Why it does not.
        message: String,
    },
}

/// The core's word for a strategy of the API.
pub fn strategy(strategy: Strategy) -> plan::Strategy {
    match strategy {
        Strategy::Stable => plan::Strategy::Stable,
        Strategy::Flat => plan::Strategy::Flat,
        Strategy::Chain => plan::Strategy::Chain,
        Strategy::Random => plan::Strategy::Random,
        Strategy::DepthFirst => plan::Strategy::DepthFirst,
        Strategy::Fpfr => plan::Strategy::Fpfr,
        Strategy::Dijkstra => plan::Strategy::Dijkstra,
        Strategy::DijkstraEarliest => plan::Strategy::DijkstraEarliest,
    }
}

/// A plan by the strategy that was asked for, or, where its trees cannot be carried out, by the best that can. The plan says
/// which made it. It is one that agents can carry out: of nested trees, whatever `options` say.
pub fn plan_or_best(
    topology: &Topology,
    source: &str,
    destinations: &[String],
    options: &Options,
) -> Result<Plan, PlanError> {
    let options = Options { executable: Executable::Nested, ..options.clone() };
    match plan::plan(topology, source, destinations, &options) {
        Err(PlanError::Unsupported { .. }) => {
            let options = Options { strategy: plan::Strategy::Stable, ..options };
            plan::plan(topology, source, destinations, &options)
        }
        done => done,
    }
}

/// A plan as agents read it.
pub fn wire_plan(plan: &Plan) -> wire::Plan {
    let hop = |hop: &plan::Hop| wire::Hop { from: hop.from.clone(), to: hop.to.clone() };
    let tree = |tree: &plan::Tree| wire::Tree {
        rate_mbps: tree.rate_mbps,
        hops: tree.hops.iter().map(hop).collect(),
    };
    wire::Plan { strategy: plan.strategy.to_string(), trees: plan.carried().iter().map(tree).collect() }
}

/// Carries one dataset to `request.members` by `plan`, whose names are those of the peers, and waits until each has
/// verified it. The first failed node ends it; the message begins with that node. The dataset's name is `request.id`, to be
/// replaced by whoever has a better one.
///
/// `request.plan` is filled in from `plan` where it is not given.
pub async fn stage(
    source: &Remote,
    mut request: StartBroadcastRequest,
    plan: &Plan,
    bound_kind: BoundKind,
    on_event: &mut (dyn FnMut(StageEvent) + Send),
) -> Result<Dataset, StepFailure> {
    let name = request.id.clone();
    let members: Vec<String> = request.members.iter().map(|member| member.name.clone()).collect();
    request.plan.get_or_insert_with(|| wire_plan(plan));
    let (arrivals, finished) = carry(source, request, on_event).await?;
    let nodes: Vec<StagedNode> = members
        .into_iter()
        .map(|node| StagedNode {
            verified: arrivals.verified.get(&node).copied().unwrap_or(false),
            rate_mbps: arrivals.seconds.get(&node).map_or(0.0, |s| rate_mbps(finished.size_bytes, *s)),
            name: node,
        })
        .collect();
    Ok(Dataset {
        name,
        size_bytes: finished.size_bytes,
        files: finished.files,
        digest: finished.digest,
        strategy: plan.strategy.to_string(),
        trees: u32::try_from(plan.carried().len()).unwrap_or(u32::MAX),
        seconds: finished.seconds,
        aggregate_mbps: nodes.iter().map(|n| n.rate_mbps).sum(),
        bound_mbps: plan.bound_mbps,
        bound_kind,
        source_bytes_read: finished.source_bytes_read,
        nodes,
    })
}

/// What is known of the nodes while a dataset is on its way.
#[derive(Debug, Default)]
struct Arrivals {
    size_bytes: u64,
    seconds: BTreeMap<String, f64>,
    verified: BTreeMap<String, bool>,
}

async fn carry(
    source: &Remote,
    request: StartBroadcastRequest,
    on_event: &mut (dyn FnMut(StageEvent) + Send),
) -> Result<(Arrivals, Finished), StepFailure> {
    let gone = |status: &tonic::Status| source.failed("StagingFailed", "staging", status);
    let id = request.id.clone();
    let mut events = source.broadcasts().start(request).await.map_err(|s| gone(&s))?.into_inner();
    let mut arrivals = Arrivals::default();
    while let Some(event) = events.message().await.map_err(|s| gone(&s))? {
        match event.event {
            Some(Event::Finished(finished)) => return Ok((arrivals, finished)),
            Some(Event::Failed(failed)) => return Err(StepFailure::new(failed.reason, failed.message)),
            Some(event) => {
                if let Some(event) = arrivals.note(event) {
                    on_event(event);
                }
            }
            None => {}
        }
    }
    let text = format!("{}: the source's agent ended the broadcast of {id}", source.name);
    Err(StepFailure::new("AgentLost", text))
}

impl Arrivals {
    fn note(&mut self, event: Event) -> Option<StageEvent> {
        Some(match event {
            Event::Opened(opened) => {
                self.size_bytes = opened.size_bytes;
                StageEvent::Opened { size_bytes: opened.size_bytes, files: opened.files }
            }
            Event::Progress(progress) => StageEvent::Progress { node: progress.node, bytes: progress.bytes },
            Event::Published(published) => {
                self.seconds.insert(published.node.clone(), published.seconds);
                StageEvent::Published {
                    rate_mbps: rate_mbps(self.size_bytes, published.seconds),
                    node: published.node,
                    seconds: published.seconds,
                }
            }
            Event::Verified(verified) => {
                self.verified.insert(verified.node.clone(), verified.verified);
                StageEvent::Verified {
                    node: verified.node,
                    verified: verified.verified,
                    message: verified.message,
                }
            }
            Event::Failed(_) | Event::Finished(_) => return None,
        })
    }
}

fn rate_mbps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / 1e6 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_offered_is_done_by_the_best_that_is_and_said() {
        let hosts = ["s", "a", "b"].map(str::to_owned);
        let topology = Topology::one_switch(&hosts, 1000.0, 0.1);
        for asked in [Strategy::Stable, Strategy::Chain, Strategy::Fpfr, Strategy::Dijkstra] {
            let options =
                Options { strategy: strategy(asked), executable: Executable::Nested, ..Options::default() };
            let strict = plan::plan(&topology, "s", &hosts[1..], &options);
            let plan = plan_or_best(&topology, "s", &hosts[1..], &options).unwrap();
            match strict {
                Ok(strict) => assert_eq!(plan, strict),
                Err(error) => {
                    assert_eq!(error.reason(), "UnsupportedStrategy");
                    assert_ne!(plan.strategy, options.strategy);
                }
            }
            assert_eq!(wire_plan(&plan).strategy, format!("{:?}", plan.strategy));
        }
        let unknown = plan_or_best(&topology, "x", &hosts, &Options::default()).unwrap_err();
        assert_eq!(unknown.reason(), "UnknownSource");
    }

    #[test]
    fn steps_can_be_tasks() {
        fn task<T: Send>(_: impl FnOnce(&'static Remote, &'static Plan) -> T) {}
        task(|remote, plan| async {
            stage(remote, StartBroadcastRequest::default(), plan, BoundKind::Measured, &mut |_| ()).await
        });
    }
}
