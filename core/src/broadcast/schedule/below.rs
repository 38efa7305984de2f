//! What do those below hold?
//!
//! A host is told by all that are below it in open trees what they hold, and counts for each chunk how many of them have it:
//! down each hop and altogether. What it has offered to a child counts as held by it. O(trees) for each message; 1 bit for
//! each chunk and host below, and 2 bytes for each chunk and hop.

use super::Chunks;
use super::branch::Child;
use super::node::Node;

impl Node {
    /// A host to be fed down a tree.
    pub(super) fn child(&self, tree: usize, host: usize) -> Child {
        let subtree = self.shape.below(tree, host);
        let mut copies = vec![0; self.settings.chunks as usize];
        let held = self.peers.iter().filter(|(host, _)| subtree.contains(host));
        for chunk in held.flat_map(|(_, chunks)| chunks.iter()) {
            copies[chunk as usize] += 1;
        }
        Child { subtree, copies, ..Child::default() }
    }

    /// All that a host below holds.
    pub(super) fn holds(&mut self, from: usize, chunks: Chunks) {
        self.forget(from);
        if chunks.count() != self.held.count() {
            return;
        }
        for chunk in chunks.iter() {
            self.count(from, chunk, true);
        }
        self.peers.insert(from, chunks);
        self.serve_all();
    }

    /// A host below holds one more.
    pub(super) fn holding(&mut self, from: usize, chunk: u32) {
        if self.peers.get_mut(&from).is_some_and(|peer| peer.insert(chunk)) {
            self.count(from, chunk, true);
        }
    }

    /// A child of an open tree did not get what it was to get.
    pub(super) fn lacking(&mut self, from: usize, chunk: u32) {
        if self.peers.get_mut(&from).is_some_and(|peer| peer.remove(chunk)) {
            self.count(from, chunk, false);
            self.serve_all();
        }
    }

    /// A host below counts no more.
    pub(super) fn forget(&mut self, host: usize) {
        let Some(chunks) = self.peers.remove(&host) else { return };
        for chunk in chunks.iter() {
            self.count(host, chunk, false);
        }
    }

    fn count(&mut self, host: usize, chunk: u32, more: bool) {
        let children = self.branches.iter_mut().flat_map(|branch| branch.children.values_mut());
        let subtrees = children.filter(|child| child.subtree.contains(&host)).map(|child| &mut child.copies);
        for copies in subtrees.chain([&mut self.copies]) {
            if let Some(copies) = copies.get_mut(chunk as usize) {
                *copies = if more { copies.saturating_add(1) } else { copies.saturating_sub(1) };
            }
        }
    }
}
