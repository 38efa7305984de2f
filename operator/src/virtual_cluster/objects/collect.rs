//! Which pods write the results of a run into users' volumes?

use gridcast_crds::virtual_cluster::Collect;
use k8s_openapi::api::core::v1::Pod;

use super::{Blueprint, CLUSTER, INCARNATION, children::user_of, labels};
use crate::auxiliary_pod::{AuxiliaryPod, Mount, Role};

/// A pod that writes into one claim.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectPod<'a> {
    /// Its name, also the name that members verify.
    pub name: String,
    /// The claim.
    pub claim: &'a str,
}

impl Blueprint<'_> {
    /// One pod for each claim that results go to, in the order in which the claims are named.
    pub fn collect_pods(&self) -> Vec<CollectPod<'_>> {
        let mut claims: Vec<&str> = Vec::new();
        for claim in self.collects().iter().map(|collect| claim(collect)) {
            if !claims.contains(&claim) {
                claims.push(claim);
            }
        }
        let named = |(index, claim)| CollectPod { name: format!("{}-collect-{index}", self.name()), claim };
        claims.into_iter().enumerate().map(named).collect()
    }

    /// The object of one of them, for a plain POST. It has the members' keys, since it asks members, and their user, since
    /// that wrote what is collected.
    pub fn collect_pod(&self, pod: &CollectPod<'_>) -> Pod {
        let (node_selector, tolerations) = self.where_members_run();
        let pod = AuxiliaryPod {
            name: pod.name.clone(),
            namespace: self.namespace().into(),
            owner: self.owner(),
            role: Role::Collect,
            labels: labels(&[(CLUSTER, self.name()), (INCARNATION, &self.incarnation.to_string())]),
            peer_name: pod.name.clone(),
            keys_secret: self.keys_name(),
            mount: Mount::Claim { claim: pod.claim.into(), read_only: false },
            security_context: self.first_template().and_then(user_of),
            node_selector,
            tolerations,
        };
        pod.pod(self.image)
    }

    fn collects(&self) -> &[Collect] {
        self.cluster.spec.run.as_ref().map_or(&[], |run| &run.collect)
    }
}

/// The claim that something is collected into.
pub(crate) fn claim(collect: &Collect) -> &str {
    &collect.to.persistent_volume_claim.claim_name
}
