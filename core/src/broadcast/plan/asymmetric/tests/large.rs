//! Networks that are too large for column generation, or nearly.

use std::time::Instant;

use super::super::super::super::random::Random;
use super::super::super::super::topology::{Graph, Host, Link, Topology};
use super::super::super::packing::Capacities;
use super::super::super::{Options, Plan, Strategy, baseline, plan};
use super::*;

/// Hosts on each leaf.
const PORTS: usize = 24;

/// Uniform between 100 and 1000 Mbit/s, each direction its own.
fn link(random: &mut Random, a: &str, b: &str) -> Link {
    let mut mbps = || random.between(100.0, 1000.0);
    Link { back_mbps: Some(mbps()), ..Link::new(a, b, mbps()) }
}

/// Hosts on one switch.
fn switch(hosts: usize) -> Topology {
    let mut random = Random::new(1);
    let names: Vec<String> = (0..hosts).map(|host| format!("h{host}")).collect();
    let links = names.iter().map(|name| link(&mut random, name, "w")).collect();
    Topology { hosts: names.into_iter().map(Host::Name).collect(), switches: vec!["w".to_owned()], links }
}

/// Hosts on leaves, every leaf on four spines.
fn leaf_spine(hosts: usize) -> Topology {
    let mut random = Random::new(2);
    let names: Vec<String> = (0..hosts).map(|host| format!("h{host}")).collect();
    let leaves: Vec<String> = (0..hosts.div_ceil(PORTS)).map(|leaf| format!("l{leaf}")).collect();
    let spines: Vec<String> = (0..4).map(|spine| format!("s{spine}")).collect();
    let mut links: Vec<Link> =
        names.iter().enumerate().map(|(host, name)| link(&mut random, name, &leaves[host / PORTS])).collect();
    for leaf in &leaves {
        links.extend(spines.iter().map(|spine| link(&mut random, leaf, spine)));
    }
    let switches = leaves.into_iter().chain(spines).collect();
    Topology { hosts: names.into_iter().map(Host::Name).collect(), switches, links }
}

/// A plan that starves nobody, and what it reached.
fn planned(topology: &Topology, options: &Options) -> Plan {
    let started = Instant::now();
    let plan = plan(topology, "h0", &destinations(topology, "h0"), options).expect("a plan");
    let hops: usize = plan.trees.iter().map(|tree| tree.hops.len()).sum();
    println!(
        "{} hosts, {} links, {}, at most {} trees: {:.4} of the bound, {} trees, {hops} hops, {:.2?}",
        topology.hosts.len(),
        topology.links.len(),
        options.strategy,
        options.max_trees,
        plan.aggregate_mbps / plan.bound_mbps,
        plan.trees.len(),
        started.elapsed()
    );
    if options.strategy == Strategy::Stable {
        for arrival in &plan.destinations {
            assert!(arrival.rate_mbps > 0.0, "{} starves", arrival.name);
        }
    }
    plan
}

fn figures(hosts: usize) {
    for topology in [switch(hosts), leaf_spine(hosts)] {
        let graph = Graph::new(&topology);
        let (problem, _) =
            Problem::new(&graph, Capacities::new(&graph), "h0", &destinations(&topology, "h0"))
                .expect("a problem");
        let started = Instant::now();
        let others = baseline::all(&problem, 0);
        let best = baseline::sum(&others[0]);
        println!(
            "best baseline {:.4} of the bound, {:.2?}",
            best / problem.bounds.iter().sum::<f64>(),
            started.elapsed()
        );
        for max_trees in [0, 16] {
            let plan = planned(&topology, &Options { max_trees, ..Options::default() });
            assert!(max_trees > 0 || plan.aggregate_mbps >= best * (1.0 - 1e-7));
        }
    }
}

#[test]
#[ignore = "seconds; the figures of the benchmarks: cargo test --release -p gridcast-core -- --ignored --nocapture figures_of_large"]
fn figures_of_large_asymmetric_networks_of_300_hosts() {
    figures(300);
}

#[test]
#[ignore = "seconds; the figures of the benchmarks: cargo test --release -p gridcast-core -- --ignored --nocapture figures_of_large"]
fn figures_of_large_asymmetric_networks_of_1_000_hosts() {
    figures(1_000);
}

#[test]
#[ignore = "a minute; the figures of the benchmarks: cargo test --release -p gridcast-core -- --ignored --nocapture figures_of_large"]
fn figures_of_large_asymmetric_networks_of_10_000_hosts() {
    figures(10_000);
}
