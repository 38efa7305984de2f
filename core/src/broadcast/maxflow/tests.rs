#![allow(clippy::float_cmp, reason = "the rates of these networks are exact")]

use proptest::prelude::*;

use super::*;
use crate::broadcast::samples::{destinations, networks, vectors};
use crate::broadcast::topology::{Host, LimitedHost, Link, Topology};

#[test]
fn the_vectors_have_their_bounds() {
    for case in vectors() {
        let bounds = bound(&case.topology(), &case.source, &case.destinations()).unwrap();
        for (name, mbps) in &bounds {
            assert!((mbps - case.bound[name]).abs() < 1e-9, "{}: {name} has {mbps}", case.name);
        }
        assert!((sum(&bounds) - case.bound["sum"]).abs() < 1e-9, "{}: sum", case.name);
    }
}

fn limited(name: &str, change: impl Fn(&mut LimitedHost)) -> Host {
    let mut host = LimitedHost {
        name: name.to_owned(),
        send_mbps: None,
        receive_mbps: None,
        total_mbps: None,
        disk_mbps: None,
    };
    change(&mut host);
    Host::Limited(host)
}

fn name(name: &str) -> Host {
    Host::Name(name.to_owned())
}

#[test]
fn budgets_limit_what_a_host_sends_receives_and_passes_on() {
    // S - A - B: A passes on by IP, as it stands between.
    let links = vec![Link::new("S", "A", 1000.0), Link::new("A", "B", 1000.0)];
    let flows = |source: Host, a: Host| {
        let topology =
            Topology { hosts: vec![source, a, name("B")], switches: Vec::new(), links: links.clone() };
        let bounds = bound(&topology, "S", &["A".to_owned(), "B".to_owned()]).unwrap();
        (bounds[0].1, bounds[1].1)
    };
    assert_eq!(flows(name("S"), name("A")), (1000.0, 1000.0));
    assert_eq!(flows(limited("S", |host| host.send_mbps = Some(900.0)), name("A")), (900.0, 900.0));
    assert_eq!(flows(limited("S", |host| host.receive_mbps = Some(1.0)), name("A")), (1000.0, 1000.0));
    assert_eq!(flows(name("S"), limited("A", |host| host.total_mbps = Some(750.0))), (750.0, 375.0));
    assert_eq!(flows(name("S"), limited("A", |host| host.send_mbps = Some(20.0))), (1000.0, 20.0));
    // What A forwards it does not store.
    assert_eq!(flows(name("S"), limited("A", |host| host.disk_mbps = Some(80.0))), (80.0, 1000.0));
}

#[test]
fn unknown_names_are_refused_and_names_given_twice_count_once() {
    let topology = Topology::one_switch(&["a".to_owned(), "b".to_owned()], 100.0, 0.1);
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(bound(&topology, "x", &names(&["b"])), Err(UnknownHost("x".to_owned())));
    assert_eq!(bound(&topology, "a", &names(&["switch"])), Err(UnknownHost("switch".to_owned())));
    assert_eq!(bound(&topology, "a", &names(&["b", "b"])), Ok(vec![("b".to_owned(), 100.0)]));
}

#[test]
fn a_chain_of_thousands_of_links_is_no_deeper_than_the_stack() {
    let hosts: Vec<Host> = (0..4000).map(|host| name(&format!("h{host}"))).collect();
    let links =
        (1..4000).map(|host| Link::new(&format!("h{}", host - 1), &format!("h{host}"), 7.5)).collect();
    let topology = Topology { hosts, switches: Vec::new(), links };
    assert_eq!(bound(&topology, "h0", &["h3999".to_owned()]).unwrap()[0].1, 7.5);
}

#[test]
fn a_short_way_taken_first_is_given_up_where_two_longer_ones_carry_more() {
    let one_way = |(a, b): (&str, &str)| Link { back_mbps: Some(0.0), ..Link::new(a, b, 10.0) };
    let short = [("S", "a"), ("a", "d"), ("d", "T")];
    let long = [("a", "x"), ("x", "y"), ("y", "T"), ("S", "p"), ("p", "q"), ("q", "d")];
    let topology = Topology {
        hosts: vec![name("S"), name("T")],
        switches: ["a", "d", "x", "y", "p", "q"].map(str::to_owned).to_vec(),
        links: short.into_iter().chain(long).map(one_way).collect(),
    };
    assert_eq!(bound(&topology, "S", &["T".to_owned()]).unwrap()[0].1, 20.0);
}

/// The least capacity over all cuts, by trying every set of vertices, a host cut in two where it has budgets.
fn least_cut(topology: &Topology, source: usize, sink: usize) -> f64 {
    let (hosts, vertices) = (topology.hosts.len(), topology.hosts.len() + topology.switches.len());
    let limits: Vec<Limits> = topology.hosts.iter().map(Host::limits).collect();
    // Bit v: the entry of v is on the source's side; bit vertices + h: the exit of host h is.
    let exit = |vertex: usize| if vertex < hosts { vertices + vertex } else { vertex };
    let mut edges: Vec<(usize, usize, f64)> =
        topology.arcs().iter().map(|arc| (exit(arc.from), arc.to, arc.mbps)).collect();
    for (host, limits) in limits.iter().enumerate() {
        edges.push((host, exit(host), limits.send.min(limits.receive).min(limits.total / 2.0)));
    }
    let cut = |side: u32| {
        let inside = |node: usize| side >> node & 1 == 1;
        edges.iter().filter(|(from, to, _)| inside(*from) && !inside(*to)).map(|edge| edge.2).sum::<f64>()
    };
    let sides = (0..1_u32 << (vertices + hosts))
        .filter(|side| side >> exit(source) & 1 == 1 && side >> sink & 1 == 0);
    let least = sides.map(cut).fold(f64::INFINITY, f64::min);
    let (from, to) = (limits[source], limits[sink]);
    least.min(from.send).min(from.total).min(to.receive).min(to.total).min(to.disk)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_max_flow_is_the_least_cut(topology in networks(5, 2)) {
        for (name, mbps) in bound(&topology, "h0", &destinations(&topology, "h0")).unwrap() {
            let least = least_cut(&topology, 0, topology.vertex(&name).unwrap());
            prop_assert!((mbps - least).abs() < 1e-6, "{}: {} is not {}", name, mbps, least);
        }
    }
}
