//! Can this much be split off a vertex while every target keeps its max-flow?
//!
//! Splitting `u -> w -> t` changes only the cuts that separate `w` from both `u` and `t`, and each of these by exactly the
//! amount split. So the greatest amount is the capacity of the two arcs less the worst deficit that this would leave.
//! A max-flow to every target for every pair of arcs would be far too slow; instead one flow for each target, of the value
//! that it has to keep, is held through all splits. A flow that still fits costs two comparisons. One that does not is
//! moved: what it sent along both arcs goes across; what remains is too much on one of the two arcs, `a -> b`, and is sent
//! from `a` to `b` another way by augmenting paths.
//!
//! Claim: what cannot be sent another way is the deficit of that target. Proof: let `A` be what the last search from `a`
//! reaches; the target counts as joined to the source, since more may arrive than must. All arcs that leave `A` are full in
//! the flow. Where `A` has both or none of the source and the target, as much enters it as leaves it in the flow but for the
//! excess at `a`, and the capacities into and out of `A` are equal (they are at each vertex, and splits keep that): the
//! excess is none. Otherwise `A` has the source and not the target, and the cut at `A` carries the value to be kept less
//! the excess. (In- and out-capacity of the source and of every other vertex are equal throughout.)
//!
//! Memory: one number for each link and target. Time: for each pair of arcs O(targets), and O(links) for each augmentation.

use std::collections::VecDeque;

use super::overlay::Overlay;

/// A flow from the source to each target.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    source: usize,
    /// Those that must keep their max-flow.
    targets: Vec<usize>,
    /// Value of each flow beyond what must be kept.
    surplus: Vec<i64>,
    /// By link, then target: net flow along the even arc of the link.
    net: Vec<Vec<i64>>,
    /// The target that was last in the way of a split.
    blocker: usize,
    search: Search,
}

/// What a breadth-first search needs, kept from one to the next.
#[derive(Clone, Debug, Default)]
struct Search {
    /// Number of the search that last reached each vertex.
    reached: Vec<u32>,
    /// The arc that it was reached by; none by the way from the target to the source, and back.
    by: Vec<Option<usize>>,
    from: Vec<usize>,
    number: u32,
    queue: VecDeque<usize>,
}

impl Flows {
    /// Flows over `overlay` to each target, up to the rate that it wants; and the targets with the values that they get, the
    /// greatest first.
    pub(super) fn new(
        overlay: &Overlay,
        source: usize,
        wanted: &[(usize, i64)],
    ) -> (Self, Vec<(usize, i64)>) {
        let vertices = overlay.vertices();
        let search = Search {
            reached: vec![0; vertices],
            by: vec![None; vertices],
            from: vec![0; vertices],
            ..Search::default()
        };
        let mut flows = Self {
            source,
            targets: wanted.iter().map(|&(host, _)| host).collect(),
            surplus: vec![0; wanted.len()],
            net: vec![vec![0; wanted.len()]; overlay.links()],
            blocker: 0,
            search,
        };
        let mut targets = Vec::with_capacity(wanted.len());
        for (target, &(host, rate)) in wanted.iter().enumerate() {
            let mut value = 0;
            while let Some(sent) = (value < rate)
                .then(|| flows.augment(overlay, target, source, host, rate - value, false))
                .flatten()
            {
                value += sent;
            }
            targets.push((host, value));
        }
        flows.sort(&mut targets);
        (flows, targets)
    }

    /// Orders targets by descending value, where rounding has left them in another order than that wanted.
    fn sort(&mut self, targets: &mut [(usize, i64)]) {
        let mut order: Vec<usize> = (0..targets.len()).collect();
        order.sort_by_key(|&target| -targets[target].1);
        if order.is_sorted() {
            return;
        }
        let before = targets.to_vec();
        for (place, &target) in order.iter().enumerate() {
            targets[place] = before[target];
            self.targets[place] = before[target].0;
        }
        for row in &mut self.net {
            *row = order.iter().map(|&target| row[target]).collect();
        }
    }

    /// The last target need not be reached any more.
    pub(super) fn forget_last(&mut self) {
        self.targets.pop();
    }

    /// Splits as much of `entering` and `leaving` as possible: capacities and flows, not routes. Gives the amount, and the
    /// arc that got it.
    pub(super) fn split(
        &mut self,
        overlay: &mut Overlay,
        entering: usize,
        leaving: usize,
    ) -> (i64, Option<usize>) {
        let mut amount = overlay.capacity(entering).min(overlay.capacity(leaving));
        let (from, to) = (overlay.tail(entering), overlay.head(leaving));
        if amount <= 0 {
            return (0, None);
        }
        let across = (from != to).then(|| overlay.arc_or_new(from, to));
        self.net.resize_with(overlay.links(), || vec![0; self.surplus.len()]);
        overlay.shift(entering, leaving, across, amount);
        let pair = Pair { entering, leaving, across };
        let mut moved = Vec::new();
        for target in self.clashes(overlay, pair) {
            let deficit = self.fit(overlay, pair, target);
            moved.push(target);
            if deficit > 0 {
                self.blocker = target;
                amount -= deficit;
                overlay.shift(entering, leaving, across, -deficit);
                self.give_back(overlay, pair, &moved);
            }
            if amount == 0 {
                break;
            }
        }
        (amount, across)
    }

