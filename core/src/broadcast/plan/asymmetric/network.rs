//! What does a way cost, and which way is best? The network as those see it who plan by prices.
//!
//! Vertices, arcs and resources are numbered by name, so that nothing depends on the order of a file. Of an arc those
//! resources matter that can run out: itself, what its tail may send, what its head may receive, both their totals; at the
//! end of a way also the disk of the host there. A way may lead through hosts, which then forward as a switch does.
//!
//! Cheapest and widest ways by Dijkstra's algorithm (1959), `O(E log V)` each; of equal ways the one with fewest arcs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::super::packing::{self, Feeder, Packing};
use super::super::problem::Problem;
use super::super::sharing::Resource;

/// Less than this part of a resource is nothing: rounding errors of sums.
const NOTHING: f64 = 1e-12;

/// Costs and widths that order as numbers do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ordered(pub(super) f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// One direction of a link that has something left.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Its number in the graph.
    pub(super) arc: usize,
    /// Vertices, as numbered here.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Rows that it uses, once each.
    pub(super) rows: Vec<usize>,
}

/// The network of a problem.
#[derive(Clone, Debug)]
pub(super) struct Network<'a> {
    pub(super) problem: &'a Problem<'a>,
    /// What is left of each resource that can run out, Mbit/s.
    pub(super) left: Vec<f64>,
    pub(super) lines: Vec<Line>,
    /// Lines that start at each vertex, by their heads.
    pub(super) leaving: Vec<Vec<usize>>,
    /// The row of the disk of each vertex.
    pub(super) disk: Vec<Option<usize>>,
    /// The source, then the destinations by name, as vertices here.
    pub(super) terminals: Vec<usize>,
    /// Per vertex here which terminal it is.
    pub(super) terminal_of: Vec<Option<usize>>,
    /// The same by vertex of the graph.
    terminal_of_host: Vec<Option<usize>>,
    /// The line the other way on the same link.
    pub(super) reverse: Vec<Option<usize>>,
    rows: BTreeMap<Resource, usize>,
}

impl<'a> Network<'a> {
    pub(super) fn new(problem: &'a Problem<'a>) -> Self {
        let graph = problem.graph;
        let mut by_name: Vec<usize> = (0..graph.vertices()).collect();
        by_name.sort_by(|&a, &b| graph.name(a).cmp(graph.name(b)));
        let mut rank = vec![0; graph.vertices()];
        for (position, &vertex) in by_name.iter().enumerate() {
            rank[vertex] = position;
        }
        let left = |resource| problem.capacities.left(resource);
        let mut arcs: Vec<usize> = (0..graph.arcs().len()).collect();
        let order = |&arc: &usize| (rank[graph.arcs()[arc].from], rank[graph.arcs()[arc].to]);
        arcs.sort_by(|a, b| {
            // Of parallel links the widest comes first, there and then back.
            let wider = |a: usize, b: usize| left(Resource::Arc(b)).total_cmp(&left(Resource::Arc(a)));
            order(a).cmp(&order(b)).then(wider(*a, *b)).then(wider(a ^ 1, b ^ 1))
        });
        let mut network = Self {
            problem,
            left: Vec::new(),
            lines: Vec::new(),
            leaving: vec![Vec::new(); graph.vertices()],
            disk: vec![None; graph.vertices()],
            terminals: Vec::new(),
            terminal_of: vec![None; graph.vertices()],
            terminal_of_host: vec![None; graph.vertices()],
            reverse: Vec::new(),
            rows: BTreeMap::new(),
        };
        let useful = useful(problem);
        arcs.retain(|&arc| useful[graph.arcs()[arc].from] && useful[graph.arcs()[arc].to]);
        for arc in arcs {
            let (from, to) = (graph.arcs()[arc].from, graph.arcs()[arc].to);
            let used = [
                Resource::Arc(arc),
                Resource::Send(from),
                Resource::Total(from),
                Resource::Receive(to),
                Resource::Total(to),
            ];
            if used.iter().all(|&resource| left(resource) > 0.0) {
                let rows = used.iter().filter_map(|&resource| network.row(resource)).collect();
                network.leaving[rank[from]].push(network.lines.len());
                network.lines.push(Line { arc, from: rank[from], to: rank[to], rows });
            }
        }
        for &host in std::iter::once(&problem.source).chain(&problem.destinations) {
            network.terminal_of[rank[host]] = Some(network.terminals.len());
            network.terminal_of_host[host] = Some(network.terminals.len());
            network.terminals.push(rank[host]);
            network.disk[rank[host]] = network.row(Resource::Disk(host));
        }
        let line_of: BTreeMap<usize, usize> =
            network.lines.iter().enumerate().map(|(line, Line { arc, .. })| (*arc, line)).collect();
        network.reverse = network.lines.iter().map(|line| line_of.get(&(line.arc ^ 1)).copied()).collect();
        network
    }

