use std::collections::BTreeMap;

use super::super::super::super::samples::{destinations, networks};
use super::super::super::super::topology::Graph;
use super::super::super::packing::{Capacities, used};
use super::super::super::problem::Problem;
use super::super::super::sharing::Resource;
use super::super::greedy::ORDERS;
use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Nobody receives less than before, and what there is is kept to.
    #[test]
    fn repair_only_adds(topology in networks(9, 4)) {
        let graph = Graph::new(&topology);
        let all = destinations(&topology, "h0");
        let (problem, _) = Problem::new(&graph, Capacities::new(&graph), "h0", &all).expect("a problem");
        let network = Network::new(&problem);
        for order in ORDERS {
            let packing = greedy::pack(&network, order, &mut network.left.clone());
            let before = packing.received();
            let after = repair(&network, packing, usize::MAX);
            let received = after.received();
            for (host, mbps) in before {
                prop_assert!(received.get(&host).is_some_and(|&now| now >= mbps * (1.0 - 1e-9)));
            }
            let mut load: BTreeMap<Resource, f64> = BTreeMap::new();
            for tree in &after.trees {
                for (resource, count) in used(&graph, &tree.hops) {
                    *load.entry(resource).or_default() += tree.rate * f64::from(count);
                }
            }
            for (resource, planned) in load {
                prop_assert!(planned <= problem.capacities.left(resource) * (1.0 + 1e-9), "{resource:?}");
            }
        }
    }
}
