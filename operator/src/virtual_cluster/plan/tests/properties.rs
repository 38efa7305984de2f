//! What holds whatever happens.

use gridcast_crds::conditions::{COMPLETE, FAILED, READY, RECONCILING, RUNNING, STALLED, SUSPENDED};
use proptest::prelude::*;
use serde_json::json;

use super::world::{World, condition, ready, spec, stalled};
use crate::virtual_cluster::{
    observed::{Creation, Gate, Phase, Trouble, Work},
    plan::{
        ObjectKind::{DisruptionBudget, Service},
        Part,
    },
};

#[derive(Clone, Debug)]
enum Happening {
    Pass(i64),
    Create,
    Refuse,
    Invalid,
    Run(usize),
    Fail(usize),
    Remove(usize),
    Reap,
    OpenGate,
    CloseGate,
    Map(u8),
    Data(u8),
    Tune(bool),
    Rank,
    End(i32, bool),
    Lose,
    Stop(bool),
    CollectPod,
    Collect(bool),
    Release,
    Suspend(bool),
    Image(bool),
    Keys(u64),
    Taken(bool),
    Upgrade,
    Operator,
    Crash,
    Delete,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::*;
    prop_oneof![
        4 => (1i64..20).prop_map(Pass),
        1 => (20i64..700).prop_map(Pass),
        4 => Just(Create),
        1 => Just(Refuse),
        1 => Just(Invalid),
        8 => (0usize..3).prop_map(Run),
        1 => (0usize..3).prop_map(Fail),
        1 => (0usize..3).prop_map(Remove),
        3 => Just(Reap),
        5 => Just(OpenGate),
        1 => Just(CloseGate),
        4 => (0u8..4).prop_map(Map),
        4 => (0u8..4).prop_map(Data),
        4 => any::<bool>().prop_map(Tune),
        2 => Just(Rank),
        2 => (prop_oneof![Just(0), Just(1), Just(85), Just(137)], any::<bool>()).prop_map(|(code, lost)| End(code, lost)),
        1 => Just(Lose),
        4 => any::<bool>().prop_map(Stop),
        2 => Just(CollectPod),
        2 => any::<bool>().prop_map(Collect),
        3 => Just(Release),
        1 => any::<bool>().prop_map(Suspend),
        1 => any::<bool>().prop_map(Image),
        1 => (1u64..4).prop_map(Keys),
        1 => any::<bool>().prop_map(Taken),
        1 => Just(Upgrade),
        2 => Just(Operator),
        2 => Just(Crash),
    ]
}

fn happen(world: &mut World, what: &Happening) {
    use Happening::*;
    let result = |well: bool| if well { Ok(()) } else { Err(Trouble::new("Failed", "it failed")) };
    match what {
        Pass(seconds) => world.pass(*seconds),
        Create => world.create(),
        Refuse => world.create.values_mut().for_each(|create| {
            if matches!(create, Work::Running(_)) {
                *create = Work::Running(Creation { refused: Some(Trouble::new("QuotaExceeded", "no more")) });
            }
        }),
        Invalid => world.create.values_mut().for_each(|create| {
            if matches!(create, Work::Running(_)) {
                *create = Work::Failed(Trouble::new("InvalidPodTemplate", "no"));
            }
        }),
        Run(index) => world.run_pod(*index),
        Fail(index) => world.fail_pod(*index, "Evicted"),
        Remove(index) => world.remove_pod(*index),
        Reap => world.reap(),
        OpenGate => world.open_gate(),
        CloseGate => world.gate.values_mut().for_each(|gate| {
            if matches!(gate, Work::Running(_)) {
                let trouble = Some(Trouble::new("NoStarter", "ring-node-0: its starter does not answer"));
                *gate = Work::Running(Gate { answering: ["ring-node-1".to_owned()].into(), trouble });
            }
        }),
        Map(0) => world.say_map(&stalled("NoAgents", "no agent is ready")),
        Map(1) => world.say_map(&[condition("Ready", "False", "Measuring", "half")]),
        Map(_) => world.say_map(&ready()),
        Data(0) => world.say_broadcasts(&stalled("SourceNotFound", "no such claim")),
        Data(1) => world.say_broadcasts(&[condition("Ready", "False", "Staging", "half")]),
        Data(_) => world.say_broadcasts(&ready()),
        Tune(well) => world.tune(&result(*well)),
        Rank => world.rank(),
        End(0, _) => world.end_launch(0, None, &[]),
        End(code, lost) => {
            let lost: &[&str] = if *lost { &["ring-node-1"] } else { &[] };
            world.end_launch(*code, Some(&Trouble::new("RankFailed", "rank 0")), lost);
        }
        Lose => world.lose_launch(),
        Stop(well) => world.finish_simple("stop/", &result(*well)),
        CollectPod => {
            for pod in &mut world.collect_pods {
                pod.pod.phase = Phase::Running;
                pod.pod.address = Some("10.0.0.9".into());
            }
        }
        Collect(well) => world.finish_simple("collect/", &result(*well)),
        Release => world.release(),
        Suspend(suspend) => world.edit(|spec| spec.suspend = *suspend),
        // As the definition's rules allow it: while suspended.
        Image(other) => {
            let image = if *other { "b" } else { "a" };
            if world.cluster.spec.suspend {
                world.edit(|spec| {
                    let pod = spec.groups[0].pod.as_mut().unwrap().spec.as_mut().unwrap();
                    pod.containers[0].image = Some(image.into());
                });
            }
        }
        Keys(number) => world.rotate(*number),
        Taken(true) => {
            let taken = Trouble::new("NameTaken", "it is somebody else's");
            let object = if world.now.as_second() % 2 == 0 { Service } else { DisruptionBudget };
            world.taken.extend(
                [Part::Object(object), Part::Broadcast("ics".into())].map(|part| (part, taken.clone())),
            );
        }
        Taken(false) => world.taken.clear(),
        Upgrade => {
            world.renumber();
            world.restart_operator();
        }
        Operator => world.restart_operator(),
        // Between what is published and what is done about it.
        Crash => {
            let plan = world.plan();
            world.apply(crate::virtual_cluster::plan::Plan { actions: Vec::new(), ..plan });
            world.restart_operator();
        }
        Delete => {
            let now = world.now;
            let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now);
            world.cluster.metadata.deletion_timestamp.get_or_insert(time);
        }
    }
}

