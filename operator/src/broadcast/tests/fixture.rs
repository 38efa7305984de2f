//! A Broadcast of three nodes, and what can happen to it.

use std::sync::Arc;

use gridcast_control::StepFailure;
use gridcast_crds::{
    Broadcast, BroadcastSpec,
    broadcast::BroadcastTo,
    source::{ConfigMapSource, NodeSource, Source},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::{
    choice::Attempt,
    knowledge::{Arrival, Copy, Facts, Knowledge, Trouble},
    observed::{Making, Observed},
    plan::{Plan, plan},
    source::{Origin, PodState, PodView},
    targets::{NodeAgent, Targets},
};
use crate::apply::FINALIZER;

pub(super) const BORN: i64 = 1000;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn failure(reason: &str, message: &str) -> StepFailure {
    StepFailure::new(reason, message)
}

pub(super) fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

pub(super) fn from_node() -> Source {
    let node = NodeSource { path: "/srv/ics".into(), name: Some("s".into()) };
    Source { node: Some(node), ..Source::default() }
}

pub(super) fn from_map() -> Source {
    Source { config_map: Some(ConfigMapSource { name: "ics".into() }), ..Source::default() }
}

/// What is seen of a Broadcast to a, b and c, just made, all agents ready.
pub(super) fn observed(source: Source) -> Observed {
    let to = BroadcastTo { nodes: Some(names(&["a", "b", "c"])), ..BroadcastTo::default() };
    let mut object = Broadcast::new("ics", BroadcastSpec { source, to, ..BroadcastSpec::default() });
    object.metadata.namespace = Some("lab".into());
    object.metadata.uid = Some("0f0e-11".into());
    object.metadata.generation = Some(1);
    object.metadata.creation_timestamp = Some(Time(at(BORN)));
    let ready = |node: &str| (node.to_owned(), NodeAgent::Ready { uid: format!("agent-{node}") });
    Observed {
        origin: Origin::of(&object.spec.source),
        object: Arc::new(object),
        targets: Targets::Nodes(names(&["a", "b", "c"])),
        agents: ["a", "b", "c", "s"].map(ready).into(),
        whole: true,
        everybody: Vec::new(),
        pods: Vec::new(),
        volumes: None,
        holder: None,
        knowledge: Knowledge::default(),
        running: false,
        making: Making::default(),
        is_making: false,
        mapped: None,
    }
}

pub(super) fn pod(number: u32, state: PodState) -> PodView {
    PodView {
        name: format!("ics-{number}-source"),
        uid: format!("pod-{number}"),
        number,
        created: Some(at(BORN)),
        node: Some("x".into()),
        going: false,
        state,
    }
}

pub(super) fn running_pod(number: u32) -> PodView {
    pod(number, PodState::Running { address: "10.0.0.9".into() })
}

impl Observed {
    /// With the plan's writes done.
    pub(super) fn written(mut self, plan: &Plan) -> Self {
        let object = Arc::make_mut(&mut self.object);
        if plan.finalizer == super::super::plan::Finalizer::Add {
            object.metadata.finalizers = Some(vec![FINALIZER.into()]);
        }
        if let Some(status) = &plan.status {
            object.status = Some(status.clone());
        }
        self
    }

    /// One round at this second: the plan, and the state after its writes.
    pub(super) fn round(self, second: i64) -> (Plan, Self) {
        let plan = plan(&self, at(second));
        let after = self.written(&plan);
        (plan, after)
    }

    /// An attempt has ended: all of its nodes prepared; those `there` have it, those `failed` do not.
    pub(super) fn ended(
        mut self,
        attempt: &Attempt,
        there: &[&str],
        failed: &[(&str, &str)],
        second: i64,
    ) -> Self {
        let mut knowledge = attempt.first.clone();
        let mut failed_ones = Vec::new();
        for node in &attempt.nodes {
            let copy = knowledge.copies.get_mut(node).expect("an entry of each node of an attempt");
            copy.prepared = true;
            if there.contains(&node.as_str()) {
                copy.verified = true;
                copy.trouble = None;
                copy.arrival = Some(Arrival { seconds: 1.0, rate_mbps: 100.0, bound_mbps: 200.0 });
            }
        }
        for &(node, reason) in failed {
            let copy = knowledge.copies.entry(node.to_owned()).or_default();
            let failure = failure(reason, &format!("{node}: it failed"));
            copy.trouble = Some(Trouble::after(copy.trouble.as_ref(), failure, at(second)));
            failed_ones.push(node);
        }
        if attempt.source.is_some() {
            knowledge.campaign.transfers += 1;
            knowledge.campaign.strategy = "Chain".into();
            knowledge.campaign.trees = 1;
            knowledge.campaign.source_bytes_read = 1 << 20;
            knowledge.dataset = Some(Facts { size_bytes: 1 << 20, files: 3, digest: Some("0".repeat(64)) });
        }
        for node in &attempt.release {
            knowledge.copies.remove(node);
        }
        if !attempt.release.is_empty() {
            knowledge.released_at = Some(at(second));
        }
        self.knowledge = knowledge;
        self.running = false;
        self
    }

    /// The operation goes on with what it knew at first.
    pub(super) fn begun(mut self, attempt: &Attempt) -> Self {
        self.knowledge = attempt.first.clone();
        self.running = true;
        self
    }

    /// `Ready` as status, reason and message.
    pub(super) fn ready(&self) -> (String, String, String) {
        let status = self.object.status.as_ref().expect("a status");
        let ready = &status.conditions[0];
        assert_eq!(ready.type_, "Ready");
        (ready.status.clone(), ready.reason.clone(), ready.message.clone())
    }

    pub(super) fn deleted(mut self) -> Self {
        Arc::make_mut(&mut self.object).metadata.deletion_timestamp = Some(Time(at(BORN + 100)));
        self
    }

    pub(super) fn agent(mut self, node: &str, agent: NodeAgent) -> Self {
        self.agents.insert(node.to_owned(), agent);
        self
    }
}

/// A Broadcast that is on all of its nodes, in a process that brought it there.
pub(super) fn settled(source: Source) -> Observed {
    let mut start = observed(source);
    if matches!(start.origin, Ok(Origin::Pod { .. })) {
        start.pods = vec![running_pod(0)];
    }
    let (first, after) = start.round(BORN + 1);
    let after = after.ended(&first.attempt.expect("an attempt"), &["a", "b", "c"], &[], BORN + 2);
    let (_, mut after) = after.round(BORN + 2);
    after.pods.clear();
    after
}

pub(super) fn missing(message: &str) -> NodeAgent {
    NodeAgent::Missing { message: message.into(), absent: None }
}

pub(super) fn has(agent: &str) -> Copy {
    Copy { agent: agent.into(), prepared: true, verified: true, ..Copy::default() }
}
