//! What does an object that the cluster owns say of itself?

use gridcast_crds::conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::virtual_cluster::observed::Trouble;

pub(super) enum Standing {
    /// It is as asked.
    Ready,
    /// Not yet; what it says of that, if it has said anything about the present spec.
    Going(Option<Trouble>),
    /// Nothing will happen until someone changes something.
    Stalled(Trouble),
    /// It has failed for good.
    Failed(Trouble),
}

pub(super) fn standing(said: &[Condition], observed: Option<i64>, generation: Option<i64>) -> Standing {
    let find = |type_: &str| said.iter().find(|condition| condition.type_ == type_);
    let holds = |type_: &str| find(type_).filter(|condition| condition.status == "True");
    let told = |condition: &Condition| Trouble::new(condition.reason.clone(), condition.message.clone());
    if observed != generation {
        return Standing::Going(None);
    }
    if let Some(failed) = holds(conditions::FAILED) {
        return Standing::Failed(told(failed));
    }
    if let Some(stalled) = holds(conditions::STALLED) {
        return Standing::Stalled(told(stalled));
    }
    match find(conditions::READY) {
        Some(ready) if ready.status == "True" => Standing::Ready,
        ready => Standing::Going(ready.map(told)),
    }
}
