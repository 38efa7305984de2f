#![allow(clippy::float_cmp, reason = "the rates of these networks are exact")]

use proptest::prelude::*;

use super::*;
use crate::broadcast::samples::{networks, shuffled};

const EXAMPLE: &str = "
hosts: [S, A, {name: C, sendMbps: 900, totalMbps: 750}]
switches: [X, Y]
links:
  - {a: S, b: X, mbps: 1000}
  - {a: X, b: Y, mbps: 600, backMbps: 500, delayMs: 5, lossPercent: 1, queueBytes: 65536}
  - {a: A, b: X, mbps: 1000}
  - {a: C, b: Y, mbps: 1000}
";

fn example() -> Topology {
    serde_saphyr::from_str(EXAMPLE).unwrap()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn refused(change: impl Fn(&mut Topology)) -> String {
    let mut topology = example();
    change(&mut topology);
    topology.validate().unwrap_err().to_string()
}

#[test]
fn the_example_is_valid_and_becomes_arcs_both_ways() {
    let topology = example();
    assert_eq!(topology.validate(), Ok(()));
    let arcs = topology.arcs();
    let (x, y) = (topology.vertex("X").unwrap(), topology.vertex("Y").unwrap());
    assert_eq!((x, y, topology.vertex("Z")), (3, 4, None));
    let there =
        Arc { from: x, to: y, mbps: 600.0, delay_ms: 5.0, loss_percent: 1.0, queue_bytes: Some(65536) };
    assert_eq!(arcs[2], there);
    assert_eq!(arcs[3], Arc { from: y, to: x, mbps: 500.0, ..there });
}

#[test]
fn every_refusal_names_the_field_and_the_next_step() {
    for (message, words) in [
        (refused(|t| t.hosts.clear()), ["hosts: there is none", "list at least one"]),
        (
            refused(|t| t.links[3].b = "Q".to_owned()),
            ["links[3].b: no host or switch is named `Q`", "add it to hosts"],
        ),
        (refused(|t| t.links[3].a = "Q\n".to_owned()), ["links[3].a", "`Q\\n`"]),
        (
            refused(|t| t.switches[1] = "S".to_owned()),
            ["switches[1]: the name `S` is also that of hosts[0]", "rename"],
        ),
        (refused(|t| t.hosts.push(Host::Name("C".to_owned()))), ["hosts[3]", "hosts[2].name"]),
        (refused(|t| t.hosts[0] = Host::Name("S#1".to_owned())), ["hosts[0]: `S#1`", "letters, digits"]),
        (refused(|t| t.hosts[0] = Host::Name("a\nb".to_owned())), ["hosts[0]: `a\\nb`", "letters, digits"]),
        (refused(|t| t.switches[0].clear()), ["switches[0]: ``", "letters, digits"]),
        (
            refused(|t| t.links[1].b = "X".to_owned()),
            ["links[1].b: the link ends where it starts", "another end"],
        ),
        (
            refused(|t| t.links.push(Link::new("Y", "X", 1.0))),
            ["links[4]: `Y` and `X` are joined by links[1]", "sum"],
        ),
        (refused(|t| t.links[0].mbps = 0.0), ["links[0].mbps: 0 is outside 0.001 to 1000000", "Mbit/s"]),
        (refused(|t| t.links[0].mbps = -5.0), ["links[0].mbps: -5", "Mbit/s"]),
        (refused(|t| t.links[0].mbps = f64::NAN), ["links[0].mbps: NaN", "Mbit/s"]),
        (refused(|t| t.links[0].mbps = f64::INFINITY), ["links[0].mbps: inf", "Mbit/s"]),
        (refused(|t| t.links[0].mbps = 1e9), ["links[0].mbps: 1000000000", "Mbit/s"]),
        (refused(|t| t.links[1].back_mbps = Some(-1.0)), ["links[1].backMbps: -1", "Mbit/s"]),
        (refused(|t| t.links[1].delay_ms = Some(-1.0)), ["links[1].delayMs: -1", "milliseconds"]),
        (
            refused(|t| t.links[1].back_delay_ms = Some(1e6)),
            ["links[1].backDelayMs: 1000000", "milliseconds"],
        ),
        (refused(|t| t.links[1].loss_percent = Some(100.5)), ["links[1].lossPercent: 100.5", "percent"]),
        (
            refused(|t| t.links[1].back_loss_percent = Some(-0.5)),
            ["links[1].backLossPercent: -0.5", "percent"],
        ),
        (refused(|t| t.links[1].queue_bytes = Some(100)), ["links[1].queueBytes: 100", "bytes"]),
        (refused(|t| t.links.truncate(3)), ["`C` cannot be reached from `S`", "add a link"]),
        (refused(|t| t.links[3].mbps = 1e-9), ["links[3].mbps", "outside"]),
        (
            refused(|t| t.links[3].back_mbps = Some(0.0)),
            ["`C` cannot be reached from `S`", "backMbps above 0"],
        ),
        (
            refused(|t| t.links[0].back_mbps = Some(0.0)),
            ["`S` cannot be reached from `A`", "backMbps above 0"],
        ),
        (
            refused(|t| t.hosts = (0..5000).map(|host| Host::Name(format!("h{host}"))).collect()),
            ["hosts: 5000 are listed, at most 4096", "split"],
        ),
    ] {
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    let budget = "{hosts: [{name: C, diskMbps: 0}]}";
    let topology: Topology = serde_saphyr::from_str(budget).unwrap();
    assert!(topology.validate().unwrap_err().to_string().starts_with("hosts[0].diskMbps: 0 is outside"));
}

#[test]
fn one_switch_delays_each_link_both_ways() {
    let topology = Topology::one_switch(&names(&["a", "switch"]), 1000.0, 0.1);
    assert_eq!(topology.validate(), Ok(()));
    assert_eq!(topology.switches, ["switch-x"]);
    for arc in topology.arcs() {
        assert_eq!((arc.mbps, arc.delay_ms, arc.loss_percent, arc.queue_bytes), (1000.0, 0.1, 0.0, None));
    }
}

#[test]
fn a_matrix_bounds_each_host_by_its_best_peer() {
    // Row: destination. a sends 90 to b and 95 to c; c sends 20 to a.
    let rows = vec![
        vec![None, None, Some(20.0), None],
        vec![Some(90.0), None, Some(0.0), None],
        vec![Some(95.0), Some(f64::NAN), None, None],
        vec![Some(f64::INFINITY)],
    ];
    let topology = Topology::from_matrix(&names(&["a", "b", "c", "d"]), &rows);
    assert_eq!(topology.validate(), Ok(()));
    let links: Vec<_> = topology.links.iter().map(|link| (link.mbps, link.back_mbps)).collect();
    // b never sent with success, d was never measured.
    assert_eq!(links, [(95.0, Some(20.0)), (90.0, Some(90.0)), (20.0, Some(95.0)), (95.0, Some(95.0))]);
    let unmeasured = Topology::from_matrix(&names(&["a", "b"]), &Vec::new());
    assert_eq!(unmeasured.links[0].mbps, 1000.0);
    assert_eq!(unmeasured.validate(), Ok(()));
}

#[test]
fn routes_take_the_fewest_arcs_and_the_least_name() {
    let yaml = "{hosts: [S, D], switches: [b, a, c], links: [{a: S, b: b, mbps: 9}, {a: S, b: a, mbps: 1},
                 {a: b, b: D, mbps: 9}, {a: a, b: D, mbps: 1}, {a: S, b: c, mbps: 5}, {a: c, b: a, mbps: 5}]}";
    let topology: Topology = serde_saphyr::from_str(yaml).unwrap();
    let graph = Graph::new(&topology);
    let route = graph.route(0, 1).unwrap();
    let vertices: Vec<&str> = route.iter().map(|&arc| graph.name(graph.arcs()[arc].to)).collect();
    assert_eq!(vertices, ["a", "D"]);
    assert_eq!(graph.route(0, 0), Some(Vec::new()));
}

