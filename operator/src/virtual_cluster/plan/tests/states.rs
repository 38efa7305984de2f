//! Before the program runs.

use gridcast_crds::conditions::{MEASURED, PROVISIONED, READY, RUNNING, STAGED, STALLED, SUSPENDED, TUNED};
use serde_json::json;

use super::world::{World, condition, ready, spec, stalled};
use crate::virtual_cluster::{
    observed::{Creation, Gate, Trouble, Work},
    plan::{Action, Finalizer, Step},
};

#[test]
fn what_is_not_supported_is_refused_by_its_path_and_nothing_is_made() {
    let data =
        |source: serde_json::Value| json!([{ "name": "ics", "mountPath": "/data/ics", "source": source }]);
    let table: Vec<(serde_json::Value, &str)> = vec![
        (
            spec(|s| {
                s["groups"][0] = json!({ "name": "node", "replicas": 3, "virtualMachine": { "spec": {} } });
            }),
            "spec.groups[0].virtualMachine:",
        ),
        (spec(|s| s["scheduling"] = json!({ "queueName": "q" })), "spec.scheduling.queueName:"),
        (spec(|s| s["scheduling"] = json!({ "gang": "Volcano" })), "spec.scheduling.gang:"),
        (spec(|s| s["acceptance"] = json!([{ "type": "Stream", "minTriadMBps": 1.0 }])), "spec.acceptance:"),
        (
            spec(|s| s["network"]["tcp"] = json!({ "mode": "Apply", "profile": "Auto" })),
            "spec.network.tcp.profile:",
        ),
        (spec(|s| s["data"] = data(json!({ "s3": { "bucket": "abc" } }))), "spec.data[0].source.s3:"),
        (spec(|s| s["run"]["implementation"] = json!("IntelMPI")), "spec.run.implementation:"),
        (spec(|s| s["run"]["remoteShell"] = json!("SSH")), "spec.run.remoteShell:"),
        (
            spec(|s| s["groups"][0]["pod"]["spec"]["hostNetwork"] = json!(true)),
            "spec.groups[0].pod.spec.hostNetwork:",
        ),
        (spec(|s| s["network"]["require"] = json!({ "minBandwidthMbps": 1.0 })), "spec.network.require:"),
    ];
    for (spec, path) in table {
        let mut world = World::new(&spec);
        let plan = world.plan();
        assert!(plan.actions.is_empty() && plan.finalizer == Finalizer::Keep, "{path}: {plan:?}");
        world.settle();
        for type_ in [READY, STALLED] {
            let told = world.told(type_);
            assert!(told.contains("/Unsupported: ") && told.contains(path), "{path} is not told: {told}");
        }
        assert!(world.pods.is_empty());
        let writes = world.writes;
        world.pass(100);
        world.settle();
        assert_eq!(world.writes, writes);
    }
}

/// A manifest that names no profile asks for nothing that cannot be done.
#[test]
fn a_profile_left_out_is_not_refused() {
    for tcp in [json!({ "mode": "Apply" }), json!({ "mode": "Off", "profile": "Auto" })] {
        let mut world = World::new(&spec(|s| s["network"]["tcp"] = tcp.clone()));
        world.settle();
        assert!(!world.holds(STALLED), "{tcp}");
    }
}

#[test]
fn the_way_to_a_running_program_is_told() {
    let mut world = World::new(&spec(|_| {}));
    let first = world.plan();
    assert_eq!(first.finalizer, Finalizer::Keep);
    assert!(matches!(&first.actions[0], Action::ApplyObjects(kinds) if kinds.len() == 4));
    assert!(
        matches!(&first.actions[1], Action::Begin(Step::Create { names, .. }) if names.len() == 3),
        "{first:?}"
    );
    world.settle();
    assert_eq!(world.told(READY), "Ready=False/Provisioning: 0 of 3 nodes made, 0 have a place, 0 run");
    world.pass(2);
    world.create();
    world.run_pod(0);
    world.settle();
    assert_eq!(world.told(PROVISIONED), "Provisioned=False/Provisioning: 1 of 3 nodes have a place, 1 run");
    world.pass(2);
    world.run_pod(1);
    world.run_pod(2);
    world.settle();
    assert_eq!(world.told(READY), "Ready=False/Provisioning: 3 of 3 nodes run, 0 answer");
    world.open_gate();
    world.settle();
    assert_eq!(world.told(READY), "Ready=True/Running: 3 processes of ring on 3 nodes");
    assert_eq!(world.told(RUNNING), "Running=True/Launched: 3 processes of ring on 3 nodes");
    assert_eq!(world.told(PROVISIONED), "Provisioned=True/Provisioned: 3 nodes answer");
    let status = world.cluster.status.clone().unwrap();
    assert_eq!((status.replicas, status.ready_replicas), (Some(3), Some(3)));
    assert_eq!(status.nodes[1].address.as_deref(), Some("10.0.0.2"));
    assert!(status.nodes.iter().all(|node| node.ready));
    assert!(status.selector.unwrap().contains("gridcast.io/cluster=ring"));
    let reasons: Vec<&str> = world.events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["Launched"]);
}

