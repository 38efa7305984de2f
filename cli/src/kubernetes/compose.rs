//! The report of a cluster, from statuses alone: in the schema of a local run's.

use std::collections::BTreeMap;

use gridcast_control::tune;
use gridcast_core::report::{
    BoundKind, Dataset, Network, Outcome, PairRtt, PlacedRanks, Report, Rows, Run, StagedNode, TcpSetting,
    Timeline,
};
use gridcast_crds::{
    Broadcast, NetworkMap, broadcast,
    conditions::{COMPLETE, FAILED, READY},
    network_map::{Matrices, Timestamps},
    virtual_cluster::status::{NetworkSummary, Spread, StagedData},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::seen::Seen;

/// Everything that is known of the cluster.
pub(super) fn report(seen: &Seen) -> Report {
    let (outcome, reason, message) = outcome(seen);
    let status = seen.status();
    let code = status.run.as_ref().and_then(|run| run.exit_code);
    let exit_code = code.unwrap_or_else(|| gridcast_core::lifecycle::command_exit_code(outcome));
    Report {
        outcome,
        reason,
        message,
        exit_code,
        name: seen.name().to_owned(),
        timeline: timeline(seen),
        network: network(seen),
        tcp: tcp(seen),
        data: data(seen),
        run: run(seen, exit_code),
    }
}

/// How it ended, with the word and the sentence for it.
fn outcome(seen: &Seen) -> (Outcome, String, String) {
    let said = |type_: &str| {
        let condition = seen.condition(type_);
        condition.map(|c| (c.reason.clone(), c.message.clone())).unwrap_or_default()
    };
    // A cluster without a program is as it should be once it is ready, and has not failed.
    let up = seen.cluster.spec.run.is_none() && seen.is(READY) && !seen.cluster.spec.suspend;
    if seen.is(FAILED) {
        let (reason, message) = said(FAILED);
        return (Outcome::Failed, reason, message);
    }
    if seen.is(COMPLETE) || up {
        return (Outcome::Complete, String::new(), String::new());
    }
    match said(READY) {
        (reason, message) if !reason.is_empty() => (Outcome::Unfinished, reason, message),
        _ => {
            let message = "the cluster has no status yet; is gridcast's operator running?";
            (Outcome::Unfinished, "NotObserved".to_owned(), message.to_owned())
        }
    }
}

/// In seconds from creation.
pub(super) fn timeline(seen: &Seen) -> Timeline {
    let status = seen.status();
    let at = |time: &Option<MicroTime>| time.as_ref().and_then(|time| seen.seconds(time.0));
    let completed = || status.completion_time.as_ref().and_then(|time| seen.seconds(time.0));
    let known = status.timeline.clone().unwrap_or_default();
    Timeline {
        created: 0.0,
        scheduled: at(&known.scheduled),
        ready: at(&known.ready),
        measured: at(&known.measured),
        tuned: at(&known.tuned),
        staged: at(&known.staged),
        launched: at(&known.launched),
        first_rank: at(&known.first_rank),
        finished: at(&known.finished).or_else(completed),
    }
}

/// The matrices of the NetworkMap, or, where there are too many hosts for them, what the cluster says of them.
pub(super) fn network(seen: &Seen) -> Option<Network> {
    let map = seen.map.as_ref();
    let status = map.and_then(|map| map.status.as_ref());
    let mut network = match (map, status.and_then(|status| status.matrices.as_ref())) {
        (Some(map), Some(matrices)) => measured(map, matrices),
        _ => summarized(seen, seen.status().network.as_ref()?),
    };
    if let Some(status) = status {
        network.timestamps = match status.timestamps {
            Some(Timestamps::Kernel) => "kernel".to_owned(),
            Some(Timestamps::User) => "user".to_owned(),
            None => network.timestamps,
        };
        network.notes.extend(status.notes.iter().chain(&status.anomalies).cloned());
    }
    Some(network)
}

fn measured(map: &NetworkMap, matrices: &Matrices) -> Network {
    let sent = map.spec.count.unsigned_abs();
    let payloads = matrices.rtt_milliseconds.keys();
    let rtt_summary = payloads.map(|payload| (payload.clone(), pairs(matrices, payload, sent)));
    let mut network = Network {
        hosts: matrices.hosts.clone(),
        rtt_milliseconds: matrices.rtt_milliseconds.clone(),
        jitter_milliseconds: matrices.jitter_milliseconds.clone(),
        loss_percent: matrices.loss_percent.clone(),
        bandwidth_mbps: matrices.bandwidth_mbps.clone(),
        rtt_summary: rtt_summary.filter(|(_, pairs)| !pairs.is_empty()).collect(),
        ..Network::default()
    };
    network.name_worst();
    network
}

/// As ping prints them: every pair of which something was sent.
fn pairs(matrices: &Matrices, payload: &str, sent: u32) -> Vec<PairRtt> {
    let value = |all: &BTreeMap<String, Rows>, to: usize, from: usize| {
        all.get(payload).and_then(|rows| *rows.get(to)?.get(from)?)
    };
    let hosts = &matrices.hosts;
    let mut found = Vec::new();
    for (from, source) in hosts.iter().enumerate() {
        for (to, destination) in hosts.iter().enumerate() {
            let Some(loss) = value(&matrices.loss_percent, to, from) else { continue };
            let [min, avg, max, mdev] = [
                &matrices.min_rtt_milliseconds,
                &matrices.rtt_milliseconds,
                &matrices.max_rtt_milliseconds,
                &matrices.jitter_milliseconds,
            ]
            .map(|all| value(all, to, from));
            let lost = (f64::from(sent) * loss / 100.0).round() as u32;
            found.push(PairRtt {
                from: source.clone(),
                to: destination.clone(),
                sent,
                received: sent.saturating_sub(lost),
                min: min.or(avg).unwrap_or_default(),
                avg: avg.unwrap_or_default(),
                max: max.or(avg).unwrap_or_default(),
                mdev: mdev.unwrap_or_default(),
            });
        }
    }
    found
}

/// Figures without matrices.
fn summarized(seen: &Seen, summary: &NetworkSummary) -> Network {
    let spread = |what: &str, unit: &str, spread: &Option<Spread>| {
        spread.as_ref().map(|s| format!("{what}: {} to {} {unit}, median {}", s.min, s.max, s.median))
    };
    let mut notes = vec![format!(
        "the status keeps no matrices of {} hosts; these are the figures that it keeps",
        summary.hosts
    )];
    notes.extend(spread("round trip", "ms", &summary.rtt_milliseconds));
    notes.extend(spread("jitter", "ms", &summary.jitter_milliseconds));
    notes.extend(spread("bandwidth", "Mbit/s", &summary.bandwidth_mbps));
    notes.extend(summary.worst.iter().cloned());
    let hosts: Vec<String> = seen.cluster.node_names().map(|(name, _)| name).collect();
    Network { hosts, notes, ..Network::default() }
}

/// Settings that were written, or would have been.
pub(super) fn tcp(seen: &Seen) -> Option<Vec<TcpSetting>> {
    let settings = tune::published(&seen.status().tcp);
    (!settings.is_empty()).then_some(settings)
}

fn data(seen: &Seen) -> Option<Vec<Dataset>> {
    let staged = seen.data().into_iter().filter_map(|(staged, broadcast)| dataset(&staged, broadcast));
    let staged: Vec<Dataset> = staged.collect();
    (!staged.is_empty()).then_some(staged)
}

/// None before anything of it is known.
fn dataset(staged: &StagedData, object: Option<&Broadcast>) -> Option<Dataset> {
    let status = object.and_then(|broadcast| broadcast.status.clone()).unwrap_or_default();
    let size = status.size_bytes.or(staged.size_bytes)?;
    let count = |value: Option<i64>| value.unwrap_or_default().unsigned_abs();
    let nodes = status.worst.iter().map(|node| StagedNode {
        name: node.name.clone(),
        verified: node.verified,
        rate_mbps: node.rate_mbps.unwrap_or_default(),
    });
    Some(Dataset {
        name: staged.name.clone(),
        size_bytes: size.unsigned_abs(),
        files: count(status.files),
        digest: status.digest.unwrap_or_default(),
        strategy: status.strategy.or_else(|| staged.strategy.clone()).unwrap_or_default(),
        trees: status.trees.unwrap_or_default().unsigned_abs(),
        seconds: status.seconds.or(staged.seconds).unwrap_or_default(),
        aggregate_mbps: status.aggregate_mbps.or(staged.aggregate_mbps).unwrap_or_default(),
        bound_mbps: status.bound_mbps.or(staged.bound_mbps).unwrap_or_default(),
        bound_kind: match status.bound_kind {
            Some(broadcast::BoundKind::Measured) => BoundKind::Measured,
            Some(broadcast::BoundKind::Assumed) | None => BoundKind::Assumed,
        },
        source_bytes_read: count(status.source_bytes_read),
        nodes: nodes.collect(),
    })
}

fn run(seen: &Seen, exit_code: i32) -> Option<Run> {
    let run = seen.status().run.as_ref()?;
    let placement = run.placement.iter().map(|placed| PlacedRanks {
        host: placed.host.clone(),
        ranks: placed.ranks.iter().map(|rank| rank.unsigned_abs()).collect(),
    });
    Some(Run {
        exit_code: run.exit_code.unwrap_or(exit_code),
        restarts: run.restarts.unsigned_abs(),
        placement: placement.collect(),
        log_tail: run.log_tail.clone().unwrap_or_default(),
    })
}
