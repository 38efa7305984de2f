//! What if a chain is made without looking at the network?
//!
//! A permutation of the destinations drawn from a seed. Its hops cross trunks again and again, and share them.

use super::super::super::random::Random;
use super::super::problem::Problem;

pub(super) fn order(problem: &Problem<'_>, seed: u64) -> Vec<usize> {
    let mut order = problem.destinations.clone();
    Random::new(seed).shuffle(&mut order);
    order
}
