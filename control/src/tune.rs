//! Writes TCP settings in each node's own network namespace, by the policy of core, and puts them back.

use std::{collections::BTreeMap, time::Duration};

use gridcast_core::{
    network::tcp::{self, HostFacts, Inputs, Mode, PlannedSetting, Profile},
    report::{Network, Rows, TcpSetting},
};
use gridcast_crds::virtual_cluster::{Tcp, TcpMode, TcpProfile, status::TunedSetting};
use gridcast_proto::v1::{
    ApplySettingsRequest, DescribeReply, DescribeRequest, RestoreSettingsRequest, Setting,
};

use crate::{Remote, StepFailure, remote::within};

/// Connections that are open to one peer at once: one of MPI, one of the broadcast.
const SOCKETS_PER_PEER: u32 = 2;
/// Reading and writing files of /proc; the rest is a starved machine.
const LIMIT: Duration = Duration::from_secs(30);

/// What each agent says of its node, in the order of nodes.
pub async fn describe(remotes: &[Remote]) -> Result<Vec<DescribeReply>, StepFailure> {
    let asks = remotes.iter().map(|remote| async move {
        let reply = within(LIMIT, remote.agent().describe(DescribeRequest { pod: remote.pod() })).await;
        reply.map_err(|s| remote.failed("NoAgent", "describing the node", &s))
    });
    futures::future::try_join_all(asks.collect::<Vec<_>>()).await
}

/// Plans the settings of all nodes. `facts` in the order of `remotes`; `probes` is the number of pings behind each figure
/// of loss. What is right already is listed too.
pub fn plan(
    remotes: &[Remote],
    facts: &[DescribeReply],
    network: Option<&Network>,
    probes: u32,
    tcp: &Tcp,
) -> Vec<PlannedSetting> {
    let hosts: Vec<HostFacts> =
        remotes.iter().zip(facts).map(|(r, said)| host_facts(&r.name, said)).collect();
    let blank: Rows = vec![vec![None; hosts.len()]; hosts.len()];
    // The smallest payload: large ones measure the link's rate as well.
    let smallest =
        network.and_then(|n| n.rtt_milliseconds.keys().min_by_key(|k| k.parse::<u32>().unwrap_or(u32::MAX)));
    let rows = |pick: fn(&Network) -> &BTreeMap<String, Rows>| {
        let known = network.zip(smallest).and_then(|(n, key)| Some((n, pick(n).get(key)?)));
        known.map_or_else(|| blank.clone(), |(n, rows)| ordered(&hosts, &n.hosts, rows))
    };
    tcp::tune(&Inputs {
        hosts: &hosts,
        rtt_milliseconds: &rows(|n| &n.rtt_milliseconds),
        bandwidth_mbps: &network
            .map_or_else(|| blank.clone(), |n| ordered(&hosts, &n.hosts, &n.bandwidth_mbps)),
        loss_percent: &rows(|n| &n.loss_percent),
        probes,
        sockets_per_peer: SOCKETS_PER_PEER,
        profile: match tcp.profile {
            None | Some(TcpProfile::Auto) => Profile::Auto,
            Some(TcpProfile::Asynchronous) => Profile::Asynchronous,
            Some(TcpProfile::Staggered) => Profile::Staggered,
            Some(TcpProfile::Synchronous) => Profile::Synchronous,
            Some(TcpProfile::Bulk) => Profile::Bulk,
        },
        mode: match tcp.mode {
            TcpMode::Off => Mode::Off,
            TcpMode::DryRun => Mode::DryRun,
            TcpMode::Apply => Mode::Apply,
        },
    })
}

/// The rows of a matrix in the order of `hosts`, whatever order it was measured in.
fn ordered(hosts: &[HostFacts], measured: &[String], rows: &Rows) -> Rows {
    let places: Vec<Option<usize>> =
        hosts.iter().map(|host| measured.iter().position(|name| *name == host.name)).collect();
    let value = |to: Option<usize>, from: Option<usize>| *rows.get(to?)?.get(from?)?;
    places.iter().map(|&to| places.iter().map(|&from| value(to, from)).collect()).collect()
}

