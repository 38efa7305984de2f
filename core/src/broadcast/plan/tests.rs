#![allow(clippy::float_cmp, reason = "the rates of these networks are exact")]

use proptest::prelude::{Just, ProptestConfig, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as _;

use super::packing::STARVED_BELOW;
use super::*;
use crate::broadcast::samples::{Vector, destinations, networks, shuffled, vector, vectors};
use crate::broadcast::topology::{Host, Link};
use crate::broadcast::validity::check;

/// Options for what agents carry out.
fn with(strategy: Strategy) -> Options {
    Options { strategy, executable: Executable::Nested, ..Options::default() }
}

fn planned(case: &Vector, strategy: Strategy) -> Result<Plan, PlanError> {
    plan(&case.topology(), &case.source, &case.destinations(), &with(strategy))
}

/// The chain as its hosts in order.
fn chain(plan: &Plan) -> String {
    let hosts = plan.trees[0].hops.iter().map(|hop| hop.to.as_str());
    std::iter::once(plan.source.as_str()).chain(hosts).collect::<Vec<_>>().join(">")
}

fn assert_rates(plan: &Plan, rates: &BTreeMap<String, f64>) {
    for (name, &mbps) in rates {
        let planned = if name == "sum" { plan.aggregate_mbps } else { plan.rate_mbps(name) };
        assert!((planned - mbps).abs() < 1e-6, "{name} gets {planned}, not {mbps}");
    }
}

#[test]
fn flat_shares_the_links_as_the_vectors_say() {
    for case in ["two-switches", "shared-trunk"].map(vector) {
        assert_rates(&planned(&case, Strategy::Flat).unwrap(), &case.rates["flat"]);
    }
}

#[test]
fn the_descending_chain_reaches_the_bound_of_two_switches() {
    let case = vector("two-switches");
    let plan = planned(&case, Strategy::Chain).unwrap();
    assert_eq!(chain(&plan), "S>A>C>D>B");
    assert_rates(&plan, &case.bound);
    assert_eq!(plan.trees[0].hops[1].path, ["A", "X", "Y", "C"]);
}

#[test]
fn a_chain_from_disk_has_the_rates_of_the_vectors_in_any_order() {
    let rates = |case: &str, order: &[&str]| {
        let case = vector(case);
        let graph = Graph::new(&case.topology());
        let capacities = Capacities::new(&graph);
        let (problem, _) = Problem::new(&graph, capacities, &case.source, &case.destinations()).unwrap();
        let order: Vec<usize> = order.iter().map(|name| graph.vertex(name).unwrap()).collect();
        let packing = Packing::nested(&baseline::chain::in_order(&problem, &order).unwrap());
        assemble(&problem, Strategy::Chain, &with(Strategy::Chain), &packing)
    };
    let expected = |case: &str, name: &str| vector(case).rates[name].clone();
    assert_rates(
        &rates("two-switches", &["A", "B", "C", "D"]),
        &expected("two-switches", "depth-first S>A>B>C>D, from disk"),
    );
    assert_rates(
        &rates("shared-trunk", &["A", "C", "D"]),
        &expected("shared-trunk", "depth-first, from disk"),
    );
    assert_rates(
        &rates("shared-trunk", &["C", "A", "D"]),
        &expected("shared-trunk", "dijkstra latest parent, from disk"),
    );
    // S>C and A>D share the trunk; the study's random order.
    assert_eq!(rates("two-switches", &["C", "A", "D", "B"]).aggregate_mbps, 1000.0);
}

#[test]
fn stable_runs_the_better_one_and_says_which() {
    let sum = |case: &str, strategy| planned(&vector(case), strategy).unwrap().aggregate_mbps;
    for case in vectors() {
        let plan = planned(&case, Strategy::Stable).unwrap();
        assert_eq!(check(&case.topology(), &plan), Ok(()), "{}", case.name);
        assert_eq!(plan.bound_mbps, case.bound["sum"]);
        let expected = if case.name == "directed-butterfly" { Strategy::Flat } else { Strategy::Stable };
        assert_eq!(plan.strategy, expected, "{}", case.name);
    }
    // 200 of 200: the host with the poor way out comes last.
    assert_eq!(chain(&planned(&vector("asymmetric-star"), Strategy::Chain).unwrap()), "S>B>A");
    assert_eq!(sum("asymmetric-star", Strategy::Chain), 200.0);
    assert_eq!(sum("directed-butterfly", Strategy::Stable), 2.0);
    assert_eq!(
        planned(&vector("directed-butterfly"), Strategy::Chain),
        Err(PlanError::Unreachable { from: "1".to_owned(), to: vec!["2".to_owned()] })
    );
}

/// Two sites of three hosts each, `x` and `y`, whose rates alternate when sorted; and `slow` hosts.
fn two_sites(slow: &[(&'static str, f64)]) -> Topology {
    let fast = [("x1", 999.0), ("y1", 998.0), ("x2", 997.0), ("y2", 996.0), ("x3", 995.0), ("y3", 994.0)];
    let hosts = [&fast, slow].concat();
    let switch = |host: &str| if host.starts_with('x') { "X" } else { "Y" };
    let mut links = vec![Link::new("X", "Y", 1000.0), Link::new("S", "X", 1000.0)];
    links.extend(hosts.iter().map(|(host, mbps)| Link::new(host, switch(host), *mbps)));
    let names = std::iter::once("S").chain(hosts.iter().map(|(host, _)| *host));
    Topology {
        hosts: names.map(|name| Host::Name(name.to_owned())).collect(),
        switches: vec!["X".to_owned(), "Y".to_owned()],
        links,
    }
}

#[test]
fn a_trunk_is_crossed_once_each_way_however_the_rates_differ() {
    let topology = two_sites(&[]);
    let names = destinations(&topology, "S");
    let strict = plan(&topology, "S", &names, &with(Strategy::Chain)).unwrap();
    assert_eq!(chain(&strict), "S>x1>y1>x2>y2>x3>y3");
    let stable = plan(&topology, "S", &names, &with(Strategy::Stable)).unwrap();
    let crossings = stable.trees[0].hops.iter().filter(|hop| hop.path.len() == 4).count();
    assert!(stable.strategy == Strategy::Stable && crossings <= 2, "{}", chain(&stable));
    assert!((stable.aggregate_mbps / stable.bound_mbps - 1.0).abs() < 1e-9);
    assert!(strict.aggregate_mbps < 0.5 * stable.bound_mbps);
    // Equal rates need no classes: the walk alone keeps sites together.
    let mut equal = topology;
    equal.links.iter_mut().for_each(|link| link.mbps = 1000.0);
    let plan = plan(&equal, "S", &names, &with(Strategy::Chain)).unwrap();
    assert_eq!(plan.aggregate_mbps, plan.bound_mbps, "{}", chain(&plan));
}

#[test]
fn slow_hosts_of_both_sites_come_behind_the_fast_ones_of_both() {
    let topology = two_sites(&[("x0", 50.0), ("y0", 51.0)]);
    let names = destinations(&topology, "S");
    let stable = plan(&topology, "S", &names, &with(Strategy::Stable)).unwrap();
    // Neither strictly by rate (the trunk shared by many) nor site by site (a site behind a slow host).
    assert!((stable.aggregate_mbps / stable.bound_mbps - 1.0).abs() < 1e-9, "{}", chain(&stable));
}

#[test]
fn a_host_that_passes_on_little_does_not_starve_those_behind_it() {
    // A receives 1000 and sends 1: first in a chain it would leave B with 1 of 500.
    let topology = Topology {
        hosts: ["S", "A", "B"].map(|name| Host::Name(name.to_owned())).to_vec(),
        switches: vec!["X".to_owned()],
        links: vec![
            Link::new("S", "X", 1000.0),
            Link { back_mbps: Some(1000.0), ..Link::new("A", "X", 1.0) },
            Link::new("B", "X", 500.0),
        ],
    };
    let plan = |strategy| plan(&topology, "S", &destinations(&topology, "S"), &with(strategy)).unwrap();
    assert_eq!(plan(Strategy::Chain).rate_mbps("B"), 1.0);
    let stable = plan(Strategy::Stable);
    assert_eq!((stable.rate_mbps("A"), stable.rate_mbps("B")), (1000.0, 500.0), "{}", chain(&stable));
}

#[test]
fn budgets_for_sending_and_receiving_together_halve_what_a_relay_gets() {
    let yaml = "{hosts: [S, {name: A, totalMbps: 750}, {name: B, totalMbps: 750}], switches: [X],
                 links: [{a: S, b: X, mbps: 1000}, {a: A, b: X, mbps: 1000}, {a: B, b: X, mbps: 1000}]}";
    let topology: Topology = serde_saphyr::from_str(yaml).unwrap();
    let names = destinations(&topology, "S");
    let chain = plan(&topology, "S", &names, &with(Strategy::Chain)).unwrap();
    assert_eq!((chain.rate_mbps("A"), chain.rate_mbps("B")), (375.0, 375.0));
    let stable = plan(&topology, "S", &names, &with(Strategy::Stable)).unwrap();
    // The last one passes nothing on.
    assert_eq!(
        (stable.strategy, stable.aggregate_mbps, stable.bound_mbps),
        (Strategy::Stable, 1125.0, 1500.0)
    );
}

#[test]
fn a_plan_reads_like_this() {
    let case = vector("asymmetric-star");
    insta::assert_json_snapshot!(planned(&case, Strategy::Stable).unwrap(), @r#"
    {
      "source": "S",
      "strategy": "stable",
      "relay": "asynchronous",
      "boundMbps": 200.0,
      "aggregateMbps": 200.0,
      "destinations": [
        {
          "name": "A",
          "rateMbps": 100.0,
          "boundMbps": 100.0
        },
        {
          "name": "B",
          "rateMbps": 100.0,
          "boundMbps": 100.0
        }
      ],
      "trees": [
        {
          "rateMbps": 100.0,
          "hops": [
            {
              "from": "S",
              "to": "B",
              "path": [
                "S",
                "X",
                "B"
              ]
            },
            {
              "from": "B",
              "to": "A",
              "path": [
                "B",
                "X",
                "A"
              ]
            }
          ]
        }
      ]
    }
    "#);
}

/// `GRIDCAST_UPDATE_GOLDEN=1 cargo test -p gridcast-core schema` writes it anew.
#[test]
fn the_published_schema_is_the_types() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/plan.schema.json");
    let schema = serde_json::to_string_pretty(&Plan::schema()).unwrap() + "\n";
    if std::env::var_os("GRIDCAST_UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        published == schema,
        "docs/plan.schema.json is not what the types say: run \
         GRIDCAST_UPDATE_GOLDEN=1 cargo test -p gridcast-core schema"
    );
}

#[test]
fn a_request_that_makes_no_sense_is_refused_by_name() {
    let hosts = ["a", "b", "c"].map(str::to_owned);
    let mut topology = Topology::one_switch(&hosts, 100.0, 0.0);
    let refused = |topology: &Topology, source: &str, destinations: &[&str], strategy| {
        let destinations: Vec<String> = destinations.iter().map(|&name| name.to_owned()).collect();
        let error = plan(topology, source, &destinations, &with(strategy)).unwrap_err();
        format!("{}: {error}", error.reason())
    };
    let stable = Strategy::Stable;
    for (message, word) in [
        (refused(&topology, "switch", &["b"], stable), "UnknownSource: the source `switch`"),
        (refused(&topology, "a", &["b", "d"], stable), "UnknownDestination: the destination `d`"),
        (refused(&topology, "a", &["b", "b"], stable), "DuplicateDestination: the destination `b`"),
        (refused(&topology, "a", &["b", "a"], stable), "SourceIsDestination: the destination `a`"),
    ] {
        assert!(message.starts_with(word), "{message}");
    }
    topology.links[2].mbps = f64::NAN;
    assert!(refused(&topology, "a", &["b"], stable).contains("links[2].mbps"));
    topology.links.truncate(2);
    assert!(refused(&topology, "a", &["b", "c"], stable).starts_with("Unreachable: `c`"));
}

#[test]
fn without_destinations_there_is_no_tree() {
    let topology = Topology::one_switch(&["a".to_owned()], 100.0, 0.0);
    let plan = plan(&topology, "a", &[], &Options::default()).unwrap();
    assert_eq!((plan.trees.len(), plan.bound_mbps), (0, 0.0));
    assert_eq!(check(&topology, &plan), Ok(()));
}

/// A network, the same in another order, and its destinations in two orders.
fn twice() -> impl proptest::strategy::Strategy<Value = (Topology, Topology, Vec<String>, Vec<String>)> {
    networks(9, 4).prop_flat_map(|topology| {
        let names = destinations(&topology, "h0");
        let again = shuffled(&topology);
        (Just(topology), again, Just(names.clone()), Just(names).prop_shuffle())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_the_input_changes_no_byte((topology, again, names, shuffled) in twice()) {
        for strategy in [Strategy::Stable, Strategy::Chain, Strategy::Flat] {
            let bytes = |topology: &Topology, names: &[String]| {
                plan(topology, "h0", names, &with(strategy)).map(|plan| serde_json::to_string(&plan).unwrap())
            };
            prop_assert_eq!(bytes(&topology, &names), bytes(&again, &shuffled));
        }
    }

    #[test]
    fn every_plan_is_valid_and_serves_everybody(topology in networks(12, 5)) {
        let names = destinations(&topology, "h0");
        for strategy in [Strategy::Stable, Strategy::Chain, Strategy::Flat] {
            let Ok(plan) = plan(&topology, "h0", &names, &with(strategy)) else { continue };
            prop_assert_eq!(check(&topology, &plan), Ok(()));
            prop_assert_eq!(plan.destinations.len(), names.len());
            prop_assert!(plan.destinations.iter().all(|arrival| arrival.rate_mbps > 0.0), "{:?}", plan.destinations);
            prop_assert!(plan.aggregate_mbps <= plan.bound_mbps * (1.0 + 1e-9));
        }
    }

    #[test]
    fn stable_is_never_below_flat_and_starves_nobody(topology in networks(12, 5)) {
        let names = destinations(&topology, "h0");
        let plan = |strategy| plan(&topology, "h0", &names, &with(strategy)).unwrap();
        let (stable, flat) = (plan(Strategy::Stable), plan(Strategy::Flat));
        prop_assert!(stable.aggregate_mbps >= flat.aggregate_mbps * (1.0 - 1e-9));
        for Arrival { name, rate_mbps, .. } in &stable.destinations {
            prop_assert!(*rate_mbps >= STARVED_BELOW * flat.rate_mbps(name), "{} gets {}", name, rate_mbps);
        }
    }
}
