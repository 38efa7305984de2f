//! In which order does a depth-first walk feed the hosts, and along which ways?
//!
//! From the source, over what is left, entering the branches of a vertex by name. A host that has the data feeds each of its
//! branches itself. At a switch the first branch is fed by whoever led here. Feeding another one from above would
//! use the arc into the switch again, so each later branch is fed by the host below that was visited last, among those whose
//! way up is open. A branch in which no host is found costs nothing.
//!
//! So every arc is used at most once: down arcs lead to vertices not yet visited, and an arc up is given away with the only
//! host that may use it. With all of a network whose links are open both ways, every destination is found (Takahashi et al.
//! 2008).
//!
//! O(V + E) and the length of the ways found. The walk keeps a stack of its own: a chain of thousands of hosts would overflow
//! the thread's.

use super::super::packing::{Capacities, Feeder};
use super::super::problem::Problem;
use super::super::sharing::{Resource, capacity};

/// A resource is used up when less than this part of it is left: what rounding leaves behind is no way.
const USED_UP: f64 = 1e-9;

/// The hops, in the order of feeding. `stores` says for each vertex whether it is the source or a destination.
pub(super) fn walk(problem: &Problem<'_>, left: &Capacities, stores: &[bool]) -> Vec<Feeder> {
    let mut walk = Walk {
        problem,
        left,
        stores,
        visited: vec![false; problem.graph.vertices()],
        entered: vec![None; problem.graph.vertices()],
        stack: Vec::new(),
        hops: Vec::new(),
    };
    walk.enter(problem.source, None);
    while walk.step() {}
    walk.hops
}

struct Walk<'a> {
    problem: &'a Problem<'a>,
    left: &'a Capacities,
    stores: &'a [bool],
    visited: Vec<bool>,
    /// The arc by which each vertex was entered.
    entered: Vec<Option<usize>>,
    stack: Vec<Visit>,
    hops: Vec<Feeder>,
}

/// A vertex that the walk has entered and not left.
struct Visit {
    vertex: usize,
    /// Which of its arcs is looked at next.
    next: usize,
    /// Whether it has the data.
    holds: bool,
    /// From where it, or the host that is found first below, is fed; none once that has happened.
    from_above: Option<Origin>,
    /// At a switch: hosts below that can come up to it, no two by one arc; the last one was visited last.
    below: Vec<usize>,
}

/// A host that feeds, and the place in the stack where its way turns down.
#[derive(Clone, Copy)]
struct Origin {
    host: usize,
    turn: usize,
}

impl Walk<'_> {
    /// Looks at one arc, or leaves a vertex; false when the walk is over.
    fn step(&mut self) -> bool {
        let Some(top) = self.stack.last_mut() else { return false };
        let vertex = top.vertex;
        let Some(&arc) = self.problem.graph.leaving(vertex).get(top.next) else {
            self.leave();
            return true;
        };
        top.next += 1;
        let head = self.problem.graph.arcs()[arc].to;
        let open = !self.visited[head] && self.open(arc);
        if let Some(origin) = self.origin().filter(|_| open) {
            self.entered[head] = Some(arc);
            self.enter(head, Some(origin));
        }
        true
    }

    /// Who feeds the next branch of the vertex at the top.
    fn origin(&self) -> Option<Origin> {
        let turn = self.stack.len().checked_sub(1)?;
        let top = &self.stack[turn];
        if top.holds {
            return Some(Origin { host: top.vertex, turn });
        }
        let below = top.below.last().map(|&host| Origin { host, turn });
        below.or(top.from_above)
    }

    fn enter(&mut self, vertex: usize, origin: Option<Origin>) {
        self.visited[vertex] = true;
        let holds = origin.is_none();
        self.stack.push(Visit { vertex, next: 0, holds, from_above: origin, below: Vec::new() });
        let writes = usable(self.problem, self.left, Resource::Disk(vertex));
        if let Some(origin) = origin.filter(|_| self.stores[vertex] && writes) {
            self.feed(vertex, origin);
        }
    }

    fn feed(&mut self, to: usize, Origin { host, turn }: Origin) {
        let arcs = self.problem.graph.arcs();
        let mut route = Vec::new();
        let mut vertex = host;
        while vertex != self.stack[turn].vertex {
            let Some(arc) = self.entered[vertex] else { break };
            route.push(back(arc));
            vertex = arcs[arc].from;
        }
        let down = &mut self.stack[turn + 1..];
        route.extend(down.iter().filter_map(|visit| self.entered[visit.vertex]));
        for visit in down {
            visit.from_above = None;
            visit.holds = visit.vertex == to;
        }
        self.stack[turn].below.pop();
        self.hops.push(Feeder { from: host, to, route });
    }

    /// Leaves the vertex at the top. A host below that can come up to the one above may feed its next branch.
    fn leave(&mut self) {
        let Some(Visit { vertex, holds, below, .. }) = self.stack.pop() else { return };
        let host = if holds { Some(vertex) } else { below.last().copied() };
        let up = self.entered[vertex].map(back).filter(|&arc| self.open(arc));
        let above = self.stack.last_mut().filter(|above| !above.holds);
        if let (Some(host), Some(_), Some(above)) = (host, up, above) {
            above.below.push(host);
        }
    }

    fn open(&self, arc: usize) -> bool {
        let (from, to) = (self.problem.graph.arcs()[arc].from, self.problem.graph.arcs()[arc].to);
        let needed = [
            Resource::Arc(arc),
            Resource::Send(from),
            Resource::Total(from),
            Resource::Receive(to),
            Resource::Total(to),
        ];
        needed.into_iter().all(|resource| usable(self.problem, self.left, resource))
    }
}

fn usable(problem: &Problem<'_>, left: &Capacities, resource: Resource) -> bool {
    let left = left.left(resource);
    left.is_infinite() || left > USED_UP * capacity(problem.graph, resource)
}

/// The other direction of the same link.
fn back(arc: usize) -> usize {
    arc ^ 1
}
