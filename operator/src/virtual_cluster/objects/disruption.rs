//! May a member be evicted?

use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{Blueprint, member_labels, select};

impl Blueprint<'_> {
    /// No voluntary eviction, for as long as this object is there: while the program runs, since one lost member costs the
    /// whole run.
    ///
    /// `minAvailable` as a number, not `maxUnavailable: 0`: for that the disruption controller asks the owner's scale for the
    /// wanted number, which `spec.replicas` has only where a cluster has one group that was scaled.
    pub fn disruption_budget(&self) -> PodDisruptionBudget {
        let members = i32::try_from(self.cluster.spec.nodes()).unwrap_or(i32::MAX);
        PodDisruptionBudget {
            metadata: self.metadata(self.name().into()),
            spec: Some(PodDisruptionBudgetSpec {
                min_available: Some(IntOrString::Int(members)),
                selector: Some(select(member_labels(self.name()))),
                ..PodDisruptionBudgetSpec::default()
            }),
            status: None,
        }
    }
}
