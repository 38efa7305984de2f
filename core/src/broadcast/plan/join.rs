//! How does a host join a plan that runs, without changing anybody's rate?
//!
//! It gets a level of its own. Where no level that runs is as high as what it can receive, λ, the tree that spans λ is cut in
//! two: up to λ with the new host, above it without. For a host slower than all others that is a new lowest tree. All others
//! keep their levels, and so their rates. Levels chosen afresh could take much from a single host.
//!
//! On a tree-shaped network the trees are then those of [`depth_first`], which need only the levels. Elsewhere the
//! trees that run are kept, and the new host becomes a leaf of some of them, each as far as what is left on the way to it
//! allows; it may then receive less than λ.

use super::super::topology::{Graph, Topology};
use super::packing::{Capacities, Feeder, PackedTree, Packing};
use super::problem::Problem;
use super::sharing::Resource;
use super::{Options, Plan, PlanError, assemble, depth_first, levels, sources};

/// Most trees of a plan that was joined, for each one that a plan may have: above, a new host gets a level that runs.
const GROWTH: usize = 2;

/// A plan that also reaches `host`, in which every destination of `running` keeps its rate.
///
/// `options` are those of the running plan; its trees may become twice `max_trees`.
pub fn join(topology: &Topology, running: &Plan, host: &str, options: &Options) -> Result<Plan, PlanError> {
    topology.validate_for_planning()?;
    let network = sources::joined(topology, &running.source, &running.sources)?;
    let graph = Graph::new(&network.topology);
    let mut names: Vec<String> = running.destinations.iter().map(|arrival| arrival.name.clone()).collect();
    names.push(host.to_owned());
    let capacities = Capacities::beside(&graph, &options.beside);
    let (problem, unreachable) = Problem::new(&graph, capacities, &network.source, &names)?;
    if !unreachable.is_empty() {
        let to = unreachable.iter().map(|&vertex| graph.name(vertex).to_owned()).collect();
        return Err(PlanError::Unreachable { from: running.source.clone(), to });
    }
    let newcomer = graph.host(host);
    let rates: Vec<f64> = problem
        .destinations
        .iter()
        .zip(&problem.bounds)
        .map(|(&vertex, &bound)| {
            if Some(vertex) == newcomer {
                level(running, bound, options)
            } else {
                running.rate_mbps(graph.name(vertex))
            }
        })
        .collect();
    let rooted = problem.rooted.as_ref();
    let packing = rooted
        .filter(|_| is_nested(running))
        .and_then(|rooted| depth_first::pack(&problem, rooted, &rates))
        .unwrap_or_else(|| beside(&problem, running, newcomer.unwrap_or(problem.source)));
    let mut plan = assemble(&problem, running.strategy, options, &packing);
    network.restore(&mut plan, &running.source);
    debug_assert_eq!(super::super::validity::check_beside(topology, &options.beside, &plan), Ok(()));
    Ok(plan)
}

/// What a host that could receive `bound` is given: all of it, or a level that runs where there are many already.
fn level(running: &Plan, bound: f64, options: &Options) -> f64 {
    let rates: Vec<f64> = running.destinations.iter().map(|arrival| arrival.rate_mbps).collect();
    let levels = levels::choose(&rates, 0);
    let most = usize::try_from(options.max_trees).unwrap_or(usize::MAX).saturating_mul(GROWTH);
    let below = levels.partition_point(|&level| level <= bound);
    match below.checked_sub(1) {
        Some(at) if most > 0 && levels.len() >= most => levels[at],
        _ => bound,
    }
}

/// Whether the members of each tree are among those of the one before it.
fn is_nested(plan: &Plan) -> bool {
    plan.trees.windows(2).all(|pair| {
        let members: std::collections::BTreeSet<&String> = pair[0].hops.iter().map(|hop| &hop.to).collect();
        pair[1].hops.iter().all(|hop| members.contains(&hop.to))
    })
}

