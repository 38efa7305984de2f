//! What is done in which state? And what does a measurement look like to those who are asked?

use std::{sync::Arc, time::Duration};

use gridcast_control::{StepFailure, measure::ProbeAsk};
use gridcast_core::report::Network;
use gridcast_crds::{NetworkMap, NetworkMapSpec};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::{
    measuring::{self, Found},
    observed::{Host, HostPod, Hosts, Measurement, Observed},
    plan::{Plan, plan},
};
use crate::broadcast::{knowledge::Trouble, tests::agents::Agents};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn host(name: &str, uid: &str, created: i64) -> Host {
    let pod = HostPod { uid: uid.into(), address: "10.0.0.1".into(), created: Some(at(created)) };
    Host { name: name.into(), node: format!("node-of-{name}"), pod: Some(pod) }
}

fn found(names: &[&str]) -> Found {
    let hosts = names.iter().map(|&name| name.to_owned()).collect();
    Found::Pairs(Box::new(Network { hosts, timestamps: "kernel".into(), ..Network::default() }))
}

/// A map of two pods, made at second 100, about which nothing is known.
fn observed() -> Observed {
    let mut object = NetworkMap::new("ring", NetworkMapSpec::default());
    object.metadata.generation = Some(1);
    object.metadata.creation_timestamp = Some(Time(at(100)));
    Observed {
        object: Arc::new(object),
        hosts: Hosts::Known(vec![host("a", "u1", 99), host("b", "u2", 99)]),
        busy: false,
        last: Measurement::default(),
        running: false,
    }
}

impl Observed {
    /// As after this plan was applied and its measurement has ended so at second `end`.
    fn after(mut self, plan: &Plan, end: i64, result: Result<Found, StepFailure>) -> Self {
        self = self.published(plan);
        let order = plan.order.as_ref().expect("a measurement was ordered");
        let before = order.first.clone();
        self.last = match result {
            Ok(found) => Measurement { found: Some((at(end), found)), trouble: None, ..before },
            Err(failure) => Measurement {
                trouble: Some(Trouble::after(before.trouble.as_ref(), failure, at(end))),
                ..before
            },
        };
        self
    }

    fn published(mut self, plan: &Plan) -> Self {
        if let Some(status) = &plan.status {
            Arc::make_mut(&mut self.object).status = Some(status.clone());
        }
        self
    }

    fn ready(&self) -> (String, String) {
        let ready = &self.object.status.as_ref().expect("a status").conditions[0];
        (ready.status.clone(), ready.reason.clone())
    }
}

fn settled() -> Observed {
    let observed = observed();
    let first = plan(&observed, at(101));
    let observed = observed.after(&first, 102, Ok(found(&["a", "b"])));
    let second = plan(&observed, at(102));
    observed.published(&second)
}

#[test]
fn a_short_measurement_is_one_write() {
    let observed = observed();
    let first = plan(&observed, at(101));
    assert!(first.order.is_some() && first.status.is_none());
    let observed = observed.after(&first, 102, Ok(found(&["a", "b"])));
    let second = plan(&observed, at(102));
    assert!(second.order.is_none() && second.again.is_none());
    let observed = observed.published(&second);
    assert_eq!(observed.ready(), ("True".into(), "Measured".into()));
    assert_eq!(plan(&observed, at(103)), Plan::default(), "settled");
    assert_eq!(plan(&observed, at(1_000_000)), Plan::default(), "settled for good");
}

#[test]
fn a_long_measurement_is_told_of() {
    let mut observed = observed();
    let first = plan(&observed, at(101));
    observed.last = first.order.unwrap().first;
    observed.running = true;
    assert!(plan(&observed, at(102)).status.is_none());
    assert_eq!(plan(&observed, at(102)).again, Some(Duration::from_secs(2)));
    let told = plan(&observed, at(104));
    assert_eq!(observed.published(&told).ready(), ("False".into(), "Measuring".into()));
}