    /// The source and the destinations.
    pub(super) fn size(&self) -> usize {
        self.terminals.len()
    }

    /// The vertex of the graph that a terminal is.
    pub(super) fn host(&self, terminal: usize) -> usize {
        match terminal.checked_sub(1) {
            Some(destination) => self.problem.destinations[destination],
            None => self.problem.source,
        }
    }

    /// What a tree uses of each row per Mbit/s; none if it uses something of which nothing is left.
    pub(super) fn uses(&self, hops: &[Feeder]) -> Option<Vec<(usize, f64)>> {
        let used = packing::used(self.problem.graph, hops);
        let uses =
            used.into_iter().map(|(resource, count)| Some((*self.rows.get(&resource)?, f64::from(count))));
        let mut uses: Vec<_> = uses.collect::<Option<_>>()?;
        uses.sort_by_key(|(row, _)| *row);
        Some(uses)
    }

    /// A hop along lines.
    pub(super) fn hop(&self, from: usize, to: usize, lines: &[usize]) -> Feeder {
        let route = lines.iter().map(|&line| self.lines[line].arc).collect();
        Feeder { from: self.host(from), to: self.host(to), route }
    }

    /// The least that is left of what a line uses.
    pub(super) fn width(&self, line: usize, left: &[f64]) -> f64 {
        self.lines[line].rows.iter().map(|&row| left[row]).fold(f64::INFINITY, f64::min)
    }

    /// At most `count` widths of lines, the least and the greatest among them, evenly spread over all.
    pub(super) fn widths(&self, left: &[f64], count: usize) -> Vec<f64> {
        let widths = (0..self.lines.len()).map(|line| self.width(line, left));
        let mut widths: Vec<f64> = widths.filter(|width| *width > 0.0 && width.is_finite()).collect();
        widths.sort_by(f64::total_cmp);
        widths.dedup();
        let last = widths.len().saturating_sub(1);
        let mut spread: Vec<usize> = (0..count).map(|index| index * last / (count - 1).max(1)).collect();
        spread.dedup();
        spread.into_iter().filter_map(|index| widths.get(index).copied()).collect()
    }

    /// So many trees to all are as much as a plan may be.
    pub(super) fn most_trees(&self) -> usize {
        packing::most_nested(self.size())
    }

    /// Takes what a tree at `rate` uses. What rounding would leave of a row is nothing.
    pub(super) fn take(&self, uses: &[(usize, f64)], rate: f64, left: &mut [f64]) {
        for &(row, count) in uses {
            left[row] -= rate * count;
            if left[row] <= NOTHING * self.left[row] {
                left[row] = 0.0;
            }
        }
    }

    /// What each terminal receives of packed trees.
    pub(super) fn received(&self, packing: &Packing) -> Vec<f64> {
        let received = packing.received();
        let of = |terminal: usize| received.get(&self.host(terminal)).copied().unwrap_or(0.0);
        (0..self.size()).map(of).collect()
    }

    /// What packed trees leave.
    pub(super) fn left_by(&self, packing: &Packing) -> Vec<f64> {
        let mut left = self.left.clone();
        for tree in &packing.trees {
            if let Some(uses) = self.uses(&tree.hops) {
                self.take(&uses, tree.rate, &mut left);
            }
        }
        left
    }

    /// Which terminal a host is.
    pub(super) fn terminal(&self, host: usize) -> Option<usize> {
        self.terminal_of_host.get(host).copied().flatten()
    }

    /// Cheapest ways from a terminal when a unit of each row costs `prices`, and a line `toll` besides.
    pub(super) fn cheapest(&self, from: usize, prices: &[f64], toll: f64) -> Ways {
        let cost = |line: &Line| line.rows.iter().map(|&row| prices[row]).sum::<f64>() + toll;
        let mut ways = self.ways(&[from], 0.0, |so_far, line| so_far + cost(line));
        for (vertex, disk) in self.disk.iter().enumerate() {
            ways.cost[vertex] += disk.map_or(0.0, |row| prices[row]);
        }
        ways
    }

    /// Widest ways from the nearest of some terminals over what is `left`; costs are widths, negative.
    pub(super) fn widest(&self, from: &[usize], left: &[f64]) -> Ways {
        let width = |line: &Line| line.rows.iter().map(|&row| left[row]).fold(f64::INFINITY, f64::min);
        let mut ways = self.ways(from, f64::NEG_INFINITY, |so_far: f64, line| {
            let narrowest = so_far.max(-width(line));
            if narrowest < 0.0 { narrowest } else { f64::INFINITY }
        });
        for (vertex, disk) in self.disk.iter().enumerate() {
            ways.cost[vertex] = disk.map_or(ways.cost[vertex], |row| ways.cost[vertex].max(-left[row]));
        }
        ways
    }

