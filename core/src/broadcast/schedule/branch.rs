//! What a node remembers of its place in one tree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A place in a tree: the hop from above and those below.
#[derive(Clone, Debug, Default)]
pub(super) struct Branch {
    /// Who feeds it; nobody feeds a root.
    pub(super) parent: Option<usize>,
    /// Whether the parent knows.
    pub(super) attached: bool,
    /// Entries heard of since the beginning; at a root, entries made.
    pub(super) position: usize,
    /// Entries that the parent may name.
    pub(super) asked: usize,
    /// Asked for and not here, in the order of asking.
    pub(super) fetching: Vec<u32>,
    /// When the first of these began to come.
    pub(super) since: Duration,
    /// To be asked for again when a parent is there.
    pub(super) again: Vec<u32>,
    /// No entry is asked for before, since one was of no use.
    pub(super) rest_until: Duration,
    /// Number of the first entry in the log: one that came late knows none before.
    pub(super) first: usize,
    /// Entries while the tree is live.
    pub(super) log: Vec<u32>,
    /// Length of the live log, from number 0, once it has ended.
    pub(super) end: Option<usize>,
    /// Those that are fed.
    pub(super) children: BTreeMap<usize, Child>,
}

/// One that is fed.
#[derive(Clone, Debug, Default)]
pub(super) struct Child {
    /// Entries named to it since the beginning.
    pub(super) cursor: usize,
    /// Entries that it is ready for.
    pub(super) credit: usize,
    /// Since when it waits for a chunk that comes down this tree.
    pub(super) waiting: Option<Duration>,
    /// Whether it waited in vain, and takes what came another way.
    pub(super) dry: bool,
    /// It and those below it in this tree.
    pub(super) subtree: BTreeSet<usize>,
    /// For each chunk how many of these lack it, as far as they said what they hold.
    pub(super) lacks: Vec<u16>,
}

impl Branch {
    /// Number of the entry after the last one in the log.
    pub(super) fn log_end(&self) -> usize {
        self.first + self.log.len()
    }

    /// Whether entries after `position` are whatever is of use.
    pub(super) fn is_open(&self, position: usize) -> bool {
        self.end.is_some_and(|end| position >= end)
    }

    /// The entry of the live log with this number, if it is known.
    pub(super) fn logged(&self, position: usize) -> Option<u32> {
        self.log.get(position.checked_sub(self.first)?).copied()
    }
}
