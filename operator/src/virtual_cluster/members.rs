//! Which nodes does a spec ask for, and when is a pod the one that is asked for?

use gridcast_crds::{
    VirtualCluster,
    virtual_cluster::{Group, Run},
};
use serde_json::json;

use super::observed::{Member, MemberPod, Phase};

/// Annotation with the number of the keys in use; another number makes new keys, and new pods that have them.
pub const KEYS_ANNOTATION: &str = "gridcast.io/keys";

/// The number of the keys in use: 1 unless the annotation says otherwise.
pub fn key_generation(cluster: &VirtualCluster) -> u64 {
    let annotations = cluster.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(KEYS_ANNOTATION))
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1)
}

/// Tells what a pod of `group` is made from: the value of the label `gridcast.io/incarnation`. A pod with another value is
/// not the one that the spec asks for. It follows from the spec alone, so that an operator which missed a change, or a
/// change and its opposite, does neither too much nor too little.
pub fn incarnation(cluster: &VirtualCluster, group: &Group) -> u64 {
    let data: Vec<_> = cluster.spec.data.iter().map(|data| (&data.name, &data.mount_path)).collect();
    let parts = json!([group.name, group.pod, data, key_generation(cluster)]);
    let hash = hash(&[&parts.to_string()]);
    u64::from_le_bytes(std::array::from_fn(|i| hash.as_bytes()[i]))
}

/// Identifies what is asked for altogether: every group's incarnation and size.
pub fn creation_key(cluster: &VirtualCluster) -> String {
    let groups = cluster.spec.groups.iter();
    let parts: Vec<String> = groups
        .map(|group| format!("{}/{}", incarnation(cluster, group), cluster.spec.replicas_of(group)))
        .collect();
    digest(&parts.iter().map(String::as_str).collect::<Vec<_>>())
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

/// The label selector of the nodes' pods, for `kubectl scale` and autoscalers.
pub fn member_selector(cluster: &str) -> String {
    let labels = super::objects::member_labels(cluster);
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}
