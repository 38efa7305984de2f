//! Which chunk does the source send next down which of nested trees?
//!
//! All active trees take the next chunk from one queue. When it is empty, the smallest active tree retires and the log of
//! what it carried becomes the next queue (Takahashi, Saito, Shibata, Taura, "A Stable Broadcast Algorithm", `CCGrid` 2008,
//! in the form of a queue instead of computed shares).
//!
//! Theorem. Number the trees `0..k` so that each has the hosts of the next one, and more. A host of exactly the trees
//! `0..=g` gets each chunk once until it has all. Proof by induction over the retirements: while `0..=j` are active, each
//! chunk is either in the log of exactly one of them or in the queue. At first all are in the queue; taking one moves it into
//! one log; a retirement moves the log of `j` into the queue. So the logs of `0..=g` are disjoint until tree `g` retires,
//! which it does when the queue is empty: then they hold everything.
//!
//! No tree waits for another: one that is slower than planned takes fewer chunks. With rates `b` the stage of `0..=j` ends at
//! size / (b_0 + … + b_j), the best that a host of just these trees can do.
//!
//! Each chunk is taken at most once by each tree: O(trees) a chunk in time and, over all logs, in memory.

use std::collections::VecDeque;

/// The queue and the logs.
#[derive(Clone, Debug)]
pub(crate) struct Stages {
    queue: VecDeque<u32>,
    /// Trees, the largest first; the last one retires next.
    active: Vec<usize>,
    /// What each tree has carried, by tree.
    logs: Vec<Vec<u32>>,
}

/// What a tree is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Carry this chunk.
    Chunk(u32),
    /// Nothing more: it has retired.
    Retired,
}

impl Stages {
    /// `order` names the trees, the largest first.
    pub(crate) fn new(chunks: u32, order: Vec<usize>) -> Self {
        Self { queue: (0..chunks).collect(), logs: vec![Vec::new(); order.len()], active: order }
    }

    /// The next chunk for `tree`.
    pub(crate) fn next(&mut self, tree: usize) -> Next {
        while self.active.contains(&tree) {
            if let Some(chunk) = self.queue.pop_front() {
                self.logs[tree].push(chunk);
                return Next::Chunk(chunk);
            }
            if let Some(last) = self.active.pop() {
                self.queue.extend(std::mem::take(&mut self.logs[last]));
            }
        }
        Next::Retired
    }

    /// Whether `tree` still carries.
    pub(crate) fn active(&self, tree: usize) -> bool {
        self.active.contains(&tree)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A chunk that a tree has carried: in the order of their starts.
    struct Carried {
        tree: usize,
        chunk: u32,
        end: f64,
    }

    /// Lets trees of these rates run until they have all retired.
    fn run(chunks: u32, rates: &[f64]) -> Vec<Carried> {
        let mut stages = Stages::new(chunks, (0..rates.len()).collect());
        let mut free = vec![0.0; rates.len()];
        let mut carried = Vec::new();
        let mut running: Vec<usize> = (0..rates.len()).collect();
        while let Some(&tree) = running.iter().min_by(|&&a, &&b| f64::total_cmp(&free[a], &free[b])) {
            match stages.next(tree) {
                Next::Chunk(chunk) => {
                    free[tree] += 1.0 / rates[tree];
                    carried.push(Carried { tree, chunk, end: free[tree] });
                }
                Next::Retired => running.retain(|&other| other != tree),
            }
        }
        carried
    }

    #[test]
    fn the_slides_example_ends_its_stages_when_it_should() {
        let carried = run(10_000, &[100.0, 200.0, 300.0, 400.0]);
        // 100 %, 20 + 13.33 + 33.33 %, 30 + 20 %, 40 % of the chunks.
        for (tree, share) in [1.0, 0.6667, 0.5, 0.4].into_iter().enumerate() {
            let count = carried.iter().filter(|carried| carried.tree == tree).count();
            assert!((count as f64 / 10_000.0 - share).abs() < 0.001, "{count} of 10000 is not {share}");
        }
    }

    proptest! {
        #[test]
        fn every_group_gets_each_chunk_once_and_ends_at_its_rate(
            chunks in 1_u32..400,
            rates in prop::collection::vec(1_u32..50, 1..7),
        ) {
            let rates: Vec<f64> = rates.into_iter().map(f64::from).collect();
            let carried = run(chunks, &rates);
            for group in 0..rates.len() {
                let first: Vec<&Carried> =
                    carried.iter().filter(|carried| carried.tree <= group).take(chunks as usize).collect();
                let mut numbers: Vec<u32> = first.iter().map(|carried| carried.chunk).collect();
                numbers.sort_unstable();
                prop_assert!(numbers.into_iter().eq(0..chunks));
                let slowest = rates[..=group].iter().copied().fold(f64::INFINITY, f64::min);
                let ideal = f64::from(chunks) / rates[..=group].iter().sum::<f64>();
                let end = first.iter().map(|carried| carried.end).fold(0.0, f64::max);
                prop_assert!(end <= ideal + 1.0 / slowest + 1e-9, "{} after {}", end, ideal);
            }
        }
    }
}
