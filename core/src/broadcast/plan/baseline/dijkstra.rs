//! What if the host with the largest bandwidth from the tree is added next?
//!
//! Wang et al., GPC 2007, pp. 484-495: a maximum spanning tree over the bandwidths that pairs of hosts have when nobody else
//! sends; that hops then share links is ignored. Which of several equal parents feeds a host is not documented, and decides
//! everything on a homogeneous cluster: the latest one makes a chain, the earliest one sends all from the source. The latest
//! is the charitable reading. Of hosts with equal bandwidth and parent the first one by name is added.
//!
//! As Prim's algorithm: one search from each host that is added, O(N (V + E) + N²) time and O(N + V) space.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::super::PlanError;
use super::super::packing::Feeder;
use super::super::problem::Problem;
use super::super::sharing::Resource;

/// Who feeds a host when several hosts of the tree could do so equally fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    /// The one that was added last.
    Latest,
    /// The one that was added first.
    Earliest,
}

/// The best that the tree offers to a host outside.
#[derive(Clone, Copy)]
struct Offer {
    mbps: f64,
    /// When the parent was added.
    parent: usize,
}

pub(super) fn hops(problem: &Problem<'_>, rule: Parent) -> Result<Vec<Feeder>, PlanError> {
    let mut outside: Vec<(usize, Option<Offer>)> =
        problem.destinations.iter().map(|&host| (host, None)).collect();
    let mut tree = vec![problem.source];
    let mut hops = Vec::with_capacity(outside.len());
    let mut newest = problem.source;
    while !outside.is_empty() {
        let ways = Ways::from(problem, newest);
        for (host, best) in &mut outside {
            let Some(mbps) = ways.mbps(problem, *host) else { continue };
            let offer = Offer { mbps, parent: tree.len() - 1 };
            if best.is_none_or(|best| preferred(offer, best, rule) == Ordering::Greater) {
                *best = Some(offer);
            }
        }
        let (place, offer) = best(&outside, rule).ok_or_else(|| unreachable(problem, &outside))?;
        // Keeps the order by name.
        (newest, _) = outside.remove(place);
        hops.push(problem.feeder(tree[offer.parent], newest)?);
        tree.push(newest);
    }
    Ok(hops)
}

/// The offer to accept next, and the place of the one it is made to.
fn best(outside: &[(usize, Option<Offer>)], rule: Parent) -> Option<(usize, Offer)> {
    let offers = outside.iter().enumerate().filter_map(|(place, (_, offer))| Some((place, (*offer)?)));
    offers.reduce(|kept, next| if preferred(next.1, kept.1, rule) == Ordering::Greater { next } else { kept })
}

fn preferred(a: Offer, b: Offer, rule: Parent) -> Ordering {
    let later = a.parent.cmp(&b.parent);
    a.mbps.total_cmp(&b.mbps).then(if rule == Parent::Latest { later } else { later.reverse() })
}

fn unreachable(problem: &Problem<'_>, outside: &[(usize, Option<Offer>)]) -> PlanError {
    let name = |vertex: usize| problem.graph.name(vertex).to_owned();
    let to = outside.iter().map(|(host, _)| name(*host)).collect();
    PlanError::Unreachable { from: name(problem.source), to }
}

/// The shortest ways from one host to all vertices, those of [`Graph::route`](super::super::super::topology::Graph::route):
/// a search in breadth that takes the arcs of each vertex by name comes to every vertex along the shortest way that is first
/// by name.
pub(super) struct Ways {
    start: usize,
    /// The last arc of the way to each vertex.
    arcs: Vec<Option<usize>>,
    /// What the arcs of the way, the start and the hosts between let through, Mbit/s.
    widths: Vec<f64>,
}

impl Ways {
    pub(super) fn from(problem: &Problem<'_>, start: usize) -> Self {
        let (graph, left) = (problem.graph, |resource| problem.capacities.left(resource));
        let mut arcs = vec![None; graph.vertices()];
        let mut widths = vec![0.0; graph.vertices()];
        widths[start] = left(Resource::Send(start)).min(left(Resource::Total(start)));
        let mut queue = VecDeque::from([start]);
        while let Some(vertex) = queue.pop_front() {
            let through = if vertex == start {
                f64::INFINITY
            } else {
                let (send, receive) = (left(Resource::Send(vertex)), left(Resource::Receive(vertex)));
                send.min(receive).min(left(Resource::Total(vertex)) / 2.0)
            };
            for &arc in graph.leaving(vertex) {
                let head = graph.arcs()[arc].to;
                if head == start || arcs[head].is_some() {
                    continue;
                }
                arcs[head] = Some(arc);
                widths[head] = widths[vertex].min(through).min(left(Resource::Arc(arc)));
                queue.push_back(head);
            }
        }
        Self { start, arcs, widths }
    }

    /// What `host` could receive, if nobody else did; none where no way leads to it.
    pub(super) fn mbps(&self, problem: &Problem<'_>, host: usize) -> Option<f64> {
        if host != self.start && self.arcs[host].is_none() {
            return None;
        }
        let budgets = [Resource::Receive(host), Resource::Total(host), Resource::Disk(host)];
        let budgets = budgets.map(|resource| problem.capacities.left(resource));
        Some(budgets.into_iter().fold(self.widths[host], f64::min))
    }
}
