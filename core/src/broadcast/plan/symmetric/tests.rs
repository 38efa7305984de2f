use super::super::packing::Capacities;
use super::super::{Options, Strategy, assemble};
use super::*;
use crate::broadcast::samples::destinations;
use crate::broadcast::topology::{Graph, Topology};
use crate::broadcast::validity::check;

/// A plan that is valid and gives each destination its max-flow; its number of trees.
fn assert_exact(topology: &Topology, source: &str, destinations: &[String]) -> usize {
    let graph = Graph::new(topology);
    let (problem, unreachable) =
        Problem::new(&graph, Capacities::new(&graph), source, destinations).expect("hosts of the topology");
    assert_eq!(unreachable, Vec::<usize>::new());
    let packing = pack(&problem).expect("all links are symmetric");
    let plan = assemble(&problem, Strategy::Stable, &Options::default(), &packing);
    assert_eq!(check(topology, &plan), Ok(()));
    for arrival in &plan.destinations {
        let missing = arrival.bound_mbps - arrival.rate_mbps;
        assert!(missing <= 1e-6 * arrival.bound_mbps, "{arrival:?}");
    }
    plan.trees.len()
}

fn random_case(seed: u64) -> (Topology, Vec<String>) {
    let topology = samples::any(seed);
    let mut to = destinations(&topology, "h0");
    // Every third time some hosts only forward.
    if seed.is_multiple_of(3) {
        to = to.into_iter().enumerate().filter(|(index, _)| index % 4 != 1).map(|(_, name)| name).collect();
    }
    (topology, to)
}

#[test]
fn random_symmetric_networks_reach_every_max_flow() {
    for seed in 0..200 {
        let (topology, to) = random_case(seed);
        assert_exact(&topology, "h0", &to);
    }
}
