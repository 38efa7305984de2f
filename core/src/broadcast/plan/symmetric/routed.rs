//! Over which physical links does each hop run, and where do the hosts that were left out join?
//!
//! An arc between two hosts stands for one or several routes, each with its share of the capacity. Trees take these shares
//! in their order; a tree that would straddle two is cut into two trees. Each share cuts at most one tree, so the number of
//! trees stays linear. Riders are then put into trees as [`super::reduce`] shows, the last one taken out first.

use std::cmp::Reverse;

use super::super::packing::{Feeder, PackedTree};
use super::arborescences::{NOBODY, Tree};
use super::model::Model;
use super::overlay::{Overlay, Piece};
use super::reduce::{Anchor, Rider};

/// A tree with its routes.
#[derive(Clone, Debug, Default)]
pub(super) struct Routed {
    pub(super) rate: i64,
    /// By vertex who feeds it.
    pub(super) parents: Vec<usize>,
    /// By vertex the number of the route by which it is fed.
    routes: Vec<usize>,
    /// By switch a host whose route passes it.
    pub(super) passes: Vec<usize>,
}

/// All trees of a packing.
#[derive(Clone, Debug)]
pub(super) struct Forest<'a> {
    model: &'a Model,
    pub(super) trees: Vec<Routed>,
    /// Physical arcs.
    routes: Vec<Vec<usize>>,
}

impl<'a> Forest<'a> {
    /// Trees over the arcs of `overlay`, which they keep to. None if they do not.
    pub(super) fn new(model: &'a Model, overlay: &Overlay, trees: &[Tree]) -> Option<Self> {
        let mut forest = Self { model, trees: Vec::new(), routes: Vec::new() };
        let mut shares: Vec<Shares> =
            (0..2 * overlay.links()).map(|arc| Shares::of(overlay.pieces(arc))).collect();
        for tree in trees {
            let fed = (0..tree.parents.len()).filter(|&host| tree.parents[host] != NOBODY);
            let hops: Vec<(usize, usize)> = fed
                .map(|host| Some((host, overlay.arc(tree.parents[host], host)?)))
                .collect::<Option<_>>()?;
            let mut missing = tree.rate;
            while missing > 0 {
                let rate = hops.iter().map(|&(_, arc)| shares[arc].left()).fold(missing, i64::min);
                if rate <= 0 {
                    return None;
                }
                let mut routed = forest.empty(rate);
                for &(host, arc) in &hops {
                    let route = forest.simple(tree.parents[host], overlay.physical(shares[arc].take(rate)?));
                    forest.feed(&mut routed, tree.parents[host], host, route);
                }
                forest.trees.push(routed);
                missing -= rate;
            }
        }
        Some(forest)
    }

    /// A tree of a rate that nobody is in yet.
    pub(super) fn with_empty_tree(model: &'a Model, rate: i64) -> Self {
        let mut forest = Self { model, trees: Vec::new(), routes: Vec::new() };
        forest.trees.push(forest.empty(rate));
        forest
    }

    /// Takes in all trees of another forest over the same network.
    pub(super) fn append(&mut self, other: Self) {
        let shift = self.routes.len();
        self.routes.extend(other.routes);
        for mut tree in other.trees {
            let fed = tree.routes.iter_mut().filter(|route| **route != NOBODY);
            fed.for_each(|route| *route += shift);
            self.trees.push(tree);
        }
    }

    fn empty(&self, rate: i64) -> Routed {
        let none = vec![NOBODY; self.model.names.len()];
        Routed { rate, parents: none.clone(), routes: none.clone(), passes: none }
    }

    /// The route without the loops in it.
    fn simple(&self, from: usize, route: Vec<usize>) -> Vec<usize> {
        let mut simple: Vec<usize> = Vec::with_capacity(route.len());
        for arc in route {
            simple.push(arc);
            let head = self.model.heads[arc];
            if head == from {
                simple.clear();
            } else if let Some(place) = simple.iter().position(|&arc| self.model.heads[arc] == head) {
                simple.truncate(place + 1);
            }
        }
        simple
    }

