//! Which trees give every host of a tree-shaped network its max-flow at once?
//!
//! The tree set of Takahashi, Saito, Shibata, Taura ("A Stable Broadcast Algorithm", CCGrid 2008). Let v₁ < … < vₖ be the
//! different max-flows. Tree i reaches all with a max-flow of at least vᵢ, at the rate vᵢ - vᵢ₋₁, along a depth-first walk:
//! a host passes on to whatever is behind it; at a switch the first branch is fed by whoever feeds the switch, each later
//! branch by the host below that was reached last.
//!
//! **Theorem.** If no link is narrower towards the source than away from it, this keeps to all capacities, and each
//! destination receives its max-flow. *Proof.* A tree uses each link at most once away from the source: on the way to the
//! first host behind it. It uses it at most once towards the source: to leave the branch for the next one, from the host
//! reached last, all links to which are then left for good. An arc away from the source is used by the trees that lead to
//! somebody behind it, together at the largest max-flow behind it, which is at most its capacity, since it is on the way
//! there. The arc back carries no more. ∎ Since trees are nested, one queue can feed them all: see the schedule.
//!
//! The theorem asks for more than is needed: the way back of a branch that is walked last is not used, nor that of a branch
//! of a host. So branches with a poor way back come last, the poorest at the end (if any order of them will do, this one
//! does), and what the trees use together is compared with what is there, budgets of hosts included. Where that is too much,
//! [`pack`] has no answer.
//!
//! O(V log V) for the order, and O(V + hops · length of their routes) for each tree.

use super::levels;
use super::packing::{Feeder, PackedTree, Packing};
use super::problem::Problem;
use super::rooted::Rooted;
use super::sharing::Resource;

/// No vertex.
const NONE: usize = usize::MAX;

/// Trees that give each destination exactly its rate of `rates` (by the order of `problem.destinations`, none above the
/// max-flow), one for each different rate, the largest tree first. None where the way back is too narrow somewhere, or
/// budgets do not allow it.
pub(crate) fn pack(problem: &Problem<'_>, rooted: &Rooted, rates: &[f64]) -> Option<Packing> {
    trees(problem, rooted, rates, false)
}

/// The same in an order that suits those who carry it out: of branches with a good way back the fastest first, so that a fast
/// host is not fed by a slow one if another can, and what a retired tree has carried need not pass through the source again.
pub(crate) fn pack_fast_first(problem: &Problem<'_>, rooted: &Rooted, rates: &[f64]) -> Option<Packing> {
    trees(problem, rooted, rates, true)
}

fn trees(problem: &Problem<'_>, rooted: &Rooted, rates: &[f64], fast_first: bool) -> Option<Packing> {
    let walk = Walk::new(problem, rooted, rates, fast_first);
    let mut below = 0.0;
    let mut packing = Packing::default();
    for level in levels::choose(rates, 0) {
        packing.trees.push(PackedTree { rate: level - below, hops: walk.hops(level) });
        below = level;
    }
    problem.capacities.fits(problem.graph, &packing).then_some(packing)
}

/// The walk that all trees are parts of.
struct Walk<'a> {
    problem: &'a Problem<'a>,
    rooted: &'a Rooted,
    /// The vertices as they are visited.
    order: Vec<usize>,
    /// For each place in it the first place that is not behind that vertex.
    end: Vec<usize>,
    /// What each vertex stores, Mbit/s; 0 if it is no destination.
    stores: Vec<f64>,
    /// The most that a vertex or any behind it stores.
    most: Vec<f64>,
    fast_first: bool,
}

impl<'a> Walk<'a> {
    fn new(problem: &'a Problem<'a>, rooted: &'a Rooted, rates: &[f64], fast_first: bool) -> Self {
        let graph = problem.graph;
        let mut stores = vec![0.0; graph.vertices()];
        for (&host, &rate) in problem.destinations.iter().zip(rates) {
            stores[host] = rate;
        }
        let mut most = stores.clone();
        for &vertex in rooted.walk.iter().rev() {
            if let Some(parent) = rooted.parent(graph, vertex) {
                most[parent] = most[parent].max(most[vertex]);
            }
        }
        let mut walk = Self {
            problem,
            rooted,
            order: Vec::with_capacity(rooted.walk.len()),
            end: Vec::new(),
            stores,
            most,
            fast_first,
        };
        walk.visit();
        walk
    }

