//! On which network is a transfer planned?
//!
//! On one switch, to which every node has a link: as fast as it was measured to send and to receive at its best, or all
//! alike where nothing was measured. Links that are nearly as fast as each other are planned as one speed, since each speed
//! costs a tree and a measurement has errors. A source pod on a target's node shares that node's link to the others, and reaches
//! the node itself without it.

use std::collections::BTreeMap;

use gridcast_control::{StepFailure, stage};
use gridcast_core::{
    broadcast::{
        plan::{Options, Plan, Strategy},
        topology::{Host, Link, Topology},
    },
    report::Rows,
};
use gridcast_crds::broadcast::{BoundKind, BroadcastSpec};

use super::knowledge::Measured;

/// What a link is taken for where nothing was measured, Mbit/s. Only the ratios matter to a plan.
const ASSUMED_MBPS: f64 = 1000.0;
/// Bits per second that the rule of [`worth_measuring`] assumes.
const USUAL_BITS_PER_SECOND: f64 = 100e6;
/// A transfer that would be over sooner is not measured for: measuring takes about as long.
const WORTH_SECONDS: f64 = 2.0;

/// Measured speeds within this ratio are planned as the least of them.
const ALIKE: f64 = 1.05;

/// Whether a dataset of this size takes long enough that knowing the network first pays.
pub(crate) fn worth_measuring(size_bytes: u64, destinations: usize) -> bool {
    // With one destination there is nothing to choose.
    destinations > 1 && size_bytes as f64 * 8.0 / USUAL_BITS_PER_SECOND > WORTH_SECONDS
}

/// Who sends to whom.
#[derive(Clone, Debug)]
pub(crate) struct Site<'a> {
    /// The source's name among its peers: that of a node, or the UID of a source pod's Broadcast.
    pub(crate) source: &'a str,
    /// The node that a source pod is on.
    pub(crate) carrier: Option<&'a str>,
    /// The nodes that receive.
    pub(crate) destinations: &'a [String],
}

/// The trees of a transfer.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    /// The plan.
    pub(crate) plan: Plan,
    /// What its bounds rest on.
    pub(crate) kind: BoundKind,
    /// Max-flow from the source to each destination, Mbit/s.
    pub(crate) bounds: BTreeMap<String, f64>,
}

/// Plans a transfer by the strategy that the spec asks for, or by the best that there is.
pub(crate) fn routes(
    spec: &BroadcastSpec,
    site: &Site<'_>,
    measured: Option<&Measured>,
) -> Result<Routes, StepFailure> {
    let links = site.links(measured);
    let topology = site.topology(&links.grouped());
    let options = Options {
        strategy: stage::strategy(spec.strategy),
        max_trees: spec.max_trees.unsigned_abs(),
        ..Options::default()
    };
    let plan = stage::plan_or_best(&topology, site.source, site.destinations, &options)
        // A strategy that this network does not suit.
        .or_else(|_| {
            let options = Options { strategy: Strategy::Stable, ..options };
            stage::plan_or_best(&topology, site.source, site.destinations, &options)
        })
        .map_err(|error| StepFailure::new(error.reason(), format!("no plan: {error}")))?;
    Ok(Routes {
        plan,
        kind: if measured.is_some() { BoundKind::Measured } else { BoundKind::Assumed },
        bounds: site.destinations.iter().map(|node| (node.clone(), site.bound(node, &links))).collect(),
    })
}

/// What each host sends and receives at most, Mbit/s.
#[derive(Debug)]
struct Links {
    of: BTreeMap<String, (f64, f64)>,
    /// The largest of all.
    top: f64,
}

impl Links {
    /// The same, with one speed for those that are alike.
    fn grouped(&self) -> Self {
        let both = self.of.values().flat_map(|&(up, down)| [up, down]);
        let mut speeds: Vec<f64> = both.chain([self.top]).collect();
        speeds.sort_by(f64::total_cmp);
        speeds.dedup_by(|speed, least| *speed <= *least * ALIKE);
        let least = |speed: f64| {
            let at = speeds.partition_point(|&least| least <= speed);
            at.checked_sub(1).and_then(|at| speeds.get(at)).map_or(speed, |&least| least)
        };
        let of = self.of.iter().map(|(host, &(up, down))| (host.clone(), (least(up), least(down))));
        Self { of: of.collect(), top: least(self.top) }
    }
}