fn host_facts(name: &str, said: &DescribeReply) -> HostFacts {
    HostFacts {
        name: name.to_owned(),
        settings: said.settings.clone().into_iter().collect(),
        available_congestion_controls: said.available_congestion_controls.clone(),
        allowed_congestion_controls: said.allowed_congestion_controls.clone(),
        memory_bytes: said.memory_bytes,
        interface_mbps: None,
    }
}

/// Writes what is planned, or in a dry run tells what would be written. `owner` is the run: its settings are restored by
/// that name.
pub async fn tune(
    remotes: &[Remote],
    plan: &[PlannedSetting],
    owner: &str,
    dry_run: bool,
) -> Result<Vec<TcpSetting>, StepFailure> {
    let writes = remotes.iter().map(|remote| {
        let own: Vec<&PlannedSetting> = plan.iter().filter(|s| s.host == remote.name).collect();
        apply(remote, own, owner, dry_run)
    });
    let settings = futures::future::try_join_all(writes.collect::<Vec<_>>()).await?;
    Ok(settings.into_iter().flatten().collect())
}

async fn apply(
    remote: &Remote,
    plan: Vec<&PlannedSetting>,
    owner: &str,
    dry_run: bool,
) -> Result<Vec<TcpSetting>, StepFailure> {
    let wanted = plan.iter().filter(|s| s.changes());
    let settings = wanted.map(|s| Setting { key: s.key.clone(), value: s.value.clone() }).collect();
    let request = ApplySettingsRequest { owner: owner.to_owned(), settings, dry_run, pod: remote.pod() };
    let reply = within(LIMIT, remote.agent().apply_settings(request)).await;
    let applied = reply.map_err(|s| remote.failed("TuneFailed", "writing TCP settings", &s))?.settings;
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

/// What a status says of settings, in the report's words.
pub fn published(settings: &[TunedSetting]) -> Vec<TcpSetting> {
    let one = |setting: &TunedSetting| TcpSetting {
        host: setting.host.clone(),
        key: setting.key.clone(),
        before: setting.before.clone(),
        applied: setting.applied.clone(),
        restored: setting.restored,
        dry_run: setting.dry_run,
        note: setting.note.clone().unwrap_or_default(),
    };
    settings.iter().map(one).collect()
}

/// Puts back what was written and notes it in `settings`. A node that is gone took its settings with it: its namespace
/// does not exist any more, but the report does not claim what nobody read back. Returns those that did not answer.
pub async fn restore(
    remotes: &[Remote],
    owner: &str,
    settings: &mut [TcpSetting],
    timeout: Duration,
) -> Vec<StepFailure> {
    let calls = remotes.iter().map(|remote| async move {
        let request = RestoreSettingsRequest { owner: owner.to_owned(), pod: remote.pod() };
        let reply = within(timeout, remote.agent().restore_settings(request)).await;
        let failed = |s| remote.failed("RestoreFailed", "restoring TCP settings", &s);
        reply.map(|reply| (remote.name.clone(), reply.settings)).map_err(failed)
    });
    let mut silent = Vec::new();
    for reply in futures::future::join_all(calls.collect::<Vec<_>>()).await {
        match reply {
            Ok((host, restored)) => {
                for setting in settings.iter_mut().filter(|s| s.host == host) {
                    if let Some(now) = restored.iter().find(|r| r.key == setting.key) {
                        setting.restored = now.restored;
                    }
                }
            }
            Err(failure) => silent.push(failure),
        }
    }
    silent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_measured_in_another_order_is_read_by_name() {
        let host = |name: &str| HostFacts { name: name.to_owned(), ..HostFacts::default() };
        let measured = ["b", "a"].map(str::to_owned);
        let rows = vec![vec![None, Some(1.0)], vec![Some(2.0), None]];
        // From a to b took 1.
        let found = ordered(&[host("a"), host("b"), host("c")], &measured, &rows);
        assert_eq!(
            found,
            [[None, Some(2.0), None], [Some(1.0), None, None], [None, None, None]].map(|row| row.to_vec())
        );
    }

    #[test]
    fn steps_can_be_tasks() {
        fn task<T: Send>(_: T) {}
        task(describe(&[]));
        task(tune(&[], &[], "", true));
        task(restore(&[], "", &mut [], LIMIT));
    }
}
