//! Measures the network between the nodes, which all share this machine's processor.

use gridcast_control::measure::{self, Limits, ProbeAsk};
use gridcast_core::report::Network;
use gridcast_crds::virtual_cluster::{OnViolation, Probe, Require};

use crate::failure::Failure;

use super::{cluster::Cluster, intake::Intake, progress::Progress};

/// Measures the network between the nodes.
pub(crate) async fn measure(
    intake: &Intake,
    cluster: &Cluster,
    probe: &Probe,
    progress: &Progress,
) -> Result<Network, Failure> {
    let hosts: Vec<String> = intake.nodes.iter().map(|n| n.name.clone()).collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let fastest = intake.topology.links.iter().map(|l| l.mbps.max(l.back_mbps.unwrap_or(l.mbps)));
    let limits = Limits::one_machine(cores, fastest.fold(0.0, f64::max), hosts.len());
    let links = measure::links(&intake.topology, &hosts);
    let say = |text: &str| progress.say("measure", text);
    Ok(measure::measure(&cluster.remotes, &ProbeAsk::from(probe), &links, &limits, &say).await?)
}

/// Warns or fails where the network does not reach what is required.
pub(crate) fn gate(require: Option<&Require>, network: &Network, progress: &Progress) -> Result<(), Failure> {
    let Some(require) = require else { return Ok(()) };
    let found = measure::violations(require, network);
    let Some(first) = found.first() else { return Ok(()) };
    let text = match found.len() {
        1 => first.clone(),
        n => format!("{first}; and {} more", n - 1),
    };
    match require.on_violation {
        OnViolation::Fail => Err(Failure::failed("NetworkBelowRequirement", text)),
        OnViolation::Warn => {
            progress.warn(&text);
            Ok(())
        }
    }
}
