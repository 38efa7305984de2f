//! While the program runs.

use gridcast_crds::conditions::{COMPLETE, FAILED, PROVISIONED, READY, RECONCILING, RUNNING, STALLED};
use serde_json::json;

use super::world::{World, ready, spec};
use crate::virtual_cluster::observed::{Phase, Trouble};

pub(super) fn reasons(world: &World) -> Vec<&str> {
    world.events.iter().map(|event| event.reason.as_str()).collect()
}

pub(super) fn failed(reason: &str) -> Trouble {
    Trouble::new(reason, format!("ring: {reason}"))
}

/// A run of three nodes: what is written, and what is told.
#[test]
fn an_undisturbed_run() {
    let mut world = World::new(&spec(|_| {}));
    world.bring_up();
    assert!(world.has_budget());
    world.rank();
    world.settle();
    world.pass(1);
    world.end_launch(0, None, &[]);
    world.settle();
    let told = "ring ended well, each of its 3 processes in its place";
    for type_ in [READY, COMPLETE] {
        assert_eq!(world.told(type_), format!("{type_}=True/Completed: {told}"));
    }
    assert_eq!(world.told(RUNNING), format!("Running=False/Completed: {told}"));
    assert!(world.condition(RECONCILING).is_none() && world.condition(STALLED).is_none());
    let status = world.cluster.status.clone().unwrap();
    let run = status.run.unwrap();
    assert_eq!((run.exit_code, run.restarts), (Some(0), 0));
    assert_eq!(run.log_tail.as_deref(), Some("hello\nbye\n"));
    assert!(status.completion_time.is_some());
    let timeline = status.timeline.unwrap();
    assert!(timeline.first_rank.is_some() && timeline.finished.is_some());
    // What runs is removed, and the budget with it.
    assert!(world.pods.values().all(|(_, pod)| pod.deleting.is_some()));
    assert!(!world.has_budget());
    world.reap();
    let writes = world.writes;
    world.settle();
    for _ in 0..10 {
        world.pass(60);
        world.settle();
    }
    assert_eq!(world.writes, writes, "a settled object writes nothing");
    assert!(writes <= 4, "{writes} status writes");
    assert_eq!(reasons(&world), ["Launched", "Completed"]);
    assert_eq!(world.launched.len(), 1);
}

#[test]
fn cleanup_is_by_policy() {
    for (policy, left) in [("None", 3_u8), ("Running", 1), ("All", 0)] {
        let mut world = World::new(&spec(|s| s["cleanup"] = json!(policy)));
        world.bring_up();
        // A node that ended at the very end.
        world.end_launch(0, None, &[]);
        world.fail_pod(2, "NodeEnded");
        world.settle();
        world.reap();
        world.settle();
        assert!(world.holds(COMPLETE), "{policy}: {}", world.told(RUNNING));
        assert_eq!(world.pods.len(), usize::from(left), "{policy}");
        assert_eq!(world.cluster.status.as_ref().unwrap().replicas, Some(i32::from(left)), "{policy}");
    }
}

#[test]
fn a_failed_program_is_final_without_a_rule() {
    let mut world = World::new(&spec(|_| {}));
    world.bring_up();
    world.end_launch(3, Some(&failed("RankFailed")), &[]);
    world.settle();
    // A loss may be heard of late.
    assert!(!world.is_over());
    world.pass(3);
    world.settle();
    assert_eq!(world.told(FAILED), "Failed=True/RankFailed: ring: RankFailed");
    assert_eq!(world.told(READY), "Ready=False/RankFailed: ring: RankFailed");
    assert!(world.holds(STALLED));
    assert_eq!(world.cluster.status.as_ref().unwrap().run.as_ref().unwrap().exit_code, Some(3));
    assert_eq!(reasons(&world), ["Launched", "RankFailed"]);
}

#[test]
fn rules_decide_by_exit_code_and_the_first_wins() {
    let mut world = World::new(&spec(|s| {
        s["restart"] = json!({ "maxRestarts": 1, "rules": [
            { "exitCodes": [137], "action": "Restart" },
            { "exitCodes": [85], "action": "Ignore" },
            { "exitCodes": [137, 4], "action": "Fail" },
        ] });
    }));
    world.bring_up();
    let end = |world: &mut World, code| {
        world.pass(60);
        world.end_launch(code, Some(&failed("RankFailed")), &[]);
        world.pass(3);
        world.settle();
    };
    end(&mut world, 85);
    assert_eq!((world.restarts(), world.launched.len()), (0, 1));
    assert!(world.told(RUNNING).starts_with("Running=False/Interrupted: "));
    // Not at once: a program that ends so each time would run in circles.
    world.pass(10);
    world.settle();
    assert_eq!((world.restarts(), world.launched.len()), (0, 2));
    end(&mut world, 137);
    assert_eq!((world.restarts(), world.launched.len()), (1, 3));
    assert!(world.holds(READY) && world.holds(RUNNING));
    end(&mut world, 137);
    assert_eq!(
        world.told(FAILED),
        "Failed=True/RestartBudgetExceeded: all 1 restarts (restart.maxRestarts) are used up; RankFailed: ring: RankFailed"
    );
    assert_eq!(
        reasons(&world),
        ["Launched", "Interrupted", "Launched", "Restarting", "Launched", "RestartBudgetExceeded"]
    );
}

