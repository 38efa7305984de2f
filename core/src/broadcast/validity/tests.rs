use super::*;
use crate::broadcast::plan::{Options, plan};
use crate::broadcast::samples::vector;

/// What `check` says about the plan of the two switches, S>A>C>D>B, after `change`.
fn after(change: impl Fn(&mut Plan)) -> Result<(), Violation> {
    let case = vector("two-switches");
    let mut plan = plan(&case.topology(), &case.source, &case.destinations(), &Options::default()).unwrap();
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
    assert_eq!(message, "the link from `S` to `X` can carry 1000 Mbit/s, 2000 are planned");
}

#[test]
fn more_than_a_host_can_do_is_found() {
    let mut topology = vector("two-switches").topology();
    let names = vector("two-switches").destinations();
    let plan = plan(&topology, "S", &names, &Options::default()).unwrap();
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
    let rate = |plan: &mut Plan, hop: usize, mbps: f64| plan.trees[0].hops[hop].rate_mbps = mbps;
    assert!(message(|plan| rate(plan, 1, f64::NAN)).contains("NaN is no rate"));
    assert!(message(|plan| rate(plan, 1, -1.0)).contains("-1 is no rate"));
    assert!(message(|plan| rate(plan, 3, 400.0)).contains("`D` passes on 400 Mbit/s but receives 300"));
    assert!(message(|plan| rate(plan, 3, 50.0)).contains("rates.B: 100 Mbit/s, but the hops bring 50"));
    assert!(message(|plan| plan.trees[0].rate_mbps = 1.0).contains("trees[0]: 1 Mbit/s"));
    assert!(message(|plan| plan.bound_mbps = 1999.0).contains("the max-flows sum up to 2000"));
    let unnamed = message(|plan| {
        plan.rates.remove("B");
        plan.bound_mbps -= 100.0;
    });
    assert!(unnamed.contains("rates.B: 0 Mbit/s, but the hops bring 100"), "{unnamed}");
}
