//! Which links does a broadcast or multicast packet take?
//!
//! From each source a tree, made of the routes to all other ports, so that a switch sends one copy into each link
//! that leads to some of them. Groups are not kept: as on a switch that does not listen to memberships, multicast
//! reaches every host, and the hosts drop what they have not asked for.

use std::collections::HashMap;

use gridcast_core::broadcast::topology::{Graph, Routes};

/// The trees, made when first asked for.
#[derive(Debug)]
pub(crate) struct Floods {
    ports: Vec<usize>,
    trees: HashMap<usize, HashMap<usize, Vec<usize>>>,
}

impl Floods {
    /// `ports`: the hosts that have one.
    pub(crate) fn new(ports: Vec<usize>) -> Self {
        Self { ports, trees: HashMap::new() }
    }

    /// The arcs on which `vertex` sends copies of what `source` sent.
    pub(crate) fn next_arcs(
        &mut self,
        source: usize,
        vertex: usize,
        graph: &Graph,
        routes: &Routes,
    ) -> Vec<usize> {
        let ports = &self.ports;
        let tree = self.trees.entry(source).or_insert_with(|| tree(source, ports, graph, routes));
        tree.get(&vertex).cloned().unwrap_or_default()
    }
}

/// By vertex: the arcs of the tree that start there.
fn tree(source: usize, ports: &[usize], graph: &Graph, routes: &Routes) -> HashMap<usize, Vec<usize>> {
    let mut arcs: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut reached = vec![false; graph.vertices()];
    reached[source] = true;
    for &port in ports {
        let mut vertex = source;
        while let Some(arc) = routes.next_arc(vertex, port) {
            let next = graph.arcs()[arc].to;
            // A vertex that another route has reached gets no second copy, even where this route enters elsewhere.
            if !reached[next] {
                reached[next] = true;
                arcs.entry(vertex).or_default().push(arc);
            }
            vertex = next;
        }
    }
    arcs
}
