//! Probes every ordered pair of nodes: small UDP ping-pong first, then TCP bandwidth for as long as the round trip asks,
//! then large ping-pong at a pace that the links carry.

mod probe;
mod require;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gridcast_core::{
    broadcast::topology::{Graph, Topology},
    network::{self, Concurrency, Matrix},
    report::{Network, PairRtt, Rows},
};
use gridcast_crds::{
    network_map::NetworkMapSpec,
    virtual_cluster::{Bandwidth, Probe},
};

pub use require::violations;

use tokio::time::Instant;

use crate::{Remote, StepFailure};

/// Probes at once where hosts are machines of their own: as many as one controller can wait for without effort.
const MOST_AT_ONCE: usize = 256;

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAsk {
    /// Sizes of the UDP payload of pings, bytes, ascending. The first tells the path's delay.
    pub payloads: Vec<u32>,
    /// Pings of each size and ordered pair.
    pub count: u32,
    /// From one ping of a pair to the next; longer where the link needs longer to carry them.
    pub interval: Duration,
    /// Whether TCP bandwidth is measured.
    pub bandwidth: bool,
}

impl From<&Probe> for ProbeAsk {
    fn from(probe: &Probe) -> Self {
        Self {
            payloads: probe.payloads(),
            count: probe.count.unsigned_abs(),
            interval: Duration::from_millis(probe.interval_milliseconds.unsigned_abs().into()),
            bandwidth: probe.bandwidth == Bandwidth::Pairs,
        }
    }
}

impl From<&NetworkMapSpec> for ProbeAsk {
    fn from(map: &NetworkMapSpec) -> Self {
        let usual = Probe::default();
        Self::from(&Probe {
            payload_bytes: map.payload_bytes,
            count: map.count,
            bandwidth: map.bandwidth,
            ..usual
        })
    }
}

/// How many pairs are probed at once, beside the rule that no two share a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of ping-pong.
    pub latency: Concurrency,
    /// Of bandwidth.
    pub bandwidth: Concurrency,
}

impl Limits {
    /// All nodes are on one machine of `cores`, whose processor must not be what is measured. `fastest_mbps` is the largest
    /// rate that a pair is expected to reach.
    pub fn one_machine(cores: usize, fastest_mbps: f64, hosts: usize) -> Self {
        Self {
            latency: network::concurrent_latency_pairs(cores, hosts),
            bandwidth: network::concurrent_pairs(cores, fastest_mbps, hosts),
        }
    }

    /// Nodes are machines of their own: disjoint pairs do not disturb each other.
    pub fn machines() -> Self {
        let all = || Concurrency { pairs: MOST_AT_ONCE, note: String::new() };
        Self { latency: all(), bandwidth: all() }
    }
}

/// What two nodes share when they exchange data, by number. Pairs that share anything are not probed at once.
pub type Shared<'a> = dyn Fn(usize, usize) -> BTreeSet<usize> + Send + Sync + 'a;

/// The links on the way of a pair of hosts and back, by a declared topology.
pub fn links(
    topology: &Topology,
    hosts: &[String],
) -> impl Fn(usize, usize) -> BTreeSet<usize> + Send + Sync + use<> {
    let graph = Graph::new(topology);
    let vertices: Vec<Option<usize>> = hosts.iter().map(|h| graph.host(h)).collect();
    move |a, b| {
        let route = |from: usize, to: usize| graph.route(vertices[from]?, vertices[to]?);
        // Each link is two arcs, one after the other.
        let arcs = [route(a, b), route(b, a)].into_iter().flatten().flatten();
        arcs.map(|arc| arc / 2).collect()
    }
}

/// The machines that carry a pair of nodes: several pods of one Kubernetes node share its interface. `machines` by host.
pub fn machines(machines: &[String]) -> impl Fn(usize, usize) -> BTreeSet<usize> + Send + Sync + use<> {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let mut numbers = Vec::with_capacity(machines.len());
    for machine in machines {
        let next = known.len();
        numbers.push(*known.entry(machine).or_insert(next));
    }
    move |a, b| [a, b].into_iter().filter_map(|host| numbers.get(host).copied()).collect()
}

