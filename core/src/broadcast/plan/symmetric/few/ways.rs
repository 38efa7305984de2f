//! How does a host get into a tree that runs past it?

use std::collections::VecDeque;

use super::super::arborescences::NOBODY;
use super::super::model::Model;
use super::super::routed::Routed;

/// The physical arcs at each vertex.
#[derive(Debug)]
pub(super) struct Ways {
    /// Arcs into each vertex.
    entering: Vec<Vec<usize>>,
    /// Capacity of each physical arc.
    pub(super) capacities: Vec<i64>,
    /// All physical arcs, in an order that does not depend on that of the file.
    pub(super) arcs: Vec<usize>,
}

/// A way into a tree.
#[derive(Debug)]
pub(super) struct Way {
    /// Where it begins: in a host of the tree, or in a switch that the tree passes; the joining host itself where the tree
    /// runs through it.
    pub(super) anchor: usize,
    pub(super) inward: Vec<usize>,
    /// Back to a switch.
    pub(super) outward: Vec<usize>,
}

impl Ways {
    pub(super) fn new(model: &Model) -> Self {
        let mut entering = vec![Vec::new(); model.names.len()];
        let (mut capacities, mut arcs) = (vec![0; model.heads.len()], Vec::new());
        for arc in 0..2 * model.overlay.links() {
            for piece in model.overlay.pieces(arc) {
                for physical in model.overlay.physical(piece.route) {
                    capacities[physical] = piece.amount;
                    arcs.push(physical);
                    entering[model.overlay.head(arc)].push(physical);
                }
            }
        }
        Self { entering, capacities, arcs }
    }

    /// The shortest free way into a tree: from a host in it, or from a switch that it passes and back there. Of the links of
    /// the host the one with the least left that is enough comes first.
    pub(super) fn find(&self, model: &Model, tree: &Routed, host: usize, left: &[i64]) -> Option<Way> {
        if tree.passes[host] != NOBODY {
            return Some(Way { anchor: host, inward: Vec::new(), outward: Vec::new() });
        }
        let mut first: Vec<usize> = self.entering[host].clone();
        first.sort_by_key(|&arc| (left[arc].min(left[arc ^ 1]), model.heads[arc ^ 1]));
        let mut onward: Vec<Option<usize>> = Vec::new();
        let mut queue = VecDeque::from([host]);
        while let Some(vertex) = queue.pop_front() {
            let arcs = if vertex == host { &first } else { &self.entering[vertex] };
            for &arc in arcs.iter().filter(|&&arc| left[arc] >= tree.rate) {
                if onward.is_empty() {
                    onward = vec![None; self.entering.len()];
                }
                let tail = model.heads[arc ^ 1];
                if tail == host || onward[tail].is_some() {
                    continue;
                }
                onward[tail] = Some(arc);
                if model.stores(tail) {
                    if tail == model.source || tree.parents[tail] != NOBODY {
                        let inward = way(model, &onward, tail, host);
                        return Some(Way { anchor: tail, inward, outward: Vec::new() });
                    }
                    continue;
                }
                if tree.passes[tail] != NOBODY {
                    let inward = way(model, &onward, tail, host);
                    let outward: Vec<usize> = inward.iter().rev().map(|arc| arc ^ 1).collect();
                    if outward.iter().all(|&arc| left[arc] >= tree.rate) {
                        return Some(Way { anchor: tail, inward, outward });
                    }
                }
                queue.push_back(tail);
            }
        }
        None
    }
}

/// The arcs from `vertex` to `host`.
fn way(model: &Model, onward: &[Option<usize>], mut vertex: usize, host: usize) -> Vec<usize> {
    let mut way = Vec::new();
    while let Some(arc) = onward[vertex].filter(|_| vertex != host) {
        way.push(arc);
        vertex = model.heads[arc];
    }
    way
}
