#![allow(clippy::float_cmp, reason = "the rates of these networks are exact")]

use std::collections::BTreeMap;

use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};

use super::super::packing::{Capacities, used};
use super::super::sharing::uses;
use super::super::{Options, Strategy, plan};
use super::*;
use crate::broadcast::samples::{destinations, networks, vector, vectors};
use crate::broadcast::topology::{Graph, Host, Link, Topology};

const RELAYS: [Relay; 2] = [Relay::Synchronous, Relay::Asynchronous];

/// A network from `hosts`, `switches` and `a-b mbps` or `a-b mbps/back`.
fn network(hosts: &str, switches: &str, links: &str) -> Topology {
    let names = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let link = |text: &str| {
        let (ends, mbps) = text.trim().split_once(' ').unwrap();
        let (a, b) = ends.split_once('-').unwrap();
        let (mbps, back) = mbps.split_once('/').map_or((mbps, None), |(there, back)| (there, Some(back)));
        Link { back_mbps: back.map(|mbps| mbps.parse().unwrap()), ..Link::new(a, b, mbps.parse().unwrap()) }
    };
    Topology {
        hosts: names(hosts).into_iter().map(Host::Name).collect(),
        switches: names(switches),
        links: links.split(',').map(link).collect(),
    }
}

/// Rates by name, and the sum; the plan is checked against the capacities while it is made.
fn rates(topology: &Topology, strategy: Strategy, relay: Relay) -> (String, f64) {
    let options = Options { strategy, relay, ..Options::default() };
    let plan = plan(topology, "S", &destinations(topology, "S"), &options).unwrap();
    let rate = |name: &str| format!("{name} {}", (plan.rate_mbps(name) * 1e6).round() / 1e6);
    let rates: Vec<String> = plan.destinations.iter().map(|arrival| rate(&arrival.name)).collect();
    (rates.join(", "), plan.aggregate_mbps)
}

/// The hops of the first tree.
fn hops(topology: &Topology, strategy: Strategy) -> String {
    let options = Options { strategy, ..Options::default() };
    let plan = plan(topology, "S", &destinations(topology, "S"), &options).unwrap();
    let hops = plan.trees[0].hops.iter().map(|hop| format!("{}>{}", hop.from, hop.to));
    hops.collect::<Vec<_>>().join(" ")
}

