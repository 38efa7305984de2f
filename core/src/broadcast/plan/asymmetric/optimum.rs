//! What is the most that any plan can bring?
//!
//! The compact linear programme: how much each storing host sends through the network, and for each destination a flow over
//! what hosts send each other. With `z(u, e)` what `u` sends over arc `e`, `a(u, v)` what arrives of it at `v`, and `f(x; u, v)`
//! the part of that on the ways by which `x` gets its data:
//!
//! ```text
//! max  sum over x of what f(x) brings to x
//!      sum over u of z(u, e)           <= capacity of e, and alike for each budget of a host
//!      z(u) out of w                   <= z(u) into w                   each vertex w but u
//!      a(u, v)                         <= z(u) into v - z(u) out of v
//!      f(x; u, v)                      <= a(u, v)
//!      f(x) out of v                   <= f(x) into v                   each destination v but x
//! ```
//!
//! A packing of trees gives such flows, so nothing that routes is above it. That a packing reaches it is proven where links
//! are symmetric (Bang-Jensen, Frank, Jackson 1995) and found in all cases tried elsewhere. It is independent of the search for
//! trees, hence the oracle for that. `O(n^3)` rows: for a dozen of hosts.

use super::super::problem::Problem;
use super::super::sharing::Resource;
use super::simplex::{Outcome, Simplex};

/// Most rows that are solved: the inverse has their square.
const MOST_ROWS: usize = 2500;
/// Most pivots.
const MOST_PIVOTS: usize = 60_000;

/// The greatest sum, Mbit/s; none where the programme is too large to be solved here.
pub(crate) fn optimum(problem: &Problem<'_>) -> Option<f64> {
    let mut programme = Programme::new(problem)?;
    let outcome = programme.simplex.run(MOST_PIVOTS);
    (outcome == Outcome::Optimal).then(|| programme.simplex.bound())
}

/// The programme with its columns.
struct Programme<'p> {
    problem: &'p Problem<'p>,
    /// The source, then the destinations.
    hosts: Vec<usize>,
    /// Resources that can run out.
    resources: Vec<Resource>,
    simplex: Simplex,
}

impl<'p> Programme<'p> {
    fn new(problem: &'p Problem<'p>) -> Option<Self> {
        let graph = problem.graph;
        let hosts: Vec<usize> =
            std::iter::once(problem.source).chain(problem.destinations.iter().copied()).collect();
        let budgets = (0..graph.hosts()).flat_map(|host| {
            [Resource::Send(host), Resource::Receive(host), Resource::Total(host), Resource::Disk(host)]
        });
        let resources: Vec<Resource> = (0..graph.arcs().len())
            .map(Resource::Arc)
            .chain(budgets)
            .filter(|&resource| problem.capacities.left(resource).is_finite())
            .collect();
        let (count, vertices) = (hosts.len(), graph.vertices());
        let rows = resources.len() + count * vertices + count * count * count;
        if rows > MOST_ROWS {
            return None;
        }
        let mut limits: Vec<f64> =
            resources.iter().map(|&resource| problem.capacities.left(resource)).collect();
        limits.resize(rows, 0.0);
        let mut programme = Self { problem, hosts, resources, simplex: Simplex::new(limits) };
        programme.sent();
        programme.arriving();
        programme.brought();
        Some(programme)
    }

    /// The row that keeps what host number `from` sends at a vertex: no more goes out or arrives than comes in.
    fn kept(&self, from: usize, vertex: usize) -> usize {
        self.resources.len() + from * self.problem.graph.vertices() + vertex
    }

    /// The row of the flow to host number `of` on the hop between two; where `from` is `to`, that of what `of`'s flow keeps
    /// at that host. Hop rows of each `of` are a square with the diagonal for that.
    fn hop(&self, of: usize, from: usize, to: usize) -> usize {
        let count = self.hosts.len();
        self.resources.len() + count * self.problem.graph.vertices() + (of * count + from) * count + to
    }

    /// A use of a resource, where it can run out.
    fn uses(&self, resource: Resource) -> Option<(usize, f64)> {
        self.resources.iter().position(|&other| other == resource).map(|row| (row, 1.0))
    }

    /// `z`: the arcs over which each host sends.
    fn sent(&mut self) {
        let graph = self.problem.graph;
        for from in 0..self.hosts.len() {
            for (index, arc) in graph.arcs().iter().enumerate() {
                // What comes back to the sender is of no use.
                if arc.mbps <= 0.0 || arc.to == self.hosts[from] {
                    continue;
                }
                let resources = [
                    Resource::Arc(index),
                    Resource::Send(arc.from),
                    Resource::Total(arc.from),
                    Resource::Receive(arc.to),
                    Resource::Total(arc.to),
                ];
                let mut uses: Vec<(usize, f64)> =
                    resources.into_iter().filter_map(|resource| self.uses(resource)).collect();
                uses.push((self.kept(from, arc.to), -1.0));
                if arc.from != self.hosts[from] {
                    uses.push((self.kept(from, arc.from), 1.0));
                }
                self.simplex.add(0.0, uses);
            }
        }
    }

    /// `a`: what arrives at each destination from each other host.
    fn arriving(&mut self) {
        let count = self.hosts.len();
        for from in 0..count {
            for to in (1..count).filter(|&to| to != from) {
                let mut uses = vec![(self.kept(from, self.hosts[to]), 1.0)];
                uses.extend(self.uses(Resource::Disk(self.hosts[to])));
                uses.extend((1..count).filter(|&of| of != from).map(|of| (self.hop(of, from, to), -1.0)));
                self.simplex.add(0.0, uses);
            }
        }
    }

    /// `f`: the ways by which each destination gets its data.
    fn brought(&mut self) {
        let count = self.hosts.len();
        for of in 1..count {
            for from in (0..count).filter(|&from| from != of) {
                for to in (1..count).filter(|&to| to != from) {
                    let mut uses = vec![(self.hop(of, from, to), 1.0)];
                    if from != 0 {
                        uses.push((self.hop(of, from, from), 1.0));
                    }
                    if to != of {
                        uses.push((self.hop(of, to, to), -1.0));
                    }
                    self.simplex.add(if to == of { 1.0 } else { 0.0 }, uses);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
