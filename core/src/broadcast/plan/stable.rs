//! Which of our methods suits this network?
//!
//! A network that is a tree, where every way back is wide enough: the tree set, exact ([`depth_first`]). Otherwise the best
//! single tree from disk, which is also all that is planned for those who carry out one tree only.

use super::baseline::chain;
use super::packing::{Feeders, Packing};
use super::problem::Problem;
use super::{Executable, Options, PlanError, Strategy, depth_first, levels};

/// The trees, and what made them.
pub(super) fn pack(problem: &Problem<'_>, options: &Options) -> Result<(Strategy, Packing), PlanError> {
    if options.executable == Executable::SingleTree {
        let (strategy, feeders) = single_tree(problem)?;
        return Ok((strategy, Packing::nested(&feeders)));
    }
    let most = usize::try_from(options.max_trees).unwrap_or(usize::MAX);
    let rates = levels::floor(&problem.bounds, most);
    let rooted = problem.rooted.as_ref();
    if let Some(packing) = rooted.and_then(|rooted| depth_first::pack(problem, rooted, &rates)) {
        return Ok((Strategy::Stable, packing));
    }
    let (_, feeders) = single_tree(problem)?;
    Ok((Strategy::Stable, Packing::nested(&feeders)))
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
