//! What holds whatever happens.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::{
    knowledge::{Copy, Trouble},
    observed::Observed,
    plan::{Finalizer, SourceStep, plan},
    source::PodState,
    targets::{NodeAgent, Targets},
};
use super::fixture::{BORN, at, failure, from_map, from_node, names, observed, pod, running_pod};

#[allow(clippy::struct_excessive_bools, reason = "each is drawn")]
#[derive(Clone, Debug)]
struct World {
    map: bool,
    agents: Vec<u8>,
    copies: Vec<u8>,
    pods: u8,
    targets: u8,
    running: bool,
    deleted: bool,
    source: bool,
    second: i64,
}

fn world() -> impl Strategy<Value = World> {
    (
        any::<bool>(),
        proptest::collection::vec(0_u8..4, 4),
        proptest::collection::vec(0_u8..6, 4),
        0_u8..6,
        0_u8..4,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        0_i64..200,
    )
        .prop_map(|(map, agents, copies, pods, targets, running, deleted, source, second)| World {
            map,
            agents,
            copies,
            pods,
            targets,
            running,
            deleted,
            source,
            second,
        })
}

fn seen(world: &World) -> Observed {
    let mut seen = observed(if world.map { from_map() } else { from_node() });
    for (node, agent) in ["a", "b", "c", "d"].iter().zip(&world.agents) {
        let agent = match agent {
            0 => {
                NodeAgent::Missing { message: format!("node {node} has no agent that answers"), absent: None }
            }
            1 => NodeAgent::Gone,
            _ => NodeAgent::Ready { uid: format!("agent-{node}") },
        };
        seen.agents.insert((*node).to_owned(), agent);
    }
    for (node, copy) in ["a", "b", "c", "d"].iter().zip(&world.copies) {
        let agent = format!("agent-{node}");
        let trouble =
            Trouble { failure: failure("DiskFull", &format!("{node}: disk full")), count: 2, at: at(BORN) };
        let copy = match copy {
            0 | 1 => continue,
            2 => Copy { agent, prepared: true, verified: true, ..Copy::default() },
            3 => Copy { agent, prepared: true, ..Copy::default() },
            4 => Copy { agent, prepared: true, trouble: Some(trouble), ..Copy::default() },
            _ => Copy {
                agent: "another".into(),
                prepared: true,
                verified: true,
                held: names(&["p"]),
                ..Copy::default()
            },
        };
        seen.knowledge.copies.insert((*node).to_owned(), copy);
    }
    seen.pods = match world.pods {
        0 => vec![pod(0, PodState::Starting)],
        1 => vec![running_pod(0)],
        2 => vec![pod(0, PodState::Held(failure("ImagePullFailed", "x")))],
        3 => vec![pod(1, PodState::Ended { failure: failure("FetchFailed", "x"), at: None })],
        4 => vec![pod(0, PodState::Starting), running_pod(1)],
        _ => Vec::new(),
    };
    if !world.map {
        seen.pods.clear();
    }
    seen.targets = match world.targets {
        0 => Targets::Waiting {
            reason: "WaitingForPods",
            message: "x".into(),
            soon: true,
            placed: names(&["b", "d"]),
        },
        1 => Targets::Waiting { reason: "NoCluster", message: "x".into(), soon: false, placed: Vec::new() },
        2 => Targets::Nodes(names(&["a", "b"])),
        _ => Targets::Nodes(names(&["a", "b", "c"])),
    };
    if world.source {
        let failure = failure("SourceMissing", "x");
        seen.knowledge.source = Some(Trouble { failure, count: 3, at: at(BORN) });
    }
    seen.running = world.running;
    if world.deleted { seen.deleted() } else { seen }
}

proptest! {
    #[test]
    fn a_plan_that_was_applied_is_not_written_again(world in world()) {
        let (_, after) = seen(&world).round(BORN + world.second);
        let (again, _) = after.round(BORN + world.second);
        prop_assert_eq!(again.status, None);
        prop_assert!(again.finalizer != Finalizer::Add);
    }

    #[test]
    fn nobody_is_brought_what_they_have_or_asked_in_vain(world in world()) {
        let seen = seen(&world);
        let plan = plan(&seen, at(BORN + world.second));
        prop_assert!(plan.again.is_none_or(|wait| !wait.is_zero()));
        let Some(attempt) = plan.attempt else { return Ok(()) };
        prop_assert!(!seen.running || plan.stop, "one attempt at a time");
        prop_assert!(!attempt.nodes.is_empty() || !attempt.release.is_empty() || attempt.first.releasing);
        for node in &attempt.nodes {
            let NodeAgent::Ready { uid } = &seen.agents[node] else { panic!("{node} does not answer") };
            prop_assert!(!seen.knowledge.copies.get(node).is_some_and(|copy| copy.is_there(uid)));
            prop_assert_eq!(&attempt.first.copies[node].agent, uid);
            prop_assert!(!attempt.release.contains(node));
        }
        for node in &attempt.release {
            let answers = matches!(seen.agents[node], NodeAgent::Ready { .. });
            prop_assert!(answers);
        }
        if let (Targets::Nodes(wanted), false) = (&seen.targets, world.deleted) {
            prop_assert!(attempt.nodes.iter().all(|node| wanted.contains(node)));
            prop_assert!(attempt.release.iter().all(|node| !wanted.contains(node)));
        }
        if let (Targets::Waiting { placed, .. }, false) = (&seen.targets, world.deleted) {
            prop_assert!(attempt.nodes.iter().all(|node| placed.contains(node)));
            prop_assert!(attempt.release.is_empty() && attempt.source.is_none());
        }
        if attempt.source.is_some() {
            let troubled = |node: &String| attempt.first.copies[node].trouble.is_some();
            let all = attempt.nodes.iter().all(troubled);
            prop_assert!(all || !attempt.nodes.iter().any(troubled), "who failed goes alone: {:?}", attempt.nodes);
        }
    }

    #[test]
    fn nothing_of_an_object_that_goes_is_forgotten(world in world()) {
        let mut seen = seen(&world);
        Arc::make_mut(&mut seen.object).metadata.finalizers = Some(vec![crate::apply::FINALIZER.into()]);
        let plan = plan(&seen.clone().deleted(), at(BORN + world.second));
        if plan.finalizer == Finalizer::Remove {
            let left = seen.knowledge.copies.keys().filter(|node| seen.agents[*node] != NodeAgent::Gone).count();
            prop_assert_eq!(left, 0);
        }
        prop_assert!(!matches!(plan.source, SourceStep::Make(_)));
        prop_assert!(plan.attempt.is_none_or(|attempt| attempt.nodes.is_empty() && attempt.source.is_none()));
    }

    #[test]
    fn ready_means_that_all_have_it(world in world()) {
        let (_, after) = seen(&World { deleted: false, ..world.clone() }).round(BORN + world.second);
        let status = after.object.status.as_ref().unwrap();
        let ready = status.conditions[0].status == "True";
        let all = match &after.targets {
            Targets::Nodes(nodes) => nodes.iter().all(|node| {
                after.knowledge.copies.get(node).is_some_and(|copy| copy.verified) && after.agents[node] != NodeAgent::Gone
                    && match &after.agents[node] {
                        NodeAgent::Ready { uid } => after.knowledge.copies[node].agent == *uid,
                        _ => true,
                    }
            }),
            Targets::Waiting { .. } => false,
        };
        prop_assert_eq!(ready, all);
        prop_assert!(status.worst.len() <= 20);
        prop_assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(1)));
    }
}
