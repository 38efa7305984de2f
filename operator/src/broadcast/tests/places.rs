//! Nodes that come and go: those that an agent has left, and those where members have a place before others have.

use std::{sync::Arc, time::Duration};

use gridcast_crds::broadcast::Retain;

use super::super::{
    observed::Observed,
    plan::{Finalizer, plan},
    targets::{NodeAgent, Targets},
};
use super::fixture::{BORN, at, from_map, from_node, has, missing, names, observed, settled};

/// No pod of an agent is on the node since this second.
fn absent(node: &str, second: i64) -> NodeAgent {
    let message = format!("node {node} has no agent that answers: there is no pod of the DaemonSet on it");
    NodeAgent::Missing { message, absent: Some(at(second)) }
}

/// A Broadcast on its way out since second 100, whose node c has not released what it has.
fn waits_for_c(agent: NodeAgent) -> Observed {
    let dying = settled(from_node()).deleted().agent("c", agent);
    let (first, after) = dying.round(BORN + 100);
    let attempt = first.attempt.unwrap();
    assert_eq!(attempt.release, names(&["a", "b"]));
    after.ended(&attempt, &[], &[], BORN + 101)
}

#[test]
fn deletion_waits_two_minutes_for_a_node_that_has_no_agent_any_more() {
    let dying = waits_for_c(absent("c", BORN + 40));
    let (waits, dying) = dying.round(BORN + 110);
    assert_eq!((waits.finalizer, waits.again), (Finalizer::Keep, Some(Duration::from_secs(110))));
    let (_, reason, message) = dying.ready();
    assert_eq!(reason, "NoAgent");
    assert!(message.ends_with("; without an agent for 120 s it stays there"), "{message}");
    assert_eq!(
        plan(&dying, at(BORN + 219)).finalizer,
        Finalizer::Keep,
        "since the deletion, not since it left"
    );
    let last = plan(&dying, at(BORN + 220));
    assert_eq!(last.finalizer, Finalizer::Remove);
    let told = last.left_behind.unwrap();
    assert!(told.starts_with("no agent has been on c for 120 s"), "{told}");
    assert!(told.contains("data/lab/ics and records/0f0e-11.json"), "{told}");
}

#[test]
fn an_agent_that_comes_back_releases_and_one_that_left_late_has_its_time() {
    let late = waits_for_c(absent("c", BORN + 500));
    assert_eq!(plan(&late, at(BORN + 619)).finalizer, Finalizer::Keep);
    let back = late.agent("c", NodeAgent::Ready { uid: "agent-c2".into() });
    let (again, after) = back.round(BORN + 700);
    let attempt = again.attempt.unwrap();
    assert_eq!(attempt.release, names(&["c"]));
    let (last, _) = after.ended(&attempt, &[], &[], BORN + 701).round(BORN + 701);
    assert_eq!((last.finalizer, last.left_behind), (Finalizer::Remove, None));
}

#[test]
fn an_agent_that_is_there_and_does_not_answer_is_waited_for() {
    let broken = waits_for_c(missing("node c has no agent that answers: pod x is not ready"));
    assert_eq!(plan(&broken, at(BORN + 100_000)).finalizer, Finalizer::Keep);
}

#[test]
fn data_that_was_to_be_kept_is_not_left_behind() {
    let mut kept = waits_for_c(absent("c", BORN));
    Arc::make_mut(&mut kept.object).spec.retain = Retain::Keep;
    let last = plan(&kept, at(BORN + 220));
    assert_eq!((last.finalizer, last.left_behind), (Finalizer::Remove, None));
}

fn waiting(placed: &[&str]) -> Targets {
    let message = "some nodes have no place yet".into();
    Targets::Waiting { reason: "WaitingForPods", message, soon: true, placed: names(placed) }
}

#[test]
fn a_node_hears_of_the_dataset_when_the_first_member_has_a_place_there() {
    let mut early = observed(from_map());
    early.targets = waiting(&["a"]);
    let (first, after) = early.round(BORN);
    let attempt = first.attempt.unwrap();
    assert_eq!((&attempt.nodes, attempt.driver.as_str()), (&names(&["a"]), "0f0e-11"));
    assert_eq!((&attempt.source, attempt.release.len()), (&None, 0));
    let mut after = after.ended(&attempt, &[], &[], BORN);

    after.targets = waiting(&["a", "b"]);
    let (second, after) = after.round(BORN + 1);
    assert_eq!(second.status, None, "one more place is no news");
    let attempt = second.attempt.unwrap();
    assert_eq!(attempt.nodes, names(&["b"]), "a knows of it");
    let mut after = after.ended(&attempt, &[], &[("b", "DatasetInUse")], BORN + 1);
    assert_eq!(plan(&after, at(BORN + 1)).attempt, None, "who refused is asked again with all the others");

    after.targets = Targets::Nodes(names(&["a", "b", "c"]));
    let (all, _) = after.round(BORN + 8);
    assert_eq!(all.attempt.unwrap().nodes, names(&["c"]), "there is no source yet");
}

#[test]
fn a_node_that_has_it_or_does_not_answer_is_not_told_again() {
    let mut restarted = observed(from_node()).agent("b", missing("node b has no agent that answers"));
    restarted.knowledge.copies.insert("a".into(), has("agent-a"));
    restarted.targets = waiting(&["a", "b"]);
    assert_eq!(plan(&restarted, at(BORN)).attempt, None);
    restarted.targets = waiting(&["a", "b", "c"]);
    let attempt = plan(&restarted, at(BORN)).attempt.unwrap();
    assert_eq!((attempt.nodes, attempt.driver.as_str()), (names(&["c"]), "s"), "the source is node s");
    let replaced = restarted.agent("a", NodeAgent::Ready { uid: "agent-a2".into() });
    assert_eq!(plan(&replaced, at(BORN)).attempt.unwrap().nodes, names(&["a", "c"]));
}
