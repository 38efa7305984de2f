//! Which chunk does a tree carry next?
//!
//! All active trees take chunks from one queue. When it is empty, the tree with the fewest members retires, and what it
//! carried becomes the queue for the others. A tree that is slower than planned takes less by itself.
//!
//! That completes everybody if trees are nested. What a retired tree carried its members have, or will: whoever carries it
//! again need not bring it to them ([`Turn::carried`]).

use std::cmp::Reverse;
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
    again: VecDeque<Turn>,
    /// Active trees, the one with the fewest members last.
    active: Vec<usize>,
    carried: Vec<Vec<u64>>,
    reach: Vec<usize>,
}

/// What a tree carries next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) chunk: u64,
    /// The retired tree that has brought it to all of its members.
    pub(crate) carried: Option<usize>,
}

impl Schedule {
    /// `reach[i]` is the number of members of tree i.
    pub(crate) fn new(chunks: u64, reach: &[usize]) -> Self {
        let mut active: Vec<usize> = (0..reach.len()).collect();
        active.sort_by_key(|&tree| (Reverse(reach[tree]), tree));
        let inner = Inner {
            fresh: 0..chunks,
            again: VecDeque::new(),
            active,
            carried: vec![Vec::new(); reach.len()],
            reach: reach.to_vec(),
        };
        Self { inner: Mutex::new(inner) }
    }

    /// What `tree` carries next; none when it has retired, or nothing is left.
    pub(crate) fn next(&self, tree: usize) -> Option<Turn> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if !inner.active.contains(&tree) {
                return None;
            }
            let fresh = inner.fresh.next().map(|chunk| Turn { chunk, carried: None });
            if let Some(turn) = fresh.or_else(|| inner.again.pop_front()) {
                // The last tree's log is never sent again: a single tree remembers nothing.
                if inner.active.len() > 1 {
                    inner.carried[tree].push(turn.chunk);
                }
                return Some(turn);
            }
            let retired = inner.active.pop()?;
            let log = std::mem::take(&mut inner.carried[retired]);
            match inner.active.last().copied() {
                // Those of a tree with the same members are complete, too.
                Some(next) if inner.reach[next] == inner.reach[retired] => inner.carried[next].extend(log),
                _ => {
                    let turn = |chunk| Turn { chunk, carried: Some(retired) };
                    inner.again = log.into_iter().map(turn).collect();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the order in which trees ask, every member receives every chunk, and none twice before it is complete.
        #[test]
        fn nested_groups_receive_every_chunk_once(
            chunks in 0u64..60, smaller in prop::collection::vec(0usize..3, 0..5),
            turns in prop::collection::vec(0usize..6, 0..400)
        ) {
            let mut reach = vec![20_usize];
            for less in smaller {
                reach.push(reach[reach.len() - 1] - less);
            }
            let trees = reach.len();
            let schedule = Schedule::new(chunks, &reach);
            let mut carried: Vec<Vec<Turn>> = vec![Vec::new(); trees];
            let fair = (0..).map(|turn| turn % trees).take((chunks as usize + 1) * (trees + 1) * trees);
            for tree in turns.into_iter().filter(|tree| *tree < trees).chain(fair) {
                carried[tree].extend(schedule.next(tree));
            }
            for member in 1..=20 {
                // A member of the trees that reach at least so many; it gets no data of what one of its trees has carried.
                let mut received: Vec<u64> = Vec::new();
                for tree in (0..trees).filter(|&tree| reach[tree] >= member) {
                    let lacks = |turn: &&Turn| turn.carried.is_none_or(|by| reach[by] < member);
                    received.extend(carried[tree].iter().filter(lacks).map(|turn| turn.chunk));
                }
                received.sort_unstable();
                prop_assert_eq!(received, (0..chunks).collect::<Vec<_>>(), "member {}", member);
            }
        }
    }
}
