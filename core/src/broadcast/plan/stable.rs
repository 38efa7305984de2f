//! Which of our methods suits this network?
//!
//! 1. A tree, where every way back is wide enough: the tree set, exact ([`depth_first`]).
//! 2. Any network with symmetric links: the exact packing ([`symmetric`]).
//! 3. Everything else: the best trees that the search finds ([`asymmetric`]), never below a baseline without a limit on trees.
//!
//! With a limit on trees the destinations of 1 aim at a few levels ([`levels`]); where 2 needs more trees than the limit, or
//! the network is too large for it, few trees are made ([`symmetric::few`]). For those who carry out nested trees only:
//! [`nested`].

use super::baseline;
use super::packing::Packing;
use super::problem::Problem;
use super::{Executable, Options, PlanError, Strategy, asymmetric, depth_first, levels, nested, symmetric};

/// Most trees without a limit, where the network is too large for the exact packing.
const WITHOUT_LIMIT: usize = 64;

/// Trees, what made them, and the largest sum that any plan can have, Mbit/s, where that is known.
pub(super) struct Found {
    pub(super) strategy: Strategy,
    pub(super) packing: Packing,
    pub(super) optimum: Option<f64>,
}

/// The best plan.
pub(super) fn pack(problem: &Problem<'_>, options: &Options) -> Result<Found, PlanError> {
    if options.executable == Executable::Nested {
        return nested::pack(problem, options);
    }
    let most = usize::try_from(options.max_trees).unwrap_or(usize::MAX);
    let exact = |packing| Ok(Found { strategy: Strategy::Stable, packing, optimum: None });
    let on_tree = |rooted| depth_first::pack(problem, rooted, &levels::floor(&problem.bounds, most));
    if let Some(packing) = problem.rooted.as_ref().and_then(on_tree) {
        return exact(packing);
    }
    if let Some(packing) = symmetric(problem, most) {
        return exact(packing);
    }
    let baselines = baseline::all(problem, options.seed);
    let starts = baselines.iter().take(asymmetric::BASELINES).map(|trees| Packing::carrying(trees)).collect();
    let best = asymmetric::pack(problem, starts, most);
    Ok(Found { strategy: Strategy::Stable, packing: best.packing, optimum: best.optimum })
}

/// Trees for a network with symmetric links; none for others.
fn symmetric(problem: &Problem<'_>, most: usize) -> Option<Packing> {
    match symmetric::pack(problem) {
        Some(packing) if most == 0 || packing.trees.len() <= most => Some(packing),
        None if !symmetric::suits(problem) => None,
        _ => symmetric::few(problem, if most == 0 { WITHOUT_LIMIT } else { most }),
    }
}