#[test]
fn another_process_believes_the_status_unless_the_pods_are_others() {
    let mut observed = settled();
    observed.last = Measurement::default();
    assert_eq!(plan(&observed, at(200)), Plan::default());

    let mut renamed = observed.clone();
    renamed.hosts = Hosts::Known(vec![host("a", "u1", 99), host("c", "u3", 99)]);
    assert!(plan(&renamed, at(200)).order.is_some());

    let mut replaced = observed.clone();
    replaced.hosts = Hosts::Known(vec![host("a", "u1", 99), host("b", "u4", 150)]);
    let plan_ = plan(&replaced, at(200));
    assert!(plan_.order.is_some());
    assert_eq!(
        replaced.published(&plan_).ready(),
        ("False".into(), "Measuring".into()),
        "what is published is about others"
    );
}

#[test]
fn the_same_process_measures_anew_for_another_spec_label_or_pod() {
    type Change = fn(&mut Observed);
    let changes: [(&str, Change); 3] = [
        ("generation", |o| Arc::make_mut(&mut o.object).metadata.generation = Some(2)),
        ("incarnation", |o| {
            Arc::make_mut(&mut o.object).metadata.labels =
                Some([("gridcast.io/incarnation".into(), "2".into())].into());
        }),
        ("pod", |o| o.hosts = Hosts::Known(vec![host("a", "u1", 99), host("b", "u5", 99)])),
    ];
    for (what, change) in changes {
        let mut observed = settled();
        change(&mut observed);
        assert!(plan(&observed, at(200)).order.is_some(), "{what}");
    }
}

#[test]
fn a_running_program_is_not_disturbed() {
    let mut observed = observed();
    observed.busy = true;
    let waits = plan(&observed, at(101));
    assert!(waits.order.is_none() && waits.again.is_some());
    assert_eq!(observed.clone().published(&waits).ready(), ("False".into(), "ProgramRuns".into()));

    let mut periodic = settled();
    Arc::make_mut(&mut periodic.object).spec.interval_seconds = Some(60);
    periodic.busy = true;
    let later = plan(&periodic, at(200));
    assert!(later.order.is_none() && later.status.is_none() && later.again.is_some());
    periodic.busy = false;
    assert!(plan(&periodic, at(200)).order.is_some());
    assert_eq!(plan(&periodic, at(112)).again, Some(Duration::from_secs(50)));
}

#[test]
fn while_it_is_measured_again_what_is_known_stays() {
    let mut observed = settled();
    Arc::make_mut(&mut observed.object).spec.interval_seconds = Some(60);
    let again = plan(&observed, at(162));
    assert!(again.status.is_none());
    observed.last = again.order.unwrap().first;
    observed.running = true;
    assert!(plan(&observed, at(162)).status.is_none() && plan(&observed, at(170)).status.is_none());
}

#[test]
fn a_failure_is_told_once_and_tried_again_with_patience() {
    let mut observed = observed();
    let mut now = 101;
    let mut waits = Vec::new();
    let mut writes = 0;
    for _ in 0..4 {
        let ordered = plan(&observed, at(now));
        writes += u32::from(ordered.status.is_some());
        observed = observed.after(
            &ordered,
            now,
            Err(StepFailure::new("ProbeFailed", "a: measuring bandwidth to b: no")),
        );
        let wait = plan(&observed, at(now));
        writes += u32::from(wait.status.is_some());
        assert!(wait.order.is_none());
        observed = observed.published(&wait);
        let seconds = wait.again.unwrap().as_secs();
        waits.push(seconds);
        now += i64::try_from(seconds).unwrap();
    }
    assert_eq!(waits, [1, 2, 4, 8]);
    assert_eq!(writes, 1);
    assert_eq!(observed.ready(), ("False".into(), "ProbeFailed".into()));
    let ordered = plan(&observed, at(now));
    let observed = observed.after(&ordered, now, Ok(found(&["a", "b"])));
    let good = plan(&observed, at(now));
    assert_eq!(observed.published(&good).ready(), ("True".into(), "Measured".into()));
}