    /// The physical arcs of the hop that feeds `host`; none where it is not in the tree.
    pub(super) fn route(&self, tree: &Routed, host: usize) -> &[usize] {
        self.routes.get(tree.routes[host]).map_or(&[], Vec::as_slice)
    }

    /// Makes `from` feed `to`.
    fn feed(&mut self, tree: &mut Routed, from: usize, to: usize, route: Vec<usize>) {
        if let Some((_, before)) = route.split_last() {
            for &arc in before {
                tree.passes[self.model.heads[arc]] = to;
            }
        }
        tree.parents[to] = from;
        tree.routes[to] = self.routes.len();
        self.routes.push(route);
    }

    /// Puts a rider into trees, as many as it can take; what it still misses then.
    pub(super) fn ride(&mut self, rider: &Rider) -> i64 {
        let mut missing = rider.rate;
        let mut doors: Vec<Door<'_>> = rider.anchors.iter().map(Door::new).collect();
        // Trees that pass only one of its switches come first; the others can use either.
        for several in [false, true] {
            let mut index = 0;
            while index < self.trees.len() && missing > 0 {
                let door = self.door(rider.host, index, &doors, several);
                if let Some(door) = door {
                    let rate = doors[door].left().min(missing).min(self.trees[index].rate);
                    self.cut(index, rate);
                    self.join(index, rider.host, &mut doors[door]);
                    missing -= rate;
                }
                index += 1;
            }
        }
        for door in doors.iter_mut().filter(|door| door.anchor.vertex == self.model.source) {
            while missing > 0 && door.left() > 0 {
                let rate = door.left().min(missing);
                let tree = self.empty(rate);
                self.trees.push(tree);
                self.join(self.trees.len() - 1, rider.host, door);
                missing -= rate;
            }
        }
        missing
    }

    /// Where the host can join this tree: the widest of its doors.
    fn door(&self, host: usize, tree: usize, doors: &[Door<'_>], several: bool) -> Option<usize> {
        let tree = &self.trees[tree];
        if tree.parents[host] != NOBODY {
            return None;
        }
        let passes = |door: &Door<'_>| {
            let vertex = door.anchor.vertex;
            let list = if door.anchor.stores { &tree.parents } else { &tree.passes };
            list[vertex] != NOBODY || vertex == self.model.source
        };
        let open: Vec<usize> = (0..doors.len()).filter(|&door| passes(&doors[door])).collect();
        if open.len() > 1 && !several {
            return None;
        }
        let open = open.into_iter().filter(|&door| doors[door].left() > 0);
        open.max_by_key(|&door| (doors[door].all_left(), Reverse(door)))
    }

    /// Cuts a tree so that this one has `rate`; the rest follows it.
    pub(super) fn cut(&mut self, index: usize, rate: i64) {
        if self.trees[index].rate > rate {
            let mut rest = self.trees[index].clone();
            rest.rate -= rate;
            self.trees[index].rate = rate;
            self.trees.insert(index + 1, rest);
        }
    }

    /// Puts the host into a tree that passes its door.
    fn join(&mut self, index: usize, host: usize, door: &mut Door<'_>) {
        let (inward, outward) = door.take(self.trees[index].rate);
        self.hang(index, host, door.anchor.vertex, inward, outward);
    }

    /// Puts `host` into a tree: fed by `anchor`, or where that only forwards (or is the host itself), before the host whose
    /// route passes it, with `outward` leading back.
    pub(super) fn hang(
        &mut self,
        index: usize,
        host: usize,
        anchor: usize,
        inward: &[usize],
        outward: &[usize],
    ) {
        let mut tree = std::mem::take(&mut self.trees[index]);
        if anchor != host && self.model.stores(anchor) {
            self.feed(&mut tree, anchor, host, inward.to_vec());
        } else {
            let next = tree.passes[anchor];
            let route = &self.routes[tree.routes[next]];
            let place = route.iter().position(|&arc| self.model.heads[arc] == anchor);
            let (before, after) = route.split_at(place.map_or(0, |place| place + 1));
            let from = tree.parents[next];
            let first = self.simple(from, [before, inward].concat());
            let then = self.simple(host, [outward, after].concat());
            self.feed(&mut tree, from, host, first);
            self.feed(&mut tree, host, next, then);
        }
        self.trees[index] = tree;
    }

