use std::collections::BTreeMap;

use super::super::super::paper;
use super::super::super::random::Random;
use super::super::super::samples::{destinations, networks};
use super::super::super::topology::{Graph, Host, LimitedHost, Link, Topology};
use super::super::baseline;
use super::super::packing::{Capacities, used};
use super::super::sharing::Resource;
use super::optimum;
use super::*;
use proptest::prelude::*;

/// The best packing of a broadcast from `h0` to all others, checked; with its sum, the optimum and the max-flows.
struct Case {
    best: Best,
    compact: Option<f64>,
    destinations: usize,
}

impl Case {
    fn new(topology: &Topology, max_trees: usize) -> Self {
        let graph = Graph::new(topology);
        let all = destinations(topology, "h0");
        let (problem, _) = Problem::new(&graph, Capacities::new(&graph), "h0", &all).expect("a problem");
        let best = pack(&problem, Vec::new(), max_trees);
        check(&problem, &best.packing);
        let received = best.packing.received();
        for &destination in &problem.destinations {
            assert!(received.get(&destination).is_some_and(|&mbps| mbps > 0.0), "{destination} starves");
        }
        if max_trees > 0 {
            assert!(best.packing.trees.len() <= max_trees, "{} trees", best.packing.trees.len());
        }
        let compact = optimum::optimum(&problem);
        Self { best, compact, destinations: problem.destinations.len() }
    }

    fn ratio(&self) -> f64 {
        self.best.packing.sum() / self.compact.expect("small enough")
    }
}

/// Out-trees along connected ways that keep to what is there.
fn check(problem: &Problem<'_>, packing: &Packing) {
    let graph = problem.graph;
    let mut load: BTreeMap<Resource, f64> = BTreeMap::new();
    for tree in &packing.trees {
        let mut there = vec![false; graph.vertices()];
        there[problem.source] = true;
        for hop in &tree.hops {
            assert!(there[hop.from] && !there[hop.to], "{} feeds {}", hop.from, hop.to);
            let end = hop.route.iter().fold(hop.from, |vertex, &arc| {
                assert_eq!(graph.arcs()[arc].from, vertex);
                graph.arcs()[arc].to
            });
            assert_eq!(end, hop.to);
            there[hop.to] = true;
        }
        for (resource, count) in used(graph, &tree.hops) {
            *load.entry(resource).or_default() += tree.rate * f64::from(count);
        }
    }
    for (resource, planned) in load {
        let there = problem.capacities.left(resource);
        assert!(planned <= there * (1.0 + 1e-6), "{resource:?}: {planned} of {there}");
    }
}

/// Hosts `h0`…, switches in a tree, hosts on them, some more links; capacities 100 to 1000, each direction its own.
fn asymmetric(random: &mut Random, most_hosts: usize) -> Topology {
    let (hosts, switches, more) = (4 + random.below(most_hosts - 3), 1 + random.below(4), random.below(6));
    let names: Vec<String> = (0..switches)
        .map(|index| format!("w{index}"))
        .chain((0..hosts).map(|index| format!("h{index}")))
        .collect();
    let mut links: Vec<Link> = Vec::new();
    let mut join = |random: &mut Random, a: usize, b: usize| {
        let mut mbps = || random.between(100.0, 1000.0).floor();
        let link = Link { back_mbps: Some(mbps()), ..Link::new(&names[a], &names[b], mbps()) };
        if !links
            .iter()
            .any(|other| [(&other.a, &other.b), (&other.b, &other.a)].contains(&(&link.a, &link.b)))
        {
            links.push(link);
        }
    };
    for switch in 1..switches {
        let other = random.below(switch);
        join(random, switch, other);
    }
    for host in switches..switches + hosts {
        let switch = random.below(switches);
        join(random, host, switch);
    }
    for _ in 0..more {
        let (a, b) = (random.below(names.len()), random.below(names.len()));
        if a != b {
            join(random, a, b);
        }
    }
    let (switch_names, host_names) = names.split_at(switches);
    Topology {
        hosts: host_names.iter().cloned().map(Host::Name).collect(),
        switches: switch_names.to_vec(),
        links,
    }
}

/// The same network with symmetric links and with budgets for half the hosts.
fn with_budgets(random: &mut Random, topology: &Topology) -> Topology {
    let hosts = topology.hosts.iter().map(|host| {
        let mut budget =
            |often: usize| (random.below(often) == 0).then(|| random.between(100.0, 1000.0).floor());
        Host::Limited(LimitedHost {
            name: host.name().to_owned(),
            send_mbps: budget(3),
            receive_mbps: budget(5),
            total_mbps: budget(2),
            disk_mbps: budget(5),
        })
    });
    let links = topology.links.iter().map(|link| Link { back_mbps: None, ..link.clone() });
    Topology { hosts: hosts.collect(), links: links.collect(), switches: topology.switches.clone() }
}