#[test]
fn who_is_waited_for_is_told_at_once_and_pods_in_passing() {
    let waiting =
        |reason: &str, message: &str| Hosts::Waiting { reason: reason.into(), message: message.into() };
    let mut observed = observed();
    observed.hosts = waiting("WaitingForPods", "2 of 2");
    let told = plan(&observed, at(100));
    observed = observed.published(&told);
    observed.hosts = waiting("WaitingForPods", "1 of 2");
    let passing = plan(&observed, at(101));
    assert_eq!((passing.status, passing.again), (None, Some(Duration::from_secs(9))));
    observed.hosts = waiting("NoAgent", "node w1 has no agent that answers");
    let told = plan(&observed, at(102));
    assert_eq!(observed.clone().published(&told).ready(), ("False".into(), "NoAgent".into()));

    let mut measured = settled();
    measured.hosts = waiting("WaitingForPods", "1 of 2");
    assert_eq!(plan(&measured, at(200)), Plan::default(), "what was measured stays true");
}

proptest! {
    /// Whatever happens, what is published is published once: the plan for an object whose plan was applied writes nothing.
    #[test]
    fn a_plan_that_was_applied_is_not_written_again(
        names in proptest::collection::vec("[a-c]", 0..3), uid in 0_u8..3, busy in any::<bool>(), running in any::<bool>(),
        interval in proptest::option::of(60_i32..100), known in 0_u8..4, published in any::<bool>(), second in 100_i64..400,
    ) {
        let mut observed = if published { settled() } else { observed() };
        let hosts: Vec<Host> = names.iter().map(|name| host(name, &format!("{name}{uid}"), 99)).collect();
        observed.hosts = if known == 3 {
            Hosts::Waiting { reason: "WaitingForPods".into(), message: "one".into() }
        } else {
            Hosts::Known(hosts.clone())
        };
        observed.busy = busy;
        observed.running = running && !observed.last.key.is_empty();
        Arc::make_mut(&mut observed.object).spec.interval_seconds = interval;
        if known == 1 {
            observed.last = Measurement {
                key: observed.key(&hosts), began: at(100), trouble: None,
                found: Some((at(150), found(&names.iter().map(String::as_str).collect::<Vec<_>>()))),
            };
        }
        if known == 2 {
            let failure = StepFailure::new("ProbeFailed", "x");
            let trouble = Some(Trouble { failure, count: 1, at: at(150) });
            observed.last = Measurement { key: observed.key(&hosts), began: at(100), found: None, trouble };
        }
        let first = plan(&observed, at(second));
        let again = plan(&observed.published(&first), at(second));
        prop_assert_eq!(again.status, None);
        // Nothing waits for nothing: it measures, looks again, or is told by a change.
        if let Some(wait) = first.again { prop_assert!(!wait.is_zero()); }
    }
}

fn ask(bandwidth: bool) -> ProbeAsk {
    ProbeAsk { payloads: vec![64, 50_000], count: 10, interval: Duration::from_millis(10), bandwidth }
}

