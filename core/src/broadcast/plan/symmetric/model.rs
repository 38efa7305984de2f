//! Which symmetric network of whole numbers stands for this one?
//!
//! Each link gets one capacity both ways, the lesser of its two; what host budgets bind is taken off the links of a host
//! with one neighbour. Into the source no capacity is needed at all: there its links get the outward one. This may lose
//! something where links are asymmetric; [`super::pack`] then finds that a destination misses its max-flow, and leaves the
//! network to planners that are not exact. Budgets that bind at a host with several neighbours are not for this planner.
//!
//! Units are the finest power of ten of a Mbit/s, down to a millibit per second, with which the sum of all capacities stays
//! far below the end of 64 bits: links of any two sizes keep their proportion to nine digits and more, and decimal
//! capacities of a file are whole numbers.
//!
//! Vertices are numbered by name, so that the order of the file changes nothing.

use std::collections::BTreeMap;

use super::super::problem::Problem;
use super::super::sharing::Resource;
use super::overlay::Overlay;

const FINEST_UNITS_PER_MBPS: f64 = 1e9;
/// The sum of all capacities, in units, stays below.
const MAX_UNITS: f64 = 1e18;

/// The network, and what is wanted of it.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) overlay: Overlay,
    pub(super) source: usize,
    /// By vertex the rate of a destination; 0 for all others.
    pub(super) rates: Vec<i64>,
    /// Vertices of the graph by our numbers.
    pub(super) names: Vec<usize>,
    /// By physical arc the vertex that it leads to, in our numbers.
    pub(super) heads: Vec<usize>,
    pub(super) units_per_mbps: f64,
    /// Whether nothing had to be taken off any link.
    pub(super) even: bool,
}

impl Model {
    /// None where budgets bind that links cannot express.
    pub(super) fn new(problem: &Problem<'_>) -> Option<Self> {
        let graph = problem.graph;
        let mut names: Vec<usize> = (0..graph.vertices()).collect();
        names.sort_by_key(|&vertex| graph.name(vertex));
        let mut numbers = vec![0; names.len()];
        for (number, &vertex) in names.iter().enumerate() {
            numbers[vertex] = number;
        }
        let all: f64 = (0..graph.arcs().len()).map(|arc| problem.capacities.left(Resource::Arc(arc))).sum();
        let mut units_per_mbps = FINEST_UNITS_PER_MBPS;
        while all * units_per_mbps > MAX_UNITS {
            units_per_mbps /= 10.0;
        }
        let units = |mbps: f64| (mbps * units_per_mbps).round() as i64;
        let mut rates = vec![0; names.len()];
        for (&host, &mbps) in problem.destinations.iter().zip(&problem.bounds) {
            rates[numbers[host]] = units(mbps).max(1);
        }
        let mut overlay = Overlay::new(names.len());
        let source = numbers[problem.source];
        let mut even = true;
        for (&(a, b), link) in &links(problem, &numbers) {
            let (there, back) = link.capacities(problem, units);
            let capacity = match () {
                () if a == source => there,
                () if b == source => back,
                () => there.min(back),
            };
            let whole = there.max(back);
            let capacity = budget(problem, &names, (a, b), source, capacity, units)?;
            even &= capacity == whole || (capacity > 0 && [a, b].contains(&source));
            for (from, to, arcs) in [(a, b, &link.there), (b, a, &link.back)] {
                add(&mut overlay, problem, (from, to), arcs, capacity, units);
            }
        }
        let heads = graph.arcs().iter().map(|arc| numbers[arc.to]).collect();
        Some(Self { overlay, source, rates, names, heads, units_per_mbps, even })
    }
}

impl Model {
    /// Whether a vertex keeps what it receives: the source and the destinations.
    pub(super) fn stores(&self, vertex: usize) -> bool {
        vertex == self.source || self.rates[vertex] > 0
    }