#[test]
fn what_keeps_a_node_is_told_and_forgotten() {
    let mut world = World::new(&spec(|_| {}));
    world.settle();
    world.create();
    for name in ["ring-node-1", "ring-node-2"] {
        let pod = &mut world.pods.get_mut(name).unwrap().1;
        pod.trouble = Some(Trouble::new("ImagePullFailed", format!("{name}: image a cannot be pulled")));
    }
    world.pass(2);
    world.settle();
    let told = "ImagePullFailed: ring-node-1: image a cannot be pulled; and 1 more node";
    assert_eq!(world.told(READY), format!("Ready=False/{told}"));
    assert_eq!(world.events.last().unwrap().reason, "ImagePullFailed");
    assert_eq!(world.cluster.status.as_ref().unwrap().nodes[1].reason.as_deref(), Some("ImagePullFailed"));
    assert!(!world.holds(STALLED));
    // The image is there now.
    (0..3).for_each(|index| world.run_pod(index));
    world.pass(2);
    world.settle();
    assert_eq!(world.told(READY), "Ready=False/Provisioning: 3 of 3 nodes run, 0 answer");
}

#[test]
fn a_starter_that_does_not_answer_is_named() {
    let mut world = World::new(&spec(|_| {}));
    world.settle();
    world.create();
    (0..3).for_each(|index| world.run_pod(index));
    world.settle();
    let trouble = Some(Trouble::new("NoStarter", "ring-node-2: its starter does not answer"));
    world.gate.values_mut().for_each(|gate| {
        *gate =
            Work::Running(Gate { answering: ["ring-node-0".to_owned()].into(), trouble: trouble.clone() });
    });
    world.pass(2);
    world.settle();
    assert_eq!(world.told(READY), "Ready=False/NoStarter: ring-node-2: its starter does not answer");
    assert_eq!(world.cluster.status.as_ref().unwrap().ready_replicas, Some(1));
    world.pass(600);
    world.settle();
    assert_eq!(
        world.told("Failed"),
        "Failed=True/NotReadyInTime: after 600 s (scheduling.timeoutSeconds) the cluster is not ready: NoStarter: \
         ring-node-2: its starter does not answer; missing: ring-node-1: does not answer, ring-node-2: does not answer"
    );
}

#[test]
fn an_invalid_template_waits_for_another() {
    let mut world = World::new(&spec(|_| {}));
    world.settle();
    let invalid =
        Trouble::new("InvalidPodTemplate", "Pod \"ring-node-0\" is invalid: spec.x: Required value");
    world.create.values_mut().for_each(|create| *create = Work::Failed(invalid.clone()));
    world.settle();
    assert!(
        world.told(STALLED).starts_with("Stalled=True/InvalidPodTemplate: Pod \"ring-node-0\" is invalid")
    );
    assert!(world.told(READY).starts_with("Ready=False/InvalidPodTemplate: "));
    // Corrected, as the definition's rules allow: by way of suspension.
    world.edit(|spec| spec.suspend = true);
    world.settle();
    world.edit(|spec| {
        spec.suspend = false;
        spec.groups[0].pod.as_mut().unwrap().spec.as_mut().unwrap().containers[0].image = Some("b".into());
    });
    world.bring_up();
    assert!(world.holds(RUNNING));
}

