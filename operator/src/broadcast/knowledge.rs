//! What does this process know of one dataset's copies?
//!
//! It is the state of the operation that stages: carried from attempt to attempt, lost with the process. A process that
//! knows nothing asks the agents (`Prepare` says whether a node has it verified), so nothing of it is worth a write.

use std::{collections::BTreeMap, time::Duration};

use gridcast_control::StepFailure;
use gridcast_core::report::Rows;
use gridcast_crds::broadcast::BoundKind;
use jiff::Timestamp;

/// First wait after a failure; doubled by each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// What is known of one dataset.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Knowledge {
    /// The copies, by Kubernetes node: of every node that was asked to prepare and has not released.
    pub(crate) copies: BTreeMap<String, Copy>,
    /// Number of the last transfer: part of its id. Grows with time, so that no restart repeats one.
    pub(crate) attempt: i64,
    /// What is wrong at the source, where the last transfer ended by it.
    pub(crate) source: Option<Trouble>,
    /// The dataset, as the source or a copy says.
    pub(crate) dataset: Option<Facts>,
    /// The transfers that brought what was missing last.
    pub(crate) campaign: Campaign,
    /// Bandwidths that were measured for a plan.
    pub(crate) measured: Option<Measured>,
    /// Everything is being released, since the object is deleted.
    pub(crate) releasing: bool,
    /// Nodes that nothing is known of were asked to release, too.
    pub(crate) swept: bool,
    /// Names of pods that keep copies from being released, by UID, as far as they could be found.
    pub(crate) pods: BTreeMap<String, String>,
    /// When a release was last tried.
    pub(crate) released_at: Option<Timestamp>,
}

/// The copy of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Copy {
    /// UID of the agent's pod that was asked. What another one has must be asked anew.
    pub(crate) agent: String,
    /// The agent has answered `Prepare`.
    pub(crate) prepared: bool,
    /// All of it is there, verified.
    pub(crate) verified: bool,
    /// Bytes that it had when it was last told.
    pub(crate) bytes: u64,
    /// Why it is not there.
    pub(crate) trouble: Option<Trouble>,
    /// Pods that keep it from being released, by UID.
    pub(crate) held: Vec<String>,
    /// What brought it, where this process has seen that.
    pub(crate) arrival: Option<Arrival>,
}

/// How a copy came.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Arrival {
    /// Since its transfer was started, seconds.
    pub(crate) seconds: f64,
    /// Size over that time, Mbit/s.
    pub(crate) rate_mbps: f64,
    /// Max-flow from the source to this node, Mbit/s.
    pub(crate) bound_mbps: f64,
}

/// Failures in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The last.
    pub(crate) failure: StepFailure,
    /// How many.
    pub(crate) count: u32,
    /// When the last was.
    pub(crate) at: Timestamp,
}

/// A dataset, in three figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Bytes outside holes.
    pub(crate) size_bytes: u64,
    /// Names of regular files.
    pub(crate) files: u64,
    /// BLAKE3 of the manifest, where a transfer has ended or a copy was verified.
    pub(crate) digest: Option<String>,
}

/// The transfers between two moments at which nothing was missing. The figures of the status are about these.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Campaign {
    /// When the first was started.
    pub(crate) since: Option<Timestamp>,
    /// How many were started.
    pub(crate) transfers: u32,
    /// Members of the largest.
    pub(crate) most: usize,
    /// What made the trees of the largest.
    pub(crate) strategy: String,
    /// Trees of the largest.
    pub(crate) trees: u32,
    /// What the bound of the largest rests on.
    pub(crate) bound_kind: Option<BoundKind>,
    /// Until the slowest node had it.
    pub(crate) seconds: f64,
    /// Read from the origin, all transfers that ended well.
    pub(crate) source_bytes_read: u64,
}

/// Bandwidths between nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// Names, in the order of rows and columns.
    pub(crate) hosts: Vec<String>,
    /// `[destination][source]`, Mbit/s.
    pub(crate) mbps: Rows,
    /// When.
    pub(crate) at: Timestamp,
}

/// A measurement older than this is made again.
pub(crate) const FRESH: Duration = Duration::from_mins(10);

impl Measured {
    /// Whether it says something about each of these, and is not too old.
    pub(crate) fn covers<'a>(&self, hosts: impl IntoIterator<Item = &'a str>, now: Timestamp) -> bool {
        since(self.at, now) < FRESH
            && hosts.into_iter().all(|host| self.hosts.iter().any(|known| known == host))
    }
}

impl Trouble {
    /// One more failure.
    pub(crate) fn after(before: Option<&Self>, failure: StepFailure, at: Timestamp) -> Self {
        Self { failure, count: before.map_or(0, |trouble| trouble.count).saturating_add(1), at }
    }

    /// How long it is until another try makes sense; zero when it does.
    pub(crate) fn wait(&self, now: Timestamp) -> Duration {
        backoff(self.count).saturating_sub(since(self.at, now))
    }
}

/// The wait after so many failures in a row.
pub(crate) fn backoff(count: u32) -> Duration {
    let doublings = count.saturating_sub(1).min(16);
    (FIRST_WAIT * 2_u32.pow(doublings)).min(LONGEST_WAIT)
}

/// From one instant to a later one; zero where the clock went back.
pub(crate) fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

impl Copy {
    /// Whether it is there, by the word of this agent.
    pub(crate) fn is_there(&self, agent: &str) -> bool {
        self.verified && self.agent == agent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_a_minute() {
        let waits: Vec<u64> = (0..9).map(|count| backoff(count).as_secs()).collect();
        assert_eq!(waits, [1, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff(u32::MAX), LONGEST_WAIT);
        let at = Timestamp::from_second(100).unwrap();
        let trouble = Trouble { failure: StepFailure::new("A", "b"), count: 3, at };
        assert_eq!(trouble.wait(Timestamp::from_second(101).unwrap()), Duration::from_secs(3));
        assert_eq!(trouble.wait(Timestamp::from_second(104).unwrap()), Duration::ZERO);
        assert_eq!(
            trouble.wait(Timestamp::from_second(50).unwrap()),
            Duration::from_secs(4),
            "a clock that went back"
        );
    }

    #[test]
    fn a_measurement_is_of_its_hosts_and_its_time() {
        let at = Timestamp::from_second(0).unwrap();
        let measured = Measured { hosts: vec!["a".into(), "b".into()], mbps: Vec::new(), at };
        assert!(measured.covers(["b", "a"], Timestamp::from_second(599).unwrap()));
        assert!(!measured.covers(["a"], Timestamp::from_second(600).unwrap()));
        assert!(!measured.covers(["a", "c"], at));
    }
}
