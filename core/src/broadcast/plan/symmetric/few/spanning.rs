//! How is nobody left out?
//!
//! Where links are symmetric, a walk around a spanning tree of the network uses each of its links once each way: so there is
//! one tree of hops to everybody, at the least capacity in it, the greatest such with a spanning tree of widest ways (Prim).
//! Two plans that each keep to the capacities do so too when each runs at a part of its rates, if the parts sum up to one.
//! So a part of everything goes to that tree, if somebody is left out; who can then joins other trees again.
//!
//! O((V + E) log V).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::model::Model;
use super::super::routed::Forest;
use super::draft::{Draft, members};
use super::ways::Ways;

/// One part of this many is for those who are left out.
const PART: i64 = 8;

/// The draft, and if it leaves somebody out, a tree to everybody beside it. None if somebody cannot be reached.
pub(super) fn with_everybody<'a>(
    model: &'a Model,
    ways: &'a Ways,
    draft: Option<Draft<'a>>,
    most: usize,
) -> Option<Draft<'a>> {
    let left_out = |draft: &Draft<'_>| {
        draft.received().iter().zip(&model.rates).any(|(&got, &rate)| got == 0 && rate > 0)
    };
    match draft {
        Some(draft) if !left_out(&draft) => Some(draft),
        Some(mut draft) if most > 1 => {
            let mut everybody = spanning(model, ways)?;
            let fewest = |forest: &Forest<'_>| {
                let worth = |index: &usize| {
                    let tree = &forest.trees[*index];
                    i128::from(tree.rate) * members(&tree.parents) as i128
                };
                (0..forest.trees.len()).min_by_key(worth)
            };
            if draft.forest.trees.len() >= most
                && let Some(index) = fewest(&draft.forest)
            {
                draft.forest.trees.remove(index);
            }
            for tree in &mut draft.forest.trees {
                tree.rate = tree.rate / PART * (PART - 1);
            }
            for tree in &mut everybody.forest.trees {
                tree.rate = (tree.rate / PART).max(1);
            }
            draft.forest.append(everybody.forest);
            draft.recount();
            draft.raise();
            draft.join();
            draft.raise();
            Some(draft)
        }
        _ => spanning(model, ways),
    }
}

/// One tree to all.
fn spanning<'a>(model: &'a Model, ways: &'a Ways) -> Option<Draft<'a>> {
    let (entry, order) = widest(model);
    let mut width = vec![None; entry.len()];
    width[model.source] = Some(i64::MAX);
    let mut rate = i64::MAX;
    let mut left = vec![0; ways.capacities.len()];
    for host in (0..model.rates.len()).filter(|&host| model.rates[host] > 0) {
        let mut vertex = host;
        while let Some(arc) = entry[vertex] {
            rate = rate.min(ways.capacities[arc]);
            if model.heads[arc ^ 1] != model.source {
                rate = rate.min(ways.capacities[arc ^ 1]);
            }
            (left[arc], left[arc ^ 1]) = (i64::MAX, i64::MAX);
            vertex = model.heads[arc ^ 1];
        }
        if vertex != model.source {
            return None;
        }
    }
    let mut draft = Draft::new(model, ways, Forest::with_empty_tree(model, rate), 1);
    for arc in left.iter_mut().filter(|left| **left > 0) {
        *arc = rate;
    }
    draft.left = left;
    // A host comes before those behind it.
    for host in order.into_iter().filter(|&host| model.rates[host] > 0) {
        draft.join_tree(0, host);
    }
    draft.recount();
    let missing = members(&draft.forest.trees.first()?.parents);
    (missing == model.rates.iter().filter(|rate| **rate > 0).count()).then_some(draft)
}

/// By vertex the physical arc by which the widest way from the source enters it; and the vertices, each before those that it
/// is on the way to.
fn widest(model: &Model) -> (Vec<Option<usize>>, Vec<usize>) {
    let mut entry = vec![None; model.names.len()];
    let (mut done, mut order) = (vec![false; entry.len()], Vec::new());
    let mut heap = BinaryHeap::from([(i64::MAX, Reverse([model.source; 2]), None)]);
    while let Some((_, Reverse([vertex, _]), by)) = heap.pop() {
        if std::mem::replace(&mut done[vertex], true) {
            continue;
        }
        entry[vertex] = by;
        order.push(vertex);
        for arc in model.overlay.leaving(vertex) {
            let head = model.overlay.head(arc);
            let pieces = model.overlay.pieces(arc).iter();
            let widest = pieces.max_by_key(|piece| (piece.amount, Reverse(piece.route)));
            if let Some(piece) = widest.filter(|_| !done[head]) {
                let physical = model.overlay.physical(piece.route).first().copied();
                heap.push((piece.amount, Reverse([head, vertex]), physical));
            }
        }
    }
    (entry, order)
}
