//! How does one conclusion become the conditions that kstatus, Argo CD and people read?

use gridcast_crds::conditions;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What the operator concluded about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing will happen until someone changes something.
    Stalled {
        /// One PascalCase word.
        reason: &'static str,
        /// A sentence with the next step.
        message: String,
    },
    /// There is no compute, as asked. No `Ready`: kstatus reads `Ready=False` as being in progress, and Flux would wait
    /// for ever for what is just what was asked for.
    Suspended {
        /// A sentence.
        message: String,
    },
}

/// The conditions for one verdict. What is not true of it is left out, so server-side apply removes it.
///
/// A transition time moves only when the status of its condition does.
pub fn conditions(
    old: &[Condition],
    verdict: &Verdict,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let set = |type_: &str, status: &str, reason: &str, message: &str| Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: old
            .iter()
            .find(|condition| condition.type_ == type_ && condition.status == status)
            .map_or_else(|| Time(whole_seconds(now)), |condition| condition.last_transition_time.clone()),
    };
    match verdict {
        Verdict::Stalled { reason, message } => vec![
            set(conditions::READY, "False", reason, message),
            set(conditions::STALLED, "True", reason, message),
        ],
        Verdict::Suspended { message } => vec![set(conditions::SUSPENDED, "True", "Suspended", message)],
    }
}

/// `metav1.Time` has no fraction: one that is written with it comes back without, and would look changed.
fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn stalled(message: &str) -> Verdict {
        Verdict::Stalled { reason: "ProvisioningUnsupported", message: message.into() }
    }

    #[test]
    fn a_transition_time_moves_only_with_the_status() {
        let first = conditions(&[], &stalled("a"), Some(1), at(100));
        let second = conditions(&first, &stalled("b"), Some(2), at(200));
        assert!(second.iter().all(|condition| condition.last_transition_time.0 == at(100)));
        assert!(
            second
                .iter()
                .all(|condition| condition.observed_generation == Some(2) && condition.message == "b")
        );

        let suspended = conditions(&second, &Verdict::Suspended { message: "c".into() }, Some(3), at(300));
        let types: Vec<&str> = suspended.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, ["Suspended"]);
        assert_eq!(suspended[0].last_transition_time.0, at(300));

        let again = conditions(&suspended, &stalled("a"), Some(4), at(400));
        assert!(again.iter().all(|condition| condition.last_transition_time.0 == at(400)));
    }

    #[test]
    fn times_have_no_fraction() {
        let now = Timestamp::from_millisecond(1_500).unwrap();
        assert_eq!(conditions(&[], &stalled("a"), None, now)[0].last_transition_time.0, at(1));
    }
}
