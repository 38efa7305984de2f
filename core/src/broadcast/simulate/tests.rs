#![allow(clippy::float_cmp, reason = "equal outcomes are equal to the bit")]

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::broadcast::plan::{Arrival, Executable, Hop, Relay, Strategy, Tree, plan};
use crate::broadcast::random::Random;
use crate::broadcast::samples::{destinations, vector};
use crate::broadcast::schedule::Shape;
use crate::broadcast::topology::{Host, Link};

const MIB: u64 = 1 << 20;

/// A tree of switches with hosts on them, each link with a rate of its own; `h0` first.
fn random_tree(random: &mut Random, hosts: usize, switches: usize) -> Topology {
    let mut links = Vec::new();
    for switch in 1..switches {
        let mbps = random.between(50.0, 500.0);
        links.push(Link::new(&format!("s{switch}"), &format!("s{}", random.below(switch)), mbps));
    }
    for host in 0..hosts {
        let mbps = random.between(10.0, 500.0);
        links.push(Link::new(&format!("h{host}"), &format!("s{}", random.below(switches)), mbps));
    }
    Topology {
        hosts: (0..hosts).map(|host| Host::Name(format!("h{host}"))).collect(),
        switches: (0..switches).map(|switch| format!("s{switch}")).collect(),
        links,
    }
}

/// The same with more links between switches, and some hosts on two.
fn random_mesh(random: &mut Random, hosts: usize, switches: usize) -> Topology {
    let mut topology = random_tree(random, hosts, switches);
    let mut more = |a: String, b: String, random: &mut Random| {
        let joined =
            topology.links.iter().any(|link| (link.a == a && link.b == b) || (link.a == b && link.b == a));
        if a != b && !joined {
            topology.links.push(Link::new(&a, &b, random.between(10.0, 500.0)));
        }
    };
    for _ in 0..switches {
        let (a, b) = (random.below(switches), random.below(switches));
        more(format!("s{a}"), format!("s{b}"), random);
    }
    for _ in 0..hosts / 2 {
        let (a, b) = (random.below(hosts), random.below(switches));
        more(format!("h{a}"), format!("s{b}"), random);
    }
    topology
}

fn planned(topology: &Topology, source: &str) -> Plan {
    let options = Options { max_trees: 0, ..Options::default() };
    plan(topology, source, &destinations(topology, source), &options).unwrap()
}

fn run(topology: &Topology, plan: &Plan, settings: &Settings) -> Outcome {
    simulate(topology, plan, settings).unwrap()
}

/// For each destination its hops from the source times the time of a chunk, at the most over its trees: seconds.
fn lateness(plan: &Plan, chunk_bytes: u64) -> BTreeMap<String, f64> {
    let mut late: BTreeMap<String, f64> = BTreeMap::new();
    for tree in plan.carried() {
        let mut depth: BTreeMap<&str, f64> = BTreeMap::from([(plan.source.as_str(), 0.0)]);
        for hop in &tree.hops {
            let below = depth[hop.from.as_str()] + 1.0;
            depth.insert(&hop.to, below);
            let time = below * chunk_bytes as f64 * 8.0 / (tree.rate_mbps * 1e6);
            let late = late.entry(hop.to.clone()).or_default();
            *late = late.max(time);
        }
    }
    late
}

/// The most hops that begin at one host.
fn most_fed(plan: &Plan) -> usize {
    let mut fed: BTreeMap<&str, usize> = BTreeMap::new();
    for hop in plan.trees.iter().flat_map(|tree| &tree.hops) {
        *fed.entry(&hop.from).or_default() += 1;
    }
    fed.into_values().max().unwrap_or(0)
}

/// How far each destination ends beyond size / rate and `share` of it, in units of a chunk at each hop; the largest.
fn excess(plan: &Plan, outcome: &Outcome, share: f64) -> f64 {
    let late = lateness(plan, outcome.chunk_bytes);
    let excess = outcome.nodes.iter().map(|node| {
        let ideal = outcome.size_bytes as f64 * 8.0 / (node.planned_mbps * 1e6);
        (node.seconds.unwrap_or(f64::INFINITY) - ideal * (1.0 + share)) / late[&node.name]
    });
    excess.fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn the_worked_example_takes_the_time_that_the_study_computes() {
    let case = vector("two-switches");
    let topology = case.topology();
    let plan = planned(&topology, &case.source);
    let outcome = run(&topology, &plan, &Settings::new(1_000_000_000));
    assert!(excess(&plan, &outcome, 0.0) <= 1.0, "{outcome:?}");
    assert_eq!((outcome.duplicate_bytes, outcome.plans), (0, 1));
    // What is taken over at the end of a stage was partly sent.
    assert!(outcome.wasted_bytes < outcome.chunk_bytes, "{}", outcome.wasted_bytes);
    for (name, mbps) in [("A", 1000.0), ("B", 100.0), ("C", 600.0), ("D", 300.0)] {
        let node = outcome.nodes.iter().find(|node| node.name == name).unwrap();
        assert!((node.rate_mbps / mbps - 1.0).abs() < 0.01, "{name}: {}", node.rate_mbps);
    }
    // Every destination got everything once, over its own link.
    let down = |name: &str| outcome.links.iter().find(|link| link.a == name).map(|link| link.back_bytes);
    let once = 1_000_000_000..1_000_000_000 + outcome.chunk_bytes;
    for name in ["A", "B", "C", "D"] {
        assert!(down(name).is_some_and(|bytes| once.contains(&bytes)), "{:?}", outcome.links);
    }
    assert_eq!(run(&topology, &plan, &Settings::new(1_000_000_000)), outcome);
}

#[test]
fn on_nested_plans_each_ends_within_a_chunk_for_each_hop_and_nothing_comes_twice() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let (hosts, switches) = (2 + random.below(12), 1 + random.below(4));
        let topology = random_tree(&mut random, hosts, switches);
        let plan = planned(&topology, "h0");
        assert!(Shape::new(&plan).nested().is_some(), "seed {seed}");
        let settings = Settings { chunk_bytes: Some(MIB / 4), ..Settings::new(100 * MIB - 12345) };
        let outcome = run(&topology, &plan, &settings);
        let excess = excess(&plan, &outcome, 0.0);
        // Times are rounded up to nanoseconds, chunk by chunk.
        assert!(excess <= 1.0 + 1e-5, "seed {seed}: {excess} chunks for each hop\n{outcome:?}\n{plan:?}");
        assert_eq!((outcome.duplicate_bytes, outcome.plans), (0, 1), "seed {seed}");
        let bound = (3 * plan.trees.len() + 2 * most_fed(&plan) + 3) as f64;
        assert!(outcome.memory_per_chunk <= bound, "seed {seed}: {}", outcome.memory_per_chunk);
    }
}

