//! Probes every ordered pair of nodes: small UDP ping-pong first, then TCP bandwidth for as long as the round trip asks,
//! then large ping-pong at a pace that the links carry.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gridcast_core::{
    broadcast::topology::{Graph, Topology},
    network::{self, Matrix, PingStatistics},
    report::{Network, PairRtt},
};
use gridcast_crds::virtual_cluster::{Bandwidth, OnViolation, Probe, Require};
use gridcast_proto::v1::{ProbeBandwidthRequest, ProbeLatencyRequest};

use crate::failure::Failure;

use super::{cluster::Cluster, intake::Intake, progress::Progress, remote::Remote};

/// Measured time of one bandwidth probe, at least; at 100 Mbit/s that is 4 MB.
const BANDWIDTH: Duration = Duration::from_millis(300);
/// Left out for slow start, at least.
const OMIT: Duration = Duration::from_millis(100);
/// Slow start doubles from 10 segments in each round trip: 12 of them reach 60 MB, the product of 1 Gbit/s and 0.5 s, and
/// a few more let the queue it has filled drain.
const OMIT_ROUND_TRIPS: f64 = 20.0;
/// A rate is taken over this many round trips, at least.
const MEASURED_ROUND_TRIPS: f64 = 10.0;
/// How long a lost probe is waited for.
const LATENCY_TIMEOUT: Duration = Duration::from_secs(1);
/// Share of a link that large probes may take, so that none queues behind the one before.
const PROBE_SHARE: f64 = 0.6;

/// Measures the network between the nodes.
pub(crate) async fn measure(
    intake: &Intake,
    cluster: &Cluster,
    probe: &Probe,
    progress: &Progress,
) -> Result<Network, Failure> {
    let hosts: Vec<String> = intake.nodes.iter().map(|n| n.name.clone()).collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let apart = network::disjoint(network::rounds(hosts.len()), links(&intake.topology, &hosts));
    let mut network = Network { hosts: hosts.clone(), ..Network::default() };
    let latency_at_once = network::concurrent_latency_pairs(cores, hosts.len());
    let mut notes: Vec<String> = Some(latency_at_once.note).filter(|n| !n.is_empty()).into_iter().collect();
    let rounds = network::limit(apart.clone(), latency_at_once.pairs);
    let payloads = probe.payloads();
    progress.say(
        "measure",
        &format!(
            "round-trip times of {} pairs, {payloads:?} bytes, {} at once",
            pairs(hosts.len()),
            latency_at_once.pairs
        ),
    );
    let unknown = Matrix::new(hosts.clone());
    let (small, large) = payloads.split_at(1);
    for &payload in small {
        latency(cluster, probe, payload, &rounds, &unknown, &mut network).await?;
    }
    let mut bandwidth = unknown;
    if probe.bandwidth == Bandwidth::Pairs {
        let fastest = intake.topology.links.iter().map(|l| l.mbps.max(l.back_mbps.unwrap_or(l.mbps)));
        let concurrency = network::concurrent_pairs(cores, fastest.fold(0.0, f64::max), hosts.len());
        progress.say(
            "measure",
            &format!("bandwidth of {} pairs, {} at once", pairs(hosts.len()), concurrency.pairs),
        );
        notes.extend(Some(concurrency.note).filter(|n| !n.is_empty()));
        for round in network::limit(apart, concurrency.pairs) {
            let probes = round.iter().map(|&(from, to)| {
                let rtt = network.rtt_milliseconds.values().next().and_then(|rows| rows[to][from]);
                bandwidth_of(&cluster.remotes[from], &cluster.remotes[to], rtt)
            });
            let rates = futures::future::try_join_all(probes).await?;
            for (&(from, to), mbps) in round.iter().zip(rates) {
                bandwidth.set(to, from, mbps);
            }
        }
    }
    for &payload in large {
        latency(cluster, probe, payload, &rounds, &bandwidth, &mut network).await?;
    }
    network.bandwidth_mbps = bandwidth.into_rows();
    network.worst = network::worst_pairs(&network);
    network.notes = notes;
    Ok(network)
}

