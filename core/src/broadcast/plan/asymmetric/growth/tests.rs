use super::super::super::super::samples::{destinations, networks};
use super::super::super::super::topology::{Graph, Host, Link, Topology};
use super::super::super::packing::Capacities;
use super::super::super::problem::Problem;
use super::*;
use proptest::prelude::*;

fn grown<T>(topology: &Topology, look: impl FnOnce(&Problem<'_>, &Network<'_>) -> T) -> T {
    let graph = Graph::new(topology);
    let all = destinations(topology, "h0");
    let (problem, _) = Problem::new(&graph, Capacities::new(&graph), "h0", &all).expect("a problem");
    look(&problem, &Network::new(&problem))
}

#[test]
fn who_can_send_much_feeds_several() {
    let host = |name: &str, up: f64| Link { back_mbps: Some(100.0), ..Link::new(name, "w", up) };
    let topology = Topology {
        hosts: ["h0", "a", "b", "c", "d"].map(|name| Host::Name(name.to_owned())).to_vec(),
        switches: vec!["w".to_owned()],
        links: vec![host("h0", 100.0), host("a", 1.0), host("b", 300.0), host("c", 1.0), host("d", 1.0)],
    };
    grown(&topology, |problem, network| {
        let packing = pack(network, 1, false);
        assert!((packing.sum() - 400.0).abs() < 1e-9, "{packing:?}");
        assert!(problem.capacities.fits(problem.graph, &packing));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn trees_fit_together_and_feed_nobody_twice(topology in networks(12, 4), most in 1_usize..20, how in 0..3) {
        grown(&topology, |problem, network| {
            let packing = if how == 2 { by_levels(network, most) } else { pack(network, most, how == 1) };
            prop_assert!(packing.trees.len() <= most);
            prop_assert!(problem.capacities.fits(problem.graph, &packing));
            for tree in &packing.trees {
                let mut there = vec![problem.source];
                for hop in &tree.hops {
                    prop_assert!(there.contains(&hop.from) && !there.contains(&hop.to), "{:?}", tree);
                    there.push(hop.to);
                }
            }
            Ok(())
        })?;
    }
}
