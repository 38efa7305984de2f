//! Brings results home: from every node, merged by the first node's agent, into the directories of `--volume`.

use gridcast_proto::v1::CollectRequest;

use crate::failure::Failure;

use super::{cluster::Cluster, intake::CollectPlan, progress::Progress, provision, remote::Remote};

/// Collects one path.
pub(crate) async fn collect(
    cluster: &Cluster,
    plan: &CollectPlan,
    progress: &Progress,
) -> Result<(), Failure> {
    let first = &cluster.remotes[0];
    let request = CollectRequest {
        path: plan.path.to_string_lossy().into_owned(),
        members: cluster.remotes.iter().map(Remote::peer).collect(),
        target: provision::volume(&plan.claim).join(&plan.below).to_string_lossy().into_owned(),
    };
    let what = format!("collecting {}", plan.path.display());
    let reply = first.broadcasts().collect(request).await;
    let reply = reply.map_err(|s| match s.code() {
        tonic::Code::NotFound => {
            Failure::failed("CollectFailed", format!("{}: no node has it", plan.path.display()))
        }
        _ => first.failed("CollectFailed", &what, &s),
    })?;
    let reply = reply.into_inner();
    progress.say(
        "collect",
        &format!(
            "{}: {} files, {:.1} MiB from {} into {}",
            plan.path.display(),
            reply.files,
            reply.size_bytes as f64 / f64::from(1 << 20),
            reply.members.join(" "),
            plan.claim
        ),
    );
    if !reply.renamed.is_empty() {
        progress
            .warn(&format!("files that differ between nodes are kept apart: {}", reply.renamed.join(" ")));
    }
    Ok(())
}