#[test]
fn a_quota_is_waited_for() {
    let mut world = World::new(&spec(|_| {}));
    world.settle();
    let refused = Some(Trouble::new("QuotaExceeded", "pods \"ring-node-0\" is forbidden: exceeded quota: q"));
    world
        .create
        .values_mut()
        .for_each(|create| *create = Work::Running(Creation { refused: refused.clone() }));
    world.pass(2);
    world.settle();
    assert!(world.told(READY).starts_with("Ready=False/QuotaExceeded: pods \"ring-node-0\" is forbidden"));
    assert!(!world.holds(STALLED));
}

/// Its pod is replaced in the same plan, and something was written a moment ago.
#[test]
fn why_a_pod_ended_is_told_before_it_is_replaced() {
    let mut world = World::new(&spec(|_| {}));
    world.settle();
    world.create();
    world.settle();
    world.pass(60);
    if let Some((_, pod)) = world.pods.get_mut("ring-node-0") {
        pod.trouble = Some(Trouble::new("VolumesPending", "ring-node-0: waits"));
    }
    world.settle();
    assert_eq!(world.condition("Ready").unwrap().reason, "VolumesPending");
    world.fail_pod(1, "InitFailed");
    world.settle();
    assert!(world.pods["ring-node-1"].1.deleting.is_some(), "it is being replaced");
    assert_eq!(world.told("Provisioned"), "Provisioned=False/InitFailed: ring-node-1: InitFailed");
    assert!(world.events.iter().any(|event| event.reason == "InitFailed"), "{:?}", world.events);
}

/// A pod that fails at once is made anew, ever more seldom, until the time is over.
#[test]
fn a_failing_init_container_is_retried_with_patience() {
    let mut world = World::new(&spec(|_| {}));
    world.settle();
    world.create();
    let mut tries = 0;
    for _ in 0..700 {
        if world.pods.get("ring-node-0").is_some_and(|(_, pod)| pod.deleting.is_none()) {
            world.fail_pod(0, "InitFailed");
        }
        world.settle();
        if world.pods.get("ring-node-0").is_some_and(|(_, pod)| pod.deleting.is_some()) {
            tries += 1;
            world.reap();
            world.settle();
            world.create();
        }
        world.pass(2);
        if world.is_over() {
            break;
        }
    }
    assert!((5..40).contains(&tries), "{tries} tries in ten minutes");
    assert!(world.told("Failed").contains("InitFailed: ring-node-0"), "{}", world.told("Failed"));
}

#[test]
fn measuring_and_tuning_come_after_the_nodes() {
    let mut world = World::new(&spec(|s| {
        s["network"] = json!({ "probe": { "policy": "BeforeRun" }, "tcp": { "mode": "Apply" } });
    }));
    world.bring_up();
    assert!(world.told(MEASURED).starts_with("Measured=False/Pending: "));
    assert!(world.told(READY).starts_with("Ready=False/Measuring: "));
    assert!(world.map.is_some());
    world.say_map(&[condition("Ready", "False", "Measuring", "3 of 6 pairs are measured")]);
    world.pass(2);
    world.settle();
    assert_eq!(world.told(READY), "Ready=False/Measuring: 3 of 6 pairs are measured");
    world.say_map(&ready());
    world.settle();
    assert_eq!(world.told(MEASURED), "Measured=True/Measured: measured between 3 nodes");
    assert!(world.told(READY).starts_with("Ready=False/Tuning: "));
    world.tune(&Err(Trouble::new("NoAgent", "k1: no agent is ready")));
    world.pass(2);
    world.settle();
    assert_eq!(world.told(READY), "Ready=False/NoAgent: k1: no agent is ready");
    world.pass(6);
    world.settle();
    world.tune(&Ok(()));
    world.settle();
    assert_eq!(
        world.told(TUNED),
        "Tuned=True/Tuned: 3 settings changed on 3 nodes; nothing is assumed of how the program communicates \
         (network.tcp.profile)"
    );
    assert!(world.holds(RUNNING));
    assert_eq!(world.cluster.status.as_ref().unwrap().tcp.len(), 3);
}

