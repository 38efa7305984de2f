//! A cluster whose pods, operations and children do what a test says.

use std::{collections::BTreeMap, sync::Arc};

use gridcast_crds::{
    Broadcast, NetworkMap, VirtualCluster, conditions, virtual_cluster::VirtualClusterStatus,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use crate::virtual_cluster::{
    Memory,
    members::{Asked, Made, creation_key, membership},
    objects::places,
    observed::*,
    plan::{Action, Event, Finalizer, ObjectKind, Part, Plan, Step, plan},
};

/// Of the cluster.
const UID: &str = "uid";

pub(super) struct World {
    pub(super) cluster: VirtualCluster,
    pub(super) pods: BTreeMap<String, (Made, MemberPod)>,
    pub(super) collect_pods: Vec<HelperPod>,
    pub(super) broadcasts: Vec<Broadcast>,
    pub(super) map: Option<NetworkMap>,
    pub(super) steps: BTreeMap<String, Step>,
    pub(super) create: BTreeMap<String, Work<Creation>>,
    pub(super) gate: BTreeMap<String, Work<Gate>>,
    pub(super) tune: BTreeMap<String, Work<Tuned>>,
    pub(super) launch: BTreeMap<String, Work<Launch>>,
    pub(super) simple: BTreeMap<String, Work<()>>,
    pub(super) release: Option<Work<Released>>,
    pub(super) over: BTreeMap<String, Timestamp>,
    pub(super) memory: Memory,
    /// What the API server refuses, and why.
    pub(super) taken: BTreeMap<Part, Trouble>,
    /// Writes of objects that are no children.
    pub(super) object_writes: usize,
    pub(super) last_write: Option<Timestamp>,
    pub(super) now: Timestamp,
    pub(super) writes: usize,
    pub(super) events: Vec<Event>,
    pub(super) launched: Vec<String>,
    pub(super) gone: bool,
    pub(super) made: usize,
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// Three nodes that run a program, without data, measurement or tuning; `change` makes it something else.
pub(super) fn spec(change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({
        "groups": [{ "name": "node", "replicas": 3, "pod": { "spec": { "containers": [{ "name": "node", "image": "a" }] } } }],
        "network": { "probe": { "policy": "Never" } },
        "run": { "processes": 3, "command": ["ring"] },
    });
    change(&mut spec);
    spec
}

impl World {
    pub(super) fn new(spec: &Value) -> Self {
        let cluster: VirtualCluster = serde_json::from_value(json!({
            "apiVersion": "gridcast.io/v1alpha1", "kind": "VirtualCluster",
            "metadata": {
                "name": "ring", "namespace": "default", "uid": UID, "generation": 1,
                "creationTimestamp": at(0).to_string(),
            },
            "spec": spec,
        }))
        .unwrap();
        Self {
            cluster,
            pods: BTreeMap::new(),
            collect_pods: Vec::new(),
            broadcasts: Vec::new(),
            map: None,
            steps: BTreeMap::new(),
            create: BTreeMap::new(),
            gate: BTreeMap::new(),
            tune: BTreeMap::new(),
            launch: BTreeMap::new(),
            simple: BTreeMap::new(),
            release: None,
            over: BTreeMap::new(),
            memory: Memory::default(),
            taken: BTreeMap::new(),
            object_writes: 0,
            last_write: None,
            now: at(0),
            writes: 0,
            events: Vec::new(),
            launched: Vec::new(),
            gone: false,
            made: 0,
        }
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub(super) fn edit(&mut self, change: impl FnOnce(&mut gridcast_crds::VirtualClusterSpec)) {
        let before = self.cluster.spec.clone();
        change(&mut self.cluster.spec);
        if self.cluster.spec != before {
            *self.cluster.metadata.generation.as_mut().unwrap() += 1;
        }
    }

    pub(super) fn observe(&mut self) -> Observed {
        let cluster = &self.cluster;
        let asked = Asked::of(cluster, &self.memory);
        let mut rest = self.pods.clone();
        let mut members = Vec::new();
        if !cluster.spec.suspend {
            for place in places(cluster) {
                let found = self.pods.get(&place.name);
                let right = found.filter(|(made, _)| asked.takes(place.group_index, Some(made)));
                if right.is_some() {
                    rest.remove(&place.name);
                }
                members.push(Member {
                    occupied: found.is_some() && right.is_none(),
                    pod: right.map(|(_, pod)| pod.clone()),
                    group: place.group.name.clone(),
                    index: place.index,
                    slots: place.group.slots(),
                    name: place.name,
                });
            }
        }
        let strangers = rest.into_iter().map(|(name, (_, pod))| HelperPod { name, pod }).collect();
        let launch = cluster.status.as_ref().and_then(|status| status.run.as_ref()?.launch.clone());
        let membership = membership(&members);
        let of_members = |step: &str| membership.as_ref().map(|m| format!("{step}/{m}")).unwrap_or_default();
        let of_launch = |step: &str| launch.as_ref().map(|id| format!("{step}/{id}")).unwrap_or_default();
        let operations = Operations {
            create: self
                .create
                .get(&format!("create/{}", creation_key(cluster)))
                .cloned()
                .unwrap_or_default(),
            gate: self.gate.get(&of_members("gate")).cloned().unwrap_or_default(),
            tune: self.tune.get(&of_members("tune")).cloned().unwrap_or_default(),
            launch: self.launch.get(&of_launch("launch")).cloned().unwrap_or_default(),
            stop: self.simple.get(&of_launch("stop")).cloned().unwrap_or_default(),
            collect: self.simple.get(&of_launch("collect")).cloned().unwrap_or_default(),
            release: self.release.clone().unwrap_or_default(),
            over_since: self.note_over(),
            names: self.steps.keys().cloned().collect(),
        };
        let (applied, applied_since) = self.memory.applied(UID, |kind| kind.version(&self.cluster));
        Observed {
            cluster: Arc::new(self.cluster.clone()),
            members,
            strangers,
            broadcasts: self.broadcasts.iter().cloned().map(Arc::new).collect(),
            network_map: self.map.clone().map(Arc::new),
            collect_pods: self.collect_pods.clone(),
            applied,
            applied_since,
            operations,
            last_write: self.last_write,
            refused: self.memory.refused(UID),
            placed_since: None,
            budget: self.has_budget(),
        }
    }

    fn note_over(&mut self) -> BTreeMap<String, Timestamp> {
        let mut over: Vec<String> = Vec::new();
        over.extend(self.create.iter().filter(|(_, work)| work.is_over()).map(|(name, _)| name.clone()));
        over.extend(self.gate.iter().filter(|(_, work)| work.is_over()).map(|(name, _)| name.clone()));
        over.extend(self.tune.iter().filter(|(_, work)| work.is_over()).map(|(name, _)| name.clone()));
        over.extend(self.launch.iter().filter(|(_, work)| work.is_over()).map(|(name, _)| name.clone()));
        over.extend(self.simple.iter().filter(|(_, work)| work.is_over()).map(|(name, _)| name.clone()));
        let now = self.now;
        self.over =
            over.into_iter().map(|name| (name.clone(), *self.over.get(&name).unwrap_or(&now))).collect();
        self.over.clone()
    }

    pub(super) fn plan(&mut self) -> Plan {
        let observed = self.observe();
        let first = plan(&observed, self.now);
        assert_eq!(first, plan(&observed, self.now), "the same observation gives the same plan");
        first
    }

    /// Plans and applies until there is nothing to do; panics if there is no end to it.
    pub(super) fn settle(&mut self) {
        for _ in 0..30 {
            if self.gone {
                return;
            }
            let plan = self.plan();
            let again = plan.requeue.is_some_and(|wait| wait.is_zero());
            if plan.status.is_none() && plan.actions.is_empty() && plan.finalizer == Finalizer::Keep && !again
            {
                return;
            }
            self.apply(plan);
        }
        let plan = self.plan();
        panic!("the plan does not come to rest: {plan:#?}");
    }

    pub(super) fn apply(&mut self, plan: Plan) {
        let Plan { status, finalizer, actions, events, requeue: _ } = plan;
        if finalizer == Finalizer::Add {
            self.cluster.metadata.finalizers = Some(vec!["gridcast.io/release".into()]);
        }
        if let Some(status) = status {
            // Through JSON, as the API server keeps it.
            let stored: VirtualClusterStatus =
                serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
            assert_eq!(stored, status, "what is written comes back as it was");
            let before = self.cluster.status.replace(stored);
            moved_only_with_status(before.as_ref(), &status);
            self.last_write = Some(self.now);
            self.writes += 1;
            self.events.extend(events);
        }
        for action in actions {
            self.act(action);
        }
        if finalizer == Finalizer::Remove {
            self.gone = true;
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Cancel(names) => names.iter().for_each(|name| self.cancel(name)),
            Action::ApplyObjects(kinds) => {
                for kind in kinds {
                    self.object_writes += 1;
                    self.write(Part::Object(kind));
                }
            }
            Action::DeleteDisruptionBudget => self.memory.note_deleted(UID, ObjectKind::DisruptionBudget),
            Action::ApplyBroadcast(index) => {
                let data = self.cluster.spec.data[index].clone();
                if !self.write(Part::Broadcast(data.name.clone())) {
                    return;
                }
                let name = format!("ring-{}", data.name);
                self.broadcasts.retain(|found| found.metadata.name.as_deref() != Some(&name));
                let mut broadcast = Broadcast::new(
                    &name,
                    gridcast_crds::BroadcastSpec {
                        source: data.source.clone(),
                        strategy: data.strategy(),
                        ..Default::default()
                    },
                );
                broadcast.metadata.uid = Some(format!("uid-{name}"));
                broadcast.metadata.generation = Some(1);
                self.broadcasts.push(broadcast);
            }
            Action::DeleteBroadcast(name, _) => {
                self.broadcasts.retain(|found| found.metadata.name.as_deref() != Some(&name));
            }
            Action::ApplyNetworkMap => {
                if !self.write(Part::NetworkMap) {
                    return;
                }
                let mut map = NetworkMap::new("ring", gridcast_crds::NetworkMapSpec::default());
                map.metadata.generation = Some(1);
                self.map = Some(map);
            }
            Action::DeleteNetworkMap(..) => self.map = None,
            Action::DeletePods { pods, force } => {
                for (name, uid) in pods {
                    if let Some((_, pod)) = self.pods.get_mut(&name).filter(|(_, pod)| pod.uid == uid) {
                        assert!(pod.deleting.is_none() || force, "{name} is deleted twice");
                        pod.deleting = Some(self.now + SignedDuration::from_secs(8));
                    }
                    if force {
                        self.pods.remove(&name);
                    }
                    self.collect_pods.retain(|pod| pod.name != name);
                }
            }
            Action::CreateCollectPods(_) => {
                self.collect_pods =
                    vec![HelperPod { name: "ring-0-collect".into(), pod: MemberPod::default() }];
            }
            Action::DeleteSelf => {
                self.cluster.metadata.deletion_timestamp.get_or_insert(Time(self.now));
                self.gone = self.cluster.metadata.finalizers.is_none();
            }
            Action::Begin(step) => self.begin(step),
        }
    }

    fn begin(&mut self, step: Step) {
        let name = step.operation();
        assert!(!self.steps.contains_key(&name), "{name} is begun twice");
        match &step {
            Step::Create { .. } => drop(self.create.insert(name.clone(), Work::Running(Creation::default()))),
            Step::Gate { .. } => drop(self.gate.insert(name.clone(), Work::Running(Gate::default()))),
            Step::Tune { .. } => drop(self.tune.insert(name.clone(), Work::Running(Tuned::default()))),
            Step::Launch { id, hosts } => {
                let published = self.cluster.status.as_ref().and_then(|s| s.run.as_ref()?.launch.clone());
                assert_eq!(published.as_ref(), Some(id), "a launch begins after it is published");
                assert_eq!(hosts.len() as u32, self.cluster.spec.nodes(), "all nodes take part");
                let others = self.launch.iter().filter(|(_, work)| matches!(work, Work::Running(_)));
                for (other, _) in others {
                    let stop = self.simple.get(&other.replace("launch/", "stop/"));
                    assert!(matches!(stop, Some(Work::Done(()))), "{other} still runs when {id} begins");
                }
                if !self.launched.contains(id) {
                    self.launched.push(id.clone());
                }
                self.launch.insert(name.clone(), Work::Running(Launch::default()));
            }
            Step::Stop { .. } | Step::Collect { .. } => {
                drop(self.simple.insert(name.clone(), Work::Running(())));
            }
            Step::Release { .. } => self.release = Some(Work::Running(Released::default())),
        }
        self.steps.insert(name, step);
    }

    pub(super) fn cancel(&mut self, name: &str) {
        self.steps.remove(name);
        self.create.remove(name);
        self.gate.remove(name);
        self.tune.remove(name);
        self.launch.remove(name);
        self.simple.remove(name);
        if name == "release" {
            self.release = None;
        }
    }

    pub(super) fn has_budget(&self) -> bool {
        self.memory.exists(UID, ObjectKind::DisruptionBudget)
    }

    /// Whether the API server takes it.
    fn write(&self, part: Part) -> bool {
        if let Some(taken) = self.taken.get(&part) {
            self.memory.note_refused(UID, part, taken.clone(), self.now);
            return false;
        }
        if let Part::Object(kind) = part {
            self.memory.note_applied(UID, kind, kind.version(&self.cluster), None, self.now);
        }
        let _ = self.memory.note_accepted(UID, &part);
        true
    }

    pub(super) fn condition(&self, type_: &str) -> Option<&Condition> {
        self.cluster.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// `Ready=True/Completed: …`, for comparing.
    pub(super) fn told(&self, type_: &str) -> String {
        self.condition(type_).map_or_else(
            || format!("{type_} is absent"),
            |condition| format!("{type_}={}/{}: {}", condition.status, condition.reason, condition.message),
        )
    }

    pub(super) fn holds(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status == "True")
    }

    pub(super) fn restarts(&self) -> i32 {
        self.cluster.status.as_ref().and_then(|status| status.run.as_ref()).map_or(0, |run| run.restarts)
    }

    pub(super) fn is_over(&self) -> bool {
        self.holds(conditions::COMPLETE) || self.holds(conditions::FAILED)
    }
}

/// A transition time moves with its status, and only with it.
fn moved_only_with_status(before: Option<&VirtualClusterStatus>, now: &VirtualClusterStatus) {
    for condition in &now.conditions {
        let before =
            before.and_then(|before| before.conditions.iter().find(|old| old.type_ == condition.type_));
        if let Some(before) = before.filter(|before| before.status == condition.status) {
            assert_eq!(before.last_transition_time, condition.last_transition_time, "{}", condition.type_);
        }
    }
}

pub(super) fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: Some(1),
        last_transition_time: Time(at(0)),
    }
}

pub(super) fn ready() -> Vec<Condition> {
    vec![condition("Ready", "True", "Done", "done")]
}

pub(super) fn stalled(reason: &str, message: &str) -> Vec<Condition> {
    vec![condition("Ready", "False", reason, message), condition("Stalled", "True", reason, message)]
}
