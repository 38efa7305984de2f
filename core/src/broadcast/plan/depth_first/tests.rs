use crate::broadcast::{
    plan::{Arrival, Options, Plan, plan},
    random::Random,
    samples::{destinations, vector},
    topology::{Host, Link, Topology},
    validity::check,
};

/// No limit on trees.
fn all() -> Options {
    Options { max_trees: 0, ..Options::default() }
}

fn planned(topology: &Topology, options: &Options) -> Plan {
    let source = topology.hosts[0].name().to_owned();
    plan(topology, &source, &destinations(topology, &source), options).unwrap()
}

/// A tree of switches with hosts, `h0` the source; some hosts are inner vertices. Ways back are as wide as ways there, or
/// wider where `wider` says so.
fn tree(random: &mut Random, hosts: usize, switches: usize, wider: bool) -> Topology {
    let vertices = hosts + switches;
    let name = |vertex: usize| if vertex < hosts { format!("h{vertex}") } else { format!("s{vertex}") };
    let mut order: Vec<usize> = (1..vertices).collect();
    random.shuffle(&mut order);
    order.insert(0, 0);
    let links = (1..vertices).map(|at| {
        // Behind a switch, mostly; a whole number now and then, so that some rates are alike.
        let before = (0..4).map(|_| order[random.below(at)]).find(|&vertex| vertex >= hosts);
        let parent = before.unwrap_or(order[random.below(at)]);
        let mbps = random.between(0.5, 1000.0);
        let mbps = if random.below(3) == 0 { (mbps / 100.0).ceil() * 100.0 } else { mbps };
        let more = if wider && random.below(2) == 0 { random.between(0.0, 500.0) } else { 0.0 };
        // The source is the root of the order: `a` is nearer to it.
        Link {
            back_mbps: (more > 0.0).then_some(mbps + more),
            ..Link::new(&name(parent), &name(order[at]), mbps)
        }
    });
    let links = links.collect();
    Topology {
        hosts: (0..hosts).map(|host| Host::Name(name(host))).collect(),
        switches: (hosts..vertices).map(name).collect(),
        links,
    }
}

fn assert_exact(plan: &Plan) {
    for Arrival { name, rate_mbps, bound_mbps } in &plan.destinations {
        assert!((rate_mbps - bound_mbps).abs() <= 1e-9 * bound_mbps, "{name}: {rate_mbps} of {bound_mbps}");
    }
}

/// Every member of a tree is one of the tree before it.
fn assert_nested(plan: &Plan) {
    for pair in plan.trees.windows(2) {
        let members: Vec<&str> = pair[0].hops.iter().map(|hop| hop.to.as_str()).collect();
        assert!(pair[1].hops.iter().all(|hop| members.contains(&hop.to.as_str())));
    }
}

#[test]
fn the_worked_example_has_the_trees_of_the_paper() {
    let case = vector("two-switches");
    let plan = planned(&case.topology(), &Options::default());
    let trees: Vec<(f64, String)> = plan
        .trees
        .iter()
        .map(|tree| (tree.rate_mbps, tree.hops.iter().map(|hop| hop.to.as_str()).collect()))
        .collect();
    let expected = [(100.0, "ABCD"), (200.0, "ACD"), (300.0, "AC"), (400.0, "A")];
    assert_eq!(trees, expected.map(|(rate, members)| (rate, members.to_owned())));
    assert_eq!(plan.trees[0].hops[2].path, ["B", "X", "Y", "C"]);
    assert_exact(&plan);
    assert_exact(&planned(&vector("shared-trunk").topology(), &Options::default()));
}

#[test]
fn a_host_with_a_poor_way_back_comes_last() {
    let plan = planned(&vector("asymmetric-star").topology(), &Options::default());
    let hops: Vec<(&str, &str)> =
        plan.trees[0].hops.iter().map(|hop| (hop.from.as_str(), hop.to.as_str())).collect();
    assert_eq!(hops, [("S", "B"), ("B", "A")]);
    assert_exact(&plan);
}

#[test]
fn of_two_poor_ways_back_the_poorer_one_comes_last() {
    // Behind A (100, back 10) comes B (10, no way back); the other way round B would have to send.
    let topology = Topology {
        hosts: ["S", "A", "B", "C"].map(|name| Host::Name(name.to_owned())).to_vec(),
        switches: vec!["X".to_owned()],
        links: vec![
            Link::new("S", "X", 100.0),
            Link { back_mbps: Some(10.0), ..Link::new("X", "A", 100.0) },
            Link { back_mbps: Some(0.0), ..Link::new("X", "B", 10.0) },
            Link::new("X", "C", 50.0),
        ],
    };
    assert_exact(&planned(&topology, &all()));
}

