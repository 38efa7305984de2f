//! Tables of states: what is seen, and what is done about it.

use std::{sync::Arc, time::Duration};

use gridcast_crds::{
    broadcast::{BoundKind, Retain},
    source::{S3Source, Source, Strategy},
};

use super::super::{
    choice::SourceAt,
    knowledge::{Campaign, Knowledge, Measured, Trouble},
    observed::Making,
    plan::{Finalizer, Plan, SourceStep, plan},
    source::{Origin, PodState},
    targets::{NodeAgent, Targets},
};
use super::fixture::{
    BORN, at, failure, from_map, from_node, has, missing, names, observed, pod, running_pod, settled,
};

#[test]
fn a_node_source_is_staged_at_once_and_in_two_writes() {
    let (first, after) = observed(from_node()).round(BORN);
    let attempt = first.attempt.unwrap();
    assert_eq!(first.finalizer, Finalizer::Add);
    assert_eq!(attempt.nodes, names(&["a", "b", "c"]));
    assert_eq!(
        (attempt.driver.as_str(), attempt.source.as_ref()),
        ("s", Some(&SourceAt::Node { node: "s".into(), path: "/srv/ics".into() }))
    );
    assert_eq!(after.ready().1, "Staging");
    let (during, after) = after.begun(&attempt).round(BORN + 1);
    assert_eq!((during.status, during.attempt), (None, None));
    let (end, after) = after.ended(&attempt, &["a", "b", "c"], &[], BORN + 2).round(BORN + 2);
    assert!(end.status.is_some() && end.attempt.is_none());
    assert_eq!(
        after.ready(),
        ("True".into(), "Staged".into(), "1.0 MiB in 3 files on 3 nodes, verified".into())
    );
    let status = after.object.status.as_ref().unwrap();
    assert_eq!((status.nodes_wanted, status.nodes_staged, status.worst.len()), (Some(3), Some(3), 3));
    assert_eq!((status.aggregate_mbps, status.bound_mbps), (Some(300.0), Some(600.0)));
    assert_eq!((status.strategy.as_deref(), status.source_bytes_read), (Some("Chain"), Some(1 << 20)));
    for later in [BORN + 3, BORN + 100_000] {
        assert_eq!(plan(&after, at(later)), Plan::default(), "a settled object needs nothing");
    }
}

#[test]
fn what_is_not_offered_is_refused_by_its_field() {
    let s3 = S3Source { bucket: "b".into(), prefix: None, endpoint: None, region: None, secret_name: None };
    let mut bucket = observed(Source { s3: Some(s3), ..Source::default() });
    bucket.pods = vec![running_pod(0)];
    let mut paced = observed(from_node());
    Arc::make_mut(&mut paced.object).spec.rate_limit_mbps = Some(5);
    let mut nameless = observed(from_node());
    nameless.origin = Ok(Origin::Node { name: None, path: "/srv".into() });
    for (refused, field) in
        [(bucket, "spec.source.s3"), (paced, "spec.rateLimitMbps"), (nameless, "spec.source.node")]
    {
        let (plan_, after) = refused.round(BORN);
        let (status, reason, message) = after.ready();
        assert_eq!((status.as_str(), reason.as_str()), ("False", "Unsupported"), "{field}");
        assert!(message.contains(field), "{message}");
        assert_eq!(after.object.status.as_ref().unwrap().conditions[1].type_, "Stalled");
        assert!(plan_.attempt.is_none() && plan_.finalizer == Finalizer::Keep);
        assert_eq!(plan_.source == SourceStep::Remove, !after.pods.is_empty());
        assert!(after.object.status.as_ref().unwrap().completion_time.is_some());
    }
}

#[test]
fn two_broadcasts_of_one_path_wait_for_each_other_by_age() {
    let mut second = observed(from_node());
    second.holder = Some("older".into());
    let (plan_, after) = second.round(BORN);
    assert_eq!(after.ready().1, "PathTaken");
    assert!(after.ready().2.contains("older") && plan_.again.is_some());
    let mut free = after;
    free.holder = None;
    let (plan_, _) = free.round(BORN + 5);
    assert!(plan_.attempt.is_some());
}

