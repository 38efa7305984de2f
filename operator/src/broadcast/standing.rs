//! How does one conclusion about an object become the conditions that kstatus, Argo CD, Flux and people read?

use gridcast_crds::conditions as types;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::verdict::{Conditions, is_true};

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is as asked.
    Ready,
    /// On the way, or waiting for something that may come by itself.
    Reconciling,
    /// Nothing will happen until someone changes something.
    Stalled,
}

/// The conditions for one conclusion. What is not true of it is left out, so that server-side apply removes it. A
/// transition time moves only when the status of its condition does.
pub(crate) fn conditions(
    old: &[Condition],
    standing: Standing,
    (reason, message): (&str, &str),
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = Conditions::new(old, generation, now);
    conditions.set(types::READY, standing == Standing::Ready, reason, message);
    match standing {
        Standing::Ready => &mut conditions,
        Standing::Reconciling => conditions.set(types::RECONCILING, true, reason, message),
        Standing::Stalled => conditions.set(types::STALLED, true, reason, message),
    };
    conditions.finish()
}

/// The condition of this type.
pub(crate) fn find<'a>(list: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    list.iter().find(|condition| condition.type_ == type_)
}

/// Whether the object was last published as being as asked.
pub(crate) fn is_ready(list: &[Condition]) -> bool {
    is_true(list, types::READY)
}

/// The same conclusion, of this generation.
pub(crate) fn of_generation(list: &[Condition], generation: Option<i64>) -> Vec<Condition> {
    list.iter().map(|condition| Condition { observed_generation: generation, ..condition.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_transition_time_moves_only_with_the_status() {
        let first = conditions(&[], Standing::Reconciling, ("Staging", "a"), Some(1), at(100));
        let second = conditions(&first, Standing::Reconciling, ("DiskFull", "b"), Some(2), at(200));
        assert!(second.iter().all(|c| c.last_transition_time.0 == at(100) && c.reason == "DiskFull"));
        let ready = conditions(&second, Standing::Ready, ("Staged", "c"), Some(2), at(300));
        assert!(is_ready(&ready) && ready.len() == 1 && ready[0].last_transition_time.0 == at(300));
        let types: Vec<String> =
            conditions(&ready, Standing::Stalled, ("Unsupported", "d"), Some(3), at(400))
                .into_iter()
                .map(|c| format!("{}={}", c.type_, c.status))
                .collect();
        assert_eq!(types, ["Ready=False", "Stalled=True"]);
        assert_eq!(of_generation(&ready, Some(9))[0].observed_generation, Some(9));
    }

    #[test]
    fn times_have_no_fraction() {
        let now = Timestamp::from_millisecond(1_500).unwrap();
        let ready = conditions(&[], Standing::Ready, ("Staged", "a"), None, now);
        assert_eq!(ready[0].last_transition_time.0, at(1));
    }
}
