use super::*;

/// The worked example of two switches, of the documentation.
fn example() -> Topology {
    topology::parse(include_str!("../../../examples/two-switches.yaml")).unwrap().topology
}

fn star(hosts: usize) -> Topology {
    let names: Vec<String> = (0..hosts).map(|host| format!("a-host-with-a-long-name-{host:03}")).collect();
    let mut topology = Topology::one_switch(&names, 1000.0, 0.0);
    for (index, link) in topology.links.iter_mut().enumerate().skip(1) {
        link.mbps = 100.0 + 7.0 * index as f64;
    }
    topology
}

fn plan_of(topology: &Topology) -> Plan {
    let names: Vec<String> = topology.hosts.iter().skip(1).map(|host| host.name().to_owned()).collect();
    plan::plan(topology, topology.hosts[0].name(), &names, &Options::default()).unwrap()
}

#[test]
fn the_table_says_who_gets_what_and_fits() {
    let text = table::render(&plan_of(&example()));
    insta::assert_snapshot!(text, @r"
    stable from S to 4 hosts, relays from disk: 4 trees
    2000.0 Mbit/s in all, 100.0 % of the bound of 2000.0

    host        Mbit/s         bound       %
    A           1000.0        1000.0   100.0
    B            100.0         100.0   100.0
    C            600.0         600.0   100.0
    D            300.0         300.0   100.0

    tree        Mbit/s   hosts
       1         100.0       4  S > A > B > C > D
       2         200.0       3  S > A > C > D
       3         300.0       2  S > A > C
       4         400.0       1  S > A
    ");
    let text = table::render(&plan_of(&star(200)));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.contains("and 167 others with no less of their bound"), "{text}");
}

#[test]
fn every_tree_is_in_the_drawing_and_in_the_graph() {
    for topology in [example(), star(200)] {
        let plan = plan_of(&topology);
        let svg = drawing::render(&topology, &plan);
        let dot = dot::render(&plan);
        for index in 0..plan.trees.len() {
            let colour = drawing::colour(index, plan.trees.len());
            assert!(svg.contains(&colour) && dot.contains(&colour));
        }
        // Two of them say what circles are.
        assert_eq!(svg.matches("<circle").count(), topology.hosts.len() + 2);
        assert_eq!(dot.matches(" -> ").count(), plan.trees.iter().map(|tree| tree.hops.len()).sum::<usize>());
    }
}

#[test]
fn colours_run_from_blue_to_red() {
    assert_eq!(drawing::colour(0, 1), drawing::colour(0, 16));
    let colours: Vec<String> = (0..16).map(|index| drawing::colour(index, 16)).collect();
    let different: std::collections::BTreeSet<&String> = colours.iter().collect();
    assert_eq!(different.len(), 16);
    assert!(colours.iter().all(|colour| colour.len() == 7));
}

#[test]
fn all_hosts_have_a_row_of_their_own() {
    let topology = example();
    let layout = layout::Layout::new(&topology, "S");
    let mut rows: Vec<usize> = layout.rows[..5].iter().map(|row| *row as usize).collect();
    rows.sort_unstable();
    assert_eq!((rows, layout.size), (vec![0, 1, 2, 3, 4], (4, 5)));
}
