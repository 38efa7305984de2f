//! What does the status of a NetworkMap say of what was found?

use std::collections::BTreeMap;

use gridcast_core::{
    broadcast::topology::Topology,
    report::{Network, PairRtt, Rows},
};
use gridcast_crds::network_map::{InferredLink, InferredTopology, Matrices, NetworkMapStatus, Timestamps};
use jiff::Timestamp;

use super::{
    measuring::{Found, Links},
    observed::blank,
};
use crate::verdict::{bounded, whole_seconds};

/// Sentences of each list.
const MOST_SENTENCES: usize = 20;
/// Longest sentence, bytes.
const LONGEST: usize = 512;
/// A pair below this share of the median rate is told of.
const SLOW_SHARE: f64 = 0.5;
/// A round trip above so many times the median is told of,
const FAR_TIMES: f64 = 3.0;
/// where it is longer than that by this, milliseconds: below, machines are measured and no networks.
const FAR_MILLISECONDS: f64 = 0.5;
/// Jitter above this is told of, milliseconds, where it is more than half of the round trip.
const JITTER_MILLISECONDS: f64 = 1.0;

/// The figures of a status; conditions are the plan's.
pub(crate) fn figures(found: &Found, at: Timestamp) -> NetworkMapStatus {
    let mut status =
        NetworkMapStatus { measured_time: Some(whole_seconds(at)), ..NetworkMapStatus::default() };
    let (clock, notes, anomalies) = match found {
        Found::Pairs(network) => {
            status.matrices = Some(matrices(network));
            (&network.timestamps, network.notes.clone(), anomalies(network))
        }
        Found::Links(links) => {
            status.topology = Some(topology(links));
            let sentences = slow_links(links).into_iter().chain(links.groups.iter().flat_map(anomalies));
            (&links.timestamps, links.notes.clone(), sentences.collect())
        }
    };
    status.timestamps = match clock.as_str() {
        "kernel" => Some(Timestamps::Kernel),
        "user" => Some(Timestamps::User),
        _ => None,
    };
    status.notes = sentences(notes);
    status.anomalies = sentences(anomalies);
    status
}

/// The names of the hosts that a status is about.
pub(crate) fn hosts(status: &NetworkMapStatus) -> Vec<String> {
    if let Some(matrices) = &status.matrices {
        return matrices.hosts.clone();
    }
    let links = status.topology.iter().flat_map(|topology| &topology.links);
    links.map(|link| link.a.clone()).collect()
}

fn sentences(list: Vec<String>) -> Vec<String> {
    list.into_iter().take(MOST_SENTENCES).map(|sentence| bounded(&sentence, LONGEST)).collect()
}

fn matrices(network: &Network) -> Matrices {
    let each = |matrices: &BTreeMap<String, Rows>| -> BTreeMap<String, Rows> {
        matrices.iter().map(|(size, rows)| (size.clone(), rounded(rows))).collect()
    };
    let of_pairs = |value: fn(&PairRtt) -> f64| -> BTreeMap<String, Rows> {
        let matrix = |pairs: &Vec<PairRtt>| extremes(&network.hosts, pairs, value);
        network.rtt_summary.iter().map(|(size, pairs)| (size.clone(), matrix(pairs))).collect()
    };
    let measured = network.bandwidth_mbps.iter().flatten().any(Option::is_some);
    Matrices {
        hosts: network.hosts.clone(),
        min_rtt_milliseconds: of_pairs(|pair| pair.min),
        max_rtt_milliseconds: of_pairs(|pair| pair.max),
        rtt_milliseconds: each(&network.rtt_milliseconds),
        jitter_milliseconds: each(&network.jitter_milliseconds),
        loss_percent: each(&network.loss_percent),
        bandwidth_mbps: if measured { rounded(&network.bandwidth_mbps) } else { Vec::new() },
    }
}

fn extremes(hosts: &[String], pairs: &[PairRtt], value: fn(&PairRtt) -> f64) -> Rows {
    let at: BTreeMap<&str, usize> =
        hosts.iter().enumerate().map(|(index, host)| (host.as_str(), index)).collect();
    let mut rows = blank(hosts.len());
    for pair in pairs.iter().filter(|pair| pair.received > 0) {
        if let (Some(&from), Some(&to)) = (at.get(pair.from.as_str()), at.get(pair.to.as_str())) {
            rows[to][from] = Some(three_decimals(value(pair)));
        }
    }
    rows
}

fn rounded(rows: &Rows) -> Rows {
    rows.iter().map(|row| row.iter().map(|value| value.map(three_decimals)).collect()).collect()
}

/// Microseconds of a time in ms, kbit/s of a rate in Mbit/s; within the schema's bounds.
fn three_decimals(value: f64) -> f64 {
    ((value * 1000.0).round() / 1000.0).clamp(0.0, 1e9)
}

