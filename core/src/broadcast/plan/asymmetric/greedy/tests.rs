use super::super::super::super::samples::vectors;
use super::super::super::super::topology::Graph;
use super::super::super::packing::Capacities;
use super::super::super::problem::Problem;
use super::*;

#[test]
fn on_the_published_networks_the_walk_finds_what_the_paper_promises() {
    for vector in vectors() {
        let topology = vector.topology();
        let graph = Graph::new(&topology);
        let (problem, _) =
            Problem::new(&graph, Capacities::new(&graph), &vector.source, &vector.destinations())
                .expect("a problem");
        let network = Network::new(&problem);
        let packing = pack(&network, Order::Return, &mut network.left.clone());
        let expected = vector.rates.get("stable").and_then(|rates| rates.get("sum"));
        if let Some(&expected) = expected {
            assert!(
                (packing.sum() - expected).abs() < 1e-6,
                "{}: {} of {expected}",
                vector.name,
                packing.sum()
            );
        }
    }
}
