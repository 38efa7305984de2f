//! Which few trees bring the most, where the exact packing needs many?
//!
//! A heuristic; to choose the best few trees is NP-hard (two trees for hosts with two links each are a partition problem).
//! It rests on two facts. In whole multiples of a unit the exact packing needs no more trees than the greatest max-flow has
//! units. And a tree that a host is not in can take it up without any cost to others wherever it passes next to it (see
//! [`super::reduce`]), so a host can be in any set of trees whose rates fit its own links: with rates of many sizes nearly
//! all of a link can be used, as coins of many sizes pay any sum.
//!
//! 1. **Starts**: the packing of the network in coarse units, of several sizes, and that for the fastest host alone.
//! 2. **Coins**: trees are raised to what their links leave; then, while there are fewer than allowed, one is halved: the
//!    smallest as long as it is not small against every destination, or the largest.
//! 3. **Joining**: each destination joins each tree it fits into, the largest first, by the shortest way that is free.
//! 4. **Rates**: a linear programme over the trees gives them their best rates, none below half of what it had, and hosts
//!    join again ([`rates`]).
//! 5. **Nobody is left out**: see [`spanning`].
//!
//! Of all starts that one is taken that brings the most among those that give everybody half of their max-flow.
//!
//! Time: a few coarse packings, and O(hosts trees links) in the worst case, where no host has a tree nearby.

use super::super::packing::Packing;
use super::super::problem::Problem;
use super::flows::Flows;
use super::model::Model;
use super::routed::Forest;
use super::{MAX_NUMBERS, reduce, staying, trees};
use draft::Draft;
use ways::Ways;

mod draft;
mod rates;
mod spanning;
mod ways;

/// Units of the greatest rate, in the coarse packings, in the order in which they are tried.
const UNITS: [usize; 5] = [12, 16, 8, 6, 4];
/// No other start is tried where less than one part of this many is missing.
const ENOUGH: i64 = 200;
/// Rates are found so many times, and hosts join anew.
const ROUNDS: usize = 6;

/// At most `most` trees, one or more, that leave nobody out, for a network that is symmetric: see [`super::suits`]. None
/// where somebody cannot be reached.
pub(crate) fn pack(problem: &Problem<'_>, most: usize) -> Option<Packing> {
    let model = Model::new(problem)?;
    let ways = Ways::new(&model);
    let wanted: i64 = model.rates.iter().sum();
    let enough = |score: Score| score.half && wanted - score.sum <= wanted / ENOUGH;
    let mut best: Option<(Score, Draft<'_>)> = None;
    let units = UNITS.into_iter().filter(|&units| units <= most.max(4)).map(Some);
    for units in std::iter::once(None).chain(units) {
        if best.as_ref().is_some_and(|(score, _)| enough(*score)) {
            break;
        }
        let start = match units {
            None => fastest(&model),
            Some(units) => coarse(&model, units),
        };
        let Some(start) = start else { continue };
        for coins in [Coins::Small, Coins::Even] {
            let draft = spread(Draft::new(&model, &ways, start.clone(), most), coins, most);
            let score = Score::of(&model, &draft);
            if best.as_ref().is_none_or(|(greatest, _)| score > *greatest) {
                best = Some((score, draft));
            }
        }
    }
    let draft = best.map(|(_, draft)| draft);
    Some(Packing { trees: spanning::with_everybody(&model, &ways, draft, most)?.forest.packed() })
}

/// Which coins a draft is changed into.
#[derive(Clone, Copy, Debug)]
enum Coins {
    /// Down to small ones.
    Small,
    /// All alike.
    Even,
}

/// How good a draft is; the greatest is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    /// Whether everybody gets half of their max-flow.
    half: bool,
    sum: i64,
}

impl Score {
    fn of(model: &Model, draft: &Draft<'_>) -> Self {
        let received = draft.received();
        let half = received.iter().zip(&model.rates).all(|(got, rate)| got >= &(rate / 2));
        Self { half, sum: received.iter().sum() }
    }
}

/// The packing with the greatest rate in about `units` units.
fn coarse(model: &Model, units: usize) -> Option<Forest<'_>> {
    let greatest = model.rates.iter().max()?;
    let unit = (greatest / i64::try_from(units).ok()?).max(1);
    let mut forest = packed(model, model.coarse(unit))?;
    for tree in &mut forest.trees {
        tree.rate *= unit;
    }
    Some(forest)
}

/// The packing for the fastest host alone.
fn fastest(model: &Model) -> Option<Forest<'_>> {
    let greatest = *model.rates.iter().max()?;
    let place = model.rates.iter().position(|&rate| rate == greatest)?;
    let mut alone = model.clone();
    alone.rates.iter_mut().for_each(|rate| *rate = 0);
    alone.rates[place] = greatest;
    packed(model, alone)
}

/// The trees of `rest`, which has the vertices of `model`, as far as rounding lets them be reached.
fn packed(model: &Model, mut rest: Model) -> Option<Forest<'_>> {
    let (riders, _) = reduce::reduce(&mut rest, 0);
    let overlay = std::mem::take(&mut rest.overlay);
    let hosts = staying(&rest, &riders);
    if hosts.len().saturating_mul(2 * overlay.links()) > MAX_NUMBERS {
        return None;
    }
    let (_, targets) = Flows::new(&overlay, rest.source, &hosts);
    let reached: Vec<(usize, i64)> = targets.into_iter().filter(|(_, rate)| *rate > 0).collect();
    let (flows, targets) = Flows::new(&overlay, rest.source, &reached);
    let (overlay, trees) = trees(overlay, flows, rest.source, &targets)?;
    Forest::new(model, &overlay, &trees)
}

/// Makes the most of a draft.
fn spread(mut draft: Draft<'_>, coins: Coins, most: usize) -> Draft<'_> {
    draft.raise();
    draft.change(coins, most);
    draft.join();
    draft.raise();
    let floors: Vec<i64> = draft.forest.trees.iter().map(|tree| tree.rate / 2).collect();
    let mut sum = draft.sum();
    for _ in 0..ROUNDS {
        draft.rerate(&floors);
        draft.join();
        draft.raise();
        let more = draft.sum();
        if more - sum <= sum / 2000 {
            break;
        }
        sum = more;
    }
    draft
}
