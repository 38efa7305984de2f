//! Which nodes does a spec ask for, and when is a pod the one that is asked for?

use gridcast_crds::{
    VirtualCluster, conditions,
    virtual_cluster::{Group, Run, VirtualClusterStatus},
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::{
    Memory,
    objects::{GENERATION, INCARNATION, KEYS},
    observed::{Host, Member, MemberPod, Phase},
};

/// Annotation with the number of the keys that pods are made with; another number makes new keys, and new pods as soon as
/// that ends no program.
pub const KEYS_ANNOTATION: &str = "gridcast.io/keys";

/// The number of the keys that pods are made with from now on: 1 unless the annotation says otherwise.
pub fn key_generation(cluster: &VirtualCluster) -> u64 {
    let annotations = cluster.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(KEYS_ANNOTATION))
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1)
}

/// Tells what a pod of `group` is made from, the keys apart: the value of the label `gridcast.io/incarnation`. It follows
/// from the spec alone, so that an operator which missed a change, or a change and its opposite, does neither too much nor
/// too little.
pub fn incarnation(cluster: &VirtualCluster, group: &Group) -> u64 {
    let data: Vec<_> = cluster.spec.data.iter().map(|data| (&data.name, &data.mount_path)).collect();
    let parts = json!([group.name, group.pod, data]);
    let hash = hash(&[&parts.to_string()]);
    u64::from_le_bytes(std::array::from_fn(|i| hash.as_bytes()[i]))
}

/// Identifies what is asked for altogether: every group's incarnation and size, and the keys.
pub fn creation_key(cluster: &VirtualCluster) -> String {
    let groups = cluster.spec.groups.iter();
    let sizes =
        groups.map(|group| format!("{}/{}", incarnation(cluster, group), cluster.spec.replicas_of(group)));
    let parts: Vec<String> = sizes.chain([format!("keys/{}", key_generation(cluster))]).collect();
    digest(&parts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What a pod of a cluster was made from, as its labels tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// The [`incarnation`] of its group.
    pub incarnation: u64,
    /// The number of its keys.
    pub keys: u64,
    /// The generation of the cluster.
    pub generation: i64,
}

impl Made {
    /// What a pod of `group` is made from now.
    pub fn now(cluster: &VirtualCluster, group: &Group) -> Self {
        Self {
            incarnation: incarnation(cluster, group),
            keys: key_generation(cluster),
            generation: cluster.metadata.generation.unwrap_or_default(),
        }
    }

    /// As labels.
    pub fn labels(&self) -> [(&'static str, String); 3] {
        [
            (INCARNATION, self.incarnation.to_string()),
            (KEYS, self.keys.to_string()),
            (GENERATION, self.generation.to_string()),
        ]
    }

    /// What the labels of `pod` tell; none where they are not complete.
    pub fn of(pod: &Pod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref()?;
        let number = |name: &str| labels.get(name)?.parse().ok();
        Some(Self {
            incarnation: number(INCARNATION)?,
            keys: number(KEYS)?,
            generation: labels.get(GENERATION)?.parse().ok()?,
        })
    }

    /// Whether a pod that was made from this is what would be made from `asked`. One that was made from the same generation
    /// is, even if this operator tells it by another number than the one that made it.
    pub fn serves(&self, asked: &Self) -> bool {
        self.keys == asked.keys
            && (self.incarnation == asked.incarnation || self.generation == asked.generation)
    }
}

/// Which pods are the ones that the spec asks for.
#[derive(Clone, Debug)]
pub struct Asked {
    groups: Vec<Made>,
    by_name: bool,
    /// New keys wait for the next pods.
    any_keys: bool,
}

impl Asked {
    /// For `cluster`, of which `memory` may know more.
    ///
    /// From the launch of a program to the end of the cluster its pods are told by their names: nothing that they are made
    /// from can be changed meanwhile but the keys, and those take effect with the next pods. So neither new keys nor an operator
    /// that tells pods by other numbers than the one before it ends a program. What can be changed is changed while the
    /// cluster is suspended; an operator that missed that sees a generation that the status does not know.
    pub fn of(cluster: &VirtualCluster, memory: &Memory) -> Self {
        let groups: Vec<Made> = cluster.spec.groups.iter().map(|group| Made::now(cluster, group)).collect();
        let status = cluster.status.as_ref();
        let seen = status.is_some_and(|status| status.observed_generation == cluster.metadata.generation);
        let numbers: Vec<String> = groups.iter().map(|made| made.incarnation.to_string()).collect();
        let asked = digest(&numbers.iter().map(String::as_str).collect::<Vec<_>>());
        let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
        let same = memory.asks_the_same(uid, &asked, seen);
        let holds = status.is_some_and(holds_pods);
        Self { by_name: same && holds, any_keys: holds, groups }
    }

    /// Whether a pod of the right name that was made from `made` is one of them.
    pub fn takes(&self, group_index: usize, made: Option<&Made>) -> bool {
        let serves = |(asked, made): (&Made, &Made)| {
            let keys = if self.any_keys { made.keys } else { asked.keys };
            made.serves(&Made { keys, ..*asked })
        };
        self.by_name || self.groups.get(group_index).zip(made).is_some_and(serves)
    }
}

/// Whether a program was launched that has not been lost since, or the cluster has ended.
fn holds_pods(status: &VirtualClusterStatus) -> bool {
    let holds = |type_: &str| status.conditions.iter().any(|c| c.type_ == type_ && c.status == "True");
    let finished = status.timeline.as_ref().is_some_and(|timeline| timeline.finished.is_some());
    finished || [conditions::RUNNING, conditions::COMPLETE, conditions::FAILED].into_iter().any(holds)
}

/// Identifies the pods that are the cluster at present, by their UIDs in machinefile order; none unless all can be reached.
pub fn membership(members: &[Member]) -> Option<String> {
    let uids: Option<Vec<&str>> =
        members.iter().map(|member| reachable(member).map(|pod| pod.uid.as_str())).collect();
    uids.map(|uids| digest(&uids))
}

/// The member's pod, if it has an address and is not at or on its way to its end. Its phase may still be `Pending`: kubelet
/// tells that a container runs up to a second after it does, and in that time the starter has long answered.
pub fn reachable(member: &Member) -> Option<&MemberPod> {
    let pod = member.pod.as_ref()?;
    let lives = matches!(pod.phase, Phase::Pending | Phase::Running) && pod.deleting.is_none();
    (lives && pod.address.is_some() && pod.node.is_some()).then_some(pod)
}

/// The claims that results go to, each once, in the order in which `collect` names them.
pub fn collect_claims(run: &Run) -> Vec<&str> {
    let mut claims: Vec<&str> = Vec::new();
    for collect in &run.collect {
        let claim = collect.to.persistent_volume_claim.claim_name.as_str();
        if !claims.contains(&claim) {
            claims.push(claim);
        }
    }
    claims
}

/// 64 bits of [`hash`], in 16 hexadecimal digits: enough to tell a cluster's own past from its present.
fn digest(parts: &[&str]) -> String {
    hash(parts).to_hex()[..16].to_owned()
}

/// BLAKE3 over the parts and their boundaries.
fn hash(parts: &[&str]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize()
}

/// The number of the keys of the nodes that can be reached, all of which have the same.
pub fn keys_in_use(cluster: &VirtualCluster, hosts: &[Host]) -> u64 {
    hosts.first().and_then(|host| host.keys).unwrap_or_else(|| key_generation(cluster))
}

/// The label selector of the nodes' pods, for `kubectl scale` and autoscalers.
pub fn member_selector(cluster: &str) -> String {
    let labels = super::objects::member_labels(cluster);
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}
