//! A launch that may still run when the next could begin.

use gridcast_crds::conditions::{READY, RUNNING};
use serde_json::json;

use super::world::{World, spec};
use crate::virtual_cluster::observed::Trouble;

/// An operator that begins after the launch was given up does not know whether it was ended.
fn given_up() -> World {
    let mut world = World::new(&spec(|s| {
        s["restart"] = json!({ "maxRestarts": 2, "rules": [{ "exitCodes": [137], "action": "Restart" }] });
    }));
    world.bring_up();
    world.pass(5);
    world.end_launch(137, Some(&Trouble::new("RankFailed", "rank 0")), &[]);
    world.pass(3);
    let plan = world.plan();
    world.apply(crate::virtual_cluster::plan::Plan { actions: Vec::new(), ..plan });
    world.restart_operator();
    world.settle();
    world
}

fn refused() -> Result<(), Trouble> {
    Err(Trouble::new("StopFailed", "ring-node-0: stopping the program: no answer"))
}

#[test]
fn a_stop_that_failed_is_no_stop_and_is_tried_again() {
    let mut world = given_up();
    assert_eq!(world.told(READY), "Ready=False/Restarting: the launch of before is being ended");
    world.finish_simple("stop/", &refused());
    world.pass(2);
    world.settle();
    assert_eq!(world.launched.len(), 1);
    assert_eq!(
        world.told(READY),
        "Ready=False/Restarting: the launch of before could not be ended: StopFailed: ring-node-0: stopping the program: \
         no answer; it is tried again"
    );
    world.pass(5);
    world.settle();
    assert!(world.steps.keys().any(|name| name.starts_with("stop/")));
    world.finish_simple("stop/", &Ok(()));
    world.settle();
    assert!(world.holds(RUNNING), "{}", world.told(READY));
    assert_eq!((world.launched.len(), world.made), (2, 3));
}

#[test]
fn nodes_whose_launch_cannot_be_ended_are_replaced() {
    let mut world = given_up();
    for _ in 0..20 {
        world.finish_simple("stop/", &refused());
        world.pass(4);
        world.settle();
    }
    assert!(world.pods.values().all(|(_, pod)| pod.deleting.is_some()), "{}", world.told(READY));
    assert_eq!(world.launched.len(), 1);
    world.reap();
    world.bring_up();
    world.finish_simple("stop/", &Ok(()));
    world.settle();
    assert!(world.holds(RUNNING), "{}", world.told(READY));
    assert_eq!((world.launched.len(), world.made), (2, 6));
}

/// What failed at a node that is gone is asked of the node that took its place at once.
#[test]
fn a_launch_whose_node_is_gone_is_over() {
    let mut world = given_up();
    world.finish_simple("stop/", &refused());
    world.settle();
    world.remove_pod(0);
    world.settle();
    assert!(!world.steps.keys().any(|name| name.starts_with("stop/")));
    world.bring_up();
    assert!(world.steps.keys().any(|name| name.starts_with("stop/")), "{:?}", world.steps.keys());
    world.finish_simple("stop/", &Ok(()));
    world.settle();
    assert!(world.holds(RUNNING), "{}", world.told(READY));
}
