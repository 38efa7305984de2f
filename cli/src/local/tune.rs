//! Writes TCP settings in each node's own network namespace, by the policy of core, and puts them back.

use std::time::Duration;

use gridcast_control::tune;
use gridcast_core::report::{Network, TcpSetting};
use gridcast_crds::virtual_cluster::TcpMode;

use crate::failure::Failure;

use super::{cluster::Cluster, intake::Intake, progress::Progress};

/// Plans the settings of all nodes and, in mode `Apply`, writes them. What is already right is listed too.
pub(crate) async fn tune(
    intake: &Intake,
    cluster: &Cluster,
    network: Option<&Network>,
    owner: &str,
    progress: &Progress,
) -> Result<Vec<TcpSetting>, Failure> {
    let probes = intake.probe.as_ref().map_or(0, |p| p.count.unsigned_abs());
    let plan = tune::plan(&cluster.remotes, &cluster.facts, network, probes, &intake.tcp);
    let dry_run = intake.tcp.mode != TcpMode::Apply;
    let settings = tune::tune(&cluster.remotes, &plan, owner, dry_run).await?;
    let changed = settings.iter().filter(|s| s.before != s.applied).count();
    let word = if dry_run { "would be changed" } else { "changed" };
    progress.say(
        "tune",
        &format!("{changed} of {} settings {word} on {} nodes", settings.len(), cluster.remotes.len()),
    );
    if dry_run {
        for setting in plan.iter().filter(|s| s.changes()) {
            progress.say("tune", &format!("{}: {}", setting.host, setting.command()));
        }
    }
    Ok(settings)
}

/// Puts back what was written. A node that does not answer has ended: its settings went with it.
pub(crate) async fn restore(cluster: &Cluster, owner: &str, settings: &mut [TcpSetting], timeout: Duration) {
    tune::restore(&cluster.remotes, owner, settings, timeout).await;
}
