//! What do those below lack?
//!
//! A host is told by all that are below it in open trees what they hold, and counts for each chunk how many of them lack it:
//! down each hop and altogether. What it has offered to a child counts as held by it. O(trees) for each message, and for each
//! chunk that is missing when a host says all that it holds; 1 bit for each chunk and host below, and 2 bytes for each chunk
//! and hop.

use super::Chunks;
use super::branch::Child;
use super::node::Node;

impl Node {
    /// A host to be fed down a tree.
    pub(super) fn child(&self, tree: usize, host: usize) -> Child {
        let subtree = self.shape.below(tree, host);
        let mut lacks = vec![0; self.settings.chunks as usize];
        let all = Chunks::all(self.settings.chunks);
        let held = self.peers.iter().filter(|(host, _)| subtree.contains(host));
        for chunk in held.flat_map(|(_, chunks)| all.without(chunks)) {
            lacks[chunk as usize] += 1;
        }
        Child { subtree, lacks, ..Child::default() }
    }

    /// All that a host below holds.
    pub(super) fn holds(&mut self, from: usize, chunks: Chunks) {
        self.forget(from);
        if chunks.count() != self.held.count() {
            return;
        }
        self.count(from, Chunks::all(chunks.count()).without(&chunks), true);
        self.peers.insert(from, chunks);
        self.serve_all();
    }

    /// A host below holds one more.
    pub(super) fn holding(&mut self, from: usize, chunk: u32) {
        if self.peers.get_mut(&from).is_some_and(|peer| peer.insert(chunk)) {
            self.count(from, std::iter::once(chunk), false);
        }
    }

    /// A child of an open tree did not get what it was to get.
    pub(super) fn lacking(&mut self, from: usize, chunk: u32) {
        if self.peers.get_mut(&from).is_some_and(|peer| peer.remove(chunk)) {
            self.count(from, std::iter::once(chunk), true);
            self.serve_all();
        }
    }

    /// A host below counts no more.
    pub(super) fn forget(&mut self, host: usize) {
        let Some(chunks) = self.peers.remove(&host) else { return };
        self.count(host, Chunks::all(chunks.count()).without(&chunks), false);
    }

    /// A host lacks these chunks, or, if not `more`, does not any longer.
    fn count(&mut self, host: usize, chunks: impl Iterator<Item = u32>, more: bool) {
        let children = self.branches.iter_mut().flat_map(|branch| branch.children.values_mut());
        let subtrees = children.filter(|child| child.subtree.contains(&host)).map(|child| &mut child.lacks);
        let mut counts: Vec<&mut Vec<u16>> = subtrees.chain([&mut self.lacks]).collect();
        for chunk in chunks {
            for lacks in counts.iter_mut().filter_map(|lacks| lacks.get_mut(chunk as usize)) {
                *lacks = if more { lacks.saturating_add(1) } else { lacks.saturating_sub(1) };
            }
        }
    }
}
