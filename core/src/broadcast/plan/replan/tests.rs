#![allow(clippy::float_cmp, reason = "the rates of these networks are exact")]

use super::*;
use crate::broadcast::samples::vector;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn began() -> (Topology, Plan) {
    let case = vector("two-switches");
    let before = plan(&case.topology(), "S", &case.destinations(), &Options::default()).unwrap();
    (case.topology(), before)
}

#[test]
fn who_is_complete_sends_and_who_left_is_left_out() {
    let (topology, before) = began();
    let progress = Progress { complete: names(&["A"]), gone: names(&["B"]) };
    let after = replan(&topology, &before, &progress, &Options::default()).unwrap();
    assert_eq!((after.source.as_str(), &after.sources), ("S", &names(&["A"])));
    let rates: Vec<(&str, f64)> =
        after.destinations.iter().map(|arrival| (arrival.name.as_str(), arrival.rate_mbps.round())).collect();
    assert_eq!(rates, [("C", 600.0), ("D", 300.0)]);
    assert!(after.trees.iter().flat_map(|tree| &tree.hops).all(|hop| !hop.path.contains(&"B".to_owned())));
}

#[test]
fn a_complete_host_takes_the_place_of_a_source_that_left() {
    let (topology, before) = began();
    let progress = Progress { complete: names(&["C", "A"]), gone: names(&["S"]) };
    let after = replan(&topology, &before, &progress, &Options::default()).unwrap();
    assert_eq!((after.source.as_str(), &after.sources), ("A", &names(&["C"])));
    assert_eq!(after.destinations.len(), 2);
    let nobody = Progress { complete: Vec::new(), gone: names(&["S"]) };
    let error = replan(&topology, &before, &nobody, &Options::default()).unwrap_err();
    assert_eq!(error, PlanError::UnknownSource { name: "S".to_owned() });
}

#[test]
fn links_are_what_they_are_now() {
    let (mut topology, before) = began();
    topology.links[3].mbps = 200.0;
    let after = replan(&topology, &before, &Progress::default(), &Options::default()).unwrap();
    assert_eq!((after.rate_mbps("C"), after.rate_mbps("A")), (200.0, 1000.0));
}

#[test]
fn what_another_broadcast_uses_is_not_there() {
    let (topology, _) = began();
    let first = plan(&topology, "S", &names(&["D"]), &Options::default()).unwrap();
    let options = Options { beside: vec![first], ..Options::default() };
    let second = plan(&topology, "S", &names(&["A", "C"]), &options).unwrap();
    // 300 of S-X and of X-Y are taken.
    assert_eq!((second.rate_mbps("A"), second.rate_mbps("C")), (700.0, 300.0));
    assert_eq!(second.bound_mbps, 1000.0);
    let options = Options { beside: vec![options.beside[0].clone(), second], ..Options::default() };
    let third = plan(&topology, "A", &names(&["C"]), &options).unwrap_err();
    assert_eq!(third.reason(), "Unreachable");
}