    fn ways(&self, from: &[usize], start: f64, extend: impl Fn(f64, &Line) -> f64) -> Ways {
        let vertices = self.leaving.len();
        let mut ways = Ways { cost: vec![f64::INFINITY; vertices], line: vec![None; vertices] };
        let mut best = vec![(Ordered(f64::INFINITY), u32::MAX); vertices];
        let mut done = vec![false; vertices];
        let mut queue = BinaryHeap::new();
        for &terminal in from {
            let first = self.terminals[terminal];
            best[first] = (Ordered(start), 0);
            queue.push(Reverse((best[first], first)));
        }
        while let Some(Reverse(((Ordered(cost), lines), vertex))) = queue.pop() {
            if std::mem::replace(&mut done[vertex], true) {
                continue;
            }
            ways.cost[vertex] = cost;
            for &line in &self.leaving[vertex] {
                let head = self.lines[line].to;
                let next = (Ordered(extend(cost, &self.lines[line])), lines + 1);
                if !done[head] && next.0.0 < f64::INFINITY && next < best[head] {
                    best[head] = next;
                    ways.line[head] = Some(line);
                    queue.push(Reverse((next, head)));
                }
            }
        }
        ways
    }

    /// The lines from where `ways` start to a terminal; none where there is no way.
    pub(super) fn way(&self, ways: &Ways, to: usize) -> Vec<usize> {
        let mut lines = Vec::new();
        let mut vertex = self.terminals[to];
        while let Some(line) = ways.line[vertex] {
            lines.push(line);
            vertex = self.lines[line].from;
        }
        lines.reverse();
        lines
    }

    /// The tree of the widest ways from the source to all that can be reached: who is on the way of another feeds them.
    pub(super) fn spanning(&self) -> Vec<Feeder> {
        let ways = self.widest(&[0], &self.left);
        let mut hops = Vec::new();
        let mut nearest_first: Vec<usize> = (1..self.size()).collect();
        nearest_first.sort_by_key(|&to| self.way(&ways, to).len());
        for to in nearest_first {
            let way = self.way(&ways, to);
            let mut senders = way.iter().enumerate().rev();
            let nearest =
                senders.find_map(|(at, &line)| Some((at, self.terminal_of[self.lines[line].from]?)));
            if let Some((at, from)) = nearest {
                hops.push(self.hop(from, to, &way[at..]));
            }
        }
        hops
    }

    /// The row of a resource; none where it cannot run out. New ones get the next number.
    fn row(&mut self, resource: Resource) -> Option<usize> {
        let left = self.problem.capacities.left(resource);
        if !left.is_finite() {
            return None;
        }
        Some(*self.rows.entry(resource).or_insert_with(|| {
            self.left.push(left);
            self.left.len() - 1
        }))
    }
}

/// The greatest rate that what is `left` of each row allows; infinite for what uses nothing.
pub(super) fn rate(uses: &[(usize, f64)], left: &[f64]) -> f64 {
    uses.iter().map(|&(row, count)| left[row] / count).fold(f64::INFINITY, f64::min)
}

/// Vertices that can be on a way between two terminals, by vertex of the graph: what is left when those that neither send
/// nor store, and have one neighbour at most, are taken away, until there are none.
fn useful(problem: &Problem<'_>) -> Vec<bool> {
    let graph = problem.graph;
    let mut neighbours = vec![BTreeSet::new(); graph.vertices()];
    for arc in graph.arcs() {
        neighbours[arc.from].insert(arc.to);
        neighbours[arc.to].insert(arc.from);
    }
    let stores = problem.stores();
    let mut useful = vec![true; graph.vertices()];
    let mut leaves: Vec<usize> = (0..graph.vertices()).collect();
    while let Some(vertex) = leaves.pop() {
        if stores[vertex] || !useful[vertex] || neighbours[vertex].len() > 1 {
            continue;
        }
        useful[vertex] = false;
        if let Some(&neighbour) = neighbours[vertex].first() {
            neighbours[neighbour].remove(&vertex);
            leaves.push(neighbour);
        }
    }
    useful
}

/// The best ways from some terminals to all vertices.
#[derive(Clone, Debug)]
pub(super) struct Ways {
    /// By vertex; infinite where there is no way.
    pub(super) cost: Vec<f64>,
    /// The last line on the way.
    line: Vec<Option<usize>>,
}