#[test]
fn a_pod_source_is_made_while_places_are_found() {
    let mut waiting = observed(from_map());
    waiting.targets = Targets::Waiting {
        reason: "WaitingForPods",
        message: "1 of 3".into(),
        soon: true,
        placed: Vec::new(),
    };
    let (first, after) = waiting.round(BORN);
    assert_eq!((first.source, first.attempt.is_none()), (SourceStep::Make(0), true));
    assert_eq!(after.ready().1, "WaitingForPods");
    // What follows in the next seconds is not worth a write.
    let mut placed = after.clone();
    placed.targets = Targets::Nodes(names(&["a", "b", "c"]));
    placed.pods = vec![pod(0, PodState::Starting)];
    let (second, after) = placed.round(BORN + 1);
    assert!(second.status.is_none());
    let prepare = second.attempt.unwrap();
    assert_eq!((prepare.nodes.len(), &prepare.source, prepare.driver.as_str()), (3, &None, "0f0e-11"));
    let mut up = after.ended(&prepare, &[], &[], BORN + 1);
    up.pods = vec![running_pod(0)];
    let (third, after) = up.round(BORN + 2);
    let transfer = third.attempt.unwrap();
    assert!(matches!(transfer.source, Some(SourceAt::Pod { .. })) && transfer.nodes.len() == 3);
    let (end, after) = after.ended(&transfer, &["a", "b", "c"], &[], BORN + 3).round(BORN + 3);
    assert_eq!((after.ready().0.as_str(), end.source), ("True", SourceStep::Remove));

    // A cluster that does not exist, or has no compute, needs no source.
    let mut absent = observed(from_map());
    absent.targets =
        Targets::Waiting { reason: "NoCluster", message: "x".into(), soon: false, placed: Vec::new() };
    assert_eq!(plan(&absent, at(BORN)).source, SourceStep::Keep);
}

#[test]
fn each_trouble_of_a_source_pod_is_told_at_once_and_forgotten_with_its_cause() {
    let held = |reason: &str| pod(0, PodState::Held(failure(reason, "source pod ics-0-source: why")));
    let ended = pod(
        0,
        PodState::Ended {
            failure: failure("FetchFailed", "source pod ics-0-source: 404"),
            at: Some(at(BORN + 1)),
        },
    );
    for (view, reason) in [
        (held("SourceUnschedulable"), "SourceUnschedulable"),
        (held("ImagePullFailed"), "ImagePullFailed"),
        (ended, "FetchFailed"),
    ] {
        let mut troubled = observed(from_map());
        troubled.pods = vec![view];
        let (_, after) = troubled.round(BORN + 1);
        assert_eq!(after.ready().1, reason);
    }
    let mut mount = observed(from_map());
    mount.pods = vec![pod(0, PodState::Starting)];
    assert_eq!(plan(&mount, at(BORN + 2)).look_at, None);
    assert_eq!(plan(&mount, at(BORN + 3)).look_at, Some("pod-0".into()));
    mount.volumes = Some(failure("MountFailed", "source pod ics-0-source: configmap \"ics\" not found"));
    let (_, mut after) = mount.round(BORN + 4);
    assert_eq!(after.ready().1, "MountFailed");
    after.pods = vec![running_pod(0)];
    let (plan_, after) = after.round(BORN + 60);
    assert!(plan_.attempt.unwrap().source.is_some());
    assert_eq!(after.ready().1, "Staging");

    let mut refused = observed(from_map());
    let trouble = Trouble {
        failure: failure("QuotaExceeded", "source pod ics-0-source: exceeded quota"),
        count: 2,
        at: at(BORN),
    };
    refused.making = Making { trouble: Some(trouble) };
    let (plan_, after) = refused.round(BORN + 1);
    assert_eq!((after.ready().1.as_str(), plan_.source), ("QuotaExceeded", SourceStep::Keep));
    assert_eq!(plan(&after, at(BORN + 2)).source, SourceStep::Make(0));
}

#[test]
fn a_source_pod_that_ended_is_followed_by_another_with_patience() {
    let failed =
        |number| pod(number, PodState::Ended { failure: failure("FetchFailed", "404"), at: Some(at(BORN)) });
    for (number, wait) in [(0, 1), (1, 2), (5, 32), (9, 60)] {
        let mut troubled = observed(from_map());
        troubled.pods = vec![failed(number)];
        let early = plan(&troubled, at(BORN + wait - 1));
        assert_eq!((early.source, early.again), (SourceStep::Keep, Some(Duration::from_secs(1))), "{number}");
        assert_eq!(plan(&troubled, at(BORN + wait)).source, SourceStep::Make(number + 1));
    }
    // While the next one starts, its predecessor's trouble stays: a condition that flaps tells nothing.
    let mut troubled = observed(from_map());
    troubled.pods = vec![failed(0)];
    let (_, mut after) = troubled.round(BORN + 1);
    after.pods = vec![pod(1, PodState::Starting)];
    let (plan_, _) = after.round(BORN + 2);
    assert_eq!(plan_.status, None);
}

