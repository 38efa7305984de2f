//! Which trees does a walk find, depth first, in what is left?
//!
//! Takahashi, Saito, Shibata and Taura ("A stable broadcast algorithm", CCGrid 2008) for any graph: walk depth first, at a
//! host branch for free, at a switch feed every branch but the first by a host that was reached below it, so that no arc is
//! used twice in a tree. Take the tree at the rate of its narrowest resource, and walk again over what is left.
//!
//! Where links are narrower towards the source than away from it, or hosts have budgets, the order of branches matters:
//! behind a host with a poor way out all get what it passes on. [`Order::Return`] enters first the branch with the widest way
//! there and back, so that those come last; other orders are sometimes better, and are offered. Each tree uses something up,
//! so there are at most as many trees as resources; a walk costs `O(V + E)` and the depth for each hop.

use super::super::packing::{Feeder, PackedTree, Packing};
use super::network::{self, Network};

/// Most hosts below a switch that are considered as feeders of its next branch.
const CARRIERS: usize = 12;
/// Most walks, times the lines of the network: about a second.
const WALKED_LINES: usize = 1_500_000;
/// Widths that are tried for each tree of few.
const WIDTHS: usize = 24;
/// A tree slower than this part of the fastest is rounding error.
const SLOWEST: f64 = 1e-9;

/// Which branch is entered first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The widest there and back.
    Return,
    /// The widest there.
    Wide,
    /// By name.
    Name,
}

/// All orders, the best one on average first.
pub(super) const ORDERS: [Order; 3] = [Order::Return, Order::Wide, Order::Name];

/// Trees by walks over what is `left`, until no walk reaches anybody; `left` is what they leave.
pub(super) fn pack(network: &Network<'_>, order: Order, left: &mut [f64]) -> Packing {
    let mut packing = Packing::default();
    let mut fastest: f64 = 0.0;
    // Each tree uses up a row.
    for _ in 0..network.left.len().min(WALKED_LINES / network.lines.len().max(1)).min(network.most_trees()) {
        let hops = Walk::new(network, order, left).hops();
        let Some(uses) = network.uses(&hops).filter(|uses| !uses.is_empty()) else { break };
        let rate = network::rate(&uses, left);
        fastest = fastest.max(rate);
        if rate <= SLOWEST * fastest {
            break;
        }
        network.take(&uses, rate, left);
        // The narrowest row is used up, whatever rounding says.
        for &(row, count) in &uses {
            if left[row] / count <= SLOWEST * rate {
                left[row] = 0.0;
            }
        }
        packing.trees.push(PackedTree { rate, hops });
    }
    packing
}

/// At most `most` trees, each the one that brings the most, whatever it leaves: of walks that keep to lines of a least width,
/// for several widths. Where trees are few, none can be spent on the slowest host alone.
pub(super) fn pack_few(network: &Network<'_>, order: Order, most: usize) -> Packing {
    let mut left = network.left.clone();
    let mut packing = Packing::default();
    for _ in 0..most.min(WALKED_LINES / (WIDTHS * network.lines.len()).max(1)) {
        let trees = network.widths(&left, WIDTHS).into_iter().filter_map(|least| {
            let hops = Walk { least, ..Walk::new(network, order, &left) }.hops();
            let uses = network.uses(&hops).filter(|uses| !uses.is_empty())?;
            let rate = network::rate(&uses, &left);
            Some((uses, PackedTree { rate, hops }))
        });
        let best = trees.reduce(|a, b| if b.1.brings() > a.1.brings() { b } else { a });
        let Some((uses, tree)) = best else { break };
        if tree.rate <= 0.0 {
            break;
        }
        network.take(&uses, tree.rate, &mut left);
        packing.trees.push(tree);
    }
    packing
}

/// A host that has the data, and the lines from it to where the walk is.
type Carrier = (usize, Vec<usize>);

/// A vertex on the way of the walk.
struct Frame {
    /// The line into it.
    entered_by: Option<usize>,
    /// Whether the vertex has the data.
    has_data: bool,
    /// Lines out of it, the last one next.
    branches: Vec<usize>,
    /// Who would bring the data here, where nobody below has it yet.
    pending: Option<Carrier>,
    /// Hosts in the walk below that have the data, with their way up to here.
    carriers: Vec<Carrier>,
}