#[test]
fn a_network_below_what_is_required_fails_or_warns() {
    for (policy, fails) in [("Fail", true), ("Warn", false)] {
        let mut world = World::new(&spec(|s| {
            s["network"] = json!({ "require": { "minBandwidthMbps": 500.0, "onViolation": policy } });
        }));
        world.bring_up();
        world.say_map(&ready());
        let matrices = json!({
            "hosts": ["ring-node-0", "ring-node-1", "ring-node-2"],
            "bandwidthMbps": [[null, 90.0, 900.0], [900.0, null, 900.0], [900.0, 900.0, null]],
        });
        world.map.as_mut().unwrap().status.as_mut().unwrap().matrices =
            serde_json::from_value(matrices).unwrap();
        world.settle();
        let violation = "ring-node-1 to ring-node-0: 90.0 Mbit/s is below minBandwidthMbps 500";
        if fails {
            assert_eq!(world.told("Failed"), format!("Failed=True/NetworkBelowRequirement: {violation}"));
            assert!(world.launched.is_empty());
        } else {
            assert_eq!(
                world.told(MEASURED),
                format!("Measured=True/NetworkBelowRequirement: measured between 3 nodes; {violation}")
            );
            assert!(world.holds(RUNNING));
        }
        let network = world.cluster.status.as_ref().unwrap().network.as_ref();
        assert!((network.unwrap().bandwidth_mbps.as_ref().unwrap().min - 90.0).abs() < 1e-9);
    }
}

#[test]
fn data_is_staged_while_pods_wait_for_it() {
    let mut world = World::new(&spec(|s| {
        s["data"] = json!([{ "name": "ics", "mountPath": "/data/ics", "source": { "http": { "url": "http://a/b" } } }]);
    }));
    world.settle();
    assert_eq!(world.broadcasts.len(), 1);
    world.create();
    for (_, pod) in world.pods.values_mut() {
        pod.node = Some("k0".into());
        pod.waits_for_sandbox = true;
    }
    world.say_broadcasts(&[condition("Ready", "False", "Staging", "1 of 3 nodes have it")]);
    world.pass(700);
    world.settle();
    // Data takes as long as it takes.
    assert_eq!(world.told(READY), "Ready=False/Staging: ics: 1 of 3 nodes have it");
    world.say_broadcasts(&stalled("SourceNotFound", "PersistentVolumeClaim x does not exist"));
    world.settle();
    assert_eq!(
        world.told(STALLED),
        "Stalled=True/SourceNotFound: ics: PersistentVolumeClaim x does not exist"
    );
    world.say_broadcasts(&ready());
    world.settle();
    assert_eq!(world.told(STAGED), "Staged=True/Staged: 1 dataset is on every node, verified");
    world.pass(11);
    world.settle();
    assert!(
        world.told(READY).starts_with("Ready=False/VolumesPending: ring-node-0: "),
        "{}",
        world.told(READY)
    );
    (0..3).for_each(|index| world.run_pod(index));
    world.settle();
    world.open_gate();
    world.settle();
    assert!(world.holds(RUNNING));
    assert_eq!(world.cluster.status.as_ref().unwrap().data[0].broadcast_name.as_deref(), Some("ring-ics"));
}

#[test]
fn suspended_at_creation_has_no_pods_and_no_ready() {
    let mut world = World::new(&spec(|s| s["suspend"] = json!(true)));
    world.settle();
    assert!(world.steps.is_empty() && world.pods.is_empty());
    assert_eq!(
        world.told(SUSPENDED),
        "Suspended=True/Suspended: there is no compute, as `spec.suspend` asks"
    );
    assert!(world.condition(READY).is_none());
}

/// Progress is published, but not at every step; transitions at once.
#[test]
fn a_thousand_nodes_do_not_make_a_thousand_writes() {
    let mut world = World::new(&spec(|s| {
        s["groups"][0]["replicas"] = json!(1000);
        s["run"]["processes"] = json!(1000);
    }));
    world.settle();
    world.create();
    let before = world.writes;
    for tenth in 0..100 {
        (0..10).for_each(|index| world.run_pod(tenth * 10 + index));
        world.now += jiff::SignedDuration::from_millis(100);
        world.settle();
    }
    assert!((4..=6).contains(&(world.writes - before)), "{} writes in ten seconds", world.writes - before);
    let status = world.cluster.status.as_ref().unwrap();
    assert_eq!(status.nodes.len(), 64);
    assert!(serde_json::to_vec(status).unwrap().len() < 32_768);
}
