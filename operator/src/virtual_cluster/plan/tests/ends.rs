//! Suspended, resumed, scaled, late, collected from, deleted, and over for good.

use gridcast_crds::conditions::{COMPLETE, FAILED, READY, RUNNING, SUSPENDED};
use serde_json::json;

use super::{
    lifecycle::{failed, reasons},
    world::{World, at, spec},
};
use crate::virtual_cluster::{
    observed::{Phase, Trouble, Work},
    plan::Finalizer,
};

#[test]
fn suspended_and_resumed_with_another_image() {
    let mut world = World::new(&spec(|_| {}));
    world.bring_up();
    world.rank();
    world.settle();
    world.pass(5);
    world.edit(|spec| spec.suspend = true);
    world.settle();
    assert!(world.told(SUSPENDED).contains("3 pods are being removed"));
    assert!(world.pods.values().all(|(_, pod)| pod.deleting.is_some()));
    assert!(world.steps.is_empty());
    let types: Vec<_> =
        world.cluster.status.as_ref().unwrap().conditions.iter().map(|c| c.type_.clone()).collect();
    assert_eq!(types, ["Suspended"]);
    world.reap();
    world.pass(2);
    world.settle();
    assert!(world.told(SUSPENDED).contains("there is no compute"));
    world.pass(100);
    world.edit(|spec| {
        spec.suspend = false;
        spec.groups[0].pod.as_mut().unwrap().spec.as_mut().unwrap().containers[0].image = Some("b".into());
    });
    world.bring_up();
    assert!(world.told(SUSPENDED).starts_with("Suspended=False/Resumed"));
    // Another launch, without counting.
    assert!(world.holds(RUNNING), "{}", world.told(READY));
    assert_eq!((world.launched.len(), world.restarts()), (2, 0));
    assert_eq!(reasons(&world), ["Launched", "Suspended", "Resumed", "Launched"]);
}

/// A suspension and its end that the operator missed.
#[test]
fn a_changed_template_replaces_its_pods() {
    let mut world = World::new(&spec(|s| drop(s.as_object_mut().unwrap().remove("run"))));
    world.bring_up();
    assert_eq!(world.told(READY), "Ready=True/Provisioned: 3 nodes answer");
    world.edit(|spec| {
        spec.groups[0].pod.as_mut().unwrap().spec.as_mut().unwrap().containers[0].image = Some("b".into());
    });
    world.settle();
    assert!(world.pods.values().all(|(_, pod)| pod.deleting.is_some()));
    assert!(!world.holds(READY));
    world.reap();
    world.bring_up();
    assert_eq!(world.told(READY), "Ready=True/Provisioned: 3 nodes answer");
}

#[test]
fn a_cluster_without_a_program_is_scaled_both_ways() {
    let mut world = World::new(&spec(|s| {
        s.as_object_mut().unwrap().remove("run");
        s["replicas"] = json!(2);
    }));
    world.bring_up();
    assert_eq!(world.told(READY), "Ready=True/Provisioned: 2 nodes answer");
    assert!(world.condition(RUNNING).is_none());
    world.edit(|spec| spec.replicas = Some(3));
    world.settle();
    assert_eq!(world.told(READY), "Ready=False/Provisioning: 2 of 3 nodes made, 2 have a place, 2 run");
    world.bring_up();
    assert_eq!(world.told(READY), "Ready=True/Provisioned: 3 nodes answer");
    world.edit(|spec| spec.replicas = Some(1));
    world.settle();
    assert!(world.pods["ring-node-2"].1.deleting.is_some() && world.pods["ring-node-0"].1.deleting.is_none());
    world.open_gate();
    world.settle();
    assert_eq!(world.told(READY), "Ready=True/Provisioned: 1 node answers");
    assert_eq!(world.cluster.status.as_ref().unwrap().replicas, Some(1));
    // More than there is room for does not end what there is.
    world.edit(|spec| spec.replicas = Some(9));
    world.settle();
    world.pass(10_000);
    world.settle();
    assert!(!world.is_over());
    world.edit(|spec| spec.replicas = Some(0));
    world.reap();
    world.settle();
    assert!(world.holds(READY));
}

#[test]
fn a_deadline_ends_it_wherever_it_is() {
    let deadline = |s: &mut serde_json::Value| s["activeDeadlineSeconds"] = json!(100);
    let mut world = World::new(&spec(deadline));
    world.settle();
    world.pass(99);
    world.settle();
    assert!(!world.is_over());
    world.pass(1);
    world.settle();
    assert!(
        world.told(FAILED).starts_with("Failed=True/DeadlineExceeded: activeDeadlineSeconds: 100 s passed")
    );

    let mut world = World::new(&spec(deadline));
    world.bring_up();
    world.rank();
    world.pass(100);
    world.settle();
    // Its last words are waited for.
    assert!(!world.is_over());
    world.finish_simple("stop/", &Ok(()));
    world.end_launch(143, Some(&failed("LauncherKilled")), &[]);
    world.settle();
    assert_eq!(
        world.told(FAILED),
        "Failed=True/DeadlineExceeded: activeDeadlineSeconds: 100 s passed while the program ran; raise it or ask for less"
    );
    let run = world.cluster.status.as_ref().unwrap().run.clone().unwrap();
    assert_eq!(run.log_tail.as_deref(), Some("hello\nbye\n"));
    assert!(world.pods.values().all(|(_, pod)| pod.deleting.is_some()));
}