    /// The same network in whole multiples of `unit`, each capacity rounded down.
    pub(super) fn coarse(&self, unit: i64) -> Self {
        let mut overlay = Overlay::new(self.names.len());
        for link in 0..self.overlay.links() {
            let arcs = [2 * link, 2 * link + 1];
            let into_source = arcs.map(|arc| self.overlay.head(arc) == self.source);
            let whole = arcs.map(|arc| self.overlay.whole(arc, unit));
            let both = match into_source {
                [true, _] => whole[1],
                [_, true] => whole[0],
                _ => whole[0].min(whole[1]),
            };
            for (arc, into_source) in arcs.into_iter().zip(into_source) {
                overlay.add_whole(&self.overlay, arc, if into_source { i64::MAX } else { unit }, both);
            }
        }
        let rates = self.rates.iter().map(|rate| rate / unit).collect();
        let units_per_mbps = self.units_per_mbps / unit as f64;
        Self { overlay, rates, units_per_mbps, ..self.clone() }
    }
}

/// All arcs between two vertices.
#[derive(Default)]
struct Parallel {
    there: Vec<usize>,
    back: Vec<usize>,
}

impl Parallel {
    fn capacities(&self, problem: &Problem<'_>, units: impl Fn(f64) -> i64) -> (i64, i64) {
        let sum =
            |arcs: &[usize]| arcs.iter().map(|&arc| units(problem.capacities.left(Resource::Arc(arc)))).sum();
        (sum(&self.there), sum(&self.back))
    }
}

/// The arcs of the graph by their ends, the lesser one first.
fn links(problem: &Problem<'_>, numbers: &[usize]) -> BTreeMap<(usize, usize), Parallel> {
    let mut links: BTreeMap<(usize, usize), Parallel> = BTreeMap::new();
    for (index, arc) in problem.graph.arcs().iter().enumerate() {
        let (from, to) = (numbers[arc.from], numbers[arc.to]);
        let link = links.entry((from.min(to), from.max(to))).or_default();
        if from < to { link.there.push(index) } else { link.back.push(index) }
    }
    links
}

/// Adds arcs up to a capacity. Towards the source they are placeholders, used by nobody.
fn add(
    overlay: &mut Overlay,
    problem: &Problem<'_>,
    (from, to): (usize, usize),
    arcs: &[usize],
    mut capacity: i64,
    units: impl Fn(f64) -> i64,
) {
    for (position, &arc) in arcs.iter().enumerate() {
        let last = position + 1 == arcs.len();
        let own = units(problem.capacities.left(Resource::Arc(arc)));
        let amount = if last { capacity } else { own.min(capacity) };
        if amount > 0 {
            overlay.add(from, to, arc, amount);
            capacity -= amount;
        }
    }
}

/// The capacity of a link that the budgets of its ends leave.
fn budget(
    problem: &Problem<'_>,
    names: &[usize],
    (a, b): (usize, usize),
    source: usize,
    mut capacity: i64,
    units: impl Fn(f64) -> i64 + Copy,
) -> Option<i64> {
    let (graph, capacities) = (problem.graph, &problem.capacities);
    for end in [a, b] {
        let vertex = names[end];
        let limits = capacities.limits(vertex);
        let sum = |arcs: &[usize]| arcs.iter().map(|&arc| capacities.left(Resource::Arc(arc))).sum::<f64>();
        let (sends, receives) = (sum(graph.leaving(vertex)), sum(graph.entering(vertex)));
        let free = sends <= limits.send
            && receives <= limits.receive.min(limits.disk)
            && sends + receives <= limits.total;
        if free {
            continue;
        }
        let mut neighbours = graph.leaving(vertex).iter().map(|&arc| graph.arcs()[arc].to);
        let first = neighbours.next();
        if neighbours.any(|next| Some(next) != first) {
            return None;
        }
        let most = if end == source {
            limits.send.min(limits.total)
        } else {
            limits.send.min(limits.receive).min(limits.disk).min(limits.total / 2.0)
        };
        if most.is_finite() {
            capacity = capacity.min(units(most));
        }
    }
    Some(capacity)
}
