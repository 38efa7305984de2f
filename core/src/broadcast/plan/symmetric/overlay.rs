//! How much can flow directly between two vertices, and along which links of the network?
//!
//! A capacitated digraph that changes: a split takes capacity from `u -> w` and `w -> t` and gives it to `u -> t`, so that a
//! vertex can leave the graph while others keep what they reach through it. Each arc is made of pieces, each with the
//! physical route that it stands for; a split joins the routes. Pieces are cut, never copied: what the pieces of all arcs
//! use of a physical arc together is at most its capacity. A split adds one piece at most beyond those that it takes, so
//! their number stays linear in links and splits.

use std::collections::HashMap;

/// Part of the capacity of an arc, and the route that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) amount: i64,
    pub(super) route: usize,
}

/// A route: one physical arc, or two routes one after the other.
#[derive(Clone, Copy, Debug)]
enum Route {
    Arc(usize),
    Join(usize, usize),
}

/// A graph with at most one link between two vertices. Link `i` is arc `2 i` from its lesser end to its greater one, and arc
/// `2 i + 1` back.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    ends: Vec<(usize, usize)>,
    capacities: Vec<i64>,
    pieces: Vec<Vec<Piece>>,
    /// By their ends, the lesser first.
    links: HashMap<(usize, usize), usize>,
    /// Links at each vertex, by the number of the other end.
    incident: Vec<Vec<usize>>,
    routes: Vec<Route>,
}

impl Overlay {
    pub(super) fn new(vertices: usize) -> Self {
        Self { incident: vec![Vec::new(); vertices], ..Self::default() }
    }

    pub(super) fn vertices(&self) -> usize {
        self.incident.len()
    }

    /// Number of links that there ever were.
    pub(super) fn links(&self) -> usize {
        self.ends.len()
    }

    /// Adds a physical arc.
    pub(super) fn add(&mut self, from: usize, to: usize, physical: usize, amount: i64) {
        let arc = self.arc_or_new(from, to);
        let route = self.routes.len();
        self.routes.push(Route::Arc(physical));
        self.capacities[arc] += amount;
        self.pieces[arc].push(Piece { amount, route });
    }

    /// How many times `unit` goes into the pieces of an arc.
    pub(super) fn whole(&self, arc: usize, unit: i64) -> i64 {
        self.pieces[arc].iter().map(|piece| piece.amount / unit).sum()
    }

    /// Adds the physical arcs of an arc of another graph in whole multiples of `unit`, `most` together; all of them as one
    /// where `unit` is greater than any.
    pub(super) fn add_whole(&mut self, other: &Self, arc: usize, unit: i64, mut most: i64) {
        for piece in &other.pieces[arc] {
            let amount = if unit == i64::MAX { most } else { most.min(piece.amount / unit) };
            if amount > 0 {
                for physical in other.physical(piece.route) {
                    self.add(other.tail(arc), other.head(arc), physical, amount);
                }
                most -= amount;
            }
        }
    }

    pub(super) fn capacity(&self, arc: usize) -> i64 {
        self.capacities[arc]
    }

    /// The vertex that an arc comes from.
    pub(super) fn tail(&self, arc: usize) -> usize {
        let (lesser, greater) = self.ends[arc / 2];
        if arc.is_multiple_of(2) { lesser } else { greater }
    }

    /// The vertex that an arc leads to.
    pub(super) fn head(&self, arc: usize) -> usize {
        self.tail(arc ^ 1)
    }