/// The 60 graphs of the study, `h0` the source.
fn study() -> Vec<Topology> {
    serde_json::from_str(include_str!("../../../../tests/data/asymmetric-graphs.json")).expect("JSON")
}

/// Mean and least ratio to the optimum.
fn ratios(cases: impl Iterator<Item = Topology>) -> (f64, f64) {
    let ratios: Vec<f64> = cases.map(|topology| Case::new(&topology, 0).ratio()).collect();
    (ratios.iter().sum::<f64>() / ratios.len() as f64, ratios.iter().copied().fold(f64::INFINITY, f64::min))
}

fn assert_figures(what: &str, (mean, least): (f64, f64)) {
    println!("{what}: {mean:.4} of the optimum on average, {least:.4} at worst");
    assert!(mean >= 0.98 && least >= 0.85, "{what}: {mean} {least}");
}

#[test]
fn the_study_s_asymmetric_graphs() {
    assert_figures("the study's 60", ratios(study().into_iter().step_by(3)));
}

#[test]
fn a_host_with_a_poor_way_out_comes_last() {
    let link = |host: &str, down: f64, up: f64| Link { back_mbps: Some(down), ..Link::new(host, "X", up) };
    let topology = Topology {
        hosts: ["h0", "A", "B"].map(|name| Host::Name(name.to_owned())).to_vec(),
        switches: vec!["X".to_owned()],
        links: vec![link("h0", 100.0, 100.0), link("A", 100.0, 10.0), link("B", 100.0, 100.0)],
    };
    let case = Case::new(&topology, 0);
    assert!((case.best.packing.sum() - 200.0).abs() < 1e-5, "{:?}", case.best);
    assert_eq!(case.destinations, 2);
}

#[test]
#[ignore = "minutes; the figures of the benchmarks: cargo test --release -p gridcast-core -- --ignored --nocapture figures"]
fn figures_of_asymmetric_graphs_and_host_budgets() {
    let mut random = Random::new(5);
    assert_figures("the study's 60", ratios(study().into_iter()));
    let graphs: Vec<Topology> = (0..200).map(|_| asymmetric(&mut random, 8)).collect();
    let budgets: Vec<Topology> = graphs.iter().map(|topology| with_budgets(&mut random, topology)).collect();
    assert_figures("200 asymmetric graphs", ratios(graphs.into_iter()));
    assert_figures("200 graphs with host budgets", ratios(budgets.into_iter()));
}

#[test]
#[ignore = "minutes; the figures of the benchmarks: cargo test --release -p gridcast-core -- --ignored --nocapture figures"]
fn figures_of_the_paper_s_asymmetric_conditions() {
    for condition in paper::Condition::ALL.into_iter().filter(|condition| !condition.is_symmetric()) {
        let (mut ours, mut few, mut best, mut bound) = (0.0, 0.0, 0.0, 0.0);
        for seed in 0..10 {
            let draw = paper::draw(condition, 100, seed);
            let graph = Graph::new(&draw.topology);
            let (problem, _) =
                Problem::new(&graph, Capacities::new(&graph), &draw.source, &draw.destinations)
                    .expect("a problem");
            let others = baseline::all(&problem, seed);
            let other = baseline::sum(&others[0]);
            let others = || {
                let packings = others.iter().take(BASELINES);
                packings.map(|trees| Packing {
                    trees: trees.iter().flat_map(|tree| Packing::nested(tree).trees).collect(),
                })
            };
            let sums = [0, 16].map(|most| {
                let started = std::time::Instant::now();
                let packing = pack(&problem, others().collect(), most).packing;
                check(&problem, &packing);
                let trees = packing.trees.len();
                println!(
                    "{condition:?} {seed}: {:.4} of the best other, {trees} trees, {:.1?}",
                    packing.sum() / other,
                    started.elapsed()
                );
                packing.sum()
            });
            assert!(sums[0] >= other * (1.0 - 1e-7), "{} {other}", sums[0]);
            ours += sums[0];
            few += sums[1];
            best += other;
            bound += problem.bounds.iter().sum::<f64>();
        }
        println!(
            "{condition:?}: {:.3} of the bound, {:.3} with 16 trees, {:.3} the best other",
            ours / bound,
            few / bound,
            best / bound
        );
        assert!(few >= best, "{few} {best}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The search for trees and the compact programme know nothing of each other, and agree.
    #[test]
    fn what_is_proven_to_be_the_optimum_is_that_of_the_compact_programme(topology in networks(6, 3)) {
        let case = Case::new(&topology, 0);
        if let Some((proven, compact)) = case.best.optimum.zip(case.compact) {
            prop_assert!((proven - compact).abs() <= 1e-5 * compact.max(1.0), "{proven} {compact}");
        }
        prop_assert!(case.destinations == 0 || case.ratio() > 0.85);
    }

    #[test]
    fn few_trees_reach_everybody(topology in networks(9, 3), most in 1_usize..5) {
        Case::new(&topology, most);
    }
}

mod hostile;
mod large;
