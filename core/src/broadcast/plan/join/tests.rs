use super::super::plan;
use super::*;
use crate::broadcast::random::Random;
use crate::broadcast::samples::{destinations, vector};
use crate::broadcast::topology::{Host, Link};

fn with_host(topology: &Topology, place: &str, mbps: f64) -> Topology {
    let mut topology = topology.clone();
    topology.hosts.push(Host::Name("new".to_owned()));
    topology.links.push(Link::new(place, "new", mbps));
    topology
}

fn assert_others_unchanged(before: &Plan, after: &Plan) {
    for arrival in &before.destinations {
        let rate = after.rate_mbps(&arrival.name);
        assert!(
            (rate - arrival.rate_mbps).abs() <= 1e-9 * rate,
            "{}: {}, {rate}",
            arrival.name,
            arrival.rate_mbps
        );
    }
}

#[test]
fn a_slow_host_gets_a_lowest_tree_of_its_own() {
    let case = vector("two-switches");
    let options = Options { max_trees: 3, ..Options::default() };
    let before = plan(&case.topology(), "S", &case.destinations(), &options).unwrap();
    let topology = with_host(&case.topology(), "Y", 20.0);
    let after = join(&topology, &before, "new", &options).unwrap();
    assert_others_unchanged(&before, &after);
    assert!((after.trees[0].rate_mbps - 20.0).abs() < 1e-9 && after.trees[0].hops.len() == 5);
    assert_eq!((before.trees.len(), after.trees.len()), (3, 4));
}

#[test]
fn whoever_joins_a_tree_gets_all_it_can_and_nobody_changes() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let names: Vec<String> = (0..40).map(|host| format!("h{host}")).collect();
        let mut topology = Topology::one_switch(&names, 1000.0, 0.0);
        for link in &mut topology.links {
            link.mbps = random.between(100.0, 1000.0);
        }
        let options = Options { max_trees: 8, ..Options::default() };
        let mut running = plan(&topology, "h0", &names[1..], &options).unwrap();
        let topology = with_host(&topology, "switch", random.between(1.0, 1000.0));
        let joined = join(&topology, &running, "new", &options).unwrap();
        assert_others_unchanged(&running, &joined);
        assert!(joined.trees.len() <= running.trees.len() + 1);
        let bound = joined.destinations.iter().find(|arrival| arrival.name == "new").unwrap().bound_mbps;
        assert!((joined.rate_mbps("new") - bound).abs() < 1e-9 * bound);
        running = joined;
        assert!(running.destinations.len() == 40);
    }
}

#[test]
fn there_are_never_more_than_twice_as_many_trees() {
    let names: Vec<String> = (0..6).map(|host| format!("h{host}")).collect();
    let mut topology = Topology::one_switch(&names, 1000.0, 0.0);
    let options = Options { max_trees: 2, ..Options::default() };
    let mut running = plan(&topology, "h0", &names[1..], &options).unwrap();
    for number in 0..10 {
        let name = format!("late{number}");
        topology.hosts.push(Host::Name(name.clone()));
        topology.links.push(Link::new("switch", &name, 150.0 + 70.0 * f64::from(number)));
        let joined = join(&topology, &running, &name, &options).unwrap();
        assert_others_unchanged(&running, &joined);
        assert!(joined.trees.len() <= 4, "{}", joined.trees.len());
        assert!(joined.rate_mbps(&name) > 0.0);
        running = joined;
    }
}

#[test]
fn on_a_graph_the_trees_that_run_are_kept() {
    let case = vector("five-links-no-switch");
    let before = plan(&case.topology(), "S", &case.destinations(), &Options::default()).unwrap();
    let mut topology = with_host(&case.topology(), "C", 30.0);
    topology.links.push(Link::new("A", "new", 25.0));
    let after = join(&topology, &before, "new", &Options::default()).unwrap();
    assert_others_unchanged(&before, &after);
    assert!(after.rate_mbps("new") > 54.9, "{after:?}");
    assert_eq!(destinations(&topology, "S").len(), after.destinations.len());
}

#[test]
fn whoever_cannot_be_reached_or_is_there_already_is_refused() {
    let case = vector("two-switches");
    let before = plan(&case.topology(), "S", &case.destinations(), &Options::default()).unwrap();
    let mut alone = case.topology();
    alone.hosts.push(Host::Name("new".to_owned()));
    let refused =
        |topology: &Topology, host| join(topology, &before, host, &Options::default()).unwrap_err().reason();
    assert_eq!(refused(&alone, "new"), "Unreachable");
    assert_eq!(refused(&alone, "A"), "DuplicateDestination");
    assert_eq!(refused(&alone, "S"), "SourceIsDestination");
    assert_eq!(refused(&alone, "gone"), "UnknownDestination");
}