async fn measured(agents: &Agents, names: &[&str], bandwidth: bool) -> Network {
    let remotes: Vec<_> = names.iter().map(|name| agents.remote(name)).collect();
    let machines: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    match measuring::measure(&remotes, &machines, &ask(bandwidth)).await.unwrap() {
        Found::Pairs(network) => *network,
        Found::Links(_) => panic!("few hosts are measured in pairs"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn near_hosts_are_opened_then_pinged_then_measured_and_pinged_at_their_pace() {
    let agents = Agents::start(&["a", "b", "c"]).await;
    let network = measured(&agents, &["a", "b", "c"], true).await;
    let asked = agents.asked("a");
    assert_eq!(asked[0], "describe", "a pod answers no probe before");
    let of = |part: &str| asked.iter().filter(|call| call.contains(part)).count();
    assert_eq!(
        (of("10 pings of 64 to"), of("10 pings of 50000 to"), of("bandwidth to")),
        (2, 2, 2),
        "{asked:?}"
    );
    assert!(asked.contains(&"10 pings of 64 to b every 2000".to_owned()));
    // At 100 Mbit/s 50,000 bytes take 4 ms; those to c do not wait for that.
    assert!(asked.contains(&"10 pings of 50000 to b every 6666".to_owned()), "{asked:?}");
    assert!(asked.contains(&"10 pings of 50000 to c every 2000".to_owned()), "{asked:?}");
    assert_eq!(network.bandwidth_mbps[1], [Some(100.0), None, Some(100.0)], "rows are destinations");
    assert_eq!(network.bandwidth_mbps[2], [Some(900.0), Some(900.0), None]);
    assert_eq!(network.rtt_milliseconds["50000"][0], [None, Some(0.1), Some(0.1)]);
    assert_eq!(network.worst.iter().find(|pair| pair.quantity == "bandwidthMbps").unwrap().to, "b");
    assert_eq!(network.notes.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_far_below_the_others_is_measured_again_and_does_not_hold_them_up() {
    let agents = Agents::start(&["a", "c", "starved"]).await;
    let network = measured(&agents, &["a", "c", "starved"], true).await;
    assert_eq!(network.bandwidth_mbps[2], [Some(1.0), Some(1.0), None]);
    for (from, calls) in [("a", [1, 2]), ("starved", [1, 0])] {
        let asked = agents.asked(from);
        let of = |to: &str| asked.iter().filter(|call| **call == format!("bandwidth to {to}")).count();
        assert_eq!([of("c"), of("starved")], calls, "{asked:?}");
    }
    // At 1 Mbit/s it would be 666,666.
    let asked = agents.asked("a");
    assert!(asked.contains(&"10 pings of 50000 to starved every 66666".to_owned()), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_asked_for_is_measured() {
    let agents = Agents::start(&["a", "b"]).await;
    let network = measured(&agents, &["a", "b"], false).await;
    assert!(network.bandwidth_mbps.iter().flatten().all(Option::is_none) && network.notes.is_empty());
    assert!(agents.asked("a").iter().all(|call| !call.contains("bandwidth")));
    assert!(agents.asked("a").contains(&"10 pings of 50000 to b every 10000".to_owned()));
    let alone = measured(&agents, &["a"], true).await;
    assert_eq!((alone.hosts.len(), alone.bandwidth_mbps.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_be_measured_is_named() {
    let agents = Agents::start(&["a"]).await;
    let channel = tonic::transport::Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
    let gone = gridcast_control::Remote::new("b", gridcast_proto::v1::Peer::default(), channel, None);
    let machines = ["a", "b"].map(str::to_owned);
    let failure = measuring::measure(&[agents.remote("a"), gone], &machines, &ask(true)).await.unwrap_err();
    assert!(failure.message.starts_with("b: "), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_hangs_is_named_in_time() {
    // The kernel takes the connections, and nobody ever answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let hangs = |name: &str| {
        let channel = tonic::transport::Endpoint::from_shared(address.clone()).unwrap().connect_lazy();
        gridcast_control::Remote::new(name, gridcast_proto::v1::Peer::default(), channel, None)
    };
    let (remotes, machines) = ([hangs("a"), hangs("b")], ["a", "b"].map(str::to_owned));
    let begun = tokio::time::Instant::now();
    let failure = measuring::measure(&remotes, &machines, &ask(true)).await.unwrap_err();
    assert_eq!(failure.reason, "AgentLost");
    assert!(
        failure.message.starts_with("a: the node no longer answers while describing the node"),
        "{failure}"
    );
    assert!(begun.elapsed() <= Duration::from_secs(31), "{:?}", begun.elapsed());

    // One that hangs later: the pair is named.
    let begun = tokio::time::Instant::now();
    let shared = gridcast_control::measure::machines(&machines);
    let limits = gridcast_control::measure::Limits::machines();
    let failure = gridcast_control::measure::measure(&remotes, &ask(true), &shared, &limits, &|_| ())
        .await
        .unwrap_err();
    assert!(
        failure.message.contains("a: the node no longer answers while measuring round-trip times to b"),
        "{failure}"
    );
    assert!(begun.elapsed() <= Duration::from_secs(35), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_hosts_each_link_is_measured() {
    let names: Vec<String> = (0..66).map(|i| format!("n{i}")).collect();
    let agents = Agents::start(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let remotes: Vec<_> = names.iter().map(|name| agents.remote(name)).collect();
    let Found::Links(links) = measuring::measure(&remotes, &names, &ask(true)).await.unwrap() else {
        panic!("many hosts are not measured in pairs")
    };
    assert_eq!((links.hosts.len(), links.groups.len()), (66, 5));
    assert_eq!(links.delays[65], Some(0.025));
    assert!(links.mbps.iter().all(|row| row.iter().flatten().count() >= 5));
    assert_eq!(links.notes.len(), 3);
}
