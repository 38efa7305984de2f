use super::super::super::super::topology::{Graph, Host, Link, Topology};
use super::super::super::packing::Capacities;
use super::*;

fn solved(hosts: &[&str], switches: &[&str], links: Vec<Link>, to: &[&str]) -> f64 {
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let topology = Topology {
        hosts: named(hosts).into_iter().map(Host::Name).collect(),
        switches: named(switches),
        links,
    };
    let graph = Graph::new(&topology);
    let (problem, _) = Problem::new(&graph, Capacities::new(&graph), "S", &named(to)).expect("a problem");
    optimum(&problem).expect("small")
}

/// The butterfly: A to D are switches.
fn butterfly(back: Option<f64>) -> Vec<Link> {
    let ends = ["SA", "SB", "A1", "B2", "AC", "BC", "CD", "D1", "D2"];
    ends.iter().map(|ends| Link { back_mbps: back, ..Link::new(&ends[..1], &ends[1..], 10.0) }).collect()
}

#[test]
fn routing_reaches_half_of_the_max_flows_of_the_directed_butterfly_and_all_of_the_symmetric_one() {
    let (hosts, switches, to) = (["S", "1", "2"], ["A", "B", "C", "D"], ["1", "2"]);
    assert!((solved(&hosts, &switches, butterfly(Some(0.0)), &to) - 20.0).abs() < 1e-5);
    assert!((solved(&hosts, &switches, butterfly(None), &to) - 40.0).abs() < 1e-5);
}

#[test]
fn a_host_with_a_poor_way_out() {
    let link = |host: &str, down: f64, up: f64| Link { back_mbps: Some(down), ..Link::new(host, "X", up) };
    let links = vec![link("S", 100.0, 100.0), link("A", 100.0, 10.0), link("B", 100.0, 100.0)];
    assert!((solved(&["S", "A", "B"], &["X"], links, &["A", "B"]) - 200.0).abs() < 1e-5);
}
