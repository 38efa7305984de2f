//! What if one stream follows a depth-first walk of the network?
//!
//! Shirai et al., HPDC 2007. No link is used twice in one direction, so the hops share nothing, and on a tree no other
//! single stream is done with the slowest host earlier. But one slow link holds up all that are behind it. Hosts that the
//! walk cannot come to, since a link leads one way only, get nothing.

use super::super::packing::Feeder;
use super::super::problem::Problem;
use super::walk::walk;

pub(super) fn hops(problem: &Problem<'_>) -> Vec<Feeder> {
    walk(problem, &problem.capacities, &problem.stores())
}
