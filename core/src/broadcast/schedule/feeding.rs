//! What is the next entry for each of those that are fed? The side of the parent.

use std::cmp::Reverse;

use super::super::random;
use super::branch::Child;
use super::node::{NOWHERE, Node};
use super::stages::Next;
use super::{Command, Message};

/// A hop waits this part of the time of a chunk for one that comes down its tree.
const PATIENCE: u32 = 4;

impl Node {
    /// A child takes part.
    pub(super) fn attach(&mut self, from: usize, tree: usize, position: Option<usize>) {
        self.gone.remove(&from);
        let Some(branch) = self.branch(tree) else { return };
        // What was named before the log that is known here comes when the tree is open.
        let cursor = position.unwrap_or(branch.log_end()).max(branch.first);
        let end = branch.end;
        let child = Child { cursor, credit: cursor, ..self.child(tree, from) };
        self.branches[tree].children.insert(from, child);
        self.tell(from, Message::Attached { tree, position: cursor, end });
    }

    /// A child is ready for more.
    pub(super) fn ready(&mut self, from: usize, tree: usize, upto: usize) {
        let Some(child) = self.branch(tree).and_then(|branch| branch.children.get_mut(&from)) else { return };
        child.credit = child.credit.max(upto);
        self.serve(tree);
    }

    /// A child fetches what it was offered.
    pub(super) fn fetched(&mut self, from: usize, tree: usize, chunk: u32) {
        if !self.branches.get(tree).is_some_and(|branch| branch.children.contains_key(&from)) {
            return;
        }
        if self.held.has(chunk) {
            self.commands.push(Command::Send { to: from, tree, chunk });
        } else {
            self.tell(from, Message::Refuse { tree, chunk });
        }
    }

    pub(super) fn serve_all(&mut self) {
        (0..self.branches.len()).for_each(|tree| self.serve(tree));
    }

    /// Names entries to all that are ready, and asks above for those that are not known yet.
    pub(super) fn serve(&mut self, tree: usize) {
        let children: Vec<usize> = self.branches[tree].children.keys().copied().collect();
        for child in children {
            while let Some(chunk) = self.next_for(tree, child) {
                let came_so = self.homes[chunk as usize] == u16::try_from(tree).unwrap_or(NOWHERE);
                if let Some(child) = self.branches[tree].children.get_mut(&child) {
                    child.cursor += 1;
                    child.waiting = None;
                    child.dry &= !came_so;
                }
                self.tell(child, Message::Entry { tree, chunk });
            }
        }
        self.ask(tree);
    }

    /// The next entry for a child; none if it is not ready, or nothing is there.
    fn next_for(&mut self, tree: usize, child: usize) -> Option<u32> {
        let (cursor, credit) =
            self.branches[tree].children.get(&child).map(|child| (child.cursor, child.credit))?;
        if cursor >= credit {
            return None;
        }
        let branch = &self.branches[tree];
        if branch.is_open(cursor) {
            return self.offer(tree, child);
        }
        if branch.logged(cursor).is_none() && cursor == branch.log_end() {
            self.extend_log(tree);
            if self.branches[tree].is_open(cursor) {
                return self.offer(tree, child);
            }
        }
        self.branches[tree].logged(cursor).filter(|&chunk| self.held.has(chunk))
    }

    /// At the source of nested trees: one more entry, or the end of the log.
    fn extend_log(&mut self, tree: usize) {
        let Some(stages) = &mut self.stages else { return };
        if let Next::Chunk(chunk) = stages.next(tree) {
            let branch = &mut self.branches[tree];
            branch.log.push(chunk);
            branch.position = branch.log_end();
        }
        for retired in 0..self.branches.len() {
            let branch = &self.branches[retired];
            if branch.end.is_none() && self.stages.as_ref().is_some_and(|stages| !stages.active(retired)) {
                self.retire(retired, branch.log_end());
            }
        }
    }

    /// The live log of a tree has ended; all below hear of it at once, so that they say what they hold.
    pub(super) fn retire(&mut self, tree: usize, end: usize) {
        self.branches[tree].end = Some(end);
        let children: Vec<usize> = self.branches[tree].children.keys().copied().collect();
        for child in children {
            self.tell(child, Message::Retired { tree, end });
        }
    }

    /// A chunk that the child lacks: one that came here down this very tree if there is any, which most of those below lack
    /// down this tree, and down all trees. Ties differ from host to host, so that not all pass on the same.
    fn offer(&mut self, tree: usize, child: usize) -> Option<u32> {
        let peer = self.peers.get(&child)?;
        let below = &self.branches[tree].children.get(&child)?.lacks;
        let key = |chunk: &u32| {
            let (place, home) = (*chunk as usize, u16::try_from(tree).unwrap_or(NOWHERE));
            let most = (Reverse(below[place]), Reverse(self.lacks[place]));
            (self.homes[place] != home, most, order(*chunk, self.me), *chunk)
        };
        let chunk = self.held.without(peer).min_by_key(key)?;
        if self.homes[chunk as usize] != u16::try_from(tree).unwrap_or(NOWHERE) && self.waits(tree, child) {
            return None;
        }
        self.holding(child, chunk);
        Some(chunk)
    }

    /// Whether a child had better wait a moment for a chunk that comes down this tree: one that came down another tree is on
    /// its way to that child or those below it already.
    fn waits(&mut self, tree: usize, child: usize) -> bool {
        let patience = self.chunk_time(tree) / PATIENCE + self.settings.round_trip;
        let (now, complete) = (self.now, self.held.complete());
        let branch = &mut self.branches[tree];
        let fed = !complete && branch.parent.is_some() && branch.attached;
        let Some(child) = branch.children.get_mut(&child).filter(|child| fed && !child.dry) else {
            return false;
        };
        let until = *child.waiting.get_or_insert(now) + patience;
        if until > now {
            self.wake_at(until);
            return true;
        }
        child.dry = true;
        false
    }
}

/// An order of chunks that is another one at each host.
fn order(chunk: u32, host: usize) -> u64 {
    random::scattered(u64::from(chunk) << 32 ^ (host as u64).wrapping_mul(random::STEP))
}
