#![allow(clippy::float_cmp, reason = "path minima are exact")]

use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::broadcast::maxflow::MaxFlow;
use crate::broadcast::samples::{networks, vector};
use crate::broadcast::topology::{Link, Topology};

#[test]
fn a_tree_is_walked_by_name_and_a_cycle_is_none() {
    let graph = Graph::new(&vector("two-switches").topology());
    let rooted = Rooted::new(&graph, graph.vertex("S").unwrap()).unwrap();
    let names: Vec<&str> = rooted.walk.iter().map(|&vertex| graph.name(vertex)).collect();
    assert_eq!(names, ["S", "X", "A", "B", "Y", "C", "D"]);
    let graph = Graph::new(&vector("five-links-no-switch").topology());
    assert!(Rooted::new(&graph, 0).is_none());
}

#[test]
fn what_is_not_connected_to_the_source_does_not_matter() {
    let host = |name: &str| crate::broadcast::topology::Host::Name(name.to_owned());
    let topology = Topology {
        hosts: ["S", "A", "B", "C", "D"].map(host).to_vec(),
        switches: Vec::new(),
        links: [("S", "A"), ("B", "C"), ("C", "D"), ("D", "B")].map(|(a, b)| Link::new(a, b, 7.0)).to_vec(),
    };
    let graph = Graph::new(&topology);
    let rooted = Rooted::new(&graph, 0).unwrap();
    assert_eq!(rooted.bounds(&graph, &Capacities::new(&graph)), [0.0, 7.0, 0.0, 0.0, 0.0]);
    assert!(Rooted::new(&graph, 1 + 1).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_least_capacity_on_the_way_is_the_max_flow(topology in networks(9, 4)) {
        let graph = Graph::new(&topology);
        if let Some(rooted) = Rooted::new(&graph, 0) {
            let bounds = rooted.bounds(&graph, &Capacities::new(&graph));
            let mut flow = MaxFlow::new(&graph, 0);
            for (host, bound) in bounds.iter().enumerate().take(graph.hosts()).skip(1) {
                let by_flow = flow.to(host);
                prop_assert!((bound - by_flow).abs() < 1e-6, "{} {bound} {by_flow}", graph.name(host));
            }
            prop_assert_eq!(bounds[0], 0.0);
        }
    }
}