/// What was published before, to compare with.
#[derive(Default)]
struct Seen {
    over: Option<String>,
    restarts: i32,
}

fn check(world: &World, seen: &mut Seen, budget: i32) {
    let Some(status) = &world.cluster.status else { return };
    for condition in &status.conditions {
        let time = condition.last_transition_time.0;
        assert!(!condition.reason.is_empty() && condition.reason.chars().all(|c| c.is_ascii_alphanumeric()));
        assert!(time <= world.now && time.subsec_nanosecond() == 0);
        assert_eq!(condition.observed_generation, status.observed_generation);
    }
    // kstatus: suspended and silent, or ready, or not ready for exactly one of two reasons.
    let (reconciling, stuck) = (world.holds(RECONCILING), world.holds(STALLED));
    if world.holds(SUSPENDED) {
        assert!(world.condition(READY).is_none() && !reconciling && !stuck);
    } else if world.holds(READY) {
        assert!(!reconciling && !stuck);
    } else {
        assert!(reconciling != stuck, "{:?}", status.conditions);
    }
    assert!(!(world.holds(COMPLETE) && world.holds(FAILED)));
    if world.is_over() {
        assert!(status.completion_time.is_some() && !world.holds(RUNNING));
        assert!(status.timeline.as_ref().unwrap().finished.is_some());
    } else {
        assert!(status.completion_time.is_none());
    }
    let end = world.is_over().then(|| format!("{}{}", world.told(COMPLETE), world.told(FAILED)));
    if seen.over.is_some() {
        assert_eq!(seen.over, end, "an end is for good");
    }
    seen.over = end;
    assert!(
        (seen.restarts..=budget).contains(&world.restarts()),
        "{} restarts of {budget}",
        world.restarts()
    );
    seen.restarts = world.restarts();
    if world.holds(RUNNING) {
        assert!(world.holds(READY));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens(
        happenings in prop::collection::vec(happening(), 1..100),
        budget in 0i32..3,
        full in any::<bool>(),
        cleanup in prop_oneof![Just("None"), Just("Running"), Just("All")],
    ) {
        let mut world = World::new(&spec(|s| {
            s["restart"] = json!({ "maxRestarts": budget, "rules": [
                { "exitCodes": [137], "action": "Restart" }, { "exitCodes": [85], "action": "Ignore" },
            ] });
            s["cleanup"] = json!(cleanup);
            if full {
                s["network"] = json!({ "tcp": { "mode": "Apply" } });
                s["data"] = json!([{ "name": "ics", "mountPath": "/data/ics", "source": { "http": { "url": "http://a/b" } } }]);
                s["run"]["collect"] =
                    json!([{ "path": "/out", "to": { "persistentVolumeClaim": { "claimName": "c" } } }]);
            }
        }));
        let mut seen = Seen::default();
        world.settle();
        check(&world, &mut seen, budget);
        for what in &happenings {
            let ran = world.holds(RUNNING) && !world.cluster.spec.suspend;
            happen(&mut world, what);
            world.settle();
            check(&world, &mut seen, budget);
            if ran && matches!(what, Happening::Keys(_) | Happening::Taken(_) | Happening::Upgrade) {
                prop_assert!(world.holds(RUNNING), "{:?} ends no program: {}", what, world.told(RUNNING));
            }
        }
        // Left alone it comes to rest, and then writes nothing.
        world.pass(1);
        world.settle();
        let writes = world.writes;
        world.settle();
        prop_assert_eq!(world.writes, writes);
        // And it can always be deleted.
        happen(&mut world, &Happening::Delete);
        world.settle();
        world.pass(31);
        world.settle();
        prop_assert!(world.gone || world.cluster.metadata.finalizers.is_none());
    }
}
