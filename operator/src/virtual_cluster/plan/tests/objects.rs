//! Objects that are no pods: names that are taken, and what somebody removed.

use gridcast_crds::conditions::{MEASURED, PROVISIONED, READY, RUNNING, STAGED};
use serde_json::json;

use super::{
    lifecycle::reasons,
    world::{World, ready, spec},
};
use crate::virtual_cluster::{
    observed::{Gate, Trouble, Work},
    plan::{Action, ObjectKind, Part, Step},
};

fn taken(what: &str) -> Trouble {
    Trouble::new("NameTaken", format!("{what} \"ring\" exists and is not the cluster's"))
}

#[test]
fn a_name_that_is_taken_is_told_and_waited_for() {
    let mut world = World::new(&spec(|_| {}));
    let part = Part::Object(ObjectKind::Service);
    world.taken.insert(part.clone(), taken("Service"));
    world.bring_up();
    world.pass(2);
    world.settle();
    assert_eq!(world.told(READY), "Ready=False/NameTaken: Service \"ring\" exists and is not the cluster's");
    assert!(world.told(PROVISIONED).starts_with("Provisioned=False/NameTaken: "));
    assert_eq!(reasons(&world), ["NameTaken"]);
    // Tried again, but not all the time, and only what was refused.
    let writes = world.object_writes;
    world.pass(10);
    world.settle();
    assert_eq!(world.object_writes, writes + 1);
    world.taken.remove(&part);
    world.pass(10);
    world.bring_up();
    assert!(world.holds(RUNNING), "{}", world.told(READY));
}

#[test]
fn a_child_whose_name_is_taken_is_told_where_it_is_waited_for() {
    let mut world = World::new(&spec(|s| {
        s["network"] = json!({});
        s["data"] = json!([{ "name": "ics", "mountPath": "/data/ics", "source": { "http": { "url": "http://a/b" } } }]);
    }));
    let data = Part::Broadcast("ics".into());
    world.taken.insert(data.clone(), taken("Broadcast"));
    world.taken.insert(Part::NetworkMap, taken("NetworkMap"));
    world.bring_up();
    world.pass(2);
    world.settle();
    assert!(
        world.told(STAGED).starts_with("Staged=False/NameTaken: ics: Broadcast"),
        "{}",
        world.told(STAGED)
    );
    assert!(world.told(READY).starts_with("Ready=False/NameTaken: "), "{}", world.told(READY));
    // What its nodes mounted would be somebody else's, and could not be removed while they have it.
    assert!(world.pods.values().all(|(_, pod)| pod.deleting.is_some()), "{:?}", world.pods);
    world.pods.clear();
    world.settle();
    assert!(world.pods.is_empty());
    world.taken.remove(&data);
    world.pass(10);
    world.bring_up();
    world.say_broadcasts(&ready());
    world.pass(10);
    world.settle();
    assert!(world.told(MEASURED).starts_with("Measured=False/NameTaken: NetworkMap"));
    world.taken.clear();
    world.pass(10);
    world.settle();
    world.say_map(&ready());
    world.settle();
    assert!(world.holds(RUNNING), "{}", world.told(READY));
}

/// It keeps no program from running, and what was refused once is no reason to hold the next launch up.
#[test]
fn a_budget_that_cannot_be_made_is_told_while_the_program_runs() {
    let mut world = World::new(&spec(|s| s["restart"] = json!({ "maxRestarts": 1 })));
    let part = Part::Object(ObjectKind::DisruptionBudget);
    world.taken.insert(part.clone(), taken("PodDisruptionBudget"));
    world.bring_up();
    world.pass(2);
    world.settle();
    assert_eq!(
        world.told(READY),
        "Ready=True/NameTaken: 3 processes of ring on 3 nodes; a drain may take a node away: PodDisruptionBudget \
         \"ring\" exists and is not the cluster's"
    );
    assert_eq!(reasons(&world), ["Launched", "NameTaken"]);
    world.remove_pod(2);
    world.settle();
    world.finish_simple("stop/", &Ok(()));
    world.bring_up();
    world.finish_simple("stop/", &Ok(()));
    world.settle();
    assert!(world.holds(RUNNING) && world.launched.len() == 2, "{}", world.told(READY));
    world.taken.clear();
    world.pass(10);
    world.settle();
    world.pass(2);
    world.settle();
    assert_eq!(world.told(READY), "Ready=True/Running: 3 processes of ring on 3 nodes");
    assert!(world.has_budget());
}

