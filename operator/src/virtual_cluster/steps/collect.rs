//! How do results come home?

use std::time::Duration;

use gridcast_control::{Remote, StepFailure, collect};
use gridcast_crds::{
    VirtualCluster,
    virtual_cluster::{Collect, Run},
};
use gridcast_proto::v1::Peer;
use tokio::time::Instant;

use crate::{auxiliary_pod::ORIGIN, virtual_cluster::collect_claims};

/// A container that was started answers within a second.
const START_LIMIT: Duration = Duration::from_mins(1);
/// From one attempt to the next.
const WAIT: Duration = Duration::from_millis(200);

/// One thing to bring home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Which pod writes it: index among [`collect_claims`].
    pub pod: usize,
    /// On the members; absolute.
    pub path: String,
    /// Directory in the pod.
    pub target: String,
}

/// What is brought home, in the order of `spec.run.collect`. `directory` is where the nodes' starters are, for paths below
/// a working directory that the manifest leaves to the image; where that is not known either, a path must be absolute.
pub fn items(run: &Run, directory: Option<&str>) -> Result<Vec<Item>, StepFailure> {
    let claims = collect_claims(run);
    let base = run.working_directory.as_deref().or(directory);
    let item = |(index, wanted): (usize, &Collect)| {
        let to = &wanted.to.persistent_volume_claim;
        let path = match (wanted.path.starts_with('/'), base) {
            (true, _) => wanted.path.clone(),
            (false, Some(base)) => format!("{}/{}", base.trim_end_matches('/'), wanted.path),
            (false, None) => {
                let problem = format!(
                    "spec.run.collect[{index}].path: {} is relative, and nothing says to what; give it from the root, or set \
                     `spec.run.workingDirectory`",
                    wanted.path
                );
                return Err(StepFailure::new("CollectFailed", problem));
            }
        };
        let below = to.path.as_deref().map_or_else(String::new, |path| format!("/{path}"));
        let pod = claims.iter().position(|claim| *claim == to.claim_name).unwrap_or(0);
        Ok(Item { pod, path, target: format!("{ORIGIN}{below}") })
    };
    run.collect.iter().enumerate().map(item).collect()
}

/// Brings everything home, one after the other. `pods` are the agents of the collect pods, `members` the starters in
/// machinefile order.
///
/// A path that fails does not keep the others from coming: the first failure is told at the end.
pub async fn bring(pods: &[Remote], members: &[Peer], items: &[Item]) -> Result<(), StepFailure> {
    let mut failed = Vec::new();
    for item in items {
        if let Err(failure) = one(pods, members, item).await {
            failed.push(failure);
        }
    }
    let Some(first) = failed.first() else { return Ok(()) };
    let message = match failed.len() {
        1 => first.message.clone(),
        count => format!("{}; and {} more", first.message, count - 1),
    };
    Err(StepFailure::new(first.reason.clone(), message))
}

async fn one(pods: &[Remote], members: &[Peer], item: &Item) -> Result<(), StepFailure> {
    let Some(pod) = pods.get(item.pod) else {
        let problem = format!("{}: there is no pod that could write it", item.path);
        return Err(StepFailure::new("CollectFailed", problem));
    };
    let begun = Instant::now();
    let reply = loop {
        match collect::collect(pod, members.to_vec(), &item.path, &item.target).await {
            // It was started a moment ago.
            Err(failure) if failure.reason == "AgentLost" && begun.elapsed() < START_LIMIT => {
                tokio::time::sleep(WAIT).await;
            }
            ended => break ended?,
        }
    };
    tracing::info!(
        path = item.path,
        files = reply.files,
        bytes = reply.size_bytes,
        members = reply.members.len(),
        renamed = reply.renamed.len(),
        "collected"
    );
    Ok(())
}

/// Where the nodes' starters are, as the template of the first group says; None where that is left to the image.
pub fn directory(cluster: &VirtualCluster) -> Option<&str> {
    let template = cluster.spec.groups.first()?.pod.as_ref()?.spec.as_ref()?;
    template.containers.first()?.working_dir.as_deref().filter(|path| path.starts_with('/'))
}
