//! How does one conclusion about an object become the conditions that kstatus, Argo CD, Flux and people read?

use gridcast_crds::conditions;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

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
    let set = |type_: &str, status: &str| Condition {
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
    match standing {
        Standing::Ready => vec![set(conditions::READY, "True")],
        Standing::Reconciling => {
            vec![set(conditions::READY, "False"), set(conditions::RECONCILING, "True")]
        }
        Standing::Stalled => vec![set(conditions::READY, "False"), set(conditions::STALLED, "True")],
    }
}

/// The condition of this type.
pub(crate) fn find<'a>(list: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    list.iter().find(|condition| condition.type_ == type_)
}

/// Whether the object was last published as being as asked.
pub(crate) fn is_ready(list: &[Condition]) -> bool {
    find(list, conditions::READY).is_some_and(|ready| ready.status == "True")
}

/// The same conclusion, of this generation.
pub(crate) fn of_generation(list: &[Condition], generation: Option<i64>) -> Vec<Condition> {
    list.iter().map(|condition| Condition { observed_generation: generation, ..condition.clone() }).collect()
}

/// `metav1.Time` has no fraction: one that is written with it comes back without, and would look changed.
pub(crate) fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// At most `bytes` of `text`, as the schema demands, cut between characters.
pub(crate) fn within(mut text: String, bytes: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() > bytes {
        let mut end = bytes.saturating_sub(ELLIPSIS.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(ELLIPSIS);
    }
    text
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

    #[test]
    fn a_message_is_cut_between_characters() {
        assert_eq!(within("é".repeat(400), 512).len(), 511);
        assert_eq!(within("short".into(), 512), "short");
    }
}