/// Somebody may have removed the Secret or the Service meanwhile.
#[test]
fn objects_are_applied_again_with_the_pods_that_need_them() {
    let mut world = World::new(&spec(|s| s["restart"] = json!({ "maxRestarts": 1 })));
    world.bring_up();
    assert_eq!(world.object_writes, 5, "each once in an undisturbed run");
    world.pass(60);
    world.settle();
    assert_eq!(world.object_writes, 5);
    world.remove_pod(1);
    world.settle();
    assert_eq!(world.object_writes, 9);
    world.finish_simple("stop/", &Ok(()));
    world.bring_up();
    assert!(world.holds(RUNNING), "{}", world.told(READY));
    assert_eq!(world.object_writes, 10, "and the budget with the launch");
}

#[test]
fn objects_are_applied_again_while_nodes_cannot_be_reached() {
    let mut world = World::new(&spec(|s| {
        s.as_object_mut().unwrap().remove("run");
        s["scheduling"] = json!({ "timeoutSeconds": 5000 });
    }));
    world.settle();
    world.create();
    for (_, pod) in world.pods.values_mut() {
        pod.node = Some("k0".into());
        pod.waits_for_sandbox = true;
    }
    world.pass(11);
    world.settle();
    assert!(world.told(PROVISIONED).starts_with("Provisioned=False/VolumesPending: "));
    assert_eq!(world.object_writes, 4);
    world.pass(9);
    world.settle();
    assert_eq!(world.object_writes, 8);
    // Ever more seldom.
    for _ in 0..500 {
        world.pass(1);
        world.settle();
    }
    assert!((24..64).contains(&world.object_writes), "{} writes in 500 s", world.object_writes);
    (0..3).for_each(|index| world.run_pod(index));
    world.settle();
    let failed = Trouble::new("NoAddress", "ring-node-1: no address");
    world.gate.values_mut().for_each(|gate| *gate = Work::<Gate>::Failed(failed.clone()));
    world.pass(300);
    let plan = world.plan();
    let again = |action: &Action| matches!(action, Action::ApplyObjects(kinds) if kinds.len() == 4);
    assert!(plan.actions.iter().any(again), "{plan:?}");
    world.settle();
    world.pass(6);
    world.settle();
    world.open_gate();
    world.settle();
    let writes = world.object_writes;
    for _ in 0..20 {
        world.pass(60);
        world.settle();
    }
    assert_eq!(world.object_writes, writes, "a settled cluster writes nothing");
}

#[test]
fn who_was_not_ready_in_time_is_named() {
    let mut world = World::new(&spec(|s| s["groups"][0]["replicas"] = json!(6)));
    world.settle();
    world.create();
    world.run_pod(0);
    world.fail_pod(1, "InitFailed");
    let unplaced = Trouble::new("Unschedulable", "ring-node-2: 0/3 nodes are available");
    world.pods.get_mut("ring-node-2").unwrap().1.trouble = Some(unplaced);
    world.remove_pod(3);
    world.pass(600);
    world.settle();
    let told = world.told("Failed");
    assert!(told.starts_with("Failed=True/NotReadyInTime: after 600 s"), "{told}");
    assert!(
        told.ends_with(
            "; missing: ring-node-0: does not answer, ring-node-1: its pod ended (InitFailed), ring-node-2: not scheduled \
             (Unschedulable), and 3 more"
        ),
        "{told}"
    );
    assert!(!world.steps.values().any(|step| matches!(step, Step::Launch { .. })));
}