/// All destinations of a topology as a problem.
fn with_problem<T>(topology: &Topology, source: &str, look: impl FnOnce(&Problem<'_>) -> T) -> T {
    let graph = Graph::new(topology);
    let names = destinations(topology, source);
    let (problem, _) = Problem::new(&graph, Capacities::new(&graph), source, &names).unwrap();
    look(&problem)
}

#[test]
fn the_study_s_table_of_two_switches() {
    let topology = vector("two-switches").topology();
    let fair = "A 300, B 100, C 300, D 300";
    let slowest = "A 100, B 100, C 100, D 100";
    for (strategy, synchronous, asynchronous) in [
        (Strategy::Flat, fair, fair),
        (Strategy::DepthFirst, slowest, "A 1000, B 100, C 100, D 100"),
        (Strategy::Fpfr, slowest, "A 1000, B 100, C 100, D 100"),
        (Strategy::Dijkstra, slowest, "A 1000, B 100, C 600, D 300"),
        (Strategy::Chain, slowest, "A 1000, B 100, C 600, D 300"),
    ] {
        assert_eq!(rates(&topology, strategy, Relay::Synchronous).0, synchronous, "{strategy}");
        assert_eq!(rates(&topology, strategy, Relay::Asynchronous).0, asynchronous, "{strategy}");
    }
    assert_eq!(rates(&topology, Strategy::DijkstraEarliest, Relay::Asynchronous).0, fair);
    assert_eq!(hops(&topology, Strategy::DepthFirst), "S>A A>B B>C C>D");
    assert_eq!(hops(&topology, Strategy::Dijkstra), "S>A A>C C>D D>B");
    assert_eq!(hops(&topology, Strategy::DijkstraEarliest), "S>A S>C S>D S>B");
}

#[test]
fn the_study_s_random_orders_of_two_switches() {
    with_problem(&vector("two-switches").topology(), "S", |problem| {
        for (order, synchronous, asynchronous) in [
            (["C", "A", "D", "B"], [100.0; 4], [300.0, 300.0, 300.0, 100.0]),
            (["C", "B", "D", "A"], [100.0; 4], [500.0, 100.0, 100.0, 100.0]),
        ] {
            let order = order.map(|name| problem.graph.vertex(name).unwrap());
            let hops = chain::hops(problem, &order).unwrap();
            assert_eq!(at_one_rate(problem, hops.clone()).rates, synchronous);
            assert_eq!(from_disk(problem, hops).rates, asynchronous);
        }
    });
}

#[test]
fn the_study_s_shared_trunk() {
    let topology = vector("shared-trunk").topology();
    for relay in RELAYS {
        assert_eq!(rates(&topology, Strategy::Flat, relay).0, "A 350, C 350, D 300");
    }
    for strategy in [Strategy::DepthFirst, Strategy::Fpfr] {
        assert_eq!(rates(&topology, strategy, Relay::Synchronous).0, "A 300, C 300, D 300");
        assert_eq!(rates(&topology, strategy, Relay::Asynchronous).0, "A 500, C 500, D 300");
    }
    assert_eq!(hops(&topology, Strategy::Dijkstra), "S>C C>A A>D");
    assert_eq!(rates(&topology, Strategy::Dijkstra, Relay::Asynchronous).0, "A 500, C 500, D 300");
}

#[test]
fn fpfr_packs_all_of_the_five_links_and_flat_crosses_one_twice() {
    let topology = vector("five-links-no-switch").topology();
    for relay in RELAYS {
        assert_eq!(rates(&topology, Strategy::Fpfr, relay).0, "A 200, B 200, C 200");
        assert_eq!(rates(&topology, Strategy::Flat, relay).0, "A 50, B 100, C 50");
    }
}

#[test]
fn a_walk_by_name_comes_behind_a_host_that_passes_on_little() {
    let topology = vector("asymmetric-star").topology();
    assert_eq!(rates(&topology, Strategy::DepthFirst, Relay::Synchronous).0, "A 10, B 10");
    assert_eq!(rates(&topology, Strategy::DepthFirst, Relay::Asynchronous).0, "A 100, B 10");
}

#[test]
fn hosts_that_a_method_cannot_reach_get_nothing_or_there_is_no_plan() {
    let case = vector("directed-butterfly");
    let (topology, names) = (case.topology(), case.destinations());
    let planned = |strategy| {
        let options = Options { strategy, ..Options::default() };
        plan(&topology, "S", &names, &options).map(|plan| plan.aggregate_mbps)
    };
    // One way in for each, and none out.
    assert_eq!(planned(Strategy::DepthFirst), Ok(2.0));
    assert_eq!(planned(Strategy::Flat), Ok(2.0));
    assert_eq!(planned(Strategy::Dijkstra), Ok(2.0));
    let unreachable = PlanError::Unreachable { from: "1".to_owned(), to: vec!["2".to_owned()] };
    assert_eq!(planned(Strategy::Chain), Err(unreachable));
    // A is fed first and cannot pass on; the way back to X is closed.
    let closed = network("S A B", "X", "S-X 100, X-A 100/0, X-B 100");
    for strategy in [Strategy::DepthFirst, Strategy::Fpfr] {
        let expected = if strategy == Strategy::Fpfr { "A 0, B 0" } else { "A 100, B 0" };
        assert_eq!(rates(&closed, strategy, Relay::Asynchronous).0, expected);
    }
}

#[test]
fn equal_parents_make_a_chain_or_send_all_from_the_source() {
    let hosts: Vec<String> =
        std::iter::once("S".to_owned()).chain((10..20).map(|host| format!("h{host}"))).collect();
    let topology = Topology::one_switch(&hosts, 100.0, 0.0);
    for relay in RELAYS {
        assert_eq!(rates(&topology, Strategy::Dijkstra, relay).1, 1000.0);
        assert_eq!(rates(&topology, Strategy::Chain, relay).1, 1000.0);
        assert_eq!(rates(&topology, Strategy::Flat, relay).1, 100.0);
    }
    let (_, earliest) = rates(&topology, Strategy::DijkstraEarliest, Relay::Asynchronous);
    assert!((earliest - 100.0).abs() < 1e-9, "{earliest}");
    assert!(hops(&topology, Strategy::Dijkstra).starts_with("S>h10 h10>h11 h11>h12"));
}

#[test]
fn parts_of_fpfr_keep_their_proportions_when_hosts_run_ahead() {
    let links = "S-A 100, S-B 100, A-B 100, A-C 100, B-C 100, A-D 10, B-D 10";
    let topology = network("S A B C D", "", links);
    assert_eq!(rates(&topology, Strategy::Fpfr, Relay::Synchronous).0, "A 20, B 20, C 20, D 20");
    // Two trees of 10, of which all but D can take 50 each.
    assert_eq!(rates(&topology, Strategy::Fpfr, Relay::Asynchronous).0, "A 100, B 100, C 100, D 20");
}

#[test]
fn a_branch_is_fed_by_the_host_below_that_was_visited_last() {
    // C and D lie behind Y; D comes up both links to feed E; nothing goes down from X to Y twice.
    let links = "S-X 100, X-Y 100, Y-C 100, Y-D 100, X-Z 100, Z-E 100";
    let topology = network("S C D E", "X Y Z", links);
    assert_eq!(hops(&topology, Strategy::DepthFirst), "S>C C>D D>E");
    // A host with branches of its own feeds them all; the walk goes on from the last host that it came by.
    let inner = network("S A B C", "X", "S-X 100, X-A 100, A-B 100, X-C 100");
    assert_eq!(hops(&inner, Strategy::DepthFirst), "S>A A>B A>C");
}

#[test]
fn hosts_that_are_no_destinations_forward_at_the_cost_of_their_budgets() {
    let yaml = "{hosts: [S, {name: M, totalMbps: 60}, A], links: [{a: S, b: M, mbps: 100}, {a: M, b: A, mbps: 100}]}";
    let topology: Topology = serde_saphyr::from_str(yaml).unwrap();
    for strategy in Strategy::BASELINES {
        for relay in RELAYS {
            let options = Options { strategy, relay, ..Options::default() };
            let plan = plan(&topology, "S", &["A".to_owned()], &options).unwrap();
            assert_eq!(plan.aggregate_mbps, 30.0, "{strategy}");
            assert_eq!(plan.trees[0].hops[0].path, ["S", "M", "A"]);
        }
    }
}

#[test]
fn the_seed_alone_decides_a_random_order() {
    let hosts: Vec<String> =
        std::iter::once("S".to_owned()).chain((0..8).map(|host| host.to_string())).collect();
    let topology = Topology::one_switch(&hosts, 100.0, 0.0);
    let order = |seed| {
        let options = Options { strategy: Strategy::Random, seed, ..Options::default() };
        plan(&topology, "S", &destinations(&topology, "S"), &options).unwrap().trees
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

#[test]
fn a_line_of_thousands_of_vertices_is_walked_without_recursion() {
    let vertices = 5000;
    let name = |vertex: usize| if vertex == 0 { "S".to_owned() } else { format!("v{vertex}") };
    let topology = Topology {
        hosts: [0, vertices - 1].map(|vertex| Host::Name(name(vertex))).to_vec(),
        switches: (1..vertices - 1).map(name).collect(),
        links: (1..vertices).map(|vertex| Link::new(&name(vertex - 1), &name(vertex), 100.0)).collect(),
    };
    with_problem(&topology, "S", |problem| {
        let hops = depth_first::hops(problem);
        assert_eq!((hops.len(), hops[0].route.len()), (1, vertices - 1));
        assert_eq!(fpfr::trees(problem, Relay::Asynchronous)[0].rates, [100.0]);
    });
}

/// Whether the rates are max-min fair: each hop is as fast as the one that feeds it, or uses a resource that is full and of
/// which nobody else on it has more.
fn is_fair(problem: &Problem<'_>, tree: &Feeders) -> Result<(), String> {
    let mut load: BTreeMap<_, (f64, f64)> = BTreeMap::new();
    for (hop, &rate) in tree.hops.iter().zip(&tree.rates) {
        for (resource, count) in uses(problem.graph, &hop.route) {
            let (sum, most) = load.entry(resource).or_default();
            *sum += rate * f64::from(count);
            *most = most.max(rate);
        }
    }
    let received: BTreeMap<usize, f64> = tree.hops.iter().map(|hop| hop.to).zip(tree.rates.clone()).collect();
    for (hop, &rate) in tree.hops.iter().zip(&tree.rates) {
        let fed = received.get(&hop.from).copied().unwrap_or(f64::INFINITY);
        let held_up = uses(problem.graph, &hop.route).into_iter().any(|(resource, _)| {
            let (sum, most) = load[&resource];
            sum >= problem.capacities.left(resource) * (1.0 - 1e-9) && rate >= most * (1.0 - 1e-9)
        });
        if rate > fed * (1.0 + 1e-9) || !(held_up || rate >= fed * (1.0 - 1e-9)) {
            return Err(format!("{hop:?} has {rate}, its feeder {fed}"));
        }
    }
    Ok(())
}

/// A random tree network: links that are as wide both ways, none closed.
fn tree_network(topology: &Topology) -> Topology {
    let count = topology.hosts.len() + topology.switches.len() - 1;
    let mut topology = topology.clone();
    topology.links.truncate(count);
    topology.hosts = topology.hosts.iter().map(|host| Host::Name(host.name().to_owned())).collect();
    topology
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_baseline_is_valid_in_both_models(topology in networks(10, 5), seed in 0..u64::MAX) {
        let names = destinations(&topology, "h0");
        for strategy in Strategy::BASELINES {
            // Debug builds check each plan against capacities and budgets.
            let planned = RELAYS.map(|relay| {
                plan(&topology, "h0", &names, &Options { strategy, relay, seed, partial: true, ..Options::default() })
            });
            let [Ok(synchronous), Ok(asynchronous)] = planned else { continue };
            for arrival in &synchronous.destinations {
                let (slow, fast) = (arrival.rate_mbps, asynchronous.rate_mbps(&arrival.name));
                prop_assert!(fast >= slow * (1.0 - 1e-9), "{}: {} gets {} from disk, {} in lockstep", strategy, arrival.name, fast, slow);
                prop_assert!(fast <= arrival.bound_mbps * (1.0 + 1e-9));
                let left_out = [Strategy::DepthFirst, Strategy::Fpfr].contains(&strategy);
                prop_assert!(left_out || slow > 0.0);
            }
        }
    }

    #[test]
    fn no_baseline_is_above_the_best_of_all(topology in networks(10, 5), seed in 0..u64::MAX) {
        let names = destinations(&topology, "h0");
        let best = with_problem(&topology, "h0", |problem| {
            let sums: Vec<f64> = all(problem, seed).iter().map(|trees| sum(trees)).collect();
            prop_assert!(sums.is_sorted_by(|a, b| a >= b), "{:?}", sums);
            Ok(sums.first().copied().unwrap_or(0.0))
        })?;
        for strategy in Strategy::BASELINES {
            for relay in RELAYS {
                let options = Options { strategy, relay, seed, partial: true, ..Options::default() };
                let Ok(plan) = plan(&topology, "h0", &names, &options) else { continue };
                prop_assert!(plan.aggregate_mbps <= best * (1.0 + 1e-6), "{}: {} above {}", strategy, plan.aggregate_mbps, best);
            }
        }
    }

    #[test]
    fn hops_from_disk_share_fairly(topology in networks(12, 5), seed in 0..u64::MAX) {
        with_problem(&topology, "h0", |problem| {
            for baseline in [
                Baseline::Flat,
                Baseline::Random(seed),
                Baseline::DepthFirst,
                Baseline::Dijkstra(Parent::Latest),
                Baseline::Dijkstra(Parent::Earliest),
                Baseline::Chain,
            ] {
                let Ok(trees) = trees(problem, baseline, Relay::Asynchronous) else { continue };
                prop_assert_eq!(is_fair(problem, &trees[0]), Ok(()), "{:?}", baseline);
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_walk_uses_no_arc_twice_and_finds_all_of_a_network_that_is_open_both_ways(topology in networks(12, 5)) {
        let mut open = topology.clone();
        open.links.iter_mut().for_each(|link| link.back_mbps = None);
        for (topology, all) in [(&topology, false), (&open, true)] {
            with_problem(topology, "h0", |problem| {
                let hops = depth_first::hops(problem);
                let arcs = problem.graph.arcs().len();
                let mut taken = vec![false; arcs];
                for &arc in hops.iter().flat_map(|hop| &hop.route) {
                    prop_assert!(!std::mem::replace(&mut taken[arc], true), "{:?}", hops);
                }
                prop_assert!(!all || hops.len() == problem.destinations.len(), "{:?}", hops);
                Ok(())
            })?;
        }
    }

    #[test]
    fn on_a_tree_network_fpfr_is_the_depth_first_pipeline(topology in networks(12, 5)) {
        let topology = tree_network(&topology);
        with_problem(&topology, "h0", |problem| {
            for relay in RELAYS {
                let [depth_first, fpfr] = [Baseline::DepthFirst, Baseline::Fpfr].map(|baseline| trees(problem, baseline, relay).unwrap());
                prop_assert_eq!(depth_first.len(), fpfr.len());
                prop_assert_eq!(&depth_first[0].hops, &fpfr[0].hops);
                for (a, b) in depth_first[0].rates.iter().zip(&fpfr[0].rates) {
                    prop_assert!((a - b).abs() < 1e-9 * a);
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn dijkstra_sees_the_bandwidth_of_the_ways_that_hops_take(topology in networks(12, 5)) {
        with_problem(&topology, "h0", |problem| {
            for &from in &problem.destinations {
                let ways = dijkstra::Ways::from(problem, from);
                for &to in problem.destinations.iter().filter(|&&to| to != from) {
                    let hop = problem.feeder(from, to).ok();
                    let alone = hop.map(|hop| {
                        let used = used(problem.graph, &[hop]);
                        used.iter().map(|(&resource, &count)| problem.capacities.left(resource) / f64::from(count)).fold(f64::INFINITY, f64::min)
                    });
                    prop_assert_eq!(ways.mbps(problem, to), alone);
                }
            }
            Ok(())
        })?;
    }
}

#[test]
fn every_vector_has_every_baseline_in_both_models() {
    for case in vectors() {
        for strategy in Strategy::BASELINES {
            for relay in RELAYS {
                let options = Options { strategy, relay, ..Options::default() };
                let planned = plan(&case.topology(), &case.source, &case.destinations(), &options);
                let refused = case.name == "directed-butterfly"
                    && [Strategy::Chain, Strategy::Random].contains(&strategy);
                assert_eq!(planned.is_err(), refused, "{} {strategy}", case.name);
            }
        }
    }
}
