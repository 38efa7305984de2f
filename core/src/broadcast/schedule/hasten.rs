//! Which chunk that is on its way comes too late, and sooner from elsewhere?
//!
//! A chunk that a slow tree began to carry just before a host has all others is what that host would wait for, and all below
//! it in faster trees. So a chunk may change the tree while it is on its way: the child tells the parent to let go of it, and
//! fetches it down the faster tree when the parent says that it does not come any more. One that was sent by then comes, and
//! is not fetched: nothing comes twice.
//!
//! - In a live tree, when the chunk of an entry is on its way down another one: the log waits for it.
//! - In open trees, when everything that a host lacks is on its way: before, hops have better things to do.
//!
//! What counts is the time of arrival by the planned rates; for a chunk that is overdue, as much again as it is overdue. So
//! with nested trees the stage that follows the retirement of a tree begins at its full rate, whatever is still under way
//! down the tree that retired, and in the end no host waits longer for a chunk than its fastest parent that has it needs.
//! O(trees × chunks on their way) for each chunk of the end.

use std::time::Duration;

use super::Message;
use super::node::Node;

impl Node {
    /// Chunks that are to come down a tree.
    pub(super) fn coming(&self, tree: usize) -> usize {
        let moving = self.moving.values().filter(|&&to| to == tree).count();
        self.branches.get(tree).map_or(0, |branch| branch.fetching.len()) + moving
    }

    /// When a chunk that comes down `tree` is here, if all goes as planned.
    fn arrival(&self, tree: usize, chunk: u32) -> Duration {
        let Some(branch) = self.branches.get(tree) else { return Duration::MAX };
        let ahead = branch.fetching.iter().position(|&other| other == chunk).unwrap_or(branch.fetching.len());
        let time =
            self.settings.round_trip + self.chunk_time(tree) * (u32::try_from(ahead).unwrap_or(u32::MAX) + 1);
        let planned = branch.since + time;
        if planned < self.now { self.now + self.now.saturating_sub(planned) } else { planned }
    }

    /// When a chunk that is fetched down `tree` now would be here.
    fn arrival_anew(&self, tree: usize) -> Duration {
        let Some(branch) = self.branches.get(tree) else { return Duration::MAX };
        let chunks = u32::try_from(self.coming(tree)).unwrap_or(u32::MAX) + 1;
        let begin = if branch.fetching.is_empty() { self.now } else { branch.since };
        let planned = begin + self.chunk_time(tree) * chunks;
        planned.max(self.now + self.chunk_time(tree)) + self.settings.round_trip * 2
    }

    /// Lets a chunk that is on its way come down `tree`, if it is here sooner then. Whether it is so.
    pub(super) fn hasten_one(&mut self, tree: usize, chunk: u32) -> bool {
        let Some(&from) = self.awaited.get(&chunk) else { return false };
        if let Some(&to) = self.moving.get(&chunk) {
            return to == tree;
        }
        let Some(parent) = self.branches[from].parent.filter(|_| from != tree) else { return false };
        let sooner = self.arrival_anew(tree) < self.arrival(from, chunk);
        if sooner {
            self.moving.insert(chunk, tree);
            self.tell(parent, Message::Cancel { tree: from, chunk });
        }
        sooner
    }

    /// When all that is missing is on its way: hops that are free take over what comes latest.
    pub(super) fn hasten(&mut self) {
        let on_their_way = u32::try_from(self.awaited.len()).unwrap_or(u32::MAX);
        if self.held.complete() || self.held.held().saturating_add(on_their_way) < self.settings.chunks {
            return;
        }
        let awaited = &self.awaited;
        self.spare.values_mut().for_each(|spare| spare.retain(|chunk| awaited.contains_key(chunk)));
        for tree in 0..self.branches.len() {
            while self.branches[tree].attached && self.coming(tree) < self.window(tree) {
                let Some(latest) = self.latest_elsewhere(tree) else { break };
                if !self.hasten_one(tree, latest) {
                    break;
                }
            }
        }
    }

    /// Of the chunks that the parent in `tree` has, the one that comes latest down another tree.
    fn latest_elsewhere(&self, tree: usize) -> Option<u32> {
        let parent = self.branches[tree].parent?;
        let spare = self.spare.get(&parent);
        let there = |chunk: u32, from: usize| {
            self.branches[from].parent == Some(parent) || spare.is_some_and(|spare| spare.contains(&chunk))
        };
        let awaited = self.awaited.iter().map(|(&chunk, &from)| (chunk, from));
        let elsewhere = awaited
            .filter(|&(chunk, from)| from != tree && !self.moving.contains_key(&chunk) && there(chunk, from));
        elsewhere.map(|(chunk, from)| (self.arrival(from, chunk), chunk)).max().map(|(_, chunk)| chunk)
    }

    /// The parent has let go of a chunk.
    pub(super) fn cancelled(&mut self, from: usize, tree: usize, chunk: u32) {
        if self.branches.get(tree).is_none_or(|branch| branch.parent != Some(from))
            || self.awaited.get(&chunk) != Some(&tree)
        {
            return;
        }
        self.comes_no_more(tree, chunk);
        self.branches[tree].since = self.now;
        // Where the other way was lost meanwhile it comes this way after all.
        let to = self.moving.remove(&chunk).unwrap_or(tree);
        self.fetch(to, chunk);
        self.ask(tree);
    }
}