/// The trees that run, and the new host behind the member of each from which most can still be had. A tree of which it can
/// have a part only is cut in two.
fn beside(problem: &Problem<'_>, running: &Plan, newcomer: usize) -> Packing {
    let graph = problem.graph;
    let mut left = problem.capacities.clone();
    let trees: Vec<PackedTree> = running.trees.iter().map(|tree| packed(graph, problem, tree)).collect();
    for tree in &trees {
        left.take(graph, tree);
    }
    let mut packing = Packing::default();
    for mut tree in trees {
        let members = std::iter::once(problem.source).chain(tree.hops.iter().map(|hop| hop.to));
        let ways = Ways::new(graph, &left, newcomer);
        let best = members
            .map(|member| (ways.width[member], member))
            .reduce(|best, next| if next.0 > best.0 { next } else { best });
        let part = best.filter(|(width, _)| *width > 0.0).map(|(width, member)| {
            let hop = Feeder { from: member, to: newcomer, route: ways.route(graph, member) };
            let rate = left.rate(graph, std::slice::from_ref(&hop)).min(width).min(tree.rate);
            (rate, hop)
        });
        if let Some((rate, hop)) = part.filter(|(rate, _)| *rate > 0.0) {
            left.take(graph, &PackedTree { rate, hops: vec![hop.clone()] });
            let mut hops = tree.hops.clone();
            hops.push(hop);
            packing.trees.push(PackedTree { rate, hops });
            tree.rate -= rate;
        }
        if tree.rate > 0.0 {
            packing.trees.push(tree);
        }
    }
    packing
}

/// A tree in vertices.
fn packed(graph: &Graph, problem: &Problem<'_>, tree: &super::Tree) -> PackedTree {
    let vertex = |name: &String| graph.vertex(name).unwrap_or(problem.source);
    let hops = tree.hops.iter().map(|hop| Feeder {
        from: vertex(&hop.from),
        to: vertex(&hop.to),
        route: hop
            .path
            .windows(2)
            .filter_map(|ends| graph.arc_between(vertex(&ends[0]), vertex(&ends[1])))
            .collect(),
    });
    PackedTree { rate: tree.rate_mbps, hops: hops.collect() }
}

/// The widest ways to one host over what is left: Dijkstra's algorithm from its end, O(V² + E).
struct Ways {
    /// Mbit/s from each vertex.
    width: Vec<f64>,
    next: Vec<Option<usize>>,
}

impl Ways {
    fn new(graph: &Graph, left: &Capacities, to: usize) -> Self {
        let mut ways = Self { width: vec![0.0; graph.vertices()], next: vec![None; graph.vertices()] };
        let limits = left.limits(to);
        ways.width[to] = limits.receive.min(limits.total).min(limits.disk);
        let mut done = vec![false; graph.vertices()];
        loop {
            let open = (0..graph.vertices()).filter(|&vertex| !done[vertex] && ways.width[vertex] > 0.0);
            let widest = open.reduce(|best, next| {
                let wider = ways.width[next].total_cmp(&ways.width[best]);
                if wider.then_with(|| graph.name(best).cmp(graph.name(next))).is_gt() { next } else { best }
            });
            let Some(vertex) = widest else { return ways };
            done[vertex] = true;
            // What can come into `vertex` to be passed on.
            let limits = left.limits(vertex);
            let through = if vertex == to {
                ways.width[to]
            } else {
                ways.width[vertex].min(limits.receive).min(limits.total / 2.0)
            };
            for &arc in graph.entering(vertex) {
                let tail = graph.arcs()[arc].from;
                let sends = left.limits(tail).send.min(left.limits(tail).total);
                let width = through.min(left.left(Resource::Arc(arc))).min(sends);
                if !done[tail] && width > ways.width[tail] {
                    ways.width[tail] = width;
                    ways.next[tail] = Some(arc);
                }
            }
        }
    }

    fn route(&self, graph: &Graph, from: usize) -> Vec<usize> {
        let mut route = Vec::new();
        let mut vertex = from;
        while let Some(arc) = self.next[vertex] {
            route.push(arc);
            vertex = graph.arcs()[arc].to;
        }
        route
    }
}

#[cfg(test)]
mod tests;
