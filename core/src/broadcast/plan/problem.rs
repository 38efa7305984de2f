//! What exactly is to be planned? The request, checked and turned into vertices.

use std::collections::BTreeSet;

use super::super::maxflow::MaxFlow;
use super::super::topology::Graph;
use super::PlanError;
use super::packing::{Capacities, Feeder, Feeders};
use super::rooted::Rooted;

/// A broadcast to be planned.
#[derive(Clone, Debug)]
pub(crate) struct Problem<'a> {
    pub(crate) graph: &'a Graph,
    /// What the trees may use together.
    pub(crate) capacities: Capacities,
    /// Where the data is.
    pub(crate) source: usize,
    /// Those that receive and relay, by name; all can be reached. Every other host forwards like a switch, at the cost of
    /// its budgets, and stores nothing.
    pub(crate) destinations: Vec<usize>,
    /// Max-flow of each destination over `capacities`, Mbit/s, above 0.
    pub(crate) bounds: Vec<f64>,
    /// The network as seen from the source, where it is a tree.
    pub(crate) rooted: Option<Rooted>,
}

impl<'a> Problem<'a> {
    /// The problem, and the destinations that cannot be reached, by name.
    pub(crate) fn new(
        graph: &'a Graph,
        capacities: Capacities,
        source: &str,
        destinations: &[String],
    ) -> Result<(Self, Vec<usize>), PlanError> {
        let source =
            graph.host(source).ok_or_else(|| PlanError::UnknownSource { name: source.to_owned() })?;
        let vertices = vertices(graph, source, destinations)?;
        let rooted = Rooted::new(graph, source);
        let flows: Vec<(usize, f64)> = if let Some(rooted) = &rooted {
            let bounds = rooted.bounds(graph, &capacities);
            vertices.into_iter().map(|vertex| (vertex, bounds[vertex])).collect()
        } else {
            let mut flow = MaxFlow::over(graph, &capacities, source);
            vertices.into_iter().map(|vertex| (vertex, flow.to(vertex))).collect()
        };
        let (reached, unreachable): (Vec<_>, Vec<_>) = flows.into_iter().partition(|(_, bound)| *bound > 0.0);
        let (destinations, bounds) = reached.into_iter().unzip();
        let problem = Self { graph, capacities, source, destinations, bounds, rooted };
        Ok((problem, unreachable.into_iter().map(|(vertex, _)| vertex).collect()))
    }

    /// For each vertex whether it stores what it receives: the source and the destinations.
    pub(crate) fn stores(&self) -> Vec<bool> {
        let mut stores = vec![false; self.graph.vertices()];
        for &host in std::iter::once(&self.source).chain(&self.destinations) {
            stores[host] = true;
        }
        stores
    }

    /// A hop along the shortest way.
    pub(crate) fn feeder(&self, from: usize, to: usize) -> Result<Feeder, PlanError> {
        let name = |vertex: usize| self.graph.name(vertex).to_owned();
        let route = self.graph.route(from, to);
        let route = route.ok_or_else(|| PlanError::Unreachable { from: name(from), to: vec![name(to)] })?;
        Ok(Feeder { from, to, route })
    }

    /// The source feeds each destination itself.
    pub(crate) fn flat(&self) -> Result<Feeders, PlanError> {
        let hops = self.destinations.iter().map(|&to| self.feeder(self.source, to));
        Ok(Feeders::new(self.graph, &self.capacities, hops.collect::<Result<_, _>>()?))
    }
}

/// The destinations by name, each once.
fn vertices(graph: &Graph, source: usize, destinations: &[String]) -> Result<Vec<usize>, PlanError> {
    let mut sorted: Vec<&str> = destinations.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let mut names = BTreeSet::new();
    let mut vertices = Vec::with_capacity(sorted.len());
    for name in sorted {
        let owned = || name.to_owned();
        let vertex = graph.host(name).ok_or_else(|| PlanError::UnknownDestination { name: owned() })?;
        if vertex == source {
            return Err(PlanError::SourceIsDestination { name: owned() });
        }
        if !names.insert(name) {
            return Err(PlanError::DuplicateDestination { name: owned() });
        }
        vertices.push(vertex);
    }
    Ok(vertices)
}
