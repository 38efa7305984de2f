//! Is the network a tree, and what can each host of it receive?
//!
//! Of the part that the source is connected to, whichever way links lead. Then there is one way from the source to each
//! vertex, its max-flow is the least capacity on that way, and all max-flows together cost one walk, O(V + E), where
//! [`MaxFlow`](super::super::maxflow::MaxFlow) would cost one search or more for each destination.

use super::super::topology::{Graph, Limits};
use super::packing::Capacities;
use super::sharing::Resource;

/// A tree, seen from its root.
#[derive(Clone, Debug)]
pub(crate) struct Rooted {
    /// Vertices in the order of a depth-first walk; a vertex comes before those behind it.
    pub(crate) walk: Vec<usize>,
    /// For each vertex the arc that leads into it from its parent; none for the root and for what is not connected.
    pub(crate) entry: Vec<Option<usize>>,
}

impl Rooted {
    /// The network as seen from `source`; none if it has a cycle. Branches come in the order of their names.
    pub(crate) fn new(graph: &Graph, source: usize) -> Option<Self> {
        let mut branches: Vec<Vec<usize>> = vec![Vec::new(); graph.vertices()];
        for (index, arc) in graph.arcs().iter().enumerate() {
            // A link that is closed both ways joins nothing; one that is closed one way does.
            if arc.mbps > 0.0 || graph.arcs().get(index ^ 1).is_some_and(|back| back.mbps > 0.0) {
                branches[arc.from].push(index);
            }
        }
        let mut rooted = Self { walk: Vec::new(), entry: vec![None; graph.vertices()] };
        let mut seen = vec![false; graph.vertices()];
        seen[source] = true;
        let mut stack = vec![source];
        while let Some(vertex) = stack.pop() {
            rooted.walk.push(vertex);
            let mut ways = std::mem::take(&mut branches[vertex]);
            let back = rooted.entry[vertex].map(|entry| entry ^ 1);
            ways.retain(|&arc| Some(arc) != back);
            let head = |arc: usize| graph.arcs()[arc].to;
            // The last one pushed is walked first.
            ways.sort_by(|&a, &b| graph.name(head(b)).cmp(graph.name(head(a))));
            for arc in ways {
                if std::mem::replace(&mut seen[head(arc)], true) {
                    return None;
                }
                rooted.entry[head(arc)] = Some(arc);
                stack.push(head(arc));
            }
        }
        Some(rooted)
    }

    /// The vertex before `vertex` on the way from the root.
    pub(crate) fn parent(&self, graph: &Graph, vertex: usize) -> Option<usize> {
        self.entry[vertex].map(|entry| graph.arcs()[entry].from)
    }

    /// What each vertex could receive if it were alone, Mbit/s, by vertex; 0 for what cannot be reached, and for the root.
    pub(crate) fn bounds(&self, graph: &Graph, capacities: &Capacities) -> Vec<f64> {
        let mut bounds = vec![0.0; graph.vertices()];
        // What each vertex can pass on to one behind it.
        let mut passes_on = vec![0.0_f64; graph.vertices()];
        for &vertex in &self.walk {
            let Limits { send, receive, total, disk } = capacities.limits(vertex);
            match self.entry[vertex] {
                None => passes_on[vertex] = send.min(total),
                Some(entry) => {
                    let arrives =
                        passes_on[graph.arcs()[entry].from].min(capacities.left(Resource::Arc(entry)));
                    bounds[vertex] = arrives.min(receive).min(total).min(disk);
                    passes_on[vertex] = arrives.min(receive).min(send).min(total / 2.0);
                }
            }
        }
        bounds
    }
}

#[cfg(test)]
mod tests;
