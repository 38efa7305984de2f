//! Networks for tests: the published vectors, and random ones.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;

use super::topology::{Host, LimitedHost, Link, Topology};

/// One case of `core/tests/data/broadcast-vectors.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) hosts: Vec<Host>,
    pub(crate) switches: Vec<String>,
    pub(crate) links: Vec<Link>,
    pub(crate) source: String,
    pub(crate) bound: BTreeMap<String, f64>,
    pub(crate) rates: BTreeMap<String, BTreeMap<String, f64>>,
}

#[derive(Debug, Deserialize)]
struct Vectors {
    cases: Vec<Vector>,
}

pub(crate) fn vectors() -> Vec<Vector> {
    let text = include_str!("../../tests/data/broadcast-vectors.json");
    let vectors: Vectors = serde_json::from_str(text).expect("the vectors are JSON");
    assert_eq!(vectors.cases.len(), 6);
    vectors.cases
}

pub(crate) fn vector(name: &str) -> Vector {
    vectors().into_iter().find(|case| case.name == name).expect("there is such a vector")
}

impl Vector {
    pub(crate) fn topology(&self) -> Topology {
        Topology { hosts: self.hosts.clone(), switches: self.switches.clone(), links: self.links.clone() }
    }

    /// All hosts but the source.
    pub(crate) fn destinations(&self) -> Vec<String> {
        destinations(&self.topology(), &self.source)
    }
}

pub(crate) fn destinations(topology: &Topology, source: &str) -> Vec<String> {
    topology.hosts.iter().map(Host::name).filter(|&name| name != source).map(str::to_owned).collect()
}

/// Host `h0` and up to `hosts - 1` others, up to `switches` switches, joined somehow: full-duplex links of 1 to 20 Mbit/s,
/// some narrower or closed one way, some hosts with budgets.
pub(crate) fn networks(hosts: usize, switches: usize) -> impl Strategy<Value = Topology> {
    (2..=hosts, 0..=switches).prop_flat_map(|(hosts, switches)| {
        let vertices = hosts + switches;
        let mbps = || (1_u32..=20).prop_map(f64::from);
        let back = prop_oneof![6 => Just(None), 2 => mbps().prop_map(Some), 1 => Just(Some(0.0))];
        let budget = || prop::option::weighted(0.15, mbps());
        let limits = prop::collection::vec((budget(), budget(), budget(), budget()), hosts);
        // A tree that joins all, then links at random.
        let tree = prop::collection::vec((any::<prop::sample::Index>(), mbps()), vertices - 1);
        let more = prop::collection::vec((0..vertices, 0..vertices, mbps(), back), 0..vertices);
        (limits, tree, more)
            .prop_map(move |(limits, tree, more)| network(hosts, switches, &limits, &tree, &more))
    })
}

type Budgets = (Option<f64>, Option<f64>, Option<f64>, Option<f64>);

fn network(
    hosts: usize,
    switches: usize,
    limits: &[Budgets],
    tree: &[(prop::sample::Index, f64)],
    more: &[(usize, usize, f64, Option<f64>)],
) -> Topology {
    let name =
        |vertex: usize| if vertex < hosts { format!("h{vertex}") } else { format!("s{}", vertex - hosts) };
    let mut joined = std::collections::BTreeSet::new();
    let mut links = Vec::new();
    let mut join = |a: usize, b: usize, mbps: f64, back_mbps: Option<f64>| {
        if a != b && joined.insert((a.min(b), a.max(b))) {
            links.push(Link { back_mbps, ..Link::new(&name(a), &name(b), mbps) });
        }
    };
    // Switches first: most hosts then hang on one.
    let order: Vec<usize> = (hosts..hosts + switches).chain(0..hosts).collect();
    for (number, (index, mbps)) in tree.iter().enumerate() {
        join(order[index.index(number + 1)], order[number + 1], *mbps, None);
    }
    for &(a, b, mbps, back_mbps) in more {
        join(a, b, mbps, back_mbps);
    }
    let hosts = limits.iter().enumerate().map(|(host, limits)| match *limits {
        (None, None, None, None) => Host::Name(name(host)),
        (send_mbps, receive_mbps, total_mbps, disk_mbps) => {
            Host::Limited(LimitedHost { name: name(host), send_mbps, receive_mbps, total_mbps, disk_mbps })
        }
    });
    Topology {
        hosts: hosts.collect(),
        switches: (limits.len()..limits.len() + switches).map(name).collect(),
        links,
    }
}

/// The same network in another order of everything: hosts, switches, links, and the ends of links.
pub(crate) fn shuffled(topology: &Topology) -> impl Strategy<Value = Topology> + use<> {
    let (hosts, switches) = (topology.hosts.clone(), topology.switches.clone());
    let links = topology.links.clone();
    let turns = prop::collection::vec(any::<bool>(), links.len());
    (Just(hosts).prop_shuffle(), Just(switches).prop_shuffle(), (Just(links), turns)).prop_flat_map(
        |(hosts, switches, (links, turns))| {
            let links: Vec<Link> = links
                .into_iter()
                .zip(turns)
                .map(|(link, turn)| if turn { turned(link) } else { link })
                .collect();
            (Just(hosts), Just(switches), Just(links).prop_shuffle())
                .prop_map(|(hosts, switches, links)| Topology { hosts, switches, links })
        },
    )
}

/// The same link, written from its other end. A link that is closed one way keeps its open direction first.
fn turned(link: Link) -> Link {
    let back = link.back_mbps.unwrap_or(link.mbps);
    if back == 0.0 {
        return link;
    }
    Link { back_mbps: Some(link.mbps), ..Link::new(&link.b, &link.a, back) }
}
