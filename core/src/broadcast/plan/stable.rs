//! Which of our methods suits this network?
//!
//! 1. A tree, where every way back is wide enough: the tree set, exact ([`depth_first`]).
//! 2. Any network with symmetric links: the exact packing ([`symmetric`]).
//! 3. Everything else: the best trees that the search finds ([`asymmetric`]), never below a baseline without a limit on trees.
//!
//! With a limit on trees the destinations of 1 and 2 aim at a few levels ([`levels`]); where 2 still needs more trees than the
//! limit, its trees are what the search begins with. For those who can carry out one tree only, the best single tree from
//! disk.

use super::baseline::{self, chain};
use super::packing::{Feeders, Packing};
use super::problem::Problem;
use super::{Executable, Options, PlanError, Strategy, asymmetric, depth_first, levels, symmetric};

/// Trees, what made them, and the largest sum that any plan can have, Mbit/s, where that is known.
pub(super) struct Found {
    pub(super) strategy: Strategy,
    pub(super) packing: Packing,
    pub(super) optimum: Option<f64>,
}

/// The best plan.
pub(super) fn pack(problem: &Problem<'_>, options: &Options) -> Result<Found, PlanError> {
    if options.executable == Executable::SingleTree {
        let (strategy, feeders) = single_tree(problem)?;
        return Ok(Found { strategy, packing: Packing::nested(&feeders), optimum: None });
    }
    let most = usize::try_from(options.max_trees).unwrap_or(usize::MAX);
    let rates = levels::floor(&problem.bounds, most);
    let exact = |packing| Ok(Found { strategy: Strategy::Stable, packing, optimum: None });
    let rooted = problem.rooted.as_ref();
    if let Some(packing) = rooted.and_then(|rooted| depth_first::pack(problem, rooted, &rates)) {
        return exact(packing);
    }
    let few = Problem { bounds: rates, ..problem.clone() };
    let symmetric = symmetric::pack(&few);
    let mut starts = match symmetric {
        Some(packing) if most == 0 || packing.trees.len() <= most => return exact(packing),
        too_many => Vec::from_iter(too_many),
    };
    let baselines = baseline::all(problem, options.seed);
    let nested = |trees: &Vec<Feeders>| Packing {
        trees: trees.iter().flat_map(|tree| Packing::nested(tree).trees).collect(),
    };
    starts.extend(baselines.iter().take(asymmetric::BASELINES).map(nested));
    let best = asymmetric::pack(problem, starts, most);
    Ok(Found { strategy: Strategy::Stable, packing: best.packing, optimum: best.optimum })
}

/// The greatest sum among `Flat` and chains in several orders, of those that starve nobody. A chain on equal sums: it
/// spares the source. No chain may be possible where links lead one way.
fn single_tree(problem: &Problem<'_>) -> Result<(Strategy, Feeders), PlanError> {
    let flat = problem.flat()?;
    let mut best: Option<(f64, Feeders)> = None;
    for chain in chain::orders(problem).iter().filter_map(|order| chain::in_order(problem, order).ok()) {
        let sum = chain.sum();
        if !chain.starves(&flat) && best.as_ref().is_none_or(|(most, _)| sum > *most) {
            best = Some((sum, chain));
        }
    }
    Ok(match best {
        Some((sum, chain)) if sum >= flat.sum() => (Strategy::Chain, chain),
        _ => (Strategy::Flat, flat),
    })
}