    /// Puts the vertices in order: branches with a good way back by name, or the fastest first; then those with a poor one.
    fn visit(&mut self) {
        let graph = self.problem.graph;
        let ways_back = self.ways_back();
        let poor = |vertex: usize| ways_back[vertex] < self.most[vertex];
        let mut branches: Vec<Vec<usize>> = vec![Vec::new(); graph.vertices()];
        // In the order of their names, as the walk of `Rooted` has them.
        for &vertex in &self.rooted.walk {
            if let Some(parent) = self.rooted.parent(graph, vertex) {
                branches[parent].push(vertex);
            }
        }
        for list in &mut branches {
            list.sort_by(|&a, &b| {
                let descending = if poor(a) && poor(b) {
                    ways_back[b].total_cmp(&ways_back[a])
                } else {
                    std::cmp::Ordering::Equal
                };
                let fast = if self.fast_first && !poor(a) && !poor(b) {
                    self.most[b].total_cmp(&self.most[a])
                } else {
                    std::cmp::Ordering::Equal
                };
                poor(a).cmp(&poor(b)).then(descending).then(fast)
            });
        }
        let mut sizes = vec![1_usize; graph.vertices()];
        for &vertex in self.rooted.walk.iter().rev() {
            if let Some(parent) = self.rooted.parent(graph, vertex) {
                sizes[parent] += sizes[vertex];
            }
        }
        let mut stack = vec![self.problem.source];
        while let Some(vertex) = stack.pop() {
            self.end.push(self.order.len() + sizes[vertex]);
            self.order.push(vertex);
            stack.extend(branches[vertex].iter().rev());
        }
    }

    /// What can leave each branch towards the source once all of it has been visited, Mbit/s; infinite where nothing is in
    /// the way.
    fn ways_back(&self) -> Vec<f64> {
        let Problem { graph, capacities, source, .. } = self.problem;
        let mut ways = vec![f64::INFINITY; graph.vertices()];
        for &vertex in self.rooted.walk.iter().rev() {
            let Some(entry) = self.rooted.entry[vertex] else { continue };
            let limits = capacities.limits(vertex);
            let own = capacities.left(Resource::Arc(entry ^ 1)).min(limits.send);
            ways[vertex] = if self.stores[vertex] > 0.0 {
                // It sends back itself; what is behind it need not.
                own.min(limits.total - self.stores[vertex])
            } else {
                ways[vertex].min(own)
            };
            let parent = graph.arcs()[entry].from;
            if parent != *source && ways[vertex] < self.most[vertex] {
                ways[parent] = ways[parent].min(ways[vertex]);
            }
        }
        ways
    }

    /// The hops of the tree to all that store `level` or more, in the order of the walk.
    fn hops(&self, level: f64) -> Vec<Feeder> {
        let mut hops = Vec::new();
        // The branch of each vertex that was visited last.
        let mut last = vec![NONE; self.problem.graph.vertices()];
        let mut place = 0;
        while let Some(&vertex) = self.order.get(place) {
            if self.most[vertex] < level {
                place = self.end[place];
                continue;
            }
            if self.stores[vertex] >= level {
                hops.push(self.hop(vertex, level, &mut last));
            }
            place += 1;
        }
        hops
    }

    /// The hop to `host`: from the first host on the way to the source that stores, or, at the first switch from which
    /// another branch was visited, from the host there that was visited last.
    fn hop(&self, host: usize, level: f64, last: &mut [usize]) -> Feeder {
        let arcs = self.problem.graph.arcs();
        let stores = |vertex: usize| vertex == self.problem.source || self.stores[vertex] >= level;
        let (mut route, mut from) = (Vec::new(), host);
        while let Some(entry) = self.rooted.entry[from] {
            route.push(entry);
            let branch = std::mem::replace(&mut from, arcs[entry].from);
            if stores(from) {
                break;
            }
            let visited = std::mem::replace(&mut last[from], branch);
            if visited != NONE {
                from = visited;
                let mut back = Vec::new();
                // Down the branches visited last; the last of them is a host that stores.
                while let Some(entry) = self.rooted.entry[from] {
                    back.push(entry ^ 1);
                    if stores(from) {
                        break;
                    }
                    from = last[from];
                }
                route.extend(back);
                break;
            }
        }
        route.reverse();
        Feeder { from, to: host, route }
    }
}

#[cfg(test)]
mod tests;
