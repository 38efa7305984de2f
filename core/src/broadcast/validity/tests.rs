use super::*;
use crate::broadcast::plan::{Executable, Options, Strategy, plan};
use crate::broadcast::samples::vector;

fn single() -> Options {
    Options { strategy: Strategy::Chain, executable: Executable::Nested, ..Options::default() }
}

/// What `check` says about the plan of the two switches, S>A>C>D>B, after `change`.
fn after(change: impl Fn(&mut Plan)) -> Result<(), Violation> {
    let case = vector("two-switches");
    let mut plan = plan(&case.topology(), &case.source, &case.destinations(), &single()).unwrap();
    change(&mut plan);
    check(&case.topology(), &plan)
}

fn message(change: impl Fn(&mut Plan)) -> String {
    after(change).unwrap_err().to_string()
}

fn set_path(plan: &mut Plan, hop: usize, path: &[&str]) {
    plan.trees[0].hops[hop].path = path.iter().map(|&vertex| vertex.to_owned()).collect();
}

#[test]
fn the_plan_itself_is_valid() {
    assert_eq!(after(|_| ()), Ok(()));
}

#[test]
fn more_than_a_link_can_carry_is_found() {
    let message = message(|plan| {
        let again = plan.trees[0].clone();
        plan.trees.push(again);
    });
    assert_eq!(message, "the link from `S` to `X` can carry 1000 Mbit/s, 1100 are planned");
}

#[test]
fn more_than_a_host_can_do_is_found() {
    let mut topology = vector("two-switches").topology();
    let names = vector("two-switches").destinations();
    let plan = plan(&topology, "S", &names, &single()).unwrap();
    for (budget, least) in
        [("sendMbps", 600.0), ("receiveMbps", 1000.0), ("totalMbps", 1600.0), ("diskMbps", 1000.0)]
    {
        for (mbps, good) in [(least, true), (least - 1.0, false)] {
            let host = format!("{{name: A, {budget}: {mbps}}}");
            topology.hosts[1] = serde_saphyr::from_str(&host).unwrap();
            // The bound is another one with a budget; here only the load matters.
            let overload = matches!(check(&topology, &plan), Err(Violation::Overload { .. }));
            assert_eq!(overload, !good, "{host}");
        }
    }
}

#[test]
fn hops_that_are_no_tree_are_found() {
    assert!(message(|plan| plan.trees[0].hops.swap(0, 1)).contains("`A` sends before it receives"));
    assert!(message(|plan| plan.trees[0].hops.clear()).contains("trees[0]: the tree has no hop"));
    let twice = message(|plan| {
        let again = plan.trees[0].hops[1].clone();
        plan.trees[0].hops.push(again);
    });
    assert!(twice.contains("trees[0].hops[4]: `C` receives twice"), "{twice}");
    let back = message(|plan| {
        plan.trees[0].hops[1].to = "S".to_owned();
        set_path(plan, 1, &["A", "X", "S"]);
    });
    assert!(back.contains("`S` receives twice in one tree, or is the source"), "{back}");
    assert!(message(|plan| plan.trees[0].hops[3].to = "X".to_owned()).contains("`X` is no host"));
    assert!(message(|plan| plan.source = "Q".to_owned()).contains("source: `Q` is no host"));
}

#[test]
fn paths_that_lead_nowhere_are_found() {
    assert!(message(|plan| set_path(plan, 1, &["A", "X", "C"])).contains("no link leads from `X` to `C`"));
    assert!(message(|plan| set_path(plan, 1, &["A", "X", "Y"])).contains("does not lead from `A` to `C`"));
    assert!(message(|plan| set_path(plan, 1, &[])).contains("does not lead from `A` to `C`"));
    let visited = message(|plan| set_path(plan, 1, &["A", "X", "Y", "X", "Y", "C"]));
    assert!(visited.contains("visits `X` twice"), "{visited}");
}

#[test]
fn figures_that_are_not_those_of_the_hops_are_found() {
    assert!(message(|plan| plan.trees[0].rate_mbps = f64::NAN).contains("trees[0]: NaN is no rate"));
    assert!(message(|plan| plan.trees[0].rate_mbps = -1.0).contains("-1 is no rate"));
    let slower = message(|plan| plan.trees[0].rate_mbps = 50.0);
    assert!(slower.contains("destinations: `A` gets 1000 Mbit/s, but the hops bring 950"), "{slower}");
    assert!(message(|plan| plan.destinations[0].rate_mbps = -1.0).contains("destinations[0]: -1 is no rate"));
    assert!(message(|plan| plan.destinations.swap(1, 2)).contains("destinations[2]: `B` is listed twice"));
    assert!(
        message(|plan| plan.bound_mbps = 1999.0)
            .contains("boundMbps: 1999, but the destinations sum up to 2000")
    );
    assert!(message(|plan| plan.aggregate_mbps = 1999.0).contains("aggregateMbps: 1999"));
    assert!(
        message(|plan| plan.destinations[1].bound_mbps = 99.0)
            .contains("max-flow to `B` is 100 Mbit/s, not 99")
    );
    let unnamed = message(|plan| {
        plan.destinations.remove(1);
        plan.bound_mbps -= 100.0;
        plan.aggregate_mbps -= 100.0;
    });
    assert!(unnamed.contains("destinations: `B` gets 0 Mbit/s, but the hops bring 100"), "{unnamed}");
}
