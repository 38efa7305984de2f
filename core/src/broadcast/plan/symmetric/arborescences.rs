//! Which trees give every host its max-flow at once, in a graph of hosts alone?
//!
//! Theorem (Bang-Jensen, Frank, Jackson, "Preserving and increasing local edge-connectivity in mixed graphs", SIAM Journal
//! on Discrete Mathematics 8 (1995) 155-178): where as much capacity enters each vertex as leaves it, there are out-trees
//! from the source, of rates that keep to the capacities, such that each vertex is in trees of total rate its max-flow.
//!
//! The proof is the algorithm. Split off hosts, the slowest first, each keeping the max-flow of those that remain; the last
//! one is fed by the source alone, in one tree. Then put the hosts back, the fastest first. Where trees use more of `u -> t`
//! than there was before the host `v` was split off, they really use `u -> v -> t`: `v` joins each such tree, fed by the
//! one of these `u` that is nearest to the source, and feeds all these `t` itself. That frees the arcs from the other `u`
//! to `v`. Then `v` joins as a leaf other trees that have a host `u` with something free to `v`, until it has its max-flow.
//! It gets there: if some arc `u -> v` has something free and no tree can use it, then `v` is in all trees of `u`, and they
//! carry the max-flow of `u`, which is no less than that of `v`; if none has, all that can enter `v` does.
//!
//! A tree of which only a part can use an arc is cut into two. Each pair of arcs and each arc into a host cuts at most one,
//! so the number of trees is linear in the number of splits. Time: splits times trees, beside [`super::splitting`].

use super::flows::Flows;
use super::overlay::Overlay;
use super::splitting::{Split, split_off};

/// Nobody: the parent of the source and of hosts that are not in the tree.
pub(super) const NOBODY: usize = usize::MAX;

/// An out-tree from the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) rate: i64,
    /// By vertex who feeds it.
    pub(super) parents: Vec<usize>,
}

/// A host that was split off.
#[derive(Debug)]
struct Removed {
    host: usize,
    /// What it must get.
    rate: i64,
    splits: Vec<Split>,
    /// Tails of arcs into it, with their capacities.
    entering: Vec<(usize, i64)>,
}

/// Trees from `source` over the arcs of `overlay`, which has no vertex but the source and `targets`, such that each target
/// gets its rate; `flows` hold these rates, and targets come in descending order of them. None if the capacities are not
/// balanced.
pub(super) fn pack(
    mut overlay: Overlay,
    mut flows: Flows,
    source: usize,
    targets: &[(usize, i64)],
) -> Option<Vec<Tree>> {
    let Some((&(fastest, rate), slower)) = targets.split_first() else { return Some(Vec::new()) };
    let mut removed = Vec::with_capacity(slower.len());
    for &(host, rate) in slower.iter().rev() {
        flows.forget_last();
        let arcs = overlay.leaving(host).map(|arc| (overlay.head(arc), overlay.capacity(arc ^ 1)));
        let entering = arcs.filter(|(_, capacity)| *capacity > 0).collect();
        let splits = split_off(&mut overlay, &mut flows, host, false)?;
        removed.push(Removed { host, rate, splits, entering });
    }
    let direct = overlay.arc(source, fastest).map_or(0, |arc| overlay.capacity(arc));
    if direct < rate {
        return None;
    }
    let mut parents = vec![NOBODY; overlay.vertices()];
    parents[fastest] = source;
    let mut trees = vec![Tree { rate, parents }];
    for removed in removed.iter().rev() {
        insert(&mut trees, source, removed)?;
    }
    Some(trees)
}

/// Puts a host back.
fn insert(trees: &mut Vec<Tree>, source: usize, removed: &Removed) -> Option<()> {
    let through = through(trees, &removed.splits);
    let mut free = removed.entering.clone();
    let mut missing = removed.rate;
    for (tree, fed) in trees.iter_mut().zip(&through) {
        let nearest = fed.iter().map(|&to| (depth(tree, tree.parents[to]), tree.parents[to])).min();
        let Some((_, feeder)) = nearest else { continue };
        tree.parents[removed.host] = feeder;
        for &to in fed {
            tree.parents[to] = removed.host;
        }
        let (_, left) = free.iter_mut().find(|(tail, _)| *tail == feeder)?;
        *left -= tree.rate;
        missing -= tree.rate;
    }
    for (tail, left) in free {
        append(trees, source, removed.host, tail, left, &mut missing);
    }
    (missing <= 0).then_some(())
}

/// For each tree, cut where need be, the hosts that it really feeds through the host that was split off.
fn through(trees: &mut Vec<Tree>, splits: &[Split]) -> Vec<Vec<usize>> {
    let mut through: Vec<Vec<usize>> = vec![Vec::new(); trees.len()];
    for split in splits {
        let uses = |tree: &Tree| tree.parents[split.to] == split.from;
        let used: i64 = trees.iter().filter(|tree| uses(tree)).map(|tree| tree.rate).sum();
        let mut excess = used - split.before;
        // Trees that the host joins anyway come first.
        for joined in [true, false] {
            let mut index = 0;
            while excess > 0 && index < trees.len() {
                if through[index].is_empty() != joined && uses(&trees[index]) {
                    if trees[index].rate > excess {
                        let mut rest = trees[index].clone();
                        rest.rate -= excess;
                        trees[index].rate = excess;
                        trees.insert(index + 1, rest);
                        through.insert(index + 1, through[index].clone());
                    }
                    excess -= trees[index].rate;
                    through[index].push(split.to);
                }
                index += 1;
            }
        }
    }
    through
}

/// Makes `host` a leaf below `tail` in trees that do not have it, as far as `left` and `missing` allow.
fn append(trees: &mut Vec<Tree>, source: usize, host: usize, tail: usize, mut left: i64, missing: &mut i64) {
    let mut index = 0;
    while index < trees.len() && left > 0 && *missing > 0 {
        let tree = &mut trees[index];
        index += 1;
        if tree.parents[host] != NOBODY || (tail != source && tree.parents[tail] == NOBODY) {
            continue;
        }
        let most = left.min(*missing);
        let mut rest = None;
        if tree.rate > most {
            rest = Some(Tree { rate: tree.rate - most, parents: tree.parents.clone() });
            tree.rate = most;
        }
        tree.parents[host] = tail;
        left -= tree.rate;
        *missing -= tree.rate;
        if let Some(rest) = rest {
            trees.insert(index, rest);
        }
    }
}

/// Number of hops from the source.
fn depth(tree: &Tree, mut host: usize) -> usize {
    let mut depth = 0;
    while tree.parents[host] != NOBODY {
        host = tree.parents[host];
        depth += 1;
    }
    depth
}
