//! How does what was concluded become the conditions that kstatus, Argo CD and people read?

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Longest message; the schema takes more, people do not.
const LONGEST_MESSAGE: usize = 2048;

/// Puts together the conditions of one object. What is not set is not there, so server-side apply removes it.
///
/// A transition time moves only when the status of its condition does.
#[derive(Clone, Debug)]
pub struct Conditions<'a> {
    old: &'a [Condition],
    generation: Option<i64>,
    now: Timestamp,
    new: Vec<Condition>,
}

impl<'a> Conditions<'a> {
    /// None yet. `old` are those that were published, `generation` is that of the spec they will describe.
    pub fn new(old: &'a [Condition], generation: Option<i64>, now: Timestamp) -> Self {
        Self { old, generation, now, new: Vec::new() }
    }

    /// Sets one; of two of a type the later one stands.
    pub fn set(&mut self, type_: &str, status: bool, reason: &str, message: &str) -> &mut Self {
        let status = if status { "True" } else { "False" };
        self.new.retain(|condition| condition.type_ != type_);
        let condition = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: bounded(message, LONGEST_MESSAGE),
            observed_generation: self.generation,
            last_transition_time: self
                .old
                .iter()
                .find(|condition| condition.type_ == type_ && condition.status == status)
                .map_or_else(|| whole_seconds(self.now), |condition| condition.last_transition_time.clone()),
        };
        self.new.push(condition);
        self
    }

    /// Keeps one as it was published, if it was: what was reached once stays reached.
    pub fn keep(&mut self, type_: &str) -> &mut Self {
        if let Some(old) = self.old.iter().find(|condition| condition.type_ == type_) {
            let condition = Condition { observed_generation: self.generation, ..old.clone() };
            self.new.retain(|condition| condition.type_ != type_);
            self.new.push(condition);
        }
        self
    }

    /// All of them.
    pub fn finish(self) -> Vec<Condition> {
        self.new
    }
}

/// Whether a condition is there and `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
}

/// `metav1.Time` has no fraction: one that is written with it comes back without, and would look changed.
pub fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// `text`, cut to at most so many bytes between two characters.
pub fn bounded(text: &str, most: usize) -> String {
    const ELLIPSIS: char = '…';
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most.saturating_sub(ELLIPSIS.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{ELLIPSIS}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_transition_time_moves_only_with_the_status() {
        let mut first = Conditions::new(&[], Some(1), at(100));
        first.set("Ready", false, "Waiting", "a").set("Stalled", true, "Waiting", "a");
        let first = first.finish();
        let mut second = Conditions::new(&first, Some(2), at(200));
        second.set("Ready", false, "Other", "b").set("Stalled", true, "Other", "b");
        let second = second.finish();
        assert!(second.iter().all(|condition| condition.last_transition_time.0 == at(100)));
        assert!(second.iter().all(|c| c.observed_generation == Some(2) && c.message == "b"));

        let mut third = Conditions::new(&second, Some(3), at(300));
        third.set("Ready", true, "Done", "c").keep("Stalled").keep("Measured");
        let third = third.finish();
        let seen: Vec<_> = third.iter().map(|c| (c.type_.as_str(), c.last_transition_time.0)).collect();
        assert_eq!(seen, [("Ready", at(300)), ("Stalled", at(100))]);
        assert!(is_true(&third, "Ready") && !is_true(&third, "Measured"));
    }

    #[test]
    fn times_have_no_fraction() {
        assert_eq!(whole_seconds(Timestamp::from_millisecond(1_500).unwrap()).0, at(1));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        for text in ["a".repeat(30), "é".repeat(30), "€".repeat(30)] {
            let cut = bounded(&text, 20);
            assert!(cut.len() <= 20 && cut.ends_with('…'), "{} bytes", cut.len());
        }
        assert_eq!(bounded("as it is", 20), "as it is");
        assert_eq!(bounded(&"é".repeat(400), 512).len(), 511);
    }
}