#[test]
fn a_host_inside_feeds_all_its_branches_itself() {
    // No way back from the branches of A is needed.
    let one_way = |a: &str, b: &str| Link { back_mbps: Some(0.0), ..Link::new(a, b, 70.0) };
    let topology = Topology {
        hosts: ["S", "A", "B", "C", "D"].map(|name| Host::Name(name.to_owned())).to_vec(),
        switches: Vec::new(),
        links: vec![one_way("S", "A"), one_way("A", "B"), one_way("A", "C"), one_way("S", "D")],
    };
    let plan = planned(&topology, &Options::default());
    assert_eq!(plan.trees.len(), 1);
    assert_exact(&plan);
}

#[test]
fn a_host_that_is_no_destination_forwards_and_stores_nothing() {
    let links = [("S", "X", 100.0), ("X", "A", 80.0), ("X", "B", 60.0), ("A", "C", 50.0)];
    let topology = Topology {
        hosts: ["S", "A", "B", "C"].map(|name| Host::Name(name.to_owned())).to_vec(),
        switches: vec!["X".to_owned()],
        links: links.map(|(a, b, mbps)| Link::new(a, b, mbps)).to_vec(),
    };
    let plan = plan(&topology, "S", &["C".to_owned(), "B".to_owned()], &all()).unwrap();
    assert_exact(&plan);
    let hops: Vec<String> = plan.trees[0].hops.iter().map(|hop| hop.path.join(">")).collect();
    assert_eq!(hops, ["S>X>A>C", "C>A>X>B"]);
}

#[test]
fn budgets_that_leave_room_for_relaying_do_no_harm() {
    let yaml = "{hosts: [S, {name: A, totalMbps: 180, diskMbps: 90}, {name: B, sendMbps: 60}], switches: [X],
                 links: [{a: S, b: X, mbps: 100}, {a: A, b: X, mbps: 100}, {a: B, b: X, mbps: 60}]}";
    let topology: Topology = serde_saphyr::from_str(yaml).unwrap();
    assert_exact(&planned(&topology, &all()));
    // A has nothing left to send with: it comes last.
    let tight: Topology = serde_saphyr::from_str(&yaml.replace("180", "95")).unwrap();
    assert_exact(&planned(&tight, &all()));
}

fn assert_max_flows(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut random = Random::new(seed);
        let (hosts, switches) = (2 + random.below(20), random.below(8));
        let topology = tree(&mut random, hosts, switches, seed % 2 == 1);
        let plan = planned(&topology, &all());
        assert_eq!(check(&topology, &plan), Ok(()));
        assert_exact(&plan);
        assert_nested(&plan);
    }
}

#[test]
fn every_host_of_a_thousand_trees_receives_its_max_flow() {
    assert_max_flows(0..1000);
}

/// `cargo test --release -p gridcast-core ten_thousand -- --ignored`
#[test]
#[ignore = "a figure of the documents: 10,000 networks"]
fn every_host_of_ten_thousand_trees_receives_its_max_flow() {
    assert_max_flows(0..10_000);
}

#[test]
fn a_slow_host_changes_nobodys_rate() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let (hosts, switches) = (3 + random.below(20), 1 + random.below(6));
        let mut topology = tree(&mut random, hosts, switches, false);
        let before = planned(&topology, &all());
        let place = topology.vertex_names()[random.below(hosts + switches)].to_owned();
        topology.hosts.push(Host::Name("slow".to_owned()));
        topology.links.push(Link::new(&place, "slow", 0.25));
        let after = planned(&topology, &all());
        for Arrival { name, rate_mbps, .. } in &before.destinations {
            assert!((after.rate_mbps(name) - rate_mbps).abs() <= 1e-9 * rate_mbps, "{name}");
        }
    }
}

#[test]
fn a_limit_on_trees_is_kept_and_starves_nobody() {
    for seed in 0..50 {
        let topology = tree(&mut Random::new(seed), 60, 12, false);
        let full = planned(&topology, &all());
        for max_trees in [1, 4, 16] {
            let few = planned(&topology, &Options { max_trees, ..Options::default() });
            assert!(few.trees.len() <= max_trees as usize);
            assert!(few.destinations.iter().all(|arrival| arrival.rate_mbps > 0.0));
            assert!(few.aggregate_mbps <= full.aggregate_mbps * (1.0 + 1e-9));
        }
    }
}
