//! What is asked for, and what is done with what comes? The side of the child.

use std::collections::BTreeSet;
use std::time::Duration;

use super::node::{NOWHERE, Node};
use super::{Command, MAX_SPOILT, Message};

impl Node {
    /// Chunks that a hop of `tree` looks ahead: one under way, and what arrives while two messages go there and back: ready
    /// and entry, fetch and chunk.
    pub(super) fn window(&self, tree: usize) -> usize {
        let waiting = 2.0 * self.settings.round_trip.as_secs_f64() / self.chunk_time(tree).as_secs_f64();
        1 + self.settings.ahead as usize + waiting.ceil().min(f64::from(u16::MAX)) as usize
    }

    /// How long a chunk takes at the rate of a tree.
    pub(super) fn chunk_time(&self, tree: usize) -> Duration {
        let bits = self.settings.chunk_bytes as f64 * 8.0;
        let seconds = bits / (self.shape.rate_mbps(tree).max(f64::MIN_POSITIVE) * 1e6);
        // Within an hour, whatever the rate, and never nothing.
        Duration::from_secs_f64(seconds.clamp(1e-9, 3600.0))
    }

    /// Says for how many entries it is ready, if that are more than before.
    pub(super) fn ask(&mut self, tree: usize) {
        let window = self.window(tree);
        let Some(branch) = self.branches.get(tree) else { return };
        let Some(parent) = branch.parent.filter(|_| branch.attached) else { return };
        let live = !branch.is_open(branch.position);
        let mut upto = if !self.held.complete() {
            if self.now < branch.rest_until {
                let rest_until = branch.rest_until;
                return self.wake_at(rest_until);
            }
            branch.position + window.saturating_sub(self.coming(tree))
        } else if live {
            // What it does not need itself it passes on when somebody asks for it.
            let credit = branch.children.values().map(|child| child.credit).max().unwrap_or(0);
            if credit > 0 { credit + window } else { 0 }
        } else {
            return;
        };
        if let (Some(queue), Some(slowest), true) =
            (self.settings.relay_queue, branch.children.values().map(|child| child.cursor).min(), live)
        {
            upto = upto.min(slowest + queue as usize);
        }
        if upto > branch.asked {
            self.branches[tree].asked = upto;
            self.tell(parent, Message::Ready { tree, upto });
        }
    }

    /// The parent names the next entry.
    pub(super) fn entry(&mut self, from: usize, tree: usize, chunk: u32) {
        let (needed, rest) = (self.needs(chunk), self.chunk_time(tree));
        let (now, unfinished) = (self.now, !self.held.complete());
        let Some(branch) = self.branch(tree).filter(|branch| branch.parent == Some(from)) else { return };
        let live = !branch.is_open(branch.position);
        branch.position += 1;
        if live {
            branch.log.push(chunk);
        }
        if needed {
            self.fetch(tree, chunk);
        } else if live && !self.hasten_one(tree, chunk) && unfinished {
            // An entry costs its time even if it is of no use here, or the queue would run off down this tree.
            let branch = &mut self.branches[tree];
            branch.rest_until = branch.rest_until.max(now) + rest;
        } else if !live && self.awaited.contains_key(&chunk) {
            self.spare.entry(from).or_default().insert(chunk);
        }
        self.serve(tree);
        self.hasten();
    }

    /// Whether a chunk is to be fetched.
    fn needs(&self, chunk: u32) -> bool {
        chunk < self.settings.chunks && !self.held.has(chunk) && !self.awaited.contains_key(&chunk)
    }

    pub(super) fn fetch(&mut self, tree: usize, chunk: u32) {
        let now = self.now;
        let Some(branch) = self.branches.get_mut(tree) else { return };
        let Some(parent) = branch.parent else { return };
        if branch.fetching.is_empty() {
            branch.since = now;
        }
        branch.fetching.push(chunk);
        self.awaited.insert(chunk, tree);
        self.tell(parent, Message::Fetch { tree, chunk });
    }

    /// A chunk came.
    pub(super) fn received(&mut self, from: usize, tree: usize, chunk: u32, intact: bool) {
        if tree >= self.branches.len() {
            return;
        }
        self.branches[tree].since = self.now;
        self.comes_no_more(tree, chunk);
        self.moving.remove(&chunk);
        if !intact {
            self.spoilt(from, tree, chunk);
        } else if self.held.insert(chunk) {
            self.homes[chunk as usize] = u16::try_from(tree).unwrap_or(NOWHERE);
            for host in self.above() {
                self.tell(host, Message::Holding { chunk });
            }
            if self.held.complete() {
                self.commands.push(Command::Complete);
            }
            self.serve_all();
        }
        self.ask(tree);
        self.hasten();
    }