proptest! {
    #[test]
    fn forwarding_hop_by_hop_is_the_route(topology in networks(7, 4)) {
        let graph = Graph::new(&topology);
        let routes = Routes::new(&graph);
        for from in 0..graph.vertices() {
            for to in 0..graph.hosts() {
                let mut hops = Vec::new();
                let mut vertex = from;
                while let Some(arc) = routes.next_arc(vertex, to) {
                    prop_assert_eq!(graph.arcs()[arc].from, vertex);
                    prop_assert!(graph.arcs()[arc].mbps > 0.0);
                    hops.push(arc);
                    vertex = graph.arcs()[arc].to;
                }
                let reached = graph.reached_from(from)[to];
                prop_assert_eq!(graph.route(from, to), reached.then_some(hops));
                prop_assert_eq!(vertex, if reached { to } else { from });
            }
        }
    }

    #[test]
    fn routes_do_not_depend_on_the_order_of_the_file(
        (topology, again) in networks(7, 4).prop_flat_map(|topology| {
            let again = shuffled(&topology);
            (Just(topology), again)
        })
    ) {
        let ways = |topology: &Topology| {
            let graph = Graph::new(topology);
            let mut ways = std::collections::BTreeMap::new();
            for (from, to) in (0..graph.hosts()).flat_map(|from| (0..graph.hosts()).map(move |to| (from, to))) {
                let way = graph.route(from, to).map(|arcs| {
                    arcs.into_iter().map(|arc| graph.name(graph.arcs()[arc].to).to_owned()).collect::<Vec<_>>()
                });
                ways.insert((graph.name(from).to_owned(), graph.name(to).to_owned()), way);
            }
            ways
        };
        prop_assert_eq!(ways(&topology), ways(&again));
    }

    #[test]
    fn what_is_written_is_read_again(topology in networks(6, 3)) {
        let text = serde_json::to_string(&topology).unwrap();
        prop_assert_eq!(serde_json::from_str::<Topology>(&text).unwrap(), topology);
    }
}

#[test]
fn links_between_the_same_two_count_as_one_for_planning_only() {
    let links = vec![
        Link { back_mbps: Some(0.0), ..Link::new("A", "B", 100.0) },
        Link { back_mbps: Some(25.0), ..Link::new("B", "A", 50.0) },
    ];
    let hosts = ["A", "B"].map(|name| Host::Name(name.to_owned())).to_vec();
    let topology = Topology { hosts, switches: Vec::new(), links };
    assert!(matches!(topology.validate(), Err(TopologyError::DoubleLink { .. })));
    assert_eq!(topology.validate_for_planning(), Ok(()));
    let graph = Graph::new(&topology);
    let capacity = |from: usize, to: usize| graph.arcs()[graph.arc_between(from, to).unwrap()].mbps;
    assert_eq!((capacity(0, 1), capacity(1, 0)), (125.0, 50.0));
    assert_eq!((graph.leaving(0).len(), graph.entering(0).len()), (1, 1));
}