fn topology(links: &Links) -> InferredTopology {
    let star = Topology::from_matrix(&links.hosts, &links.mbps);
    let known = links.mbps.iter().flatten().any(Option::is_some);
    let delays = links.delays.iter().copied().chain(std::iter::repeat(None));
    let link = |(link, delay): (gridcast_core::broadcast::topology::Link, Option<f64>)| InferredLink {
        a: link.a,
        b: link.b,
        mbps: known.then(|| three_decimals(link.mbps)),
        back_mbps: link.back_mbps.filter(|_| known).map(three_decimals),
        delay_milliseconds: delay.map(three_decimals),
    };
    InferredTopology {
        switches: star.switches,
        links: star.links.into_iter().zip(delays).map(link).collect(),
    }
}

/// What of some pairs is worth a look, the worst of each kind first.
fn anomalies(network: &Network) -> Vec<String> {
    let mut told = Vec::new();
    let hosts = &network.hosts;
    for (size, rows) in &network.loss_percent {
        each(
            hosts,
            rows,
            |loss| loss > 0.0,
            |pair, loss| format!("{pair}: {loss:.1} % of pings of {size} bytes were lost"),
            &mut told,
        );
    }
    if let Some(median) = median(&network.bandwidth_mbps) {
        let slow = |mbps: f64| mbps < median * SLOW_SHARE;
        each(
            hosts,
            &network.bandwidth_mbps,
            slow,
            |pair, mbps| format!("{pair}: {mbps:.0} Mbit/s, where half of the pairs reach {median:.0}"),
            &mut told,
        );
    }
    for (size, rows) in &network.rtt_milliseconds {
        let Some(median) = median(rows) else { continue };
        let far = |rtt: f64| rtt > median * FAR_TIMES && rtt > median + FAR_MILLISECONDS;
        each(
            hosts,
            rows,
            far,
            |pair, rtt| {
                format!(
                    "{pair}: a round trip of {size} bytes takes {rtt:.3} ms, where half of the pairs need {median:.3}"
                )
            },
            &mut told,
        );
    }
    for (size, rows) in &network.jitter_milliseconds {
        let rtt = network.rtt_milliseconds.get(size).and_then(median).unwrap_or(f64::MAX);
        let restless = |jitter: f64| jitter > JITTER_MILLISECONDS && jitter > rtt / 2.0;
        each(
            hosts,
            rows,
            restless,
            |pair, jitter| format!("{pair}: round trips of {size} bytes vary by {jitter:.3} ms (mdev)"),
            &mut told,
        );
    }
    told
}

/// Tells of each pair whose value is remarkable, `from to destination` in front.
fn each(
    hosts: &[String],
    rows: &Rows,
    remarkable: impl Fn(f64) -> bool,
    tell: impl Fn(&str, f64) -> String,
    told: &mut Vec<String>,
) {
    for (to, row) in rows.iter().enumerate() {
        for (from, value) in row.iter().enumerate() {
            if let (Some(value), Some(to), Some(from)) =
                (value.filter(|value| remarkable(*value)), hosts.get(to), hosts.get(from))
            {
                told.push(tell(&format!("{from} to {to}"), value));
            }
        }
    }
}

/// Hosts whose link is slow among the others'.
fn slow_links(links: &Links) -> Vec<String> {
    let known = links.mbps.iter().flatten().any(Option::is_some);
    if !known {
        return Vec::new();
    }
    let star = Topology::from_matrix(&links.hosts, &links.mbps);
    let narrow =
        |link: &gridcast_core::broadcast::topology::Link| link.back_mbps.unwrap_or(link.mbps).min(link.mbps);
    let mut rates: Vec<f64> = star.links.iter().map(narrow).collect();
    rates.sort_by(f64::total_cmp);
    let Some(&median) = rates.get(rates.len() / 2) else { return Vec::new() };
    let mut slow: Vec<(f64, String)> = star
        .links
        .iter()
        .filter(|link| narrow(link) < median * SLOW_SHARE)
        .map(|link| {
            (
                narrow(link),
                format!(
                    "{}: its link carries {:.0} Mbit/s, where half of the hosts have {median:.0}",
                    link.a,
                    narrow(link)
                ),
            )
        })
        .collect();
    slow.sort_by(|a, b| a.0.total_cmp(&b.0));
    slow.into_iter().map(|(_, sentence)| sentence).collect()
}