    /// What a hop was to bring it does not.
    pub(super) fn comes_no_more(&mut self, tree: usize, chunk: u32) {
        self.branches[tree].fetching.retain(|&other| other != chunk);
        if self.awaited.get(&chunk) == Some(&tree) {
            self.awaited.remove(&chunk);
        }
    }

    /// Once more, from the same host or, after a few, from the one above it.
    fn spoilt(&mut self, from: usize, tree: usize, chunk: u32) {
        let spoilt = self.spoilt.entry(from).or_default();
        *spoilt += 1;
        let leave = *spoilt >= MAX_SPOILT;
        if self.needs(chunk) && self.branches[tree].parent == Some(from) {
            self.fetch(tree, chunk);
        }
        if leave {
            self.commands.push(Command::Distrust { host: from });
            self.let_go(from);
            self.lost(from);
        }
    }

    /// A host that lives is to send nothing more.
    fn let_go(&mut self, parent: usize) {
        for tree in 0..self.branches.len() {
            if self.branches[tree].parent == Some(parent) {
                for chunk in self.branches[tree].fetching.clone() {
                    self.tell(parent, Message::Cancel { tree, chunk });
                }
            }
        }
    }

    /// The parent does not have what it was to send: somebody else may.
    pub(super) fn refused(&mut self, from: usize, tree: usize, chunk: u32) {
        if self.branch(tree).is_none_or(|branch| branch.parent != Some(from)) {
            return;
        }
        if self.awaited.get(&chunk) == Some(&tree) {
            self.moving.remove(&chunk);
            self.comes_no_more(tree, chunk);
            for parent in self.open_parents().into_iter().filter(|&parent| parent != from) {
                self.tell(parent, Message::Lacking { chunk });
            }
        }
        self.ask(tree);
    }

    /// Those that are told what it holds.
    pub(super) fn above(&self) -> BTreeSet<usize> {
        let open = (0..self.branches.len()).filter(|&tree| self.branches[tree].end.is_some());
        open.flat_map(|tree| self.above_in(tree)).collect()
    }

    fn above_in(&self, tree: usize) -> Vec<usize> {
        let parent = self.branches[tree].parent.filter(|_| self.branches[tree].attached);
        let above = parent.map(|parent| self.shape.above(tree, parent)).unwrap_or_default();
        parent.into_iter().chain(above).filter(|host| !self.gone.contains(host)).collect()
    }

    /// The parents in open trees.
    fn open_parents(&self) -> BTreeSet<usize> {
        let open = self.branches.iter().filter(|branch| branch.attached && branch.end.is_some());
        open.filter_map(|branch| branch.parent).collect()
    }

    pub(super) fn tell_holds(&mut self, to: usize) {
        self.tell(to, Message::Holds { chunks: self.held.clone() });
    }

    /// The parent of a tree is gone.
    pub(super) fn reparent(&mut self, tree: usize) {
        let parent = self.shape.parent_but(tree, self.me, &self.gone);
        let branch = &mut self.branches[tree];
        let lost = std::mem::take(&mut branch.fetching);
        branch.attached = false;
        branch.parent = parent;
        let (open, position) = (branch.is_open(branch.position), branch.position);
        if !open {
            branch.again.extend(&lost);
        }
        self.moving.retain(|_, &mut to| to != tree);
        for chunk in lost {
            self.awaited.remove(&chunk);
            self.moving.remove(&chunk);
            if open {
                for parent in self.open_parents() {
                    self.tell(parent, Message::Lacking { chunk });
                }
            }
        }
        match parent {
            Some(parent) => self.tell(parent, Message::Attach { tree, position: Some(position) }),
            None if !self.held.complete() => self.commands.push(Command::Orphaned { tree }),
            None => {}
        }
    }

    /// The parent has accepted.
    pub(super) fn attached(&mut self, from: usize, tree: usize, position: usize, end: Option<usize>) {
        let Some(branch) = self.branch(tree).filter(|branch| branch.parent == Some(from)) else { return };
        branch.attached = true;
        branch.position = position;
        branch.asked = position;
        if position != branch.log_end() && !branch.is_open(position) {
            branch.first = position;
            branch.log.clear();
        }
        for chunk in std::mem::take(&mut branch.again) {
            if self.needs(chunk) {
                self.fetch(tree, chunk);
            }
        }
        match end {
            Some(end) => self.retired(from, tree, end),
            None => self.ask(tree),
        }
    }

    /// The live log of a tree has ended above.
    pub(super) fn retired(&mut self, from: usize, tree: usize, end: usize) {
        let Some(branch) = self.branch(tree).filter(|branch| branch.parent == Some(from)) else { return };
        if branch.end.is_none() {
            self.retire(tree, end);
        }
        for host in self.above_in(tree) {
            self.tell_holds(host);
        }
        self.serve(tree);
    }
}
