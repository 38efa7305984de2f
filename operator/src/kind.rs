//! What do the three kinds have in common?

use std::{fmt::Debug, hash::Hash};

use gridcast_crds::{Broadcast, NetworkMap, VirtualCluster};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::NamespaceResourceScope;
use serde::{Serialize, de::DeserializeOwned};

use crate::verdict::Verdict;

/// A kind that this operator answers for.
pub trait Kind:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// The generation that the status describes.
    fn observed_generation(&self) -> Option<i64>;

    /// The conditions of the status.
    fn conditions(&self) -> &[Condition];

    /// What becomes of the object.
    fn verdict(&self) -> Verdict;
}

impl Kind for VirtualCluster {
    fn observed_generation(&self) -> Option<i64> {
        self.status.as_ref().and_then(|status| status.observed_generation)
    }

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn verdict(&self) -> Verdict {
        if self.spec.suspend {
            return Verdict::Suspended { message: "there is no compute, as `spec.suspend` asks".into() };
        }
        Verdict::Stalled {
            reason: "ProvisioningUnsupported",
            message: format!(
                "this version of the operator cannot provision the {} nodes of a VirtualCluster; run the manifest on one \
                 machine with `gridcast local run -f FILE`, or wait for a version that can",
                self.spec.nodes()
            ),
        }
    }
}

impl Kind for Broadcast {
    fn observed_generation(&self) -> Option<i64> {
        self.status.as_ref().and_then(|status| status.observed_generation)
    }

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn verdict(&self) -> Verdict {
        Verdict::Stalled {
            reason: "StagingUnsupported",
            message: "this version of the operator cannot stage data on Kubernetes nodes; stage it on one machine as \
                      `data` of a VirtualCluster with `gridcast local run -f FILE`, or wait for a version that can"
                .into(),
        }
    }
}

impl Kind for NetworkMap {
    fn observed_generation(&self) -> Option<i64> {
        self.status.as_ref().and_then(|status| status.observed_generation)
    }

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn verdict(&self) -> Verdict {
        Verdict::Stalled {
            reason: "MeasuringUnsupported",
            message: "this version of the operator cannot measure Kubernetes nodes; measure nodes on one machine by \
                      `network.probe` of a VirtualCluster with `gridcast local run -f FILE`, or wait for a version that can"
                .into(),
        }
    }
}

/// Objects are told apart by their UID: one that was deleted and made again is another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(String);

impl Identity {
    /// The identity of `object`.
    pub fn of<K: kube::Resource>(object: &K) -> Self {
        Self(object.meta().uid.clone().unwrap_or_default())
    }
}