#[test]
fn on_plans_that_are_not_nested_each_ends_within_three_percent() {
    let mut tried = 0;
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let (hosts, switches) = (3 + random.below(8), 2 + random.below(4));
        let topology = random_mesh(&mut random, hosts, switches);
        let plan = planned(&topology, "h0");
        if Shape::new(&plan).nested().is_some() {
            continue;
        }
        tried += 1;
        let outcome = run(&topology, &plan, &Settings::new(1000 * MIB));
        let excess = excess(&plan, &outcome, 0.03);
        assert!(excess <= 1.0, "seed {seed}: {excess} chunks for each hop beyond 3 %\n{plan:?}");
        assert_eq!((outcome.duplicate_bytes, outcome.plans), (0, 1), "seed {seed}");
    }
    assert!(tried >= 10, "{tried}");
}

/// Three relays in a ring, none of whose trees has the hosts of another.
#[test]
fn trees_that_cross_are_carried_out_without_loss() {
    let hosts = ["S", "A", "B", "C"];
    let links = [("S", "A"), ("S", "B"), ("S", "C"), ("A", "B"), ("C", "A"), ("B", "C")];
    let topology = Topology {
        hosts: hosts.iter().map(|&name| Host::Name(name.into())).collect(),
        switches: Vec::new(),
        links: links.iter().map(|(a, b)| Link::new(a, b, 100.0)).collect(),
    };
    let hop = |ends: &[&str]| Hop {
        from: ends[0].into(),
        to: ends[1].into(),
        path: ends.iter().map(|&name| name.into()).collect(),
    };
    let tree = |way: [&str; 3]| Tree { rate_mbps: 100.0, hops: way.windows(2).map(hop).collect() };
    let plan = Plan {
        source: "S".into(),
        sources: Vec::new(),
        strategy: Strategy::Stable,
        relay: Relay::Asynchronous,
        bound_mbps: 900.0,
        optimum_mbps: None,
        aggregate_mbps: 600.0,
        plan_milliseconds: None,
        destinations: ["A", "B", "C"]
            .map(|name| Arrival { name: name.into(), rate_mbps: 200.0, bound_mbps: 300.0 })
            .to_vec(),
        unreachable: None,
        trees: vec![tree(["S", "A", "B"]), tree(["S", "C", "A"]), tree(["S", "B", "C"])],
        executable: Executable::Trees,
    };
    let outcome = run(&topology, &plan, &Settings::new(1000 * MIB));
    assert!(excess(&plan, &outcome, 0.03) <= 1.0, "{outcome:?}");
    assert_eq!(outcome.duplicate_bytes, 0);
}

#[test]
fn delays_cost_their_time_once() {
    let mut topology = vector("two-switches").topology();
    for link in &mut topology.links {
        link.delay_ms = Some(20.0);
    }
    let plan = planned(&topology, "S");
    let outcome = run(&topology, &plan, &Settings::new(1_000_000_000));
    let excess = excess(&plan, &outcome, 0.05);
    assert!(excess <= 1.0, "{excess}: {outcome:?}");
    assert_eq!(outcome.duplicate_bytes, 0);
}

#[test]
fn a_chain_with_backpressure_moves_at_the_rate_of_its_slowest_hop() {
    let topology = vector("two-switches").topology();
    let options = Options { strategy: Strategy::Chain, relay: Relay::Synchronous, ..Options::default() };
    let plan = plan(&topology, "S", &destinations(&topology, "S"), &options).unwrap();
    let settings = Settings { options, ..Settings::new(100_000_000) };
    for node in run(&topology, &plan, &settings).nodes {
        assert!((node.rate_mbps / 100.0 - 1.0).abs() < 0.05, "{node:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let topology = vector("two-switches").topology();
    let plan = planned(&topology, "S");
    let refused = |settings: Settings| simulate(&topology, &plan, &settings).unwrap_err().to_string();
    assert!(refused(Settings::new(0)).contains("give it a size"));
    assert!(refused(Settings { chunk_bytes: Some(1), ..Settings::new(1 << 40) }).contains("1048576 bytes"));
    let with = |fault: &str| Settings { faults: vec![fault.parse().unwrap()], ..Settings::new(MIB) };
    assert!(refused(with("at=1s kill=Q")).contains("`Q`"));
    assert!(refused(with("at=1s cut=A,B")).contains("no link"));
}

mod faults;
