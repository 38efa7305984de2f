//! Carries one dataset to all nodes, by the agent of the first one, and shows it where programs expect it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use gridcast_core::{
    broadcast::plan::{self, Options, Plan},
    report::{BoundKind, Dataset, StagedNode},
};
use gridcast_crds::source::Strategy;
use gridcast_proto::v1::{self as wire, StartBroadcastRequest, broadcast_event::Event};

use crate::failure::Failure;

use super::{
    cluster::Cluster,
    intake::{DataPlan, Intake},
    progress::Progress,
    provision::GRIDCAST,
};

/// What is known of the nodes while a dataset is on its way.
#[derive(Debug, Default)]
struct Arrivals {
    size_bytes: u64,
    seconds: BTreeMap<String, f64>,
    verified: BTreeMap<String, bool>,
}

/// Stages dataset number `index` of the manifest.
pub(crate) async fn stage(
    intake: &Intake,
    cluster: &Cluster,
    index: usize,
    progress: &Progress,
) -> Result<Dataset, Failure> {
    let data = &intake.data[index];
    let plan = plan(intake, data)?;
    let destinations = cluster.remotes.len() - 1;
    progress.say(
        "stage",
        &format!(
            "{}: to {destinations} nodes by {:?}, {} tree{}, bound {:.0} Mbit/s",
            data.name,
            plan.strategy,
            plan.trees.len(),
            if plan.trees.len() == 1 { "" } else { "s" },
            plan.bound_mbps
        ),
    );
    let staged = Path::new(GRIDCAST).join("data").join(&data.name);
    let (arrivals, finished) =
        carry(cluster, data, &plan, &cluster.origins[index], &staged, progress).await?;
    cluster.mount(&staged, &data.mount_path)?;
    let rate = |seconds: f64| rate_mbps(finished.size_bytes, seconds);
    let nodes: Vec<StagedNode> = cluster.remotes[1..]
        .iter()
        .map(|remote| StagedNode {
            name: remote.name.clone(),
            verified: arrivals.verified.get(&remote.name).copied().unwrap_or(false),
            rate_mbps: arrivals.seconds.get(&remote.name).map_or(0.0, |s| rate(*s)),
        })
        .collect();
    Ok(Dataset {
        name: data.name.clone(),
        size_bytes: finished.size_bytes,
        files: finished.files,
        digest: finished.digest,
        strategy: format!("{:?}", plan.strategy),
        trees: u32::try_from(plan.trees.len()).unwrap_or(u32::MAX),
        seconds: finished.seconds,
        aggregate_mbps: nodes.iter().map(|n| n.rate_mbps).sum(),
        bound_mbps: plan.bound_mbps,
        // The lab's links are what the file says, or the default that the documentation states.
        bound_kind: BoundKind::Declared,
        source_bytes_read: finished.source_bytes_read,
        nodes,
    })
}

fn rate_mbps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / 1e6 / seconds } else { 0.0 }
}

fn plan(intake: &Intake, data: &DataPlan) -> Result<Plan, Failure> {
    let strategy = match data.strategy {
        Strategy::Stable => plan::Strategy::Stable,
        Strategy::Flat => plan::Strategy::Flat,
        Strategy::Chain => plan::Strategy::Chain,
        Strategy::Random => plan::Strategy::Random,
        Strategy::DepthFirst => plan::Strategy::DepthFirst,
        Strategy::Fpfr => plan::Strategy::Fpfr,
        Strategy::Dijkstra => plan::Strategy::Dijkstra,
    };
    let destinations: Vec<String> = intake.nodes[1..].iter().map(|n| n.name.clone()).collect();
    let options = Options { strategy, ..Options::default() };
    plan::plan(&intake.topology, &intake.nodes[0].name, &destinations, &options)
        .map_err(|e| Failure::failed(e.reason(), format!("data {}: {e}", data.name)))
}

async fn carry(
    cluster: &Cluster,
    data: &DataPlan,
    plan: &Plan,
    (origin, inside): &(PathBuf, PathBuf),
    staged: &Path,
    progress: &Progress,
) -> Result<(Arrivals, wire::Finished), Failure> {
    let source = &cluster.remotes[0];
    let text = |path: &Path| {
        path.to_str().map(ToOwned::to_owned).ok_or_else(|| {
            Failure::failed(
                "SourceUnreadable",
                format!("data {}: {} is not UTF-8", data.name, path.display()),
            )
        })
    };
    let request = StartBroadcastRequest {
        id: data.name.clone(),
        source: Some(source.peer()),
        source_path: text(inside)?,
        members: cluster.remotes[1..].iter().map(super::remote::Remote::peer).collect(),
        target: text(staged)?,
        store_at_source: true,
        plan: Some(wire_plan(plan)),
        chunk_bytes: 0,
    };
    let gone = |status: &tonic::Status| source.failed("StagingFailed", "staging", status);
    let mut events = source.broadcasts().start(request).await.map_err(|s| gone(&s))?.into_inner();
    let mut arrivals = Arrivals::default();
    while let Some(event) = events.message().await.map_err(|s| gone(&s))? {
        match event.event {
            Some(Event::Finished(finished)) => return Ok((arrivals, finished)),
            Some(Event::Failed(failed)) => {
                return Err(Failure::failed(
                    failed.reason,
                    // The message begins with the node; a file is named where the user knows it.
                    format!("data {}: {}", data.name, failed.message)
                        .replace(&*inside.to_string_lossy(), &origin.to_string_lossy()),
                ));
            }
            Some(event) => arrivals.note(data, event, progress),
            None => {}
        }
    }
    Err(Failure::failed(
        "AgentLost",
        format!("{}: the source's agent ended the broadcast of {}", source.name, data.name),
    ))
}

impl Arrivals {
    fn note(&mut self, data: &DataPlan, event: Event, progress: &Progress) {
        match event {
            Event::Opened(opened) => {
                self.size_bytes = opened.size_bytes;
                let mib = opened.size_bytes as f64 / f64::from(1 << 20);
                progress.say(
                    "stage",
                    &format!("{}: {} files, {mib:.1} MiB outside holes", data.name, opened.files),
                );
            }
            Event::Published(published) => {
                let rate = rate_mbps(self.size_bytes, published.seconds);
                progress.say(
                    "stage",
                    &format!(
                        "{}: on {} after {:.2} s, {rate:.0} Mbit/s",
                        data.name, published.node, published.seconds
                    ),
                );
                self.seconds.insert(published.node, published.seconds);
            }
            Event::Verified(verified) => {
                if !verified.verified {
                    progress.warn(&format!("{}: {}: {}", data.name, verified.node, verified.message));
                }
                self.verified.insert(verified.node, verified.verified);
            }
            Event::Progress(_) | Event::Failed(_) | Event::Finished(_) => {}
        }
    }
}

fn wire_plan(plan: &Plan) -> wire::Plan {
    let hop = |hop: &plan::Hop| wire::Hop { from: hop.from.clone(), to: hop.to.clone() };
    let tree = |tree: &plan::Tree| wire::Tree {
        rate_mbps: tree.rate_mbps,
        hops: tree.hops.iter().map(hop).collect(),
    };
    wire::Plan { strategy: format!("{:?}", plan.strategy), trees: plan.trees.iter().map(tree).collect() }
}