/// The links on the way of a pair of hosts and back, by the declared topology.
fn links(topology: &Topology, hosts: &[String]) -> impl Fn(usize, usize) -> BTreeSet<usize> {
    let graph = Graph::new(topology);
    let vertices: Vec<Option<usize>> = hosts.iter().map(|h| graph.host(h)).collect();
    move |a, b| {
        let route = |from: usize, to: usize| graph.route(vertices[from]?, vertices[to]?);
        // Each link is two arcs, one after the other.
        let arcs = [route(a, b), route(b, a)].into_iter().flatten().flatten();
        arcs.map(|arc| arc / 2).collect()
    }
}

fn pairs(hosts: usize) -> usize {
    hosts * hosts.saturating_sub(1)
}

/// `rtt` in milliseconds, where one was measured.
async fn bandwidth_of(from: &Remote, to: &Remote, rtt: Option<f64>) -> Result<f64, Failure> {
    let trips = |count: f64, least: Duration| {
        let asked = Duration::from_secs_f64((rtt.unwrap_or(0.0) * count / 1e3).min(20.0));
        millis(asked.max(least))
    };
    let request = ProbeBandwidthRequest {
        peer: Some(to.peer()),
        duration_millis: trips(MEASURED_ROUND_TRIPS, BANDWIDTH),
        omit_millis: trips(OMIT_ROUND_TRIPS, OMIT),
        streams: 1,
        ..ProbeBandwidthRequest::default()
    };
    let reply = from.agent().probe_bandwidth(request).await;
    let what = format!("measuring bandwidth to {}", to.name);
    Ok(reply.map_err(|s| from.failed("ProbeFailed", &what, &s))?.into_inner().mbps)
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Plays ping-pong with one payload size between all pairs and notes the statistics.
async fn latency(
    cluster: &Cluster,
    probe: &Probe,
    payload: u32,
    rounds: &[Vec<(usize, usize)>],
    bandwidth: &Matrix,
    network: &mut Network,
) -> Result<(), Failure> {
    let hosts = network.hosts.clone();
    let [mut rtt, mut jitter, mut loss] = [(); 3].map(|()| Matrix::new(hosts.clone()));
    let mut summary: BTreeMap<(usize, usize), PairRtt> = BTreeMap::new();
    for round in rounds {
        let probes = round.iter().map(|&(from, to)| {
            // Requests take the one direction, replies the other.
            let mbps = [bandwidth.get(to, from), bandwidth.get(from, to)]
                .into_iter()
                .flatten()
                .fold(f64::MAX, f64::min);
            let interval = interval(probe, payload, mbps);
            ping(&cluster.remotes[from], &cluster.remotes[to], probe, payload, interval)
        });
        let results = futures::future::try_join_all(probes).await?;
        for (&(from, to), (statistics, timestamps)) in round.iter().zip(results) {
            if let Some(average) = statistics.avg_milliseconds() {
                rtt.set(to, from, average);
            }
            if let Some(spread) = statistics.mdev_milliseconds() {
                jitter.set(to, from, spread);
            }
            loss.set(to, from, statistics.loss_percent());
            summary.insert((from, to), statistics.pair(&hosts[from], &hosts[to]));
            // Where one probe had to use the user's clock, that is what the report may claim.
            if network.timestamps.is_empty() || timestamps == "user" {
                network.timestamps = timestamps;
            }
        }
    }
    let key = payload.to_string();
    network.rtt_milliseconds.insert(key.clone(), rtt.into_rows());
    network.jitter_milliseconds.insert(key.clone(), jitter.into_rows());
    network.loss_percent.insert(key.clone(), loss.into_rows());
    network.rtt_summary.insert(key, summary.into_values().collect());
    Ok(())
}

/// From one probe to the next: what the manifest says, or longer where the link needs longer to carry them.
fn interval(probe: &Probe, payload: u32, mbps: f64) -> Duration {
    let asked = Duration::from_millis(probe.interval_milliseconds.unsigned_abs().into());
    let carried = f64::from(payload) * 8.0 / (mbps * 1e6 * PROBE_SHARE);
    // A link of a few kbit/s does not make a run last for hours.
    asked.max(Duration::from_secs_f64(carried.min(5.0)))
}

async fn ping(
    from: &Remote,
    to: &Remote,
    probe: &Probe,
    payload: u32,
    interval: Duration,
) -> Result<(PingStatistics, String), Failure> {
    let request = ProbeLatencyRequest {
        peer: Some(to.peer()),
        payload_bytes: payload,
        count: probe.count.unsigned_abs(),
        interval_micros: u32::try_from(interval.as_micros()).unwrap_or(u32::MAX),
        timeout_millis: millis(LATENCY_TIMEOUT + interval),
        ..ProbeLatencyRequest::default()
    };
    let reply = from.agent().probe_latency(request).await;
    let what = format!("measuring round-trip times to {}", to.name);
    let reply = reply.map_err(|s| from.failed("ProbeFailed", &what, &s))?.into_inner();
    Ok((PingStatistics::new(reply.sent, &reply.rtt_nanos), reply.timestamps))
}

/// What of `require` the network does not reach, one sentence each.
pub(crate) fn violations(require: &Require, network: &Network) -> Vec<String> {
    let mut found = Vec::new();
    let hosts = &network.hosts;
    let each = |rows: &[Vec<Option<f64>>], wrong: &dyn Fn(f64) -> Option<String>| {
        let mut list = Vec::new();
        for (to, row) in rows.iter().enumerate() {
            for (from, value) in row.iter().enumerate() {
                list.extend(
                    value.and_then(wrong).map(|text| format!("{} to {}: {text}", hosts[from], hosts[to])),
                );
            }
        }
        list
    };
    if let Some(most) = require.max_jitter_milliseconds {
        for (payload, rows) in &network.jitter_milliseconds {
            found.extend(each(rows, &|v| {
                (v > most).then(|| {
                    format!("jitter {v:.3} ms at {payload} bytes is above maxJitterMilliseconds {most}")
                })
            }));
        }
    }
    if let Some(least) = require.min_bandwidth_mbps {
        found.extend(each(&network.bandwidth_mbps, &|v| {
            (v < least).then(|| format!("{v:.1} Mbit/s is below minBandwidthMbps {least}"))
        }));
    }
    found
}

/// Warns or fails where the network does not reach what is required.
pub(crate) fn gate(require: Option<&Require>, network: &Network, progress: &Progress) -> Result<(), Failure> {
    let Some(require) = require else { return Ok(()) };
    let found = violations(require, network);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_probes_do_not_queue_on_a_slow_link() {
        let probe = Probe::default();
        assert_eq!(interval(&probe, 64, 100.0), Duration::from_millis(10));
        assert!(interval(&probe, 50_000, 10.0) > Duration::from_millis(40));
        assert_eq!(interval(&probe, 50_000, f64::MAX), Duration::from_millis(10));
    }

    #[test]
    fn a_violation_names_the_pair_and_both_figures() {
        let network = Network {
            hosts: vec!["a".into(), "b".into()],
            bandwidth_mbps: vec![vec![None, Some(90.0)], vec![Some(500.0), None]],
            ..Network::default()
        };
        let require = Require {
            max_jitter_milliseconds: None,
            min_bandwidth_mbps: Some(100.0),
            on_violation: OnViolation::Fail,
        };
        assert_eq!(violations(&require, &network), ["b to a: 90.0 Mbit/s is below minBandwidthMbps 100"]);
    }
}