impl Site<'_> {
    /// The source pod is on a node that receives, too.
    fn shared(&self) -> Option<&str> {
        self.carrier.filter(|carrier| self.destinations.iter().any(|node| node == carrier))
    }

    /// The link of each destination, and of the source by its name among its peers.
    fn links(&self, measured: Option<&Measured>) -> Links {
        let place = self.carrier.unwrap_or(self.source);
        let mut places: Vec<&str> = self.destinations.iter().map(String::as_str).collect();
        if !places.contains(&place) {
            places.push(place);
        }
        let hosts: Vec<String> = places.iter().map(|&host| host.to_owned()).collect();
        let topology = match measured {
            Some(measured) => Topology::from_matrix(&hosts, &reordered(measured, &hosts)),
            None => Topology::one_switch(&hosts, ASSUMED_MBPS, 0.0),
        };
        let speed = |link: &Link| (link.mbps, link.back_mbps.unwrap_or(link.mbps));
        let mut of: BTreeMap<String, (f64, f64)> =
            topology.links.iter().map(|link| (link.a.clone(), speed(link))).collect();
        let top = of.values().flat_map(|&(up, down)| [up, down]).fold(0.0, f64::max);
        if let Some(&link) = of.get(place) {
            of.insert(self.source.to_owned(), link);
        }
        Links { of, top }
    }

    fn topology(&self, links: &Links) -> Topology {
        let mut hosts: Vec<&str> = self.destinations.iter().map(String::as_str).collect();
        hosts.push(self.source);
        let free = |wanted: &str| {
            let mut name = wanted.to_owned();
            while hosts.contains(&name.as_str()) {
                name.push_str("-x");
            }
            name
        };
        let (switch, port) = (free("switch"), free("port"));
        let link =
            |a: &str, b: &str, (up, down): (f64, f64)| Link { back_mbps: Some(down), ..Link::new(a, b, up) };
        let local = (links.top, links.top);
        let mut topology = Topology {
            hosts: hosts.iter().map(|&host| Host::Name(host.to_owned())).collect(),
            switches: vec![switch.clone()],
            links: Vec::with_capacity(hosts.len() + 1),
        };
        let shared = self.shared();
        for host in &hosts {
            let own = links.of.get(*host).copied().unwrap_or(local);
            match shared {
                Some(carrier) if *host == carrier || *host == self.source => {
                    topology.links.push(link(host, &port, local));
                    if *host == carrier {
                        topology.links.push(link(&port, &switch, own));
                    }
                }
                _ => topology.links.push(link(host, &switch, own)),
            }
        }
        if shared.is_some() {
            topology.switches.push(port);
        }
        topology
    }

    /// On a star the max-flow is the narrower of two links.
    fn bound(&self, node: &str, links: &Links) -> f64 {
        if self.shared() == Some(node) {
            return links.top;
        }
        let up = links.of.get(self.source).map_or(links.top, |link| link.0);
        let down = links.of.get(node).map_or(links.top, |link| link.1);
        up.min(down)
    }
}