#[test]
fn a_source_that_answers_no_more_is_replaced_after_three_tries() {
    let mut lost = observed(from_map());
    lost.pods = vec![running_pod(0)];
    for node in ["a", "b", "c"] {
        let mut copy = has(&format!("agent-{node}"));
        copy.verified = false;
        lost.knowledge.copies.insert(node.into(), copy);
    }
    for (count, step) in [(2, SourceStep::Keep), (3, SourceStep::Make(1))] {
        let trouble = Trouble { failure: failure("AgentLost", "the source: gone"), count, at: at(BORN + 5) };
        lost.knowledge.source = Some(trouble);
        assert_eq!(plan(&lost, at(BORN + 60)).source, step);
    }
}

#[test]
fn a_node_without_an_agent_is_named_and_the_others_wait_a_moment_only() {
    let silent = observed(from_node()).agent("b", missing("node b has no agent that answers"));
    let (plan_, after) = silent.round(BORN + 1);
    assert_eq!(after.ready().1, "NoAgent");
    assert_eq!(after.ready().2, "node b has no agent that answers; 0 of 3 nodes have it");
    let prepare = plan_.attempt.unwrap();
    assert_eq!((prepare.nodes, prepare.source), (names(&["a", "c"]), None));
    assert_eq!(plan_.again, Some(Duration::from_secs(4)));
    let (plan_, after) = after.round(BORN + 5);
    let attempt = plan_.attempt.unwrap();
    assert!(attempt.source.is_some());
    let after = after.ended(&attempt, &["a", "c"], &[], BORN + 6);
    let (plan_, after) = after.round(BORN + 6);
    assert_eq!(plan_.attempt, None);
    assert_eq!(after.ready().2, "node b has no agent that answers; 2 of 3 nodes have it");
    let back = after.agent("b", NodeAgent::Ready { uid: "agent-b".into() });
    assert_eq!(plan(&back, at(BORN + 60)).attempt.unwrap().nodes, names(&["b"]));

    let gone = observed(from_node()).agent("b", NodeAgent::Gone);
    let (_, after) = gone.round(BORN + 1);
    assert_eq!(after.ready().2, "there is no Kubernetes node b; 0 of 3 nodes have it");
}

#[test]
fn a_node_that_fails_keeps_nobody_else_waiting() {
    let (first, after) = observed(from_node()).round(BORN);
    let after = after.ended(&first.attempt.unwrap(), &[], &[("b", "DiskFull")], BORN + 1);
    let (second, after) = after.round(BORN + 1);
    assert_eq!(
        after.ready(),
        ("False".into(), "DiskFull".into(), "b: it failed; 0 of 3 nodes have it".into())
    );
    let others = second.attempt.unwrap();
    assert_eq!(others.nodes, names(&["a", "c"]), "those that have not failed go first");
    let mut after = after.ended(&others, &["a", "c"], &[], BORN + 2);
    let mut waits = Vec::new();
    let mut now = BORN + 2;
    for _ in 0..7 {
        let (due, next) = after.round(now);
        let attempt = due.attempt.expect("the bad node is tried again");
        assert_eq!(attempt.nodes, names(&["b"]));
        after = next.ended(&attempt, &[], &[("b", "DiskFull")], now);
        let (wait, next) = after.round(now);
        assert_eq!(wait.attempt, None);
        waits.push(wait.again.unwrap().as_secs());
        now += i64::try_from(wait.again.unwrap().as_secs()).unwrap();
        after = next;
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60]);
    let (due, next) = after.round(now);
    let after = next.ended(&due.attempt.unwrap(), &["b"], &[], now);
    let (_, after) = after.round(now);
    assert_eq!(after.ready().0, "True");
    let status = after.object.status.as_ref().unwrap();
    assert_eq!(
        (status.aggregate_mbps, status.nodes_staged),
        (Some(300.0), Some(3)),
        "all transfers together"
    );
}

