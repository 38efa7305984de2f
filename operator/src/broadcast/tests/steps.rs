//! One attempt against agents in this process: real calls over loopback, and everything that was asked is known.

use std::time::Duration;

use gridcast_control::Remote;
use gridcast_crds::{BroadcastSpec, broadcast::BoundKind};
use gridcast_proto::v1 as wire;
use tonic::transport::Endpoint;

use super::super::{
    knowledge::{Copy, Knowledge},
    stage::{self, Source, Work},
};
use super::agents::Agents;
use super::fixture::{BORN, at, has};
use crate::operations::{Operations, Owner, State};

impl Agents {
    fn work(&self, nodes: &[&str], source: Option<&str>) -> Work {
        Work {
            spec: BroadcastSpec::default(),
            namespace: "lab".into(),
            name: "ics".into(),
            uid: "0f0e-11".into(),
            driver: source.unwrap_or("s").into(),
            nodes: nodes.iter().map(|node| self.remote(node)).collect(),
            release: Vec::new(),
            keep_data: false,
            source: source.map(|name| Source {
                remote: self.remote(name),
                path: "/srv/ics".into(),
                carrier: None,
                told: None,
            }),
            pods: None,
            mapped: None,
            now: || at(BORN),
        }
    }
}

async fn run(work: Work, known: Knowledge) -> Knowledge {
    let operations = Operations::default();
    let owner =
        Owner { kind: "Broadcast".into(), namespace: "lab".into(), name: "ics".into(), uid: "u".into() };
    let first = known.clone();
    operations.begin(&owner, "stage", known, |reporter| stage::attempt(work, first, reporter));
    for _ in 0..2000 {
        match operations.state::<Knowledge>(&owner, "stage") {
            Some(State::Done(knowledge)) => return knowledge,
            Some(State::Failed(failure)) => panic!("an attempt never fails as such: {failure}"),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    panic!("the attempt does not end")
}

/// What is known at first: an entry for each node.
fn first(nodes: &[&str]) -> Knowledge {
    let copy = |node: &&str| ((*node).to_owned(), Copy { agent: format!("agent-{node}"), ..Copy::default() });
    Knowledge { attempt: 42, copies: nodes.iter().map(copy).collect(), ..Knowledge::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dataset_goes_to_those_who_do_not_have_it() {
    let agents = Agents::start(&["a", "b", "c", "s"]).await;
    agents.with("b", |script| script.verified = true);
    let known = run(agents.work(&["a", "b", "c"], Some("s")), first(&["a", "b", "c"])).await;
    assert!(known.copies.values().all(|copy| copy.verified && copy.prepared && copy.trouble.is_none()));
    let started = agents.started("s");
    assert_eq!(started.id, "0f0e-11-42");
    assert_eq!(started.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(
        (started.source_path.as_str(), started.target.as_str()),
        ("/srv/ics", "/var/lib/gridcast/data/lab/ics")
    );
    assert!(!started.store_at_source);
    assert_eq!(started.plan.unwrap().trees[0].hops.len(), 2);
    let campaign = &known.campaign;
    assert_eq!(
        (campaign.transfers, campaign.source_bytes_read, campaign.bound_kind),
        (1, 1 << 20, Some(BoundKind::Assumed))
    );
    assert!((campaign.seconds - 0.5).abs() < 1e-9);
    assert_eq!(known.copies["b"].arrival, None);
    let arrival = known.copies["a"].arrival.unwrap();
    assert!((arrival.rate_mbps - 16.777).abs() < 0.001 && arrival.bound_mbps > 0.0, "{arrival:?}");
    assert_eq!(known.dataset.unwrap().digest, Some("e".repeat(64)));
    let prepared = agents.0["a"].0.0.lock().unwrap().prepared[0].clone();
    assert_eq!(
        (prepared.namespace.as_str(), prepared.name.as_str(), prepared.uid.as_str()),
        ("lab", "ics", "0f0e-11")
    );
    assert_eq!((prepared.path.as_str(), prepared.source.as_str()), ("", "s"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_it_all_asks_nothing_of_the_source() {
    let agents = Agents::start(&["a", "b", "s"]).await;
    for node in ["a", "b"] {
        agents.with(node, |script| script.verified = true);
    }
    let known = run(agents.work(&["a", "b"], Some("s")), first(&["a", "b"])).await;
    assert!(known.copies.values().all(|copy| copy.verified));
    assert_eq!(known.dataset.unwrap().size_bytes, 7);
    assert_eq!((agents.asked("s").len(), known.campaign.transfers), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_node_is_named_and_the_others_keep_what_they_have() {
    let agents = Agents::start(&["a", "b", "c", "s"]).await;
    agents.with("s", |script| script.fails = Some(("b".into(), "DiskFull")));
    let known = run(agents.work(&["a", "b", "c"], Some("s")), first(&["a", "b", "c"])).await;
    assert!(known.copies["a"].verified && known.copies["c"].verified && !known.copies["b"].verified);
    let trouble = known.copies["b"].trouble.as_ref().unwrap();
    assert_eq!(
        (trouble.failure.reason.as_str(), trouble.failure.message.as_str(), trouble.count),
        ("DiskFull", "b: it went wrong", 1)
    );
    assert_eq!(known.source, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_fails_is_at_fault_itself() {
    let agents = Agents::start(&["a", "b", "s"]).await;
    agents.with("s", |script| script.fails = Some(("s".into(), "SourceChanged")));
    let known = run(agents.work(&["a", "b"], Some("s")), first(&["a", "b"])).await;
    assert_eq!(known.source.unwrap().failure.reason, "SourceChanged");
    assert!(known.copies.values().all(|copy| copy.trouble.is_none()));

    // Its own copy is another matter.
    agents.with("s", |script| script.fails = Some(("s".into(), "DiskFull")));
    let known = run(agents.work(&["a", "s"], Some("s")), first(&["a", "s"])).await;
    assert_eq!(known.source, None);
    assert_eq!(known.copies["s"].trouble.as_ref().unwrap().failure.reason, "DiskFull");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_should_have_it_keeps_a_copy() {
    let agents = Agents::start(&["a", "s"]).await;
    let known = run(agents.work(&["a", "s"], Some("s")), first(&["a", "s"])).await;
    let started = agents.started("s");
    assert!(started.store_at_source && started.members.len() == 1);
    assert!(known.copies["s"].verified && known.copies["s"].arrival.is_some());

    // Nobody else does: there is no tree, and still it is stored and verified.
    let known = run(agents.work(&["s"], Some("s")), first(&["s"])).await;
    assert!(known.copies["s"].verified);
    assert!(agents.started("s").plan.unwrap().trees.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_pod_needs_a_moment_and_is_told_of_in_the_users_words() {
    let agents = Agents::start(&["a", "b", "0f0e-11"]).await;
    agents.with("0f0e-11", |script| {
        script.deaf = 3;
        script.fails = Some(("0f0e-11".into(), "SourceUnreadable"));
    });
    let mut work = agents.work(&["a", "b"], Some("0f0e-11"));
    work.source.as_mut().unwrap().told = Some("ConfigMap ics:".into());
    let known = run(work, first(&["a", "b"])).await;
    assert_eq!(known.source.unwrap().failure.message, "the source: it went wrong");
    assert_eq!(agents.asked("0f0e-11").iter().filter(|call| *call == "inspect").count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_dataset_is_measured_for_first_and_once() {
    let agents = Agents::start(&["a", "b", "c", "s"]).await;
    agents.with("s", |script| script.size_bytes = 1 << 30);
    let known = run(agents.work(&["a", "b", "c"], Some("s")), first(&["a", "b", "c"])).await;
    assert_eq!(known.campaign.bound_kind, Some(BoundKind::Measured));
    assert!((known.copies["a"].arrival.unwrap().bound_mbps - 900.0).abs() < 1e-9);
    assert!((known.copies["b"].arrival.unwrap().bound_mbps - 100.0).abs() < 1e-9);
    assert!(agents.asked("a").iter().any(|call| call == "bandwidth to b"));
    let probes =
        |agents: &Agents| agents.asked("a").iter().filter(|call| call.starts_with("bandwidth")).count();
    let before = probes(&agents);
    let mut again = first(&["a", "b", "c"]);
    again.measured = known.measured;
    let known = run(agents.work(&["a", "b", "c"], Some("s")), again).await;
    assert_eq!((known.campaign.bound_kind, probes(&agents)), (Some(BoundKind::Measured), before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_refuses_to_prepare_is_left_out_and_told_of() {
    let agents = Agents::start(&["a", "b", "s"]).await;
    agents.with("b", |script| script.refuses = true);
    let known = run(agents.work(&["a", "b"], Some("s")), first(&["a", "b"])).await;
    assert!(known.copies["a"].verified);
    let failure = &known.copies["b"].trouble.as_ref().unwrap().failure;
    assert_eq!(failure.reason, "PrepareFailed");
    assert_eq!(failure.message, "b: preparing for the dataset: the directory is somebody else's");
    assert_eq!(agents.started("s").members.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_keep_data_elsewhere_wait_for_the_next_transfer() {
    let agents = Agents::start(&["a", "b", "s"]).await;
    agents.with("b", |script| script.target = "/data/gridcast/lab/ics".into());
    let known = run(agents.work(&["a", "b"], Some("s")), first(&["a", "b"])).await;
    assert!(known.copies["a"].verified);
    assert!(known.copies["b"].prepared && !known.copies["b"].verified && known.copies["b"].trouble.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_mounted_is_not_released_and_says_by_whom() {
    let agents = Agents::start(&["a", "b", "c"]).await;
    agents.with("b", |script| script.mounted = vec!["pod-1".into()]);
    agents.with("c", |script| script.mounted = vec!["pod-2".into()]);
    let mut known = first(&["a"]);
    known.copies.insert("b".into(), has("agent-b"));
    let mut work = agents.work(&[], None);
    work.release = ["a", "b", "c"].map(|node| agents.remote(node)).to_vec();
    work.keep_data = true;
    let known = run(work, known).await;
    assert_eq!(agents.asked("a"), ["release keep=true"]);
    assert_eq!(known.copies.keys().collect::<Vec<_>>(), ["b", "c"], "c was not known, and has it");
    assert_eq!(
        (&known.copies["b"].held, &known.copies["c"].held),
        (&vec!["pod-1".into()], &vec!["pod-2".into()])
    );
    assert_eq!(known.released_at, Some(at(BORN)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_gone_is_told_of() {
    let agents = Agents::start(&["s"]).await;
    let channel = Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
    let gone = Remote::new("a", wire::Peer { name: "a".into(), ..wire::Peer::default() }, channel, None);
    let mut work = agents.work(&[], Some("s"));
    work.nodes = vec![gone.clone()];
    work.release = vec![gone];
    let known = run(work, first(&["a"])).await;
    let trouble = known.copies["a"].trouble.as_ref().unwrap();
    assert_eq!((trouble.failure.reason.as_str(), trouble.count), ("AgentLost", 2));
    assert!(
        trouble.failure.message.starts_with("a: the node no longer answers while"),
        "{}",
        trouble.failure.message
    );
    assert!(agents.asked("s").is_empty());
}
