//! How is the network between some hosts measured, in as little time as the figures allow?
//!
//! Small pings first: they tell how far the hosts are from each other. Hosts that are near (a data centre) need little
//! time for a rate: slow start is over after 20 round trips, and a tenth of a second is hundreds of them. Hosts that are
//! far are measured as a local run does it, for as long as their round trips ask. Of more than [`MOST_PAIRS`] hosts not
//! every pair is measured, but each host with some others: enough to know the link of each.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gridcast_control::{
    Remote, StepFailure,
    measure::{self, Limits, ProbeAsk, Quick},
    tune::describe,
};
use gridcast_core::{
    network::worst_pairs,
    report::{Network, Rows},
};

use super::observed::blank;

/// Hosts of which every pair is measured; the matrices of more would not fit into an object.
pub(crate) const MOST_PAIRS: usize = 64;
/// Hosts are near if their longest round trip is at most this, milliseconds.
const NEAR_MILLISECONDS: f64 = 2.0;
/// From one ping to the next where hosts are near: twenty round trips, so that none waits for another.
const NEAR_INTERVAL: Duration = Duration::from_millis(2);
/// Measured time of a rate where hosts are near: at 1 Gbit/s that is 10 MB, at 100 Mbit/s 700 packets.
const NEAR_MEASURED: Duration = Duration::from_millis(80);
/// Left out for slow start, at least.
const NEAR_OMIT: Duration = Duration::from_millis(20);
/// Round trips that are left out for slow start; see `control::measure`.
const OMIT_ROUND_TRIPS: f64 = 20.0;
/// Round trips over which a rate is taken, at least.
const MEASURED_ROUND_TRIPS: f64 = 10.0;
/// Rates below this share of the median are measured again.
const FAR_BELOW: f64 = 0.1;
/// Pings of hosts that are near are sent as if their links carried this at least, Mbit/s: while they go on, no other
/// measurement has its turn on either machine.
const LEAST_PACE: f64 = 10.0;
/// Partners of each host where there are too many for all pairs.
const PARTNERS: usize = 6;
/// Hosts that ping each other where there are too many for all pairs.
const GROUP: usize = 16;
/// Groups that do so at once.
const GROUPS_AT_ONCE: usize = 8;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    /// Every pair.
    Pairs(Box<Network>),
    /// The link of each host.
    Links(Box<Links>),
}

/// The link of each of many hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Links {
    /// Names.
    pub(crate) hosts: Vec<String>,
    /// Rates of some pairs, Mbit/s, `[destination][source]`; empty where none was measured.
    pub(crate) mbps: Rows,
    /// Delay of each host's link one way, milliseconds.
    pub(crate) delays: Vec<Option<f64>>,
    /// The groups that played ping-pong.
    pub(crate) groups: Vec<Network>,
    /// `kernel` or `user`.
    pub(crate) timestamps: String,
    /// How it was measured.
    pub(crate) notes: Vec<String>,
}

/// Measures hosts whose agents are `remotes` and that are on `machines`, both in the same order.
pub(crate) async fn measure(
    remotes: &[Remote],
    machines: &[String],
    ask: &ProbeAsk,
) -> Result<Found, StepFailure> {
    // A pod's namespace answers probes from when its agent is first asked about it.
    describe(remotes).await?;
    // An agent enters a pod when it is first asked about it; from then on the pod answers the pings of others.
    describe(remotes).await?;
    if remotes.len() > MOST_PAIRS {
        return links(remotes, machines, ask).await.map(|links| Found::Links(Box::new(links)));
    }
    pairs(remotes, machines, ask).await.map(|network| Found::Pairs(Box::new(network)))
}

async fn pairs(remotes: &[Remote], machines: &[String], ask: &ProbeAsk) -> Result<Network, StepFailure> {
    let shared = measure::machines(machines);
    let limits = Limits::machines();
    let quiet = |_: &str| ();
    let (small, large) = ask.payloads.split_at(ask.payloads.len().min(1));
    let pings = |payloads: &[u32], interval| ProbeAsk {
        payloads: payloads.to_vec(),
        interval,
        bandwidth: false,
        count: ask.count,
    };
    let mut network =
        measure::measure(remotes, &pings(small, NEAR_INTERVAL), &shared, &limits, &quiet).await?;
    let Some(farthest) = farthest(&network).filter(|rtt| *rtt <= NEAR_MILLISECONDS) else {
        return measure::measure(remotes, ask, &shared, &limits, &quiet).await;
    };
    let hosts = remotes.len();
    network.bandwidth_mbps = blank(hosts);
    if ask.bandwidth && hosts > 1 {
        let quick = quick(farthest, hosts);
        network.bandwidth_mbps = measure::bandwidths(remotes, &quick, &shared, &limits).await?;
        network.notes.push(note(&quick));
        again(remotes, &quick, &mut network.bandwidth_mbps).await?;
    }
    if !large.is_empty() {
        let interval = if ask.bandwidth { NEAR_INTERVAL } else { ask.interval };
        let asked = pings(large, interval);
        let pace = network.bandwidth_mbps.iter();
        let pace = pace.map(|row| row.iter().map(|mbps| mbps.map(|mbps| mbps.max(LEAST_PACE))).collect());
        let more = measure::latencies(remotes, &asked, &pace.collect(), &shared, &limits).await?;
        merge(&mut network, more);
    }
    network.worst = worst_pairs(&network);
    Ok(network)
}

