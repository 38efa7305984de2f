#![allow(clippy::float_cmp, reason = "the rates of these networks are exact")]

use super::*;
use crate::broadcast::plan::{Options, plan};
use crate::broadcast::validity::check;

fn network(links: &[(&str, &str, f64)]) -> Topology {
    let mut hosts: Vec<&str> = Vec::new();
    let mut switches: Vec<&str> = Vec::new();
    for name in links.iter().flat_map(|(a, b, _)| [*a, *b]) {
        let list = if ["X", "Y"].contains(&name) { &mut switches } else { &mut hosts };
        if !list.contains(&name) {
            list.push(name);
        }
    }
    Topology {
        hosts: hosts.into_iter().map(|name| Host::Name(name.to_owned())).collect(),
        switches: switches.into_iter().map(str::to_owned).collect(),
        links: links.iter().map(|(a, b, mbps)| Link::new(a, b, *mbps)).collect(),
    }
}

fn with(sources: &[&str]) -> Options {
    Options { sources: sources.iter().map(|&name| name.to_owned()).collect(), ..Options::default() }
}

#[test]
fn two_replicas_send_what_both_can() {
    let topology = network(&[("S", "X", 10.0), ("R", "X", 100.0), ("X", "D", 1000.0), ("X", "E", 40.0)]);
    let names = ["D", "E"].map(str::to_owned);
    let one = plan(&topology, "S", &names, &Options::default()).unwrap();
    let two = plan(&topology, "S", &names, &with(&["R"])).unwrap();
    assert_eq!(check(&topology, &two), Ok(()));
    assert_eq!((one.rate_mbps("D"), one.rate_mbps("E")), (10.0, 10.0));
    assert!((two.rate_mbps("D") - 110.0).abs() < 1e-4 && (two.rate_mbps("E") - 40.0).abs() < 1e-4, "{two:?}");
    assert_eq!((two.source.as_str(), two.sources.as_slice()), ("S", ["R".to_owned()].as_slice()));
    assert!(two.trees.iter().flat_map(|tree| &tree.hops).all(|hop| !hop.path.contains(&"*".to_owned())));
}

#[test]
fn what_a_source_need_not_receive_is_no_limit() {
    let mut topology = network(&[("S", "X", 10.0), ("R", "X", 100.0), ("X", "D", 1000.0)]);
    topology.hosts[1] = serde_saphyr::from_str("{name: R, receiveMbps: 1, totalMbps: 60}").unwrap();
    let plan = plan(&topology, "S", &["D".to_owned()], &with(&["R"])).unwrap();
    assert!((plan.rate_mbps("D") - 70.0).abs() < 1e-4, "{plan:?}");
}

#[test]
fn sources_are_hosts_named_once_and_no_destinations() {
    let topology = network(&[("S", "X", 10.0), ("R", "X", 100.0), ("X", "D", 1000.0)]);
    let refused = |sources: &[&str], to: &str| {
        plan(&topology, "S", &[to.to_owned()], &with(sources)).unwrap_err().reason()
    };
    assert_eq!(refused(&["S"], "D"), "DuplicateSource");
    assert_eq!(refused(&["X"], "D"), "UnknownSource");
    assert_eq!(refused(&["R"], "R"), "SourceIsDestination");
}
