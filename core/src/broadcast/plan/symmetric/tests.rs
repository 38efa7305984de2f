use super::super::packing::Capacities;
use super::super::{Options, Strategy, assemble};
use super::*;
use crate::broadcast::samples::{destinations, vector};
use crate::broadcast::topology::{Graph, Host, LimitedHost, Link, Topology};
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

#[test]
#[ignore = "takes a minute in release: the 2,000 networks of the published figure"]
fn two_thousand_random_symmetric_networks_reach_every_max_flow() {
    for seed in 1000..3000 {
        let (topology, to) = random_case(seed);
        assert_exact(&topology, "h0", &to);
    }
}

#[test]
fn published_symmetric_networks_reach_every_max_flow() {
    for name in ["two-switches", "shared-trunk", "five-links-no-switch", "symmetric-butterfly"] {
        let case = vector(name);
        assert_exact(&case.topology(), &case.source, &case.destinations());
    }
}

fn unlimited(name: &str) -> LimitedHost {
    LimitedHost { name: name.into(), send_mbps: None, receive_mbps: None, total_mbps: None, disk_mbps: None }
}

/// The packing for all hosts but `source`.
fn packed(topology: &Topology, source: &str) -> Option<Packing> {
    let graph = Graph::new(topology);
    let to = destinations(topology, source);
    let (problem, _) =
        Problem::new(&graph, Capacities::new(&graph), source, &to).expect("hosts of the topology");
    pack(&problem)
}

#[test]
fn what_no_plan_can_reach_is_not_promised() {
    for name in ["asymmetric-star", "directed-butterfly"] {
        let case = vector(name);
        assert_eq!(packed(&case.topology(), &case.source), None, "{name}");
    }
}

#[test]
fn asymmetry_and_budgets_that_cost_nobody_anything_are_no_obstacle() {
    let mut topology = vector("symmetric-butterfly").topology();
    // Into the source, and out of a host at the end, nothing is needed.
    topology.links[0].back_mbps = Some(0.0);
    topology.links[1].back_mbps = Some(5.0);
    topology.hosts[0] = Host::Limited(LimitedHost { send_mbps: Some(2.0), ..unlimited("S") });
    assert_exact(&topology, "S", &destinations(&topology, "S"));
    let links = [("S", "X", 10.0, 10.0), ("X", "A", 4.0, 9.0), ("X", "B", 10.0, 10.0)];
    let links = links.map(|(a, b, mbps, back)| Link { back_mbps: Some(back), ..Link::new(a, b, mbps) });
    let budget = LimitedHost { send_mbps: Some(3.0), receive_mbps: Some(3.0), ..unlimited("B") };
    let hosts = vec![Host::Name("S".into()), Host::Name("A".into()), Host::Limited(budget)];
    let topology = Topology { hosts, switches: vec!["X".into()], links: links.to_vec() };
    assert_exact(&topology, "S", &destinations(&topology, "S"));
}

#[test]
fn the_order_of_the_file_changes_nothing() {
    for seed in 0..20 {
        let topology = samples::any(seed);
        let mut turned = topology.clone();
        turned.hosts.reverse();
        turned.switches.reverse();
        turned.links.reverse();
        let named = |topology: &Topology| {
            let graph = Graph::new(topology);
            let to = destinations(topology, "h0");
            let (problem, _) = Problem::new(&graph, Capacities::new(&graph), "h0", &to).expect("hosts");
            [pack(&problem), few(&problem, 8)].map(|packing| {
                assemble(&problem, Strategy::Stable, &Options::default(), &packing.expect("symmetric")).trees
            })
        };
        assert_eq!(named(&topology), named(&turned), "{seed}");
    }
}

#[test]
fn hosts_whose_links_differ_by_six_orders_of_magnitude_all_get_their_max_flow() {
    let links = [
        ("S", "X", 1e5),
        ("S", "Y", 1e5),
        ("X", "Y", 0.123),
        ("X", "A", 0.25),
        ("Y", "A", 7e4),
        ("Y", "B", 1e-1),
        ("X", "B", 1e-3),
    ];
    let hosts = ["S", "A", "B"].map(|name| Host::Name(name.into())).to_vec();
    let links = links.map(|(a, b, mbps)| Link::new(a, b, mbps)).to_vec();
    let topology = Topology { hosts, switches: vec!["X".into(), "Y".into()], links };
    assert_exact(&topology, "S", &destinations(&topology, "S"));
}

/// Networks of a hundred hosts and more, for which the exact packing needs more than 16 trees.
fn large() -> [(&'static str, Topology); 6] {
    [
        ("leaves and spines", samples::leaf_spine(1, 15, 4, 20, 1)),
        ("leaves and spines, two homes", samples::leaf_spine(1, 16, 4, 19, 2)),
        ("sites", samples::sites(1, 10, 30, 1)),
        ("sites, two homes", samples::sites(1, 10, 30, 2)),
        ("many leaves", samples::leaf_spine(1, 40, 8, 25, 1)),
        ("many leaves, two homes", samples::leaf_spine(1, 40, 8, 25, 2)),
    ]
}

/// What few trees keep of the bound, and of the bound of whoever they keep the least for.
fn kept(topology: &Topology, most: usize) -> (f64, f64) {
    let graph = Graph::new(topology);
    let to = destinations(topology, "h0");
    let (problem, _) =
        Problem::new(&graph, Capacities::new(&graph), "h0", &to).expect("hosts of the topology");
    let packing = few(&problem, most).expect("all links are symmetric");
    let plan = assemble(&problem, Strategy::Stable, &Options::default(), &packing);
    assert_eq!(check(topology, &plan), Ok(()));
    assert!(plan.trees.len() <= most);
    let least = plan.destinations.iter().map(|arrival| arrival.rate_mbps / arrival.bound_mbps);
    (plan.aggregate_mbps / plan.bound_mbps, least.fold(1.0, f64::min))
}

#[test]
fn sixteen_trees_keep_nearly_all_for_everybody() {
    for (name, topology) in large() {
        let (sum, least) = kept(&topology, 16);
        println!("{name}: 16 trees keep {sum:.4}, at least {least:.3} of anybody's");
        assert!(sum > 0.98 && least > 0.8, "{name}: {sum} {least}");
    }
}

#[test]
fn few_trees_leave_nobody_out() {
    for seed in 0..60 {
        let topology = samples::any(seed);
        for most in [1, 2, 3, 5, 16] {
            let (_, least) = kept(&topology, most);
            assert!(least > 0.0, "{seed}: {most} trees");
        }
    }
}