/// Measures once more, and longer, what is far below the others: in a tenth of a second a busy machine may not have sent at
/// all. The greater figure is nearer to what the link carries.
async fn again(remotes: &[Remote], quick: &Quick, rates: &mut Rows) -> Result<(), StepFailure> {
    let mut known: Vec<f64> = rates.iter().flatten().flatten().copied().collect();
    known.sort_by(f64::total_cmp);
    let Some(usual) = known.get(known.len() / 2) else { return Ok(()) };
    let low = usual * FAR_BELOW;
    let cells = (0..rates.len()).flat_map(|to| (0..remotes.len()).map(move |from| (from, to)));
    let pairs: Vec<_> = cells.filter(|&(from, to)| rates[to][from].is_some_and(|mbps| mbps < low)).collect();
    let longer = Quick { measured: quick.measured * 4, omit: quick.omit * 4, ..*quick };
    let found = measure::rates_of(remotes, &longer, &pairs).await?;
    for ((from, to), mbps) in pairs.into_iter().zip(found) {
        rates[to][from] = rates[to][from].map(|before| before.max(mbps));
    }
    Ok(())
}

async fn links(remotes: &[Remote], machines: &[String], ask: &ProbeAsk) -> Result<Links, StepFailure> {
    let limits = Limits::machines();
    let pings = ProbeAsk { bandwidth: false, ..ask.clone() };
    let groups = remotes.chunks(GROUP).zip(machines.chunks(GROUP)).map(|(remotes, machines)| {
        let (pings, limits) = (&pings, &limits);
        async move {
            let shared = measure::machines(machines);
            measure::measure(remotes, pings, &shared, limits, &|_| ()).await
        }
    });
    let groups: Vec<Network> =
        stream::iter(groups.collect::<Vec<_>>()).buffered(GROUPS_AT_ONCE).try_collect().await?;
    let farthest = groups.iter().filter_map(farthest).fold(0.0, f64::max);
    let mut links = Links {
        hosts: remotes.iter().map(|remote| remote.name.clone()).collect(),
        delays: groups.iter().flat_map(delays).collect(),
        timestamps: clock(groups.iter().map(|group| group.timestamps.as_str())),
        notes: vec![format!(
            "round trips were measured within groups of {GROUP} hosts, in machinefile order"
        )],
        ..Links::default()
    };
    links.groups = groups;
    if ask.bandwidth {
        let quick = quick(farthest, PARTNERS);
        let shared = measure::machines(machines);
        links.mbps = measure::bandwidths(remotes, &quick, &shared, &limits).await?;
        links.notes.push(format!("each host's link is its best rate to and from {PARTNERS} others"));
        links.notes.push(note(&quick));
    }
    Ok(links)
}

/// How long rates are measured where round trips take at most this, milliseconds.
fn quick(farthest: f64, partners: usize) -> Quick {
    let trips = |count: f64| Duration::from_secs_f64((farthest * count / 1e3).min(20.0));
    Quick {
        measured: trips(MEASURED_ROUND_TRIPS).max(NEAR_MEASURED),
        omit: trips(OMIT_ROUND_TRIPS).max(NEAR_OMIT),
        partners,
    }
}

fn note(quick: &Quick) -> String {
    format!(
        "a rate is the median over {} ms of one TCP connection, after {} ms of slow start",
        quick.measured.as_millis(),
        quick.omit.as_millis()
    )
}

/// The longest of the least round trips, milliseconds; none where a pair has no answer. Both directions of a pair take the
/// same way: the shorter one tells how far the hosts are. On a busy machine one of many pairs may be late with every ping.
fn farthest(network: &Network) -> Option<f64> {
    if network.loss_percent.values().flatten().flatten().flatten().any(|loss| *loss >= 100.0) {
        return None;
    }
    let mut least: BTreeMap<[&str; 2], f64> = BTreeMap::new();
    for pair in network.rtt_summary.values().flatten() {
        let mut ends = [pair.from.as_str(), pair.to.as_str()];
        ends.sort_unstable();
        let known = least.entry(ends).or_insert(pair.min);
        *known = known.min(pair.min);
    }
    Some(least.into_values().fold(0.0, f64::max))
}