    /// Targets whose flow does not fit any more; the last one that was in the way comes first.
    fn clashes(&self, overlay: &Overlay, pair: Pair) -> Vec<usize> {
        let row = |arc: usize| (&self.net[arc / 2][..self.targets.len()], sign(arc), overlay.capacity(arc));
        let (first, first_sign, first_capacity) = row(pair.entering);
        let (then, then_sign, then_capacity) = row(pair.leaving);
        let both = first.iter().zip(then).enumerate();
        let clash =
            both.filter(|(_, (a, b))| **a * first_sign > first_capacity || **b * then_sign > then_capacity);
        let mut targets: Vec<usize> = clash.map(|(target, _)| target).collect();
        if let Some(place) = targets.iter().position(|&target| target == self.blocker) {
            targets.swap(0, place);
        }
        targets
    }

    /// Makes the flow to one target fit after a shift; what it lacks then.
    fn fit(&mut self, overlay: &Overlay, pair: Pair, target: usize) -> i64 {
        let excess = |flows: &Self, arc: usize| (flows.along(arc, target) - overlay.capacity(arc)).max(0);
        let (first, then) = (excess(self, pair.entering), excess(self, pair.leaving));
        if let Some(across) = pair.across {
            let both = first.min(then);
            self.push(pair.entering, target, -both);
            self.push(pair.leaving, target, -both);
            self.push(across, target, both);
        }
        for arc in [pair.entering, pair.leaving] {
            let mut more = excess(self, arc);
            let (from, to) = (overlay.tail(arc), overlay.head(arc));
            while more > 0 {
                let Some(sent) = self.augment(overlay, target, from, to, more, true) else { return more };
                self.push(arc, target, -sent);
                more -= sent;
            }
        }
        0
    }

    /// After a shift was taken back in part: what no longer fits across goes along both arcs again.
    fn give_back(&mut self, overlay: &Overlay, pair: Pair, targets: &[usize]) {
        let Some(across) = pair.across else { return };
        for &target in targets {
            let excess = self.along(across, target) - overlay.capacity(across);
            if excess > 0 {
                self.push(pair.entering, target, excess);
                self.push(pair.leaving, target, excess);
                self.push(across, target, -excess);
            }
        }
    }

    fn along(&self, arc: usize, target: usize) -> i64 {
        self.net[arc / 2][target] * sign(arc)
    }

    fn push(&mut self, arc: usize, target: usize, amount: i64) {
        self.net[arc / 2][target] += amount * sign(arc);
    }

    /// Sends up to `most` from `from` to `to` along one shortest way over what the flow to `target` leaves; with `around`
    /// the target leads to the source, and back as far as more arrives than must. None where there is no way.
    fn augment(
        &mut self,
        overlay: &Overlay,
        target: usize,
        from: usize,
        to: usize,
        most: i64,
        around: bool,
    ) -> Option<i64> {
        if !self.reach(overlay, target, from, to, around) {
            return None;
        }
        let mut way = Vec::new();
        let (mut sent, mut vertex, mut beyond) = (most, to, 0);
        while vertex != from {
            match self.search.by[vertex] {
                Some(arc) => {
                    sent = sent.min(overlay.capacity(arc) - self.along(arc, target));
                    way.push(arc);
                }
                None if vertex == self.source => beyond = 1,
                None => {
                    sent = sent.min(self.surplus[target]);
                    beyond = -1;
                }
            }
            vertex = self.search.from[vertex];
        }
        for arc in way {
            self.push(arc, target, sent);
        }
        self.surplus[target] += beyond * sent;
        Some(sent)
    }

    /// Whether `to` can be reached.
    fn reach(&mut self, overlay: &Overlay, target: usize, from: usize, to: usize, around: bool) -> bool {
        let sink = self.targets[target];
        let Search { reached, by, from: before, number, queue } = &mut self.search;
        *number += 1;
        queue.clear();
        queue.push_back(from);
        reached[from] = *number;
        while let Some(vertex) = queue.pop_front() {
            let beyond = match vertex {
                _ if !around => None,
                _ if vertex == sink => Some(self.source),
                _ if vertex == self.source && self.surplus[target] > 0 => Some(sink),
                _ => None,
            };
            if let Some(next) = beyond.filter(|&next| reached[next] != *number) {
                (reached[next], by[next], before[next]) = (*number, None, vertex);
                queue.push_back(next);
            }
            for arc in overlay.leaving(vertex) {
                let next = overlay.head(arc);
                let left = overlay.capacity(arc) - self.net[arc / 2][target] * sign(arc);
                if left > 0 && reached[next] != *number {
                    (reached[next], by[next], before[next]) = (*number, Some(arc), vertex);
                    queue.push_back(next);
                }
            }
            if reached[to] == *number {
                return true;
            }
        }
        false
    }
}

/// The arcs of a split.
#[derive(Clone, Copy, Debug)]
struct Pair {
    entering: usize,
    leaving: usize,
    across: Option<usize>,
}

fn sign(arc: usize) -> i64 {
    if arc.is_multiple_of(2) { 1 } else { -1 }
}
