//! Carries one dataset to all nodes, by the agent of the first one, and shows it where programs expect it.

use std::path::Path;

use gridcast_control::{
    Remote,
    stage::{self, StageEvent},
};
use gridcast_core::{
    broadcast::plan::{self, Executable, Options, Plan},
    report::{BoundKind, Dataset},
};
use gridcast_proto::v1::StartBroadcastRequest;

use crate::failure::Failure;

use super::{
    cluster::Cluster,
    intake::{DataPlan, Intake},
    progress::Progress,
    provision::GRIDCAST,
};

/// Stages dataset number `index` of the manifest.
pub(crate) async fn stage(
    intake: &Intake,
    cluster: &Cluster,
    index: usize,
    progress: &Progress,
) -> Result<Dataset, Failure> {
    let data = &intake.data[index];
    let plan = plan(intake, data)?;
    let (destinations, trees) = (cluster.remotes.len() - 1, plan.carried().len());
    progress.say(
        "stage",
        &format!(
            "{}: to {destinations} nodes by {:?}, {} tree{}, bound {:.0} Mbit/s",
            data.name,
            plan.strategy,
            trees,
            if trees == 1 { "" } else { "s" },
            plan.bound_mbps
        ),
    );
    let staged = Path::new(GRIDCAST).join("data").join(&data.name);
    let (origin, inside) = &cluster.origins[index];
    let source = &cluster.remotes[0];
    let request = StartBroadcastRequest {
        id: data.name.clone(),
        source: Some(source.peer()),
        source_path: text(data, inside)?,
        members: cluster.remotes[1..].iter().map(Remote::peer).collect(),
        target: text(data, &staged)?,
        store_at_source: true,
        ..StartBroadcastRequest::default()
    };
    let mut tell = |event| tell(data, event, progress);
    // The lab's links are what the file says, or the default that the documentation states.
    let dataset = stage::stage(source, request, &plan, BoundKind::Declared, &mut tell).await;
    let dataset = dataset.map_err(|failure| {
        // The message begins with the node; a file is named where the user knows it.
        let text = format!("data {}: {}", data.name, failure.message);
        Failure::failed(failure.reason, text.replace(&*inside.to_string_lossy(), &origin.to_string_lossy()))
    })?;
    cluster.mount(&staged, &data.mount_path)?;
    Ok(dataset)
}

fn text(data: &DataPlan, path: &Path) -> Result<String, Failure> {
    path.to_str().map(ToOwned::to_owned).ok_or_else(|| {
        Failure::failed("SourceUnreadable", format!("data {}: {} is not UTF-8", data.name, path.display()))
    })
}

fn plan(intake: &Intake, data: &DataPlan) -> Result<Plan, Failure> {
    let destinations: Vec<String> = intake.nodes[1..].iter().map(|n| n.name.clone()).collect();
    let options = Options {
        strategy: stage::strategy(data.strategy),
        executable: Executable::Nested,
        ..Options::default()
    };
    plan::plan(&intake.topology, &intake.nodes[0].name, &destinations, &options)
        .map_err(|e| Failure::failed(e.reason(), format!("data {}: {e}", data.name)))
}

fn tell(data: &DataPlan, event: StageEvent, progress: &Progress) {
    let name = &data.name;
    match event {
        StageEvent::Opened { size_bytes, files } => {
            let mib = size_bytes as f64 / f64::from(1 << 20);
            progress.say("stage", &format!("{name}: {files} files, {mib:.1} MiB outside holes"));
        }
        StageEvent::Published { node, seconds, rate_mbps } => {
            progress.say("stage", &format!("{name}: on {node} after {seconds:.2} s, {rate_mbps:.0} Mbit/s"));
        }
        StageEvent::Verified { node, verified, message } => {
            if !verified {
                progress.warn(&format!("{name}: {node}: {message}"));
            }
        }
        StageEvent::Progress { .. } => {}
    }
}