/// The rows of `hosts`, in their order; nothing of those that were not measured.
fn reordered(measured: &Measured, hosts: &[String]) -> Rows {
    let at: Vec<Option<usize>> =
        hosts.iter().map(|host| measured.hosts.iter().position(|known| known == host)).collect();
    let figure = |to: Option<usize>, from: Option<usize>| *measured.mbps.get(to?)?.get(from?)?;
    at.iter().map(|&to| at.iter().map(|&from| figure(to, from)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use gridcast_core::broadcast::plan::Strategy;
    use gridcast_crds::source;
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn measured(hosts: &[&str], rows: &[&[f64]]) -> Measured {
        let row = |row: &&[f64]| row.iter().map(|&mbps| (mbps > 0.0).then_some(mbps)).collect();
        Measured { hosts: names(hosts), mbps: rows.iter().map(row).collect(), at: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn small_data_is_not_measured_for() {
        assert!(!worth_measuring(1 << 20, 10));
        assert!(!worth_measuring(25_000_000, 10));
        assert!(worth_measuring(25_000_001, 10));
        assert!(!worth_measuring(1 << 40, 1));
    }

    #[test]
    fn a_slow_node_bounds_itself_only() {
        let destinations = names(&["a", "b"]);
        let site = Site { source: "s", carrier: None, destinations: &destinations };
        let figures =
            measured(&["a", "b", "s"], &[&[0.0, 90.0, 900.0], &[90.0, 0.0, 100.0], &[900.0, 90.0, 0.0]]);
        let routes = routes(&BroadcastSpec::default(), &site, Some(&figures)).unwrap();
        assert_eq!(routes.kind, BoundKind::Measured);
        assert_eq!(routes.bounds, BTreeMap::from([("a".into(), 900.0), ("b".into(), 100.0)]));
        assert!((routes.plan.bound_mbps - 1000.0).abs() < 1e-6, "{}", routes.plan.bound_mbps);
        assert!((routes.plan.aggregate_mbps - 1000.0).abs() < 1e-6, "{}", routes.plan.aggregate_mbps);
        let trees: Vec<(f64, usize)> =
            routes.plan.carried().iter().map(|tree| (tree.rate_mbps.round(), tree.hops.len())).collect();
        assert_eq!((routes.plan.strategy, trees), (Strategy::Stable, vec![(100.0, 2), (800.0, 1)]));
    }

    #[test]
    fn links_that_are_nearly_alike_share_one_tree() {
        let destinations = names(&["a", "b"]);
        let site = Site { source: "s", carrier: None, destinations: &destinations };
        let figures =
            measured(&["a", "b", "s"], &[&[0.0, 905.0, 910.0], &[915.0, 0.0, 920.0], &[899.0, 912.0, 0.0]]);
        let routes = routes(&BroadcastSpec::default(), &site, Some(&figures)).unwrap();
        assert_eq!((routes.plan.strategy, routes.plan.carried().len()), (Strategy::Stable, 1));
        assert!((routes.bounds["b"] - 920.0).abs() < 1e-6);
    }

    #[test]
    fn a_source_pod_shares_its_nodes_link_with_the_node() {
        let destinations = names(&["a", "b", "c"]);
        let site = Site { source: "uid-1", carrier: Some("a"), destinations: &destinations };
        let plan = routes(&BroadcastSpec::default(), &site, None).unwrap().plan;
        // The chain goes through the node at hand: its link is used once.
        let hops: Vec<_> =
            plan.trees[0].hops.iter().map(|hop| (hop.from.as_str(), hop.to.as_str())).collect();
        assert_eq!(hops[0].0, "uid-1");
        assert!((plan.aggregate_mbps - 3000.0).abs() < 1e-6, "{hops:?}");
        let elsewhere = Site { carrier: Some("x"), ..site };
        assert_eq!(elsewhere.topology(&elsewhere.links(None)).switches.len(), 1);
    }

    #[test]
    fn every_strategy_runs_and_is_told() {
        let destinations = names(&["a", "b"]);
        let site = Site { source: "s", carrier: None, destinations: &destinations };
        for (asked, ran) in [
            (source::Strategy::Flat, "Flat"),
            (source::Strategy::Chain, "Chain"),
            (source::Strategy::Stable, "Stable"),
            (source::Strategy::Fpfr, "Fpfr"),
            (source::Strategy::Random, "Random"),
            (source::Strategy::DepthFirst, "DepthFirst"),
            (source::Strategy::Dijkstra, "Dijkstra"),
            (source::Strategy::DijkstraEarliest, "DijkstraEarliest"),
        ] {
            let spec = BroadcastSpec { strategy: asked, ..BroadcastSpec::default() };
            let plan = routes(&spec, &site, None).unwrap().plan;
            assert_eq!((plan.strategy.to_string().as_str(), plan.carried().len()), (ran, 1), "{asked:?}");
        }
    }

    proptest! {
        #[test]
        fn every_destination_is_reached_and_the_bounds_are_the_plans(
            count in 1_usize..7, carrier in 0_usize..9, as_pod in any::<bool>(),
            figures in proptest::collection::vec(proptest::option::of(1.0_f64..10_000.0), 64),
            some in any::<bool>(),
        ) {
            let hosts: Vec<String> = (0..8).map(|i| format!("n{i}")).collect();
            let rows = figures.chunks(8).enumerate()
                .map(|(to, row)| row.iter().enumerate().map(|(from, mbps)| mbps.filter(|_| to != from)).collect()).collect();
            let measured = Measured { hosts: hosts.clone(), mbps: rows, at: Timestamp::UNIX_EPOCH };
            let destinations = hosts[..count].to_vec();
            let place = format!("n{carrier}");
            let site = if as_pod {
                Site { source: "uid", carrier: Some(&place), destinations: &destinations }
            } else {
                Site { source: "n7", carrier: None, destinations: &destinations }
            };
            let found = routes(&BroadcastSpec::default(), &site, some.then_some(&measured)).unwrap();
            let sum: f64 = found.bounds.values().sum();
            let planned = found.plan.bound_mbps;
            prop_assert!(planned <= sum * (1.0 + 1e-9) && planned * ALIKE >= sum * (1.0 - 1e-9), "{} {}", sum, planned);
            let reached: Vec<&String> = found.plan.destinations.iter().map(|arrival| &arrival.name).collect();
            prop_assert_eq!(reached, destinations.iter().collect::<Vec<_>>());
        }
    }
}
