//! Writes TCP settings in each node's own network namespace, by the policy of core, and puts them back.

use std::time::Duration;

use gridcast_core::{
    network::tcp::{self, HostFacts, Inputs, Mode, PlannedSetting, Profile},
    report::{Network, Rows, TcpSetting},
};
use gridcast_crds::virtual_cluster::{TcpMode, TcpProfile};
use gridcast_proto::v1::{ApplySettingsRequest, DescribeReply, RestoreSettingsRequest, Setting};

use crate::failure::Failure;

use super::{cluster::Cluster, intake::Intake, progress::Progress, remote::Remote};

/// Connections that are open to one peer at once: one of MPI, one of the broadcast.
const SOCKETS_PER_PEER: u32 = 2;

/// Plans the settings of all nodes and, in mode `Apply`, writes them. What is already right is listed too.
pub(crate) async fn tune(
    intake: &Intake,
    cluster: &Cluster,
    network: Option<&Network>,
    owner: &str,
    progress: &Progress,
) -> Result<Vec<TcpSetting>, Failure> {
    let plan = plan(intake, cluster, network);
    let dry_run = intake.tcp.mode != TcpMode::Apply;
    let writes = cluster.remotes.iter().map(|remote| {
        let own: Vec<&PlannedSetting> = plan.iter().filter(|s| s.host == remote.name).collect();
        apply(remote, own, owner, dry_run)
    });
    let settings: Vec<TcpSetting> =
        futures::future::try_join_all(writes).await?.into_iter().flatten().collect();
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

fn plan(intake: &Intake, cluster: &Cluster, network: Option<&Network>) -> Vec<PlannedSetting> {
    let hosts: Vec<HostFacts> = cluster.facts.iter().map(facts).collect();
    let blank: Rows = vec![vec![None; hosts.len()]; hosts.len()];
    // The smallest payload: large ones measure the link's rate as well.
    let smallest =
        network.and_then(|n| n.rtt_milliseconds.keys().min_by_key(|k| k.parse::<u32>().unwrap_or(u32::MAX)));
    let rows = |pick: fn(&Network) -> &std::collections::BTreeMap<String, Rows>| {
        network.zip(smallest).and_then(|(n, key)| pick(n).get(key)).unwrap_or(&blank)
    };
    tcp::tune(&Inputs {
        hosts: &hosts,
        rtt_milliseconds: rows(|n| &n.rtt_milliseconds),
        bandwidth_mbps: network.map_or(&blank, |n| &n.bandwidth_mbps),
        loss_percent: rows(|n| &n.loss_percent),
        probes: intake.probe.as_ref().map_or(0, |p| p.count.unsigned_abs()),
        sockets_per_peer: SOCKETS_PER_PEER,
        profile: match intake.tcp.profile {
            None | Some(TcpProfile::Auto) => Profile::Auto,
            Some(TcpProfile::Asynchronous) => Profile::Asynchronous,
            Some(TcpProfile::Staggered) => Profile::Staggered,
            Some(TcpProfile::Synchronous) => Profile::Synchronous,
            Some(TcpProfile::Bulk) => Profile::Bulk,
        },
        mode: match intake.tcp.mode {
            TcpMode::Off => Mode::Off,
            TcpMode::DryRun => Mode::DryRun,
            TcpMode::Apply => Mode::Apply,
        },
    })
}

fn facts(said: &DescribeReply) -> HostFacts {
    HostFacts {
        name: said.name.clone(),
        settings: said.settings.clone().into_iter().collect(),
        available_congestion_controls: said.available_congestion_controls.clone(),
        allowed_congestion_controls: said.allowed_congestion_controls.clone(),
        memory_bytes: said.memory_bytes,
        interface_mbps: None,
    }
}

async fn apply(
    remote: &Remote,
    plan: Vec<&PlannedSetting>,
    owner: &str,
    dry_run: bool,
) -> Result<Vec<TcpSetting>, Failure> {
    let wanted = plan.iter().filter(|s| s.changes());
    let settings = wanted.map(|s| Setting { key: s.key.clone(), value: s.value.clone() }).collect();
    let request = ApplySettingsRequest { owner: owner.to_owned(), settings, dry_run, pod: String::new() };
    let reply = remote.agent().apply_settings(request).await;
    let applied =
        reply.map_err(|s| remote.failed("TuneFailed", "writing TCP settings", &s))?.into_inner().settings;
    Ok(plan
        .into_iter()
        .map(|planned| {
            let written = applied.iter().find(|a| a.key == planned.key);
            let note = match written {
                Some(a) if !a.error.is_empty() => format!("{}; not as planned: {}", planned.note, a.error),
                _ => planned.note.clone(),
            };
            let value = written.map_or_else(|| planned.before.clone(), |a| tcp::normalized(&a.applied));
            TcpSetting {
                host: planned.host.clone(),
                key: planned.key.clone(),
                before: planned.before.clone(),
                // What was never changed has the value from before in force.
                restored: dry_run || value == planned.before,
                dry_run,
                applied: value,
                note,
            }
        })
        .collect())
}

/// Puts back what was written. A node that is gone took its settings with it: its namespace does not exist any more,
/// but the report does not claim what nobody read back.
pub(crate) async fn restore(cluster: &Cluster, owner: &str, settings: &mut [TcpSetting], timeout: Duration) {
    let calls = cluster.remotes.iter().map(|remote| async move {
        let call = async {
            remote
                .agent()
                .restore_settings(RestoreSettingsRequest { owner: owner.to_owned(), pod: String::new() })
                .await
        };
        let reply = tokio::time::timeout(timeout, call).await.ok()?.ok()?;
        Some((remote.name.clone(), reply.into_inner().settings))
    });
    for (host, restored) in futures::future::join_all(calls).await.into_iter().flatten() {
        for setting in settings.iter_mut().filter(|s| s.host == host) {
            if let Some(now) = restored.iter().find(|r| r.key == setting.key) {
                setting.restored = now.restored;
            }
        }
    }
}
