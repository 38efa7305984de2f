use super::super::super::super::samples::{destinations, networks};
use super::super::super::super::topology::Graph;
use super::super::super::packing::Capacities;
use super::super::super::problem::Problem;
use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Floors that can be met together are met, whatever the sum loses.
    #[test]
    fn floors_are_met(topology in networks(7, 3)) {
        let graph = Graph::new(&topology);
        let all = destinations(&topology, "h0");
        let (problem, _) = Problem::new(&graph, Capacities::new(&graph), "h0", &all).expect("a problem");
        let network = Network::new(&problem);
        // All at the rate of one tree of hops from the source itself.
        let ways = network.widest(&[0], &network.left);
        let hops: Vec<Feeder> =
            (1..network.size()).map(|to| network.hop(0, to, &network.way(&ways, to))).collect();
        let Some(uses) = network.uses(&hops) else { return Ok(()) };
        let floor = network::rate(&uses, &network.left);
        if !floor.is_finite() {
            return Ok(());
        }
        let mut columns = Columns::new(&network);
        columns.add(hops);
        let mut floors = vec![floor; network.size()];
        floors[0] = 0.0;
        let rates = columns.generate(&floors, &mut Work(u64::MAX));
        for (terminal, mbps) in columns.received(&rates).into_iter().enumerate().skip(1) {
            prop_assert!(mbps >= floor * (1.0 - 1e-6), "{terminal}: {mbps} of {floor}");
        }
        let free = columns.generate(&vec![0.0; network.size()], &mut Work(u64::MAX));
        prop_assert!(free.optimum.is_some());
        prop_assert!(free.worth <= free.optimum.unwrap_or_default() * (1.0 + 1e-7));
    }
}