/// Delay of each host's link: a round trip crosses two links both ways.
fn delays(network: &Network) -> Vec<Option<f64>> {
    let hosts = &network.hosts;
    let least = |host: &String| {
        let pairs = network.rtt_summary.values().next().into_iter().flatten();
        let own = pairs.filter(|pair| pair.received > 0 && (pair.from == *host || pair.to == *host));
        own.map(|pair| pair.min / 4.0).reduce(f64::min)
    };
    hosts.iter().map(least).collect()
}

fn merge(network: &mut Network, more: Network) {
    network.timestamps = clock([network.timestamps.as_str(), &more.timestamps]);
    network.rtt_milliseconds.extend(more.rtt_milliseconds);
    network.jitter_milliseconds.extend(more.jitter_milliseconds);
    network.loss_percent.extend(more.loss_percent);
    network.rtt_summary.extend(more.rtt_summary);
    let known: BTreeSet<String> = network.notes.iter().cloned().collect();
    network.notes.extend(more.notes.into_iter().filter(|note| !known.contains(note)));
}

/// Whose clock stamped all of them: where one was the user's, that is what may be claimed.
fn clock<'a>(clocks: impl IntoIterator<Item = &'a str>) -> String {
    let known = clocks.into_iter().filter(|clock| !clock.is_empty());
    known.reduce(|a, b| if a == "user" { a } else { b }).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use gridcast_core::report::PairRtt;

    use super::*;

    fn network(rtt: f64, loss: f64) -> Network {
        let rows = |value| vec![vec![None, Some(value)], vec![Some(value), None]];
        let pair = |from: &str, to: &str| PairRtt {
            from: from.into(),
            to: to.into(),
            sent: 10,
            received: 10,
            min: rtt,
            avg: rtt,
            max: rtt,
            mdev: 0.0,
        };
        Network {
            hosts: vec!["a".into(), "b".into()],
            rtt_milliseconds: [("64".into(), rows(rtt))].into(),
            loss_percent: [("64".into(), rows(loss))].into(),
            rtt_summary: [("64".into(), vec![pair("a", "b"), pair("b", "a")])].into(),
            timestamps: "kernel".into(),
            ..Network::default()
        }
    }

    #[test]
    fn a_pair_without_an_answer_is_not_near() {
        assert_eq!(farthest(&network(0.2, 0.0)), Some(0.2));
        assert_eq!(farthest(&network(0.2, 100.0)), None);
        assert_eq!(farthest(&Network::default()), Some(0.0), "a single host");
    }

    #[test]
    fn a_pair_that_was_busy_in_one_direction_is_near() {
        let mut network = network(0.2, 0.0);
        let pairs = network.rtt_summary.values_mut().next().unwrap();
        pairs[1].min = 7.0;
        assert_eq!(farthest(&network), Some(0.2));
        network.rtt_summary.values_mut().next().unwrap()[0].min = 6.0;
        assert_eq!(farthest(&network), Some(6.0), "far both ways");
    }

    #[test]
    fn near_hosts_take_a_tenth_of_a_second_and_far_ones_their_round_trips() {
        let near = quick(0.1, 3);
        assert_eq!((near.measured, near.omit), (NEAR_MEASURED, NEAR_OMIT));
        let far = quick(100.0, 3);
        assert_eq!((far.measured, far.omit), (Duration::from_secs(1), Duration::from_secs(2)));
        // Six ordered pairs of three hosts, one at a time: bandwidth and twice ten pings.
        let pings = NEAR_INTERVAL * 9 * 2;
        assert!((near.measured + near.omit + pings) * 6 < Duration::from_secs(1));
    }

    #[test]
    fn one_clock_of_the_user_is_told() {
        assert_eq!(clock(["kernel", "user", "kernel"]), "user");
        assert_eq!(clock(["", "kernel"]), "kernel");
        assert_eq!(clock([""]), "");
        let mut merged = network(0.1, 0.0);
        let mut more = network(0.2, 0.0);
        more.rtt_milliseconds = [("50000".into(), blank(2))].into();
        merge(&mut merged, more);
        assert_eq!(merged.rtt_milliseconds.len(), 2);
    }

    #[test]
    fn a_links_delay_is_a_quarter_of_the_least_round_trip() {
        assert_eq!(delays(&network(0.4, 0.0)), [Some(0.1), Some(0.1)]);
    }
}
