//! Brings results home: from every node, merged by the first node's agent, into the directories of `--volume`.

use gridcast_control::{Remote, collect};

use crate::failure::Failure;

use super::{cluster::Cluster, intake::CollectPlan, progress::Progress, provision};

/// Collects one path.
pub(crate) async fn collect(
    cluster: &Cluster,
    plan: &CollectPlan,
    progress: &Progress,
) -> Result<(), Failure> {
    let members = cluster.remotes.iter().map(Remote::peer).collect();
    let target = provision::volume(&plan.claim).join(&plan.below);
    let (path, target) = (plan.path.to_string_lossy(), target.to_string_lossy());
    let reply = collect::collect(&cluster.remotes[0], members, &path, &target).await?;
    progress.say(
        "collect",
        &format!(
            "{path}: {} files, {:.1} MiB from {} into {}",
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
