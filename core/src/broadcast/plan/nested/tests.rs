use proptest::prelude::*;

use super::*;
use crate::broadcast::plan::{Executable, Plan, Strategy, plan};
use crate::broadcast::samples::{destinations, networks, vector};
use crate::broadcast::topology::{Host, Link, Topology};
use crate::broadcast::validity::check;

fn with(strategy: Strategy, max_trees: u32) -> Options {
    Options { strategy, max_trees, executable: Executable::Nested, ..Options::default() }
}

fn planned(topology: &Topology, strategy: Strategy) -> Plan {
    plan(topology, "S", &destinations(topology, "S"), &with(strategy, 16)).unwrap()
}

/// Each tree as its members in order.
fn orders(trees: &[Tree]) -> Vec<(f64, String)> {
    let members = |tree: &Tree| tree.hops.iter().map(|hop| hop.to.as_str()).collect();
    trees.iter().map(|tree| (tree.rate_mbps, members(tree))).collect()
}

#[test]
fn the_worked_example_is_carried_out_with_the_fast_hosts_first() {
    let plan = planned(&vector("two-switches").topology(), Strategy::Stable);
    assert_eq!(plan.strategy, Strategy::Stable);
    let expected = [(100.0, "ACDB"), (200.0, "ACD"), (300.0, "AC"), (400.0, "A")];
    assert_eq!(orders(&plan.carried()), expected.map(|(rate, members)| (rate, members.to_owned())));
    assert!((plan.aggregate_mbps / plan.bound_mbps - 1.0).abs() < 1e-9);
}

#[test]
fn a_baseline_from_disk_is_one_tree_whose_rate_is_that_of_its_fastest_host() {
    let plan = planned(&vector("two-switches").topology(), Strategy::Chain);
    assert!(plan.trees.len() > 1);
    assert_eq!(orders(&plan.carried()), [(1000.0, "ACDB".to_owned())]);
}

#[test]
fn on_a_ring_all_receive_over_both_ways() {
    let hosts = ["S", "A", "B", "C"];
    let links = (0..4).map(|at| Link::new(hosts[at], hosts[(at + 1) % 4], 100.0)).collect();
    let topology = Topology {
        hosts: hosts.map(|name| Host::Name(name.to_owned())).to_vec(),
        switches: Vec::new(),
        links,
    };
    let plan = planned(&topology, Strategy::Stable);
    assert_eq!((plan.strategy, plan.aggregate_mbps, plan.trees.len()), (Strategy::Stable, 600.0, 2));
}

#[test]
fn two_hosts_with_poor_ways_back_cost_no_other_its_rate() {
    let host = |name: &str, down: f64, up: f64| Link { back_mbps: Some(down), ..Link::new(name, "X", up) };
    let topology = Topology {
        hosts: ["S", "A", "B", "C"].map(|name| Host::Name(name.to_owned())).to_vec(),
        switches: vec!["X".to_owned()],
        links: vec![
            Link::new("S", "X", 100.0),
            Link::new("A", "X", 100.0),
            host("B", 100.0, 95.0),
            host("C", 100.0, 90.0),
        ],
    };
    let plan = planned(&topology, Strategy::Stable);
    assert_eq!(plan.strategy, Strategy::Stable);
    let rates = ["A", "B", "C"].map(|name| plan.rate_mbps(name));
    assert!(rates[0] >= 100.0 && rates[1] >= 95.0 && rates[2] >= 90.0, "{rates:?}");
}

proptest! {
    #[test]
    fn whatever_the_network_and_the_strategy_one_queue_completes_everybody(
        topology in networks(12, 5), most in 0_u32..5
    ) {
        let names = destinations(&topology, "h0");
        let best = plan(&topology, "h0", &names, &with(Strategy::Stable, most)).unwrap();
        for strategy in [Strategy::Stable].into_iter().chain(Strategy::BASELINES) {
            let plan = match plan(&topology, "h0", &names, &with(strategy, most)) {
                Ok(plan) => plan,
                Err(PlanError::Unsupported { .. } | PlanError::Unreachable { .. }) => {
                    prop_assert!(strategy != Strategy::Stable && strategy != Strategy::Flat, "{strategy:?}");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            prop_assert_eq!(check(&topology, &plan), Ok(()));
            prop_assert!(can_be_carried(&plan.carried(), names.len()), "{:?}", plan);
            prop_assert!(plan.destinations.iter().all(|arrival| arrival.rate_mbps > 0.0));
            // What is merged has the rate of its fastest host, and reaches all that its parts reach.
            let fastest = plan.destinations.iter().map(|arrival| arrival.rate_mbps).fold(0.0, f64::max);
            let carried: f64 = plan.carried().iter().map(|tree| tree.rate_mbps).sum();
            prop_assert!(carried >= fastest * (1.0 - 1e-9), "{carried} {fastest}");
            if most == 0 && matches!(strategy, Strategy::Flat) {
                prop_assert!(best.aggregate_mbps >= plan.aggregate_mbps * (1.0 - 1e-9));
            }
        }
    }
}