    /// The trees in Mbit/s, hops in the order of feeding, neighbours that are alike as one.
    pub(super) fn packed(&self) -> Vec<PackedTree> {
        let mut packed: Vec<PackedTree> = Vec::with_capacity(self.trees.len());
        let mut children = vec![Vec::new(); self.model.names.len()];
        for tree in &self.trees {
            children.iter_mut().for_each(Vec::clear);
            for (host, &parent) in
                tree.parents.iter().enumerate().rev().filter(|(_, parent)| **parent != NOBODY)
            {
                children[parent].push(host);
            }
            let mut hops = Vec::new();
            let mut stack = children[self.model.source].clone();
            while let Some(host) = stack.pop() {
                hops.push(Feeder {
                    from: self.model.names[tree.parents[host]],
                    to: self.model.names[host],
                    route: self.routes[tree.routes[host]].clone(),
                });
                stack.extend(&children[host]);
            }
            let rate = tree.rate as f64 / self.model.units_per_mbps;
            match packed.last_mut().filter(|last| last.hops == hops) {
                Some(last) => last.rate += rate,
                None => packed.push(PackedTree { rate, hops }),
            }
        }
        packed
    }
}

/// The shares of an arc that are not yet taken.
#[derive(Debug)]
struct Shares<'a> {
    pieces: &'a [Piece],
    taken: i64,
}

impl<'a> Shares<'a> {
    fn of(pieces: &'a [Piece]) -> Self {
        Self { pieces, taken: 0 }
    }

    /// What is left of the first one.
    fn left(&self) -> i64 {
        self.pieces.first().map_or(0, |piece| piece.amount - self.taken)
    }

    /// Takes from the first one; its route.
    fn take(&mut self, amount: i64) -> Option<usize> {
        let (first, others) = self.pieces.split_first()?;
        self.taken += amount;
        if self.taken >= first.amount {
            (self.pieces, self.taken) = (others, 0);
        }
        Some(first.route)
    }
}

/// The link of a rider to one neighbour, as far as it is not yet used.
#[derive(Debug)]
struct Door<'a> {
    anchor: &'a Anchor,
    inward: Lane<'a>,
    outward: Lane<'a>,
}

/// One direction of it.
#[derive(Debug)]
struct Lane<'a> {
    routes: &'a [(i64, Vec<usize>)],
    taken: i64,
}

impl<'a> Door<'a> {
    fn new(anchor: &'a Anchor) -> Self {
        let lane = |routes: &'a Vec<(i64, Vec<usize>)>| Lane { routes, taken: 0 };
        Self { anchor, inward: lane(&anchor.inward), outward: lane(&anchor.outward) }
    }

    /// What the next routes can carry; those out are needed where the neighbour only forwards.
    fn left(&self) -> i64 {
        let inward = self.inward.left();
        if self.anchor.stores { inward } else { inward.min(self.outward.left()) }
    }

    fn all_left(&self) -> i64 {
        self.inward.routes.iter().map(|(amount, _)| amount).sum::<i64>() - self.inward.taken
    }

    /// The routes in and out, used at a rate.
    fn take(&mut self, rate: i64) -> (&'a [usize], &'a [usize]) {
        let inward = self.inward.take(rate);
        let outward = if self.anchor.stores { &[] } else { self.outward.take(rate) };
        (inward, outward)
    }
}

impl<'a> Lane<'a> {
    fn left(&self) -> i64 {
        self.routes.first().map_or(0, |(amount, _)| amount - self.taken)
    }

    fn take(&mut self, rate: i64) -> &'a [usize] {
        let Some(((amount, route), others)) = self.routes.split_first() else { return &[] };
        self.taken += rate;
        if self.taken >= *amount {
            (self.routes, self.taken) = (others, 0);
        }
        route
    }
}
