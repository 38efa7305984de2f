//! How does every destination get its own max-flow at once, on any network with symmetric links?
//!
//! Theorem (from Frank, Jackson; Bang-Jensen, Frank, Jackson): where each link carries as much one way as the other, there
//! are trees from the source, with rates that together keep to the capacities, such that each destination receives its
//! max-flow, all at once; hosts relay, switches only forward. The stable broadcast of Takahashi et al. reaches this on
//! trees; this planner does on every graph.
//!
//! 1. [`model`]: whole numbers, one capacity a link.
//! 2. [`reduce`]: hosts that can ride along with others leave, trees that hang on the rest become single links.
//! 3. [`splitting`]: switches, and hosts that only forward, are split off, keeping all max-flows ([`flows`]).
//! 4. [`arborescences`]: trees over the hosts that remain.
//! 5. [`routed`]: hops become physical routes, and the riders join.
//!
//! With a limit on trees see [`few()`].
//!
//! Time: with `d` the degrees of what remains after step 2, `t` its hosts and `m` its links, O(t sum(d^2)) comparisons, and
//! O(m) for each flow that has to be moved; memory O(t m). A network of which too much remains is not for this planner
//! ([`MAX_NUMBERS`]).

use super::packing::Packing;
use super::problem::Problem;
use arborescences::Tree;
pub(crate) use few::pack as few;
use flows::Flows;
use model::Model;
use overlay::Overlay;
use reduce::Rider;
use routed::Forest;

mod arborescences;
mod few;
mod flows;
mod model;
mod overlay;
mod reduce;
mod routed;
#[cfg(test)]
mod samples;
mod splitting;

/// Most numbers that flows may take, one for each host and link that remain: 256 MiB.
const MAX_NUMBERS: usize = 1 << 25;
/// A rate may miss a max-flow by this part of it: capacities are rounded to units.
const MISSING: i64 = 5_000_000;

/// Trees that give each destination at least its bound, which may be its max-flow or less, to a part in five million. None
/// where that cannot be promised: a link that is not symmetric, or a budget, stands in the way of some destination, or the
/// network is too large.
pub(crate) fn pack(problem: &Problem<'_>) -> Option<Packing> {
    let model = Model::new(problem)?;
    let mut spare = 0;
    loop {
        let mut rest = model.clone();
        let (riders, paired) = reduce::reduce(&mut rest, spare);
        let packing = pack_rest(&mut rest, &riders);
        if packing.is_some() || !paired {
            return packing;
        }
        spare = 2 * spare + 1;
    }
}

/// Whether all links are symmetric, and no budget binds. [`pack`] suits such a network unless it is too large.
pub(crate) fn suits(problem: &Problem<'_>) -> bool {
    Model::new(problem).is_some_and(|model| model.even)
}

/// Trees over what remains, and the riders in them.
fn pack_rest(model: &mut Model, riders: &[Rider]) -> Option<Packing> {
    let hosts = staying(model, riders);
    let overlay = std::mem::take(&mut model.overlay);
    if hosts.len().saturating_mul(2 * overlay.links()) > MAX_NUMBERS {
        return None;
    }
    let (flows, targets) = Flows::new(&overlay, model.source, &hosts);
    if targets.iter().any(|&(host, rate)| misses(model.rates[host] - rate, model.rates[host])) {
        return None;
    }
    let (overlay, trees) = trees(overlay, flows, model.source, &targets)?;
    let mut forest = Forest::new(model, &overlay, &trees)?;
    for rider in riders.iter().rev() {
        if misses(forest.ride(rider), rider.rate) {
            return None;
        }
    }
    Some(Packing { trees: forest.packed() })
}

/// The destinations that do not ride, and their rates, the greatest first.
fn staying(model: &Model, riders: &[Rider]) -> Vec<(usize, i64)> {
    let mut rates = model.rates.clone();
    for rider in riders {
        rates[rider.host] = 0;
    }
    let mut hosts: Vec<(usize, i64)> = rates.into_iter().enumerate().filter(|(_, rate)| *rate > 0).collect();
    hosts.sort_by_key(|&(host, rate)| (-rate, host));
    hosts
}

/// Trees over the arcs between the source and `targets` that remain when all others are split off; and these arcs.
fn trees(
    mut overlay: Overlay,
    mut flows: Flows,
    source: usize,
    targets: &[(usize, i64)],
) -> Option<(Overlay, Vec<Tree>)> {
    let mut stays = vec![false; overlay.vertices()];
    stays[source] = true;
    for &(host, _) in targets {
        stays[host] = true;
    }
    let mut others: Vec<usize> = (0..stays.len()).filter(|&vertex| !stays[vertex]).collect();
    while let Some(place) = (0..others.len()).min_by_key(|&place| overlay.degree(others[place])) {
        splitting::split_off(&mut overlay, &mut flows, others.remove(place), true)?;
    }
    let trees = arborescences::pack(overlay.clone(), flows, source, targets)?;
    Some((overlay, trees))
}

fn misses(missing: i64, rate: i64) -> bool {
    missing > rate / MISSING
}

#[cfg(test)]
mod tests;
