//! How long does planning take? One core: `taskset -c 0 cargo bench -p gridcast-core --bench plan`.
//!
//! Networks are drawn from a fixed seed: trees (hosts on switches of 24 ports, all links uniform between 100 and 1000 Mbit/s),
//! leaves and spines, single and dual-homed, and meshes of sites.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gridcast_core::broadcast::{
    plan::{Options, Plan, plan},
    topology::{Host, Link, Topology},
};

/// Numbers from a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn mbps(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        100.0 + 900.0 * (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

const PORTS: usize = 24;

fn network(hosts: usize, switches: Vec<String>, links: Vec<Link>) -> Topology {
    Topology { hosts: (0..hosts).map(|host| Host::Name(format!("h{host}"))).collect(), switches, links }
}

/// Hosts on edge switches on one core switch.
fn tree(hosts: usize) -> Topology {
    let mut draw = Draw(1);
    let edges = hosts.div_ceil(PORTS);
    let mut links: Vec<Link> =
        (0..edges).map(|edge| Link::new("core", &format!("e{edge}"), draw.mbps())).collect();
    links.extend(
        (0..hosts).map(|host| Link::new(&format!("e{}", host / PORTS), &format!("h{host}"), draw.mbps())),
    );
    let switches = std::iter::once("core".to_owned()).chain((0..edges).map(|edge| format!("e{edge}")));
    network(hosts, switches.collect(), links)
}

/// Hosts on one or two leaves each, every leaf on four spines.
fn leaf_spine(hosts: usize, homes: usize) -> Topology {
    let mut draw = Draw(2);
    let leaves = hosts.div_ceil(PORTS).max(2);
    let mut links = Vec::new();
    for leaf in 0..leaves {
        links.extend((0..4).map(|spine| Link::new(&format!("l{leaf}"), &format!("s{spine}"), 1000.0)));
    }
    for host in 0..hosts {
        for home in 0..homes {
            links.push(Link::new(
                &format!("l{}", (host / PORTS + home) % leaves),
                &format!("h{host}"),
                draw.mbps(),
            ));
        }
    }
    let switches = (0..leaves).map(|leaf| format!("l{leaf}")).chain((0..4).map(|spine| format!("s{spine}")));
    network(hosts, switches.collect(), links)
}

/// Sites of one switch each, in a ring with chords.
fn site_mesh(hosts: usize) -> Topology {
    let mut draw = Draw(3);
    let sites = hosts.div_ceil(PORTS).max(3);
    let mut links: Vec<Link> = (0..sites)
        .map(|site| Link::new(&format!("w{site}"), &format!("w{}", (site + 1) % sites), draw.mbps()))
        .collect();
    links.extend(
        (0..sites / 2)
            .filter(|&site| sites / 2 > 1 && (site + sites / 2) % sites != (site + 1) % sites)
            .map(|site| Link::new(&format!("w{site}"), &format!("w{}", site + sites / 2), draw.mbps())),
    );
    links.extend(
        (0..hosts).map(|host| Link::new(&format!("w{}", host / PORTS), &format!("h{host}"), draw.mbps())),
    );
    network(hosts, (0..sites).map(|site| format!("w{site}")).collect(), links)
}

fn planned(topology: &Topology, max_trees: u32) -> Plan {
    let names: Vec<String> = topology.hosts[1..].iter().map(|host| host.name().to_owned()).collect();
    plan(topology, "h0", &names, &Options { max_trees, ..Options::default() }).unwrap()
}

/// Name, network of so many hosts, numbers of hosts.
type Case = (&'static str, fn(usize) -> Topology, &'static [usize]);

fn benchmarks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    group.sample_size(10);
    let cases: [Case; 4] = [
        ("tree", tree, &[300, 1000, 10_000]),
        ("leaf-spine", |hosts| leaf_spine(hosts, 1), &[300, 1000]),
        ("leaf-spine, dual-homed", |hosts| leaf_spine(hosts, 2), &[300, 1000]),
        ("site mesh", site_mesh, &[300, 1000]),
    ];
    for (name, make, sizes) in cases {
        for &hosts in sizes {
            for (limit, max_trees) in [("16 trees", 16), ("no limit", 0)] {
                if hosts > 1000 && max_trees == 0 {
                    continue;
                }
                let topology = make(hosts);
                group.bench_function(BenchmarkId::new(format!("{name}, {limit}"), hosts), |bencher| {
                    bencher.iter(|| black_box(planned(&topology, max_trees)));
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, benchmarks);
criterion_main!(benches);