    /// The arcs that leave `vertex`, those without capacity too, by the number of their heads. Its entering arcs are these,
    /// each `^ 1`.
    pub(super) fn leaving(&self, vertex: usize) -> impl Iterator<Item = usize> + '_ {
        self.incident[vertex].iter().map(move |&link| 2 * link + usize::from(self.ends[link].0 != vertex))
    }

    /// Number of vertices that `vertex` has a link with.
    pub(super) fn degree(&self, vertex: usize) -> usize {
        self.incident[vertex].len()
    }

    /// The arc between two vertices, if they have ever had one.
    pub(super) fn arc(&self, from: usize, to: usize) -> Option<usize> {
        let link = self.links.get(&(from.min(to), from.max(to)))?;
        Some(2 * link + usize::from(from > to))
    }

    /// The arc between two different vertices.
    pub(super) fn arc_or_new(&mut self, from: usize, to: usize) -> usize {
        if let Some(arc) = self.arc(from, to) {
            self.attach(arc / 2);
            return arc;
        }
        let link = self.ends.len();
        self.ends.push((from.min(to), from.max(to)));
        self.links.insert((from.min(to), from.max(to)), link);
        self.capacities.extend([0, 0]);
        self.pieces.extend([Vec::new(), Vec::new()]);
        self.attach(link);
        2 * link + usize::from(from > to)
    }

    /// Lists a link at its ends, where it is not listed.
    fn attach(&mut self, link: usize) {
        let (lesser, greater) = self.ends[link];
        for (vertex, other) in [(lesser, greater), (greater, lesser)] {
            let ends = &self.ends;
            let far = |&link: &usize| if ends[link].0 == vertex { ends[link].1 } else { ends[link].0 };
            if let Err(place) = self.incident[vertex].binary_search_by_key(&other, far) {
                self.incident[vertex].insert(place, link);
            }
        }
    }

    /// Changes capacities for a split of `amount`, or takes it back where that is negative. Routes stay as they are until
    /// [`Overlay::join`].
    pub(super) fn shift(&mut self, entering: usize, leaving: usize, across: Option<usize>, amount: i64) {
        self.capacities[entering] -= amount;
        self.capacities[leaving] -= amount;
        if let Some(across) = across {
            self.capacities[across] += amount;
        }
    }

    /// Makes the pieces of a split for which capacities were shifted.
    pub(super) fn join(&mut self, entering: usize, leaving: usize, across: Option<usize>, amount: i64) {
        let (first, then) = (self.take(entering, amount), self.take(leaving, amount));
        let Some(across) = across else { return };
        let (mut first, mut then) = (first.into_iter().peekable(), then.into_iter().peekable());
        while let (Some(a), Some(b)) = (first.peek_mut(), then.peek_mut()) {
            let amount = a.amount.min(b.amount);
            let route = self.routes.len();
            self.routes.push(Route::Join(a.route, b.route));
            self.pieces[across].push(Piece { amount, route });
            a.amount -= amount;
            b.amount -= amount;
            let (a_done, b_done) = (a.amount == 0, b.amount == 0);
            first.next_if(|_| a_done);
            then.next_if(|_| b_done);
        }
    }

    /// A split of capacities and routes at once.
    pub(super) fn split(&mut self, entering: usize, leaving: usize, amount: i64) {
        let (from, to) = (self.tail(entering), self.head(leaving));
        let across = (from != to).then(|| self.arc_or_new(from, to));
        self.shift(entering, leaving, across, amount);
        self.join(entering, leaving, across, amount);
    }

    /// Takes pieces of an arc, the last ones first.
    fn take(&mut self, arc: usize, mut amount: i64) -> Vec<Piece> {
        let mut taken = Vec::new();
        while let Some(last) = self.pieces[arc].last_mut().filter(|_| amount > 0) {
            if last.amount > amount {
                last.amount -= amount;
                taken.push(Piece { amount, route: last.route });
                break;
            }
            amount -= last.amount;
            taken.extend(self.pieces[arc].pop());
        }
        taken
    }

    /// The pieces of an arc.
    pub(super) fn pieces(&self, arc: usize) -> &[Piece] {
        &self.pieces[arc]
    }

    /// Takes a vertex out of the graph, with all its arcs.
    pub(super) fn remove(&mut self, vertex: usize) {
        for link in std::mem::take(&mut self.incident[vertex]) {
            let (lesser, greater) = self.ends[link];
            let other = if lesser == vertex { greater } else { lesser };
            self.incident[other].retain(|&kept| kept != link);
            for arc in [2 * link, 2 * link + 1] {
                self.capacities[arc] = 0;
                self.pieces[arc].clear();
            }
        }
    }

    /// Takes links without capacity off the lists of `vertex` and of their other ends.
    pub(super) fn prune(&mut self, vertex: usize) {
        let (empty, kept): (Vec<usize>, Vec<usize>) = std::mem::take(&mut self.incident[vertex])
            .into_iter()
            .partition(|&link| self.capacities[2 * link] == 0 && self.capacities[2 * link + 1] == 0);
        self.incident[vertex] = kept;
        for link in empty {
            let (lesser, greater) = self.ends[link];
            let other = if lesser == vertex { greater } else { lesser };
            self.incident[other].retain(|&kept| kept != link);
        }
    }

    /// The physical arcs of a route, in their order.
    pub(super) fn physical(&self, route: usize) -> Vec<usize> {
        let mut arcs = Vec::new();
        let mut stack = vec![route];
        while let Some(route) = stack.pop() {
            match self.routes[route] {
                Route::Arc(arc) => arcs.push(arc),
                Route::Join(first, then) => stack.extend([then, first]),
            }
        }
        arcs
    }
}
