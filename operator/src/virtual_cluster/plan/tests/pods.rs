//! Which pods are the cluster's: new keys, another operator, a spec that changed unseen.

use gridcast_crds::conditions::{COMPLETE, READY, RUNNING};
use serde_json::{Value, json};

use super::{
    lifecycle::{failed, reasons},
    world::{World, spec},
};
use crate::virtual_cluster::plan::{Action, ObjectKind, Step};

impl World {
    /// Only the annotation changes, which is no other generation.
    pub(super) fn rotate(&mut self, number: u64) {
        self.cluster.metadata.annotations =
            Some([("gridcast.io/keys".to_owned(), number.to_string())].into());
    }

    /// The operator of before told the pods that there are by other numbers.
    pub(super) fn renumber(&mut self) {
        self.pods.values_mut().for_each(|(made, _)| made.incarnation ^= 1);
    }

    fn keys(&self) -> Vec<u64> {
        let live = self.pods.values().filter(|(_, pod)| pod.deleting.is_none());
        live.map(|(made, _)| made.keys).collect()
    }

    fn replace(&mut self) {
        self.finish_simple("stop/", &Ok(()));
        self.reap();
        self.pass(20);
        // One that was missing before the others had gone is made before them.
        self.bring_up();
        self.bring_up();
        self.finish_simple("stop/", &Ok(()));
        self.settle();
    }
}

fn without_program(s: &mut Value) {
    s.as_object_mut().unwrap().remove("run");
}

#[test]
fn new_keys_wait_for_the_program_and_come_with_its_next_launch() {
    let mut world = World::new(&spec(|s| s["restart"] = json!({ "maxRestarts": 1 })));
    world.bring_up();
    world.rank();
    world.settle();
    world.rotate(2);
    for _ in 0..3 {
        world.pass(60);
        world.settle();
        world.restart_operator();
        world.settle();
    }
    assert!(world.holds(RUNNING) && world.holds(READY), "{}", world.told(RUNNING));
    assert_eq!((world.keys(), world.restarts(), world.launched.len()), (vec![1; 3], 0, 1));
    // A node is lost: all are made anew, so that they understand each other.
    world.remove_pod(1);
    world.settle();
    let Some(Step::Stop { first, .. }) = world.steps.values().find(|step| matches!(step, Step::Stop { .. }))
    else {
        panic!("the launch of before is ended: {:?}", world.steps)
    };
    assert_eq!(first.keys, Some(1), "by the keys that its starter has");
    world.replace();
    assert!(world.holds(RUNNING), "{}", world.told(READY));
    assert_eq!((world.keys(), world.restarts(), world.launched.len()), (vec![2; 3], 1, 2));
}

#[test]
fn new_keys_are_no_reason_to_replace_what_has_ended_or_brings_results_home() {
    let mut world = World::new(&spec(|s| {
        s["cleanup"] = json!("None");
        s["run"]["collect"] =
            json!([{ "path": "/out", "to": { "persistentVolumeClaim": { "claimName": "c" } } }]);
    }));
    world.bring_up();
    world.rotate(2);
    world.end_launch(0, None, &[]);
    let plan = world.plan();
    assert!(plan.actions.contains(&Action::CreateCollectPods(1)), "the nodes do not know others: {plan:?}");
    world.settle();
    world.collect_pods[0].pod.phase = crate::virtual_cluster::Phase::Running;
    world.collect_pods[0].pod.address = Some("10.0.0.9".into());
    world.settle();
    world.finish_simple("collect/", &Ok(()));
    world.settle();
    assert!(world.holds(COMPLETE), "{}", world.told(READY));
    world.rotate(3);
    world.restart_operator();
    world.pass(60);
    world.settle();
    assert_eq!(world.keys(), [1; 3]);
}