/// One walk.
struct Walk<'n> {
    network: &'n Network<'n>,
    order: Order,
    left: &'n [f64],
    /// Narrower lines are not used.
    least: f64,
    seen: Vec<bool>,
    used: Vec<bool>,
    hops: Vec<Feeder>,
}

impl<'n> Walk<'n> {
    fn new(network: &'n Network<'n>, order: Order, left: &'n [f64]) -> Self {
        let (seen, used) = (vec![false; network.leaving.len()], vec![false; network.lines.len()]);
        Self { network, order, left, least: f64::MIN_POSITIVE, seen, used, hops: Vec::new() }
    }

    /// The hops of the tree that the walk finds.
    fn hops(mut self) -> Vec<Feeder> {
        let mut frames = vec![self.enter(self.network.terminals[0], None, None)];
        while let Some(frame) = frames.last_mut() {
            let Some(line) = frame.branches.pop() else {
                let done = frames.pop();
                if let Some((done, above)) = done.zip(frames.last_mut()) {
                    self.leave(done, above);
                }
                continue;
            };
            let to = self.network.lines[line].to;
            if self.seen[to] || !self.open(line) {
                continue;
            }
            if let Some((feeder, mut way)) = self.feeder(frame) {
                way.push(line);
                let entered = self.enter(to, Some(line), Some((feeder, way)));
                frames.push(entered);
            }
        }
        self.hops
    }

    /// Whether a line has enough left and is not used in this tree.
    fn open(&self, line: usize) -> bool {
        !self.used[line] && self.network.width(line, self.left) >= self.least
    }

    fn enter(&mut self, vertex: usize, entered_by: Option<usize>, brought: Option<Carrier>) -> Frame {
        self.seen[vertex] = true;
        let terminal = self.network.terminal_of[vertex];
        let disk = self.network.disk[vertex].map_or(f64::INFINITY, |row| self.left[row]);
        let takes = terminal.filter(|_| brought.is_none() || disk > 0.0);
        let mut frame = Frame {
            entered_by,
            has_data: takes.is_some(),
            branches: self.branches(vertex),
            pending: None,
            carriers: takes.map(|terminal| (terminal, Vec::new())).into_iter().collect(),
        };
        match (takes, brought) {
            (Some(to), Some((from, way))) => {
                for &line in &way {
                    self.used[line] = true;
                }
                self.hops.push(self.network.hop(from, to, &way));
            }
            (_, brought) => frame.pending = brought,
        }
        frame
    }

    /// The lines out of a vertex, the one to enter first at the end.
    fn branches(&self, vertex: usize) -> Vec<usize> {
        let mut branches = self.network.leaving[vertex].clone();
        let width = |line: usize| self.network.width(line, self.left);
        let there_and_back = |line: usize| width(line).min(self.network.reverse[line].map_or(0.0, width));
        // Stable: lines are in the order of their heads.
        match self.order {
            Order::Return => branches.sort_by(|&a, &b| there_and_back(b).total_cmp(&there_and_back(a))),
            Order::Wide => branches.sort_by(|&a, &b| width(b).total_cmp(&width(a))),
            Order::Name => {}
        }
        branches.reverse();
        branches
    }

    /// Who feeds the next branch of a vertex, and the way to it: itself, or the host below with the widest way up, or
    /// whoever would have brought the data here.
    fn feeder(&self, frame: &Frame) -> Option<Carrier> {
        let open = |(_, way): &&Carrier| way.iter().all(|&line| self.open(line));
        if frame.carriers.is_empty() {
            return frame.pending.as_ref().filter(open).cloned();
        }
        let carriers = frame.carriers.iter().filter(open);
        carriers.reduce(|a, b| if self.width(&b.1) > self.width(&a.1) { b } else { a }).cloned()
    }

    fn width(&self, way: &[usize]) -> f64 {
        way.iter().map(|&line| self.network.width(line, self.left)).fold(f64::INFINITY, f64::min)
    }

    /// What was reached below can feed the other branches of the switch above.
    fn leave(&self, done: Frame, above: &mut Frame) {
        let up = done.entered_by.and_then(|line| self.network.reverse[line]);
        let Some(up) = up.filter(|&up| !above.has_data && self.open(up)) else { return };
        above.carriers.extend(done.carriers.into_iter().map(|(host, mut way)| {
            way.push(up);
            (host, way)
        }));
        above.carriers.sort_by(|(_, a), (_, b)| self.width(b).total_cmp(&self.width(a)));
        above.carriers.truncate(CARRIERS);
    }
}

#[cfg(test)]
mod tests;
