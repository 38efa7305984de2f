//! Networks that are made to break things: capacities of many orders of magnitude, links that lead one way, hosts in the way,
//! budgets of all kinds. Every plan keeps to what is there, starves nobody, and is below no baseline.

use std::time::Instant;

use super::*;
use crate::broadcast::plan::{Options, Plan, PlanError, Relay, Strategy, plan};
use crate::broadcast::random::Random;
use crate::broadcast::topology::{Host, LimitedHost, Link, Topology};
use crate::broadcast::validity;

/// A network of up to `most` hosts whose capacities are up to `orders` orders of magnitude apart.
fn network(random: &mut Random, most: usize, orders: f64) -> Topology {
    let (hosts, switches) = (2 + random.below(most - 1), random.below(4));
    let mbps = |random: &mut Random| 10_f64.powf(random.between(0.0, orders) - 2.0);
    let names: Vec<String> = (0..hosts)
        .map(|host| format!("h{host}"))
        .chain((0..switches).map(|switch| format!("w{switch}")))
        .collect();
    let mut links = Vec::new();
    let mut join = |random: &mut Random, a: &str, b: &str| {
        let back = match random.below(8) {
            0 => Some(0.0),
            1 | 2 => None,
            _ => Some(mbps(random)),
        };
        links.push(Link { back_mbps: back, ..Link::new(a, b, mbps(random)) });
    };
    // Switches in a tree, hosts mostly on them, some on other hosts; then links anywhere, parallel ones among them.
    for switch in 1..switches {
        let other = hosts + random.below(switch);
        join(random, &names[other], &names[hosts + switch]);
    }
    for host in 0..hosts {
        let on_switch = switches > 0 && (host == 0 || random.below(5) > 0);
        let other = if on_switch { hosts + random.below(switches) } else { random.below(host.max(1)) };
        if other != host {
            join(random, &names[other], &names[host]);
        }
    }
    for _ in 0..random.below(hosts) {
        let (a, b) = (random.below(names.len()), random.below(names.len()));
        if a != b {
            join(random, &names[a], &names[b]);
        }
    }
    let budgets = random.below(3) > 0;
    let limited = (0..hosts).map(|host| {
        let mut budget = || (budgets && random.below(4) == 0).then(|| mbps(random));
        let (send_mbps, receive_mbps, total_mbps, disk_mbps) = (budget(), budget(), budget(), budget());
        Host::Limited(LimitedHost {
            name: names[host].clone(),
            send_mbps,
            receive_mbps,
            total_mbps,
            disk_mbps,
        })
    });
    Topology { hosts: limited.collect(), switches: names[hosts..].to_vec(), links }
}

/// A plan to those of some hosts that can be reached, checked; none where nobody can be.
fn planned(topology: &Topology, to: &[String], options: &Options) -> Option<Plan> {
    let plan = match plan(topology, "h0", to, &Options { partial: true, ..options.clone() }) {
        Ok(plan) => plan,
        Err(PlanError::Unreachable { .. }) => return None,
        Err(error) => panic!("{error}: {topology:?}"),
    };
    assert_eq!(validity::check(topology, &plan), Ok(()), "{topology:?}");
    Some(plan)
}

/// Plans of one network with and without a limit on trees: nobody starves, and no baseline that starves nobody is above
/// that without one.
fn trial(topology: &Topology, to: &[String], seed: u64) {
    let what = |plan: &Plan| format!("seed {seed}: {plan:?}\n{topology:?}");
    let serves = |plan: &Plan| plan.destinations.iter().all(|arrival| arrival.rate_mbps > 0.0);
    let ours = |max_trees| {
        let plan = planned(topology, to, &Options { max_trees, ..Options::default() }).expect("a plan");
        assert!(plan.aggregate_mbps.is_finite() && serves(&plan), "{}", what(&plan));
        assert!(max_trees == 0 || plan.trees.len() <= max_trees as usize, "{}", what(&plan));
        plan
    };
    ours(1 + (seed % 5) as u32);
    let free = ours(0);
    if let Some(optimum) = free.optimum_mbps {
        assert!(free.aggregate_mbps <= optimum * (1.0 + 1e-6), "{}", what(&free));
    }
    for strategy in Strategy::BASELINES {
        for relay in [Relay::Synchronous, Relay::Asynchronous] {
            let options = Options { strategy, relay, seed, ..Options::default() };
            let Some(other) = planned(topology, to, &options).filter(serves) else { continue };
            let enough = free.aggregate_mbps >= other.aggregate_mbps * (1.0 - 1e-7);
            assert!(enough, "{} above {}", what(&other), what(&free));
        }
    }
}

