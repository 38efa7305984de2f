//! What should be? Pure: no client, no clock, no randomness.

use gridcast_crds::conditions;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{kind::Kind, observe::Observed, verdict};

/// What to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The status to publish; `None` where the published one says the same.
    pub status: Option<Published>,
}

/// The part of a status that this operator owns.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// The generation that it describes.
    pub observed_generation: Option<i64>,
    /// Its conditions. Server-side apply removes those of ours that are no longer here.
    pub conditions: Vec<Condition>,
}

/// The conditions that this operator sets; others belong to others and are left alone.
const OWN: [&str; 3] = [conditions::READY, conditions::STALLED, conditions::SUSPENDED];

/// Computes the plan for one observation at one instant.
pub fn plan<K: Kind>(observed: &Observed<K>, now: Timestamp) -> Plan {
    let object = &observed.object;
    // Nothing has to be released, so there is no finalizer and a dying object needs nothing.
    if object.meta().deletion_timestamp.is_some() {
        return Plan { status: None };
    }
    let generation = object.meta().generation;
    let wanted = Published {
        observed_generation: generation,
        conditions: verdict::conditions(object.conditions(), &object.verdict(), generation, now),
    };
    Plan { status: (!is_published(object, &wanted)).then_some(wanted) }
}

fn is_published<K: Kind>(object: &K, wanted: &Published) -> bool {
    let own: Vec<&Condition> =
        object.conditions().iter().filter(|condition| OWN.contains(&condition.type_.as_str())).collect();
    object.observed_generation() == wanted.observed_generation
        && own.len() == wanted.conditions.len()
        && wanted.conditions.iter().all(|condition| own.contains(&condition))
}