/// Measures the network between the nodes, in their order. `say` is told what is about to be done. Fails with the first
/// pair that has no answer in time: what the probes take, and half a minute, and a second for each round.
pub async fn measure(
    remotes: &[Remote],
    ask: &ProbeAsk,
    shared: &Shared<'_>,
    limits: &Limits,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Network, StepFailure> {
    let hosts: Vec<String> = remotes.iter().map(|remote| remote.name.clone()).collect();
    let apart = network::disjoint(network::rounds(hosts.len()), shared);
    let mut network = Network { hosts: hosts.clone(), ..Network::default() };
    let mut notes = vec![limits.latency.note.clone()];
    let rounds = network::limit(apart.clone(), limits.latency.pairs);
    say(&format!(
        "round-trip times of {} pairs, {:?} bytes, {} at once",
        pairs(hosts.len()),
        ask.payloads,
        limits.latency.pairs.min((hosts.len() / 2).max(1))
    ));
    let unknown = Matrix::new(hosts.clone());
    let (small, large) = ask.payloads.split_at(ask.payloads.len().min(1));
    for &payload in small {
        latency(remotes, ask, payload, &rounds, &unknown, &mut network).await?;
    }
    let mut bandwidth = unknown;
    if ask.bandwidth {
        say(&format!(
            "bandwidth of {} pairs, {} at once",
            pairs(hosts.len()),
            limits.bandwidth.pairs.min((hosts.len() / 2).max(1))
        ));
        notes.push(limits.bandwidth.note.clone());
        let rounds = network::limit(apart, limits.bandwidth.pairs);
        rates(remotes, probe::Rate::default(), &rounds, &network, &mut bandwidth).await?;
    }
    for &payload in large {
        latency(remotes, ask, payload, &rounds, &bandwidth, &mut network).await?;
    }
    network.bandwidth_mbps = bandwidth.into_rows();
    network.worst = network::worst_pairs(&network);
    network.notes = notes.into_iter().filter(|note| !note.is_empty()).collect();
    Ok(network)
}

/// Ping-pong of every payload, at a pace that each pair's link carries by itself: `rates`, Mbit/s, `[destination][source]`.
/// One slow link, or one pair that a busy machine kept from its rate, does not hold up all others.
pub async fn latencies(
    remotes: &[Remote],
    ask: &ProbeAsk,
    rates: &Rows,
    shared: &Shared<'_>,
    limits: &Limits,
) -> Result<Network, StepFailure> {
    let hosts: Vec<String> = remotes.iter().map(|remote| remote.name.clone()).collect();
    let rounds =
        network::limit(network::disjoint(network::rounds(hosts.len()), shared), limits.latency.pairs);
    let mut bandwidth = Matrix::new(hosts.clone());
    for (to, row) in rates.iter().enumerate() {
        for (from, mbps) in row.iter().enumerate() {
            if let Some(mbps) = mbps {
                bandwidth.set(to, from, *mbps);
            }
        }
    }
    let mut network = Network { hosts, ..Network::default() };
    for &payload in &ask.payloads {
        latency(remotes, ask, payload, &rounds, &bandwidth, &mut network).await?;
    }
    Ok(network)
}

/// A quick look at bandwidth, for a plan of who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quick {
    /// Measured time of a pair.
    pub measured: Duration,
    /// Left out for slow start.
    pub omit: Duration,
    /// Each host meets as many others, at most, once in each direction.
    pub partners: usize,
}

impl Default for Quick {
    fn default() -> Self {
        Self { measured: Duration::from_millis(100), omit: Duration::from_millis(50), partners: 4 }
    }
}

/// Bandwidth of some pairs, Mbit/s, `[destination][source]`: enough to know each host's own share of the network (see
/// [`Topology::from_matrix`]).
pub async fn bandwidths(
    remotes: &[Remote],
    quick: &Quick,
    shared: &Shared<'_>,
    limits: &Limits,
) -> Result<Rows, StepFailure> {
    let hosts: Vec<String> = remotes.iter().map(|remote| remote.name.clone()).collect();
    // Rounds come in pairs: there and back.
    let rounds: Vec<_> = network::rounds(hosts.len()).into_iter().take(2 * quick.partners.max(1)).collect();
    let rounds = network::limit(network::disjoint(rounds, shared), limits.bandwidth.pairs);
    let rate = probe::Rate { measured: quick.measured, omit: quick.omit };
    let mut found = Matrix::new(hosts);
    rates(remotes, rate, &rounds, &Network::default(), &mut found).await?;
    Ok(found.into_rows())
}

/// The rates of these pairs (source, destination), one after the other, Mbit/s.
pub async fn rates_of(
    remotes: &[Remote],
    quick: &Quick,
    pairs: &[(usize, usize)],
) -> Result<Vec<f64>, StepFailure> {
    let rounds: Vec<_> = pairs.iter().map(|pair| vec![*pair]).collect();
    let rate = probe::Rate { measured: quick.measured, omit: quick.omit };
    let mut found = Matrix::new(remotes.iter().map(|remote| remote.name.clone()).collect());
    rates(remotes, rate, &rounds, &Network::default(), &mut found).await?;
    Ok(pairs.iter().map(|&(from, to)| found.get(to, from).unwrap_or(0.0)).collect())
}

