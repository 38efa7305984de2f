use super::super::super::super::samples::{destinations, networks};
use super::super::super::super::topology::Graph;
use super::super::super::packing::Capacities;
use super::super::super::problem::Problem;
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
            let after = repair(&network, packing);
            let received = after.received();
            for (host, mbps) in before {
                prop_assert!(received.get(&host).is_some_and(|&now| now >= mbps * (1.0 - 1e-9)));
            }
            let mut left = problem.capacities.clone();
            for tree in &after.trees {
                prop_assert!(left.rate(&graph, &tree.hops) >= tree.rate * (1.0 - 1e-6));
                left.take(&graph, tree);
            }
        }
    }
}
