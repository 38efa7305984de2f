//! Which pods write the results of a run into users' volumes?

use k8s_openapi::api::core::v1::Pod;

use super::{Blueprint, CLUSTER, children::user_of, labels};
use crate::{
    auxiliary_pod::{AuxiliaryPod, Mount, Role},
    virtual_cluster::members::collect_claims,
};

/// The name has no number at its end: every member's has, so that no group can be called such that they meet.
pub(crate) fn collect_pod_name(cluster: &str, index: usize) -> String {
    format!("{cluster}-{index}-collect")
}

impl Blueprint<'_> {
    /// Name of the pod for the claim with this index among [`collect_claims`].
    pub fn collect_pod_name(&self, index: usize) -> String {
        collect_pod_name(self.name(), index)
    }

    /// One pod for each claim that results go to, in the order of [`collect_claims`], for a plain POST. They have the members'
    /// keys, since they ask members, and the members' user, since that wrote what is collected.
    pub fn collect_pods(&self) -> Vec<Pod> {
        let Some(run) = &self.cluster.spec.run else { return Vec::new() };
        collect_claims(run)
            .into_iter()
            .enumerate()
            .map(|(index, claim)| self.collect_pod(index, claim))
            .collect()
    }

    fn collect_pod(&self, index: usize, claim: &str) -> Pod {
        let (node_selector, tolerations) = self.where_members_run();
        let pod = AuxiliaryPod {
            name: self.collect_pod_name(index),
            namespace: self.namespace().into(),
            owner: self.owner(),
            role: Role::Collect,
            labels: labels(&[(CLUSTER, self.name())]),
            peer_name: self.collect_pod_name(index),
            keys_secret: self.keys_name(),
            mount: Mount::Claim { claim: claim.into(), read_only: false },
            security_context: self.first_template().and_then(|spec| user_of(spec, self.image.assigned_users)),
            node_selector,
            tolerations,
        };
        pod.pod(self.image)
    }
}