/// All hosts but `h0`, or some of them.
fn some(topology: &Topology, random: &mut Random) -> Vec<String> {
    let mut all = destinations(topology, "h0");
    if random.below(3) == 0 {
        random.shuffle(&mut all);
        all.truncate(1 + random.below(all.len()));
    }
    all
}

fn trials(seeds: std::ops::Range<u64>, most: usize, orders: f64) {
    let mut slowest = (0.0, 0);
    for seed in seeds.clone() {
        let mut random = Random::new(seed);
        let topology = network(&mut random, most, orders);
        let to = some(&topology, &mut random);
        let started = Instant::now();
        trial(&topology, &to, seed);
        let seconds = started.elapsed().as_secs_f64();
        if seconds > slowest.0 {
            slowest = (seconds, seed);
        }
    }
    println!(
        "seeds {seeds:?}, at most {most} hosts, {orders} orders of magnitude: the slowest {slowest:.2?}"
    );
}

#[test]
fn small_networks_of_any_kind_starve_nobody_and_are_below_no_baseline() {
    trials(0..150, 8, 1.0);
    trials(0..150, 8, 6.0);
    trials(0..20, 24, 3.0);
}

#[test]
#[ignore = "minutes: cargo test --release -p gridcast-core -- --ignored --nocapture thousands_of_networks"]
fn thousands_of_networks_of_any_kind_starve_nobody_and_are_below_no_baseline() {
    trials(1_000..4_000, 8, 1.0);
    trials(4_000..7_000, 8, 6.0);
    trials(7_000..10_000, 12, 8.0);
    trials(10_000..10_200, 40, 6.0);
}

fn named(name: &str, of: impl FnOnce(&mut LimitedHost)) -> Host {
    let mut host = LimitedHost {
        name: name.to_owned(),
        send_mbps: None,
        receive_mbps: None,
        total_mbps: None,
        disk_mbps: None,
    };
    of(&mut host);
    Host::Limited(host)
}

#[test]
fn all_behind_one_host_with_a_small_budget_get_something() {
    for budget in [0.001, 0.5, 100.0] {
        let mut hosts = vec![named("h0", |_| ()), named("gate", |host| host.total_mbps = Some(budget))];
        let mut links = vec![Link { back_mbps: Some(10.0), ..Link::new("h0", "gate", 1_000_000.0) }];
        for number in 0..20 {
            let name = format!("x{number}");
            let back_mbps = Some(if number % 2 == 0 { 0.001 } else { 0.0 });
            links.push(Link { back_mbps, ..Link::new("gate", &name, 1000.0) });
            hosts.push(named(&name, |host| host.disk_mbps = (number % 3 == 0).then_some(0.002)));
        }
        let topology = Topology { hosts, switches: Vec::new(), links };
        let mut all = destinations(&topology, "h0");
        trial(&topology, &all, 0);
        // The gate forwards, and stores nothing.
        all.retain(|name| name != "gate");
        trial(&topology, &all, 1);
        trial(&topology, &all[..1], 2);
    }
}

#[test]
fn one_way_links_and_budgets_of_another_host_are_kept_to() {
    let one_way = |a: &str, b: &str, mbps: f64| Link { back_mbps: Some(0.0), ..Link::new(a, b, mbps) };
    let hosts = vec![
        named("h0", |host| host.send_mbps = Some(300.0)),
        named("a", |host| host.send_mbps = Some(1.0)),
        named("b", |host| host.receive_mbps = Some(0.001)),
        named("c", |host| host.disk_mbps = Some(50.0)),
        named("d", |_| ()),
    ];
    let links = vec![
        one_way("h0", "a", 1000.0),
        one_way("a", "b", 1000.0),
        one_way("a", "c", 1000.0),
        one_way("b", "d", 1000.0),
        one_way("h0", "w", 0.01),
        one_way("w", "d", 1000.0),
        one_way("c", "w", 20.0),
    ];
    let topology = Topology { hosts, switches: vec!["w".to_owned()], links };
    trial(&topology, &destinations(&topology, "h0"), 3);
}