fn median(rows: &Rows) -> Option<f64> {
    let mut values: Vec<f64> = rows.iter().flatten().flatten().copied().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at() -> Timestamp {
        Timestamp::from_millisecond(1_500).unwrap()
    }

    fn network() -> Network {
        let rows = |a: f64, b: f64| {
            vec![vec![None, Some(a), Some(a)], vec![Some(a), None, Some(a)], vec![Some(b), Some(a), None]]
        };
        let pair = |from: &str, to: &str| PairRtt {
            from: from.into(),
            to: to.into(),
            sent: 10,
            received: 10,
            min: 0.1,
            avg: 0.2,
            max: 0.3,
            mdev: 0.05,
        };
        Network {
            hosts: ["a", "b", "c"].map(str::to_owned).to_vec(),
            rtt_milliseconds: [("64".into(), rows(0.2, 0.2))].into(),
            jitter_milliseconds: [("64".into(), rows(0.05, 0.05))].into(),
            loss_percent: [("64".into(), rows(0.0, 0.0))].into(),
            bandwidth_mbps: rows(941.123_456, 100.0),
            rtt_summary: [("64".into(), vec![pair("a", "b"), pair("b", "c")])].into(),
            timestamps: "kernel".into(),
            ..Network::default()
        }
    }

    #[test]
    fn matrices_have_destinations_as_rows() {
        let status = figures(&Found::Pairs(Box::new(network())), at());
        let matrices = status.matrices.as_ref().unwrap();
        assert_eq!(matrices.bandwidth_mbps[2], [Some(100.0), Some(941.123), None]);
        assert_eq!(matrices.min_rtt_milliseconds["64"][1], [Some(0.1), None, None]);
        assert_eq!(matrices.max_rtt_milliseconds["64"][2], [None, Some(0.3), None]);
        assert_eq!(status.timestamps, Some(Timestamps::Kernel));
        assert_eq!(status.measured_time.as_ref().unwrap().0, Timestamp::from_second(1).unwrap());
        assert_eq!(hosts(&status), ["a", "b", "c"]);
        assert!(status.topology.is_none());
    }

    #[test]
    fn only_what_stands_out_is_told() {
        assert_eq!(anomalies(&network()), ["a to c: 100 Mbit/s, where half of the pairs reach 941"]);
        let mut network = network();
        network.bandwidth_mbps = blank(3);
        assert!(anomalies(&network).is_empty());
        network.loss_percent.get_mut("64").unwrap()[0][1] = Some(10.0);
        network.rtt_milliseconds.get_mut("64").unwrap()[0][2] = Some(5.0);
        network.jitter_milliseconds.get_mut("64").unwrap()[1][2] = Some(2.0);
        assert_eq!(
            anomalies(&network),
            [
                "b to a: 10.0 % of pings of 64 bytes were lost",
                "c to a: a round trip of 64 bytes takes 5.000 ms, where half of the pairs need 0.200",
                "c to b: round trips of 64 bytes vary by 2.000 ms (mdev)",
            ]
        );
    }

    #[test]
    fn many_hosts_have_a_link_each() {
        let hosts: Vec<String> = (0..65).map(|i| format!("n{i}")).collect();
        let mut mbps = blank(65);
        for i in 0..65 {
            mbps[(i + 1) % 65][i] = Some(if i == 7 { 90.0 } else { 900.0 });
        }
        let links = Links {
            hosts: hosts.clone(),
            mbps,
            delays: vec![Some(0.05); 65],
            timestamps: "user".into(),
            ..Links::default()
        };
        let status = figures(&Found::Links(Box::new(links)), at());
        let topology = status.topology.as_ref().unwrap();
        assert_eq!((topology.switches.len(), topology.links.len()), (1, 65));
        assert_eq!((topology.links[7].mbps, topology.links[8].back_mbps), (Some(90.0), Some(90.0)));
        assert_eq!(topology.links[0].delay_milliseconds, Some(0.05));
        assert_eq!(super::hosts(&status), hosts);
        assert!(status.anomalies[0].starts_with("n7: its link carries 90 Mbit/s"), "{:?}", status.anomalies);
        assert!(status.matrices.is_none());
    }

    #[test]
    fn without_rates_links_have_none() {
        let links = Links { hosts: vec!["a".into(), "b".into()], delays: vec![None; 2], ..Links::default() };
        let status = figures(&Found::Links(Box::new(links)), at());
        assert!(
            status.topology.unwrap().links.iter().all(|link| link.mbps.is_none() && link.back_mbps.is_none())
        );
        assert!(status.anomalies.is_empty());
    }

    proptest! {
        #[test]
        fn whatever_was_found_is_within_the_schema(
            values in proptest::collection::vec(proptest::option::of(-1.0_f64..1e12), 9), loss in 0.0_f64..100.0,
        ) {
            let rows: Rows = values.chunks(3).map(<[_]>::to_vec).collect();
            let mut network = network();
            network.bandwidth_mbps = rows.clone();
            network.rtt_milliseconds = [("64".into(), rows)].into();
            network.loss_percent.get_mut("64").unwrap()[0][1] = Some(loss);
            let status = figures(&Found::Pairs(Box::new(network)), at());
            let matrices = status.matrices.unwrap();
            let all = matrices.bandwidth_mbps.iter().chain(matrices.rtt_milliseconds.values().flatten());
            prop_assert!(all.flatten().flatten().all(|value| (0.0..=1e9).contains(value)));
            prop_assert!(status.anomalies.len() <= MOST_SENTENCES);
        }
    }
}
