//! Which chunk does a tree carry next?
//!
//! All active trees take chunks from one queue. When it is empty, the tree with the fewest members retires, and what it
//! carried becomes the queue for the others. A tree that is slower than planned takes less by itself.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The queue that the trees of one broadcast share.
#[derive(Debug)]
pub(crate) struct Schedule {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Chunks that no tree has taken yet, then chunks of retired trees.
    fresh: std::ops::Range<u64>,
    again: VecDeque<u64>,
    /// Active trees, the one with the fewest members last.
    active: Vec<usize>,
    carried: Vec<Vec<u64>>,
}

impl Schedule {
    /// `reach[i]` is the number of members of tree i.
    pub(crate) fn new(chunks: u64, reach: &[usize]) -> Self {
        let mut active: Vec<usize> = (0..reach.len()).collect();
        active.sort_by_key(|&tree| (std::cmp::Reverse(reach[tree]), tree));
        let inner = Inner {
            fresh: 0..chunks,
            again: VecDeque::new(),
            active,
            carried: vec![Vec::new(); reach.len()],
        };
        Self { inner: Mutex::new(inner) }
    }

    /// The next chunk for `tree`; none when it has retired, or nothing is left.
    pub(crate) fn next(&self, tree: usize) -> Option<u64> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if !inner.active.contains(&tree) {
                return None;
            }
            if let Some(chunk) = inner.fresh.next().or_else(|| inner.again.pop_front()) {
                // The last tree's log is never sent again: a single tree remembers nothing.
                if inner.active.len() > 1 {
                    inner.carried[tree].push(chunk);
                }
                return Some(chunk);
            }
            let retired = inner.active.pop()?;
            inner.again = std::mem::take(&mut inner.carried[retired]).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the order in which trees ask, a member of the trees 0..=g receives every chunk exactly once.
        #[test]
        fn nested_groups_receive_every_chunk_once(
            chunks in 0u64..60, trees in 1usize..5, turns in prop::collection::vec(0usize..5, 0..400)
        ) {
            let reach: Vec<usize> = (0..trees).map(|tree| 10 - tree).collect();
            let schedule = Schedule::new(chunks, &reach);
            let mut carried = vec![Vec::new(); trees];
            let fair = (0..).map(|turn| turn % trees).take(trees * (chunks as usize * trees + trees));
            for tree in turns.into_iter().filter(|tree| *tree < trees).chain(fair) {
                carried[tree].extend(schedule.next(tree));
            }
            for group in 0..trees {
                // What reaches the group while it is not complete: with the trees above it retired, its own carry on for
                // the slower groups, so only the first copy counts.
                let mut received: Vec<u64> = carried[..=group].concat();
                received.sort_unstable();
                received.dedup();
                prop_assert_eq!(received, (0..chunks).collect::<Vec<_>>(), "group {}", group);
            }
            let mut last = carried[0].clone();
            last.sort_unstable();
            prop_assert_eq!(last, (0..chunks).collect::<Vec<_>>());
        }
    }
}
