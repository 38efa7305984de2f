//! Why did a reconciliation stop, and when does another try make sense?

pub use gridcast_core::failure::chain;

use crate::authority::AuthorityError;
use std::{collections::HashMap, hash::Hasher as _, time::Duration};

/// When another try makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// With backoff.
    Soon,
    /// Not before this.
    After(Duration),
    /// Only when the object changes.
    OnChange,
}

/// Why a reconciliation stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object that this version cannot read.
    #[error(
        "cannot read {what} {name:?}: {detail}; install the definitions of this version (`gridcast-operator crds`)"
    )]
    Unreadable {
        /// Its kind.
        what: String,
        /// Namespace and name.
        name: String,
        /// What does not fit.
        detail: String,
    },
    /// A write was refused or lost.
    #[error("cannot {verb} {what} {name:?}")]
    Write {
        /// What was to be done, as in "create".
        verb: &'static str,
        /// Kind of the object.
        what: String,
        /// Its name.
        name: String,
        /// What the server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// Something of the name is there that is not the cluster's.
    #[error(
        "{what} {name:?} exists and does not belong to {owner}; delete or rename it, or give the cluster another name"
    )]
    NameTaken {
        /// Kind of the object.
        what: String,
        /// Its name.
        name: String,
        /// Kind, namespace and name of the object that it would have to belong to.
        owner: String,
    },
    /// Keys could not be made or used.
    #[error("cannot make the keys of {name:?}")]
    Keys {
        /// Whose.
        name: String,
        /// Why not.
        #[source]
        source: AuthorityError,
    },
    /// The reconciliation itself failed.
    #[error("the reconciliation panicked; the log has the place: {0}")]
    Panicked(String),
}

impl Error {
    /// What the API server answered, if it refused.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Write { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// The code that the API server answered with, if it did.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// Whether that is the API server's reason: one code has several.
    pub fn says(&self, reason: &str) -> bool {
        self.status().is_some_and(|status| status.reason == reason)
    }

    /// What the API server said, if it refused: for the conditions of who can change it.
    pub fn refusal(&self) -> Option<&str> {
        self.status().map(|status| status.message.as_str())
    }

    /// The word for conditions, events and metric labels.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "Unreadable",
            Self::Write { .. } => "WriteFailed",
            Self::NameTaken { .. } => "NameTaken",
            Self::Keys { source, .. } => source.reason(),
            Self::Panicked(_) => "Panicked",
        }
    }

    /// When another try makes sense.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unreadable { .. } => Retry::OnChange,
            Self::Write { source, .. } => match source.as_ref() {
                // Only an administrator can change that, and will not within seconds.
                kube::Error::Api(status) if status.code == 403 => Retry::After(Duration::from_mins(5)),
                kube::Error::Api(status) if status.code == 422 => Retry::OnChange,
                _ => Retry::Soon,
            },
            Self::NameTaken { .. } | Self::Keys { .. } | Self::Panicked(_) => Retry::Soon,
        }
    }
}

/// Failures in a row, per object.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: HashMap<String, u32>,
}

/// Longest wait between two tries.
const LONGEST: Duration = Duration::from_mins(5);

/// Objects whose failures are counted; beyond it a cluster has worse troubles than a short wait.
const MOST_OBJECTS: usize = 10_000;

impl Backoff {
    /// Counts a failure of the object with this UID and says how long to wait: 1 s doubled per failure, at most five minutes, spread by a
    /// fifth either way so that objects that failed together do not return together.
    pub fn failed(&mut self, uid: &str) -> Duration {
        if self.failures.len() >= MOST_OBJECTS && !self.failures.contains_key(uid) {
            self.failures.clear();
        }
        let count = self.failures.entry(uid.to_owned()).or_default();
        let seconds = 1u64.checked_shl(*count).unwrap_or(u64::MAX).min(LONGEST.as_secs());
        *count = count.saturating_add(1);
        Duration::from_secs(seconds).mul_f64(0.8 + 0.4 * spread(uid, *count)).min(LONGEST)
    }

    /// Forgets the failures of the object with this UID.
    pub fn succeeded(&mut self, uid: &str) {
        self.failures.remove(uid);
    }
}

/// A number from 0 to 1 that differs from object to object: no randomness, so that a test can repeat what happened.
fn spread(uid: &str, count: u32) -> f64 {
    let mut hasher = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(&(uid, count), &mut hasher);
    (hasher.finish() % 1024) as f64 / 1023.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn waits_grow_to_five_minutes_and_start_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> = (0..80).map(|_| backoff.failed("a")).collect();
        for (wait, seconds) in waits.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0]) {
            assert!((seconds * 0.8..=seconds * 1.2).contains(&wait.as_secs_f64()), "{wait:?}");
        }
        assert!(waits.iter().all(|wait| *wait <= LONGEST));
        assert!(waits[79] >= LONGEST.mul_f64(0.8));
        backoff.succeeded("a");
        assert!(backoff.failed("a") < Duration::from_secs(2));
    }

    #[test]
    fn the_count_of_objects_is_bounded() {
        let mut backoff = Backoff::default();
        for uid in 0..=MOST_OBJECTS {
            backoff.failed(&uid.to_string());
        }
        assert!(backoff.failures.len() <= MOST_OBJECTS);
    }

    #[test]
    fn what_waiting_cannot_mend_is_not_tried_again_soon() {
        let write = |code: u16| {
            let status = Status { code, ..Status::failure("no", "No") };
            let source = Box::new(kube::Error::Api(Box::new(status)));
            Error::Write { verb: "apply", what: "Broadcast".into(), name: "a".into(), source }
        };
        assert_eq!(write(403).retry(), Retry::After(Duration::from_mins(5)));
        assert_eq!(write(422).retry(), Retry::OnChange);
        assert_eq!(write(409).retry(), Retry::Soon);
        assert_eq!(chain(&write(409)).matches("cannot apply").count(), 1);
    }
}