#[test]
fn nodes_without_a_program_get_new_keys_at_once() {
    let mut world = World::new(&spec(without_program));
    world.bring_up();
    let (objects, generation) = (world.object_writes, world.cluster.metadata.generation);
    world.rotate(2);
    let plan = world.plan();
    assert!(plan.actions.contains(&Action::ApplyObjects(vec![ObjectKind::Secret])), "{plan:?}");
    world.settle();
    assert!(world.pods.values().all(|(_, pod)| pod.deleting.is_some()));
    world.replace();
    assert_eq!(world.told(READY), "Ready=True/Provisioned: 3 nodes answer");
    assert_eq!(world.keys(), [2; 3]);
    assert!(world.object_writes > objects && world.cluster.metadata.generation == generation);
}

/// Another version of the operator may tell the same pods by other numbers.
#[test]
fn an_operator_that_numbers_otherwise_ends_no_program() {
    let mut world = World::new(&spec(|s| s["restart"] = json!({ "maxRestarts": 1 })));
    world.bring_up();
    world.rank();
    world.settle();
    // Later generations, which have nothing to do with pods, before and after the upgrade.
    world.edit(|spec| spec.ttl_seconds_after_finished = Some(600));
    world.settle();
    world.renumber();
    world.restart_operator();
    world.settle();
    world.edit(|spec| spec.ttl_seconds_after_finished = Some(900));
    world.settle();
    world.rotate(2);
    world.settle();
    assert!(world.holds(RUNNING), "{}", world.told(RUNNING));
    assert_eq!((world.restarts(), reasons(&world)), (0, vec!["Launched"]));
    assert!(world.pods.values().all(|(_, pod)| pod.deleting.is_none()));
}

/// The operator is being replaced when a field changes that has nothing to do with pods.
#[test]
fn new_keys_wait_for_the_program_over_a_change_that_was_missed() {
    let mut world = World::new(&spec(|s| s["restart"] = json!({ "maxRestarts": 1 })));
    world.bring_up();
    world.rank();
    world.settle();
    world.rotate(2);
    world.restart_operator();
    world.edit(|spec| spec.ttl_seconds_after_finished = Some(600));
    world.settle();
    assert!(world.holds(RUNNING), "{}", world.told(RUNNING));
    assert_eq!((world.keys(), world.restarts()), (vec![1; 3], 0));
}

#[test]
fn an_operator_that_numbers_otherwise_leaves_nodes_of_the_same_generation() {
    let mut world = World::new(&spec(without_program));
    world.bring_up();
    world.renumber();
    world.restart_operator();
    world.settle();
    assert!(world.pods.values().all(|(_, pod)| pod.deleting.is_none()));
    assert_eq!(world.told(READY), "Ready=True/Provisioned: 3 nodes answer");
}

/// Suspended, changed and resumed while no operator looked.
#[test]
fn a_change_that_was_missed_replaces_the_pods_of_a_program() {
    let mut world = World::new(&spec(|s| s["restart"] = json!({ "maxRestarts": 1 })));
    world.bring_up();
    world.restart_operator();
    for image in [None, Some("b")] {
        world.edit(|spec| {
            spec.suspend = image.is_none();
            spec.groups[0].pod.as_mut().unwrap().spec.as_mut().unwrap().containers[0].image =
                Some(image.unwrap_or("a").into());
        });
    }
    world.settle();
    assert!(!world.holds(RUNNING), "{}", world.told(RUNNING));
    assert!(world.pods.values().all(|(_, pod)| pod.deleting.is_some()));
    world.replace();
    assert!(world.holds(RUNNING), "{}", world.told(READY));
    assert_eq!(world.launched.len(), 2);
}

#[test]
fn a_program_that_failed_keeps_its_pods_as_asked() {
    let mut world = World::new(&spec(|s| s["cleanup"] = json!("None")));
    world.bring_up();
    world.end_launch(3, Some(&failed("RankFailed")), &[]);
    world.pass(4);
    world.settle();
    world.renumber();
    world.rotate(7);
    world.restart_operator();
    world.settle();
    assert!(world.is_over() && world.pods.values().all(|(_, pod)| pod.deleting.is_none()));
}