fn replace(world: &mut World) {
    world.pass(10);
    world.settle();
    world.finish_simple("stop/", &Ok(()));
    world.reap();
    world.settle();
    world.create();
    world.settle();
    (0..3).for_each(|index| world.run_pod(index));
    world.settle();
    world.open_gate();
    world.settle();
    // Another operator, or another launcher, makes sure that nothing is left of the launch of before.
    world.finish_simple("stop/", &Ok(()));
    world.settle();
}

/// Three losses with a budget of two: exactly two launches more, whether operators die in between or not.
#[test]
fn lost_nodes_are_counted_exactly() {
    for dies in [false, true] {
        let mut world = World::new(&spec(|s| s["restart"] = json!({ "maxRestarts": 2 })));
        world.bring_up();
        for loss in 1..=2 {
            match loss {
                1 => world.remove_pod(1),
                _ => world.fail_pod(1, "Evicted"),
            }
            // Published, and then the operator dies before it does anything about it.
            let plan = world.plan();
            assert!(plan.status.is_some());
            if dies {
                world.apply(crate::virtual_cluster::plan::Plan { actions: Vec::new(), ..plan });
                world.restart_operator();
            } else {
                world.apply(plan);
            }
            world.settle();
            assert_eq!(world.restarts(), loss);
            assert!(world.told(READY).starts_with("Ready=False/"), "{}", world.told(READY));
            if dies {
                world.restart_operator();
                world.settle();
            }
            replace(&mut world);
            assert_eq!((world.restarts(), world.launched.len()), (loss, 1 + loss as usize));
            assert!(world.holds(RUNNING) && world.holds(READY) && world.holds(PROVISIONED));
            if dies {
                world.restart_operator();
                world.settle();
            }
        }
        world.fail_pod(2, "Evicted");
        world.settle();
        world.finish_simple("stop/", &Ok(()));
        world.end_launch(143, Some(&failed("LauncherKilled")), &[]);
        world.settle();
        let told = world.told(FAILED);
        assert!(told.starts_with("Failed=True/RestartBudgetExceeded: all 2 restarts"), "{told}");
        assert!(told.contains("Evicted: ring-node-2: Evicted"), "{told}");
        assert_eq!((world.restarts(), world.launched.len()), (2, 3));
        assert!(world.cluster.status.as_ref().unwrap().run.as_ref().unwrap().log_tail.is_some());
    }
}

/// The program notices the loss of a node before the API server does.
#[test]
fn a_failure_that_a_loss_explains_is_a_loss() {
    let mut world = World::new(&spec(|s| s["restart"] = json!({ "maxRestarts": 1 })));
    world.bring_up();
    world.end_launch(1, Some(&failed("RankFailed")), &[]);
    world.settle();
    world.pass(1);
    world.fail_pod(2, "NodeEnded");
    world.settle();
    assert_eq!(world.restarts(), 1);
    assert!(world.told(RUNNING).contains("NodeEnded"), "{}", world.told(RUNNING));

    // A machine that was switched off: its pod runs in everybody's eyes, but its starter was silent.
    replace(&mut world);
    assert!(world.holds(RUNNING));
    let mut world = World::new(&spec(|s| s["restart"] = json!({ "maxRestarts": 1 })));
    world.bring_up();
    world.end_launch(1, Some(&failed("RankFailed")), &["ring-node-1"]);
    world.settle();
    assert_eq!(world.restarts(), 1);
    let (_, pod) = &world.pods["ring-node-1"];
    assert!(pod.deleting.is_some() && pod.phase == Phase::Running);
    // No kubelet takes it away.
    world.pass(60);
    world.settle();
    assert!(!world.pods.contains_key("ring-node-1") || world.pods["ring-node-1"].1.uid.ends_with("-4"));
    world.finish_simple("stop/", &Ok(()));
    world.create();
    world.run_pod(1);
    world.settle();
    world.open_gate();
    world.settle();
    assert_eq!(world.launched.len(), 2);
}

#[test]
fn a_lost_launcher_takes_its_node_with_it() {
    let mut world = World::new(&spec(|s| s["restart"] = json!({ "maxRestarts": 1 })));
    world.bring_up();
    world.lose_launch();
    world.settle();
    assert_eq!(world.restarts(), 1);
    assert!(world.pods["ring-node-0"].1.deleting.is_some());
    replace(&mut world);
    assert_eq!(world.launched.len(), 2);
    assert!(world.holds(RUNNING));
}

#[test]
fn an_operator_that_restarts_touches_no_running_member() {
    let mut world = World::new(&spec(|s| {
        s["network"] = json!({ "probe": { "policy": "BeforeRun" }, "tcp": { "mode": "Apply" } });
    }));
    world.bring_up();
    world.say_map(&ready());
    world.settle();
    world.tune(&Ok(()));
    world.settle();
    world.rank();
    world.settle();
    assert!(world.holds(RUNNING));
    let (status, writes) = (world.cluster.status.clone(), world.writes);
    world.restart_operator();
    world.settle();
    assert_eq!((&world.cluster.status, world.writes), (&status, writes));
    // Only the launch is followed again, under its own name.
    assert_eq!(world.steps.len(), 1);
    assert!(world.steps.keys().next().unwrap().starts_with("launch/"));
    assert_eq!(world.launched.len(), 1);
}