fn pairs(hosts: usize) -> usize {
    hosts * hosts.saturating_sub(1)
}

/// Measures bandwidth round by round; fails with the first pair that takes much longer than it should. Where `network` knows a round trip, probes last as long as it asks.
async fn rates(
    remotes: &[Remote],
    rate: probe::Rate,
    rounds: &[Vec<(usize, usize)>],
    network: &Network,
    found: &mut Matrix,
) -> Result<(), StepFailure> {
    let mut slack = probe::Slack::of(rounds.len());
    for round in rounds {
        let (begun, margin, mut own) = (Instant::now(), slack.margin(), Duration::ZERO);
        let probes = round.iter().map(|&(from, to)| {
            // The least: what slow start needs does not depend on who was busy.
            let pairs = network.rtt_summary.values().next().into_iter().flatten();
            let rtt = pairs
                .into_iter()
                .find(|pair| pair.from == network.hosts[from] && pair.to == network.hosts[to])
                .filter(|pair| pair.received > 0)
                .map(|pair| pair.min);
            let rate = rate.at(rtt);
            own = own.max(rate.time());
            let probe = probe::bandwidth(&remotes[from], &remotes[to], rate, margin);
            async move { probe.await.map(|mbps| (from, to, mbps)) }
        });
        let probes: Vec<_> = probes.collect();
        let results: Vec<_> = stream::iter(probes).buffer_unordered(round.len().max(1)).try_collect().await?;
        for (from, to, mbps) in results {
            found.set(to, from, mbps);
        }
        slack.spend(begun.elapsed(), own);
    }
    Ok(())
}

/// Plays ping-pong with one payload size between all pairs and notes the statistics.
async fn latency(
    remotes: &[Remote],
    ask: &ProbeAsk,
    payload: u32,
    rounds: &[Vec<(usize, usize)>],
    bandwidth: &Matrix,
    network: &mut Network,
) -> Result<(), StepFailure> {
    let hosts = network.hosts.clone();
    let [mut rtt, mut jitter, mut loss] = [(); 3].map(|()| Matrix::new(hosts.clone()));
    let mut summary: BTreeMap<(usize, usize), PairRtt> = BTreeMap::new();
    let mut slack = probe::Slack::of(rounds.len());
    for round in rounds {
        let (begun, margin, mut own) = (Instant::now(), slack.margin(), Duration::ZERO);
        let probes = round.iter().map(|&(from, to)| {
            // Requests take the one direction, replies the other.
            let mbps = [bandwidth.get(to, from), bandwidth.get(from, to)]
                .into_iter()
                .flatten()
                .fold(f64::MAX, f64::min);
            own = own.max(probe::ping_time(ask, payload, mbps));
            probe::ping(&remotes[from], &remotes[to], ask, payload, mbps, margin)
        });
        let results = futures::future::try_join_all(probes.collect::<Vec<_>>()).await?;
        slack.spend(begun.elapsed(), own);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_one_machine_are_not_probed_at_once() {
        let places = ["a", "b", "a", "c"].map(str::to_owned);
        let shared = machines(&places);
        assert!(!shared(0, 1).is_disjoint(&shared(2, 3)));
        assert!(shared(0, 2).is_disjoint(&shared(1, 3)));
        for round in network::disjoint(network::rounds(4), &shared) {
            for (i, &(a, b)) in round.iter().enumerate() {
                assert!(round[..i].iter().all(|&(c, d)| shared(a, b).is_disjoint(&shared(c, d))));
            }
        }
    }

    #[test]
    fn a_map_is_asked_for_as_a_cluster_is() {
        let map = NetworkMapSpec { payload_bytes: 1000, count: 3, ..NetworkMapSpec::default() };
        let ask = ProbeAsk::from(&map);
        assert_eq!((ask.payloads, ask.count, ask.bandwidth), (vec![64, 1000], 3, true));
        assert_eq!(ask.interval, Duration::from_millis(10));
    }

    /// The operator runs these as tasks of their own.
    #[test]
    fn steps_can_be_tasks() {
        fn task<T: Send>(_: T) {}
        let shared = |_: usize, _: usize| BTreeSet::new();
        let limits = Limits::machines();
        let ask = ProbeAsk::from(&Probe::default());
        task(measure(&[], &ask, &shared, &limits, &|_| ()));
        task(latencies(&[], &ask, &Rows::new(), &shared, &limits));
        task(bandwidths(&[], &Quick::default(), &shared, &limits));
    }
}