#[test]
fn two_nodes_that_fail_do_not_fail_each_other_for_ever() {
    let mut both = observed(from_node());
    for (node, count) in [("a", 3), ("b", 1)] {
        let copy = both.knowledge.copies.entry(node.into()).or_default();
        *copy = has(&format!("agent-{node}"));
        copy.verified = false;
        copy.trouble = Some(Trouble { failure: failure("AgentLost", "x"), count, at: at(BORN) });
    }
    both.knowledge.copies.insert("c".into(), has("agent-c"));
    assert_eq!(plan(&both, at(BORN + 100)).attempt.unwrap().nodes, names(&["b"]));
}

#[test]
fn trouble_at_the_source_is_told_and_tried_again() {
    let (first, after) = observed(from_node()).round(BORN);
    let mut after = after.ended(&first.attempt.unwrap(), &[], &[], BORN + 1);
    let trouble = Trouble {
        failure: failure("SourceMissing", "s: `/srv/ics` does not exist"),
        count: 2,
        at: at(BORN + 1),
    };
    after.knowledge.source = Some(trouble);
    let (plan_, after) = after.round(BORN + 1);
    assert_eq!(after.ready().1, "SourceMissing");
    assert_eq!((plan_.attempt, plan_.again), (None, Some(Duration::from_secs(2))));
    assert!(plan(&after, at(BORN + 3)).attempt.unwrap().source.is_some());

    let absent = observed(from_node()).agent("s", NodeAgent::Gone);
    let (plan_, after) = absent.round(BORN);
    assert_eq!(after.ready().1, "NoSourceNode");
    assert_eq!(plan_.attempt.unwrap().source, None, "nodes prepare meanwhile");
}

#[test]
fn another_process_asks_and_writes_nothing() {
    for source in [from_node(), from_map()] {
        let mut restarted = settled(source);
        restarted.knowledge = Knowledge::default();
        let (first, after) = restarted.round(BORN + 500);
        assert_eq!((&first.status, &first.source), (&None, &SourceStep::Keep));
        let attempt = first.attempt.unwrap();
        assert_eq!(attempt.nodes, names(&["a", "b", "c"]));
        let (during, after) = after.begun(&attempt).round(BORN + 501);
        assert_eq!(during, Plan::default());
        let mut all = after.clone().ended(&attempt, &["a", "b", "c"], &[], BORN + 501);
        for copy in all.knowledge.copies.values_mut() {
            copy.arrival = None;
        }
        all.knowledge.campaign = Campaign::default();
        let (end, _) = all.round(BORN + 501);
        assert_eq!(end, Plan::default());
        // One that lost it is brought it again.
        let mut lost = after;
        lost.running = false;
        lost.knowledge = attempt.first.clone();
        for (node, copy) in &mut lost.knowledge.copies {
            copy.prepared = true;
            copy.verified = node != "b";
        }
        let (again, after) = lost.round(BORN + 502);
        assert_eq!(after.ready().0, "False");
        match after.origin {
            Ok(Origin::Node { .. }) => assert_eq!(again.attempt.unwrap().nodes, names(&["b"])),
            _ => assert_eq!(again.source, SourceStep::Make(0)),
        }
    }
}

#[test]
fn an_agent_that_is_replaced_changes_nothing_until_it_says_otherwise() {
    let away = settled(from_node()).agent("b", missing("node b has no agent that answers"));
    assert_eq!(plan(&away, at(BORN + 100)), Plan::default());
    let back = away.agent("b", NodeAgent::Ready { uid: "agent-b2".into() });
    let (asked, after) = back.round(BORN + 101);
    assert_eq!(asked.status, None);
    let attempt = asked.attempt.unwrap();
    assert_eq!(attempt.nodes, names(&["b"]));
    let (lost, after) = after.ended(&attempt, &[], &[], BORN + 102).round(BORN + 102);
    assert_eq!((lost.attempt.unwrap().nodes, after.ready().0.as_str()), (names(&["b"]), "False"));
}