#[test]
fn the_time_to_live_ends_the_object() {
    let mut world = World::new(&spec(|s| s["ttlSecondsAfterFinished"] = json!(30)));
    world.bring_up();
    world.end_launch(0, None, &[]);
    world.settle();
    world.reap();
    world.pass(29);
    world.settle();
    assert!(world.cluster.metadata.deletion_timestamp.is_none());
    assert!(world.plan().requeue.is_some_and(|wait| wait.as_secs() <= 1));
    world.pass(1);
    world.settle();
    assert!(world.cluster.metadata.deletion_timestamp.is_some() && world.gone);
}

#[test]
fn results_are_collected_and_settings_restored_before_the_end() {
    let collect = |s: &mut serde_json::Value| {
        s["network"] = json!({ "probe": { "policy": "Never" }, "tcp": { "mode": "Apply" } });
        s["run"]["collect"] = json!([{ "path": "/scratch/out", "to": { "persistentVolumeClaim": { "claimName": "results" } } }]);
    };
    for result in [Ok(()), Err(Trouble::new("CollectFailed", "/scratch/out: no node has it"))] {
        let mut world = World::new(&spec(collect));
        world.bring_up();
        world.tune(&Ok(()));
        world.settle();
        world.end_launch(0, None, &[]);
        world.settle();
        assert_eq!(world.told(READY), "Ready=True/Collecting: results are being collected");
        assert_eq!(world.collect_pods.len(), 1);
        world.collect_pods[0].pod.phase = Phase::Running;
        world.collect_pods[0].pod.address = Some("10.0.0.9".into());
        world.settle();
        // Another operator begins it again, and does not run the program again.
        world.restart_operator();
        world.settle();
        world.finish_simple("collect/", &result);
        world.settle();
        assert!(matches!(world.release, Some(Work::Running(_))));
        world.release();
        world.settle();
        match &result {
            Ok(()) => assert!(world.holds(COMPLETE)),
            Err(trouble) => {
                assert_eq!(world.told(FAILED), format!("Failed=True/CollectFailed: {}", trouble.message));
            }
        }
        assert!(world.cluster.status.as_ref().unwrap().tcp.iter().all(|setting| setting.restored));
        assert!(world.collect_pods.is_empty());
        assert_eq!(world.launched.len(), 1);
    }
}

#[test]
fn a_deleted_cluster_is_released_first() {
    let mut world = World::new(&spec(|s| {
        s["network"] = json!({ "probe": { "policy": "Never" }, "tcp": { "mode": "Apply" } });
    }));
    world.bring_up();
    world.tune(&Ok(()));
    world.settle();
    assert!(world.holds(RUNNING));
    world.cluster.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    world.settle();
    assert!(!world.gone);
    world.release();
    world.finish_simple("stop/", &Ok(()));
    world.settle();
    assert!(world.gone);

    // Nodes that do not answer hold it up for half a minute.
    let mut world = World::new(&spec(|s| {
        s["network"] = json!({ "probe": { "policy": "Never" }, "tcp": { "mode": "Apply" } });
    }));
    world.bring_up();
    world.tune(&Ok(()));
    world.settle();
    world.cluster.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    world.pass(31);
    let plan = world.plan();
    assert_eq!(plan.finalizer, Finalizer::Remove);
}

/// A finished object whose spec is edited says that it has seen it, and nothing else happens.
#[test]
fn an_end_is_for_good() {
    let mut world = World::new(&spec(|_| {}));
    world.bring_up();
    world.end_launch(0, None, &[]);
    world.settle();
    world.reap();
    world.edit(|spec| spec.suspend = true);
    world.settle();
    world.edit(|spec| spec.suspend = false);
    world.settle();
    assert!(world.holds(COMPLETE) && world.holds(READY) && world.pods.is_empty());
    assert_eq!(world.cluster.status.as_ref().unwrap().observed_generation, Some(3));
    assert_eq!(world.launched.len(), 1);
}

/// Nodes that end again and again are one trouble, not one for each try.
#[test]
fn ends_that_repeat_are_told_once() {
    let mut world = World::new(&spec(|_| {}));
    world.settle();
    world.create();
    for index in [0, 1, 0, 2, 1] {
        world.fail_pod(index, "InitFailed");
        world.pass(20);
        world.settle();
        world.reap();
        world.settle();
        world.create();
        world.pass(3);
        world.settle();
        assert_eq!(world.told(READY), "Ready=False/InitFailed: ring-node-0: InitFailed");
    }
    assert_eq!(reasons(&world), ["InitFailed"]);
    (0..3).for_each(|index| world.run_pod(index));
    world.pass(3);
    world.settle();
    assert_eq!(world.told(READY), "Ready=False/Provisioning: 3 of 3 nodes run, 0 answer");
}