#[test]
fn a_new_target_is_brought_it_and_nobody_else_is_asked() {
    let mut moved = settled(from_map());
    moved.targets = Targets::Nodes(names(&["a", "b", "d"]));
    moved = moved.agent("d", NodeAgent::Ready { uid: "agent-d".into() });
    let (first, after) = moved.round(BORN + 100);
    let prepare = first.attempt.unwrap();
    assert_eq!((&prepare.nodes, &prepare.release), (&names(&["d"]), &names(&["c"])), "c is no longer wanted");
    let (second, mut after) = after.ended(&prepare, &[], &[], BORN + 101).round(BORN + 101);
    assert_eq!((second.attempt, second.source), (None, SourceStep::Make(0)));
    assert!(!after.knowledge.copies.contains_key("c"));
    after.pods = vec![running_pod(0)];
    let (third, after) = after.round(BORN + 103);
    assert_eq!(third.attempt.as_ref().unwrap().nodes, names(&["d"]));
    let (_, after) = after.ended(&third.attempt.unwrap(), &["d"], &[], BORN + 104).round(BORN + 104);
    assert_eq!(after.ready().0, "True");
    assert_eq!(after.object.status.as_ref().unwrap().aggregate_mbps, Some(100.0), "of the last transfers");
}

#[test]
fn a_cluster_whose_pods_are_replaced_loses_nothing() {
    let mut waiting = settled(from_map());
    for soon in [true, false] {
        waiting.targets =
            Targets::Waiting { reason: "ClusterSuspended", message: "x".into(), soon, placed: Vec::new() };
        assert_eq!(plan(&waiting, at(BORN + 100)), Plan::default());
    }
}

#[test]
fn a_new_generation_is_told_and_nothing_is_done_again() {
    let mut changed = settled(from_node());
    let object = Arc::make_mut(&mut changed.object);
    object.metadata.generation = Some(2);
    object.spec.strategy = Strategy::Flat;
    let (plan_, after) = changed.round(BORN + 100);
    assert!(plan_.attempt.is_none());
    let status = after.object.status.as_ref().unwrap();
    assert_eq!((status.observed_generation, after.ready().0.as_str()), (Some(2), "True"));
    assert_eq!(status.conditions[0].observed_generation, Some(2));
}

#[test]
fn an_object_lives_for_as_long_as_it_should() {
    let mut mortal = settled(from_node());
    Arc::make_mut(&mut mortal.object).spec.ttl_seconds_after_finished = Some(60);
    assert_eq!(plan(&mortal, at(BORN + 32)).again, Some(Duration::from_secs(30)));
    assert!(plan(&mortal, at(BORN + 62)).expired);
    let mut staging = observed(from_node());
    Arc::make_mut(&mut staging.object).spec.ttl_seconds_after_finished = Some(0);
    assert!(!plan(&staging, at(BORN + 100)).expired);
}

#[test]
fn progress_is_told_while_it_goes_on() {
    let (first, after) = observed(from_node()).round(BORN);
    let attempt = first.attempt.unwrap();
    let mut under_way = after.begun(&attempt);
    under_way.knowledge.dataset =
        Some(super::super::knowledge::Facts { size_bytes: 4 << 30, files: 1, digest: None });
    under_way.knowledge.copies.get_mut("a").unwrap().bytes = 1 << 30;
    let (plan_, after) = under_way.round(BORN + 2);
    assert!(plan_.status.is_some());
    let status = after.object.status.as_ref().unwrap();
    let a = status.worst.iter().find(|node| node.name == "a").unwrap();
    assert_eq!((a.verified, a.message.as_deref()), (false, Some("1.0 GiB of 4.0 GiB")));
    assert_eq!(status.size_bytes, Some(4 << 30));
}

#[test]
fn known_bandwidths_go_with_the_attempt() {
    let mut mapped = observed(from_node());
    let figures = Measured { hosts: names(&["a", "b", "c"]), mbps: Vec::new(), at: at(BORN) };
    mapped.mapped = Some(figures.clone());
    assert_eq!(plan(&mapped, at(BORN)).attempt.unwrap().mapped, Some(figures));
    let mut measured = settled(from_node());
    measured.knowledge.campaign.bound_kind = Some(BoundKind::Measured);
    let (_, after) = measured.round(BORN + 5);
    assert_eq!(after.object.status.as_ref().unwrap().bound_kind, Some(BoundKind::Measured));
}

#[test]
fn deletion_releases_every_copy_and_then_lets_go() {
    let dying = settled(from_node()).deleted();
    let (first, after) = dying.round(BORN + 100);
    assert_eq!((first.finalizer, first.status), (Finalizer::Keep, None));
    let attempt = first.attempt.unwrap();
    assert_eq!((&attempt.release, attempt.first.releasing), (&names(&["a", "b", "c"]), true));
    let (during, after) = after.begun(&attempt).round(BORN + 100);
    assert_eq!(during, Plan::default());
    let (last, _) = after.ended(&attempt, &[], &[], BORN + 101).round(BORN + 101);
    assert_eq!((last.finalizer, last.attempt), (Finalizer::Remove, None));
}

#[test]
fn deletion_while_staging_ends_it_first() {
    let (first, after) = observed(from_map()).round(BORN);
    let mut staging = after.begun(&first.attempt.unwrap()).deleted();
    staging.pods = vec![running_pod(0)];
    let (plan_, _) = staging.round(BORN + 100);
    assert!(plan_.stop);
    assert_eq!(plan_.source, SourceStep::Remove);
    assert_eq!(plan_.attempt.unwrap().release, names(&["a", "b", "c"]));
}

#[test]
fn deletion_waits_for_pods_and_agents_and_not_for_what_is_gone_for_good() {
    let dying = settled(from_node()).deleted().agent("c", NodeAgent::Gone);
    let (first, after) = dying.round(BORN + 100);
    let attempt = first.attempt.unwrap();
    assert_eq!(attempt.release, names(&["a", "b"]));
    let mut after = after.ended(&attempt, &[], &[], BORN + 101);
    let mut held = has("agent-a");
    held.held = names(&["pod-1", "pod-2"]);
    after.knowledge.copies.insert("a".into(), held);
    after.knowledge.pods.insert("pod-1".into(), "user".into());
    let (waits, after) = after.round(BORN + 101);
    assert_eq!((waits.finalizer, waits.again), (Finalizer::Keep, Some(Duration::from_secs(2))));
    assert_eq!(after.ready().1, "Mounted");
    assert!(
        after.ready().2.contains("node a: pod user, pod with UID pod-2 still have it mounted"),
        "{:?}",
        after.ready()
    );
    assert_eq!(plan(&after, at(BORN + 103)).attempt.unwrap().release, names(&["a"]));

    let silent = after.agent("a", missing("node a has no agent that answers"));
    let mut silent = silent;
    silent.knowledge.copies.get_mut("a").unwrap().held.clear();
    let (waits, silent) = silent.round(BORN + 110);
    assert_eq!((waits.attempt, waits.finalizer), (None, Finalizer::Keep));
    assert_eq!(silent.ready().1, "NoAgent");
    let gone = silent.agent("a", NodeAgent::Gone);
    assert_eq!(plan(&gone, at(BORN + 120)).finalizer, Finalizer::Remove);
}

#[test]
fn a_process_that_does_not_know_the_copies_asks_everybody() {
    let mut dying = settled(from_node()).deleted();
    dying.knowledge = Knowledge::default();
    dying.whole = false;
    dying.everybody = names(&["a", "c", "x"]);
    let dying = dying.agent("b", missing("node b has no agent that answers"));
    let (first, after) = dying.round(BORN + 100);
    let attempt = first.attempt.unwrap();
    assert!(attempt.release.contains(&"x".to_owned()));
    let mut after = after.ended(&attempt, &[], &[], BORN + 101);
    assert_eq!(
        after.knowledge.copies.keys().collect::<Vec<_>>(),
        ["b"],
        "b may have a copy, and has not answered"
    );
    after = after.agent("b", NodeAgent::Ready { uid: "agent-b".into() });
    let (second, after) = after.round(BORN + 105);
    let attempt = second.attempt.unwrap();
    assert_eq!(attempt.release, names(&["b"]));
    let (last, _) = after.ended(&attempt, &[], &[], BORN + 106).round(BORN + 106);
    assert_eq!(last.finalizer, Finalizer::Remove);
}

#[test]
fn what_never_began_is_let_go_at_once() {
    let mut young = observed(from_node());
    Arc::make_mut(&mut young.object).metadata.finalizers = Some(vec![crate::apply::FINALIZER.into()]);
    let (plan_, _) = young.deleted().round(BORN);
    assert_eq!((plan_.finalizer, plan_.attempt), (Finalizer::Remove, None));
    let mut bare = settled(from_node()).deleted();
    Arc::make_mut(&mut bare.object).metadata.finalizers = None;
    assert_eq!(plan(&bare, at(BORN)), Plan::default());
    assert_eq!(bare.object.spec.retain, Retain::Delete);
}
