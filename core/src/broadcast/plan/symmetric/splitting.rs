//! How does a vertex leave the graph while everybody else keeps what reaches them?
//!
//! Theorem (Frank 1989, Jackson 1988): in a digraph where as much capacity enters each vertex as leaves it, each arc into a
//! vertex `w` can be split off with some arc out of it, `u -> w -> t` becoming `u -> t` (or nothing where `u = t`), without
//! reducing the max-flow between any two other vertices. So all of `w` can be split off. A split changes neither the in-
//! nor the out-capacity balance of the others, and a pair of arcs that cannot be split cannot be split later either (a cut
//! in its way stays), so one pass over all pairs is enough.
//!
//! Splits with `u = t` come first: they only drop capacity that nobody needs, and leave fewer arcs and fewer routes.
//!
//! Frank, "On connectivity properties of Eulerian digraphs", Annals of Discrete Mathematics 41 (1989) 179-194; Jackson,
//! "Some remarks on arc-connectivity, vertex splitting, and orientation in graphs and digraphs", Journal of Graph Theory 12
//! (1988) 429-436. Time for one vertex of degree `d`: `d^2` pairs, see [`super::flows`].

use super::flows::Flows;
use super::overlay::Overlay;

/// `u -> w -> t` has become `u -> t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) amount: i64,
    /// Capacity from `from` to `to` before.
    pub(super) before: i64,
}

/// Splits off all of `vertex` and takes it out of the graph. With `routes` those of the arcs are joined. Gives the splits
/// between different vertices, one for each pair; none if something remains, which the theorem rules out where capacities
/// are balanced.
pub(super) fn split_off(
    overlay: &mut Overlay,
    flows: &mut Flows,
    vertex: usize,
    routes: bool,
) -> Option<Vec<Split>> {
    let mut splits = Vec::new();
    let arcs: Vec<usize> = overlay.leaving(vertex).collect();
    for &out in &arcs {
        split(overlay, flows, out ^ 1, out, routes);
    }
    for &back in &arcs {
        let entering = back ^ 1;
        for &leaving in arcs.iter().filter(|&&leaving| leaving != back) {
            if overlay.capacity(entering) == 0 {
                break;
            }
            splits.extend(split(overlay, flows, entering, leaving, routes));
        }
    }
    let done = arcs.iter().all(|&arc| overlay.capacity(arc) == 0 && overlay.capacity(arc ^ 1) == 0);
    let neighbours: Vec<usize> = arcs.iter().map(|&arc| overlay.head(arc)).collect();
    overlay.remove(vertex);
    for neighbour in neighbours {
        overlay.prune(neighbour);
    }
    done.then_some(splits)
}

fn split(
    overlay: &mut Overlay,
    flows: &mut Flows,
    entering: usize,
    leaving: usize,
    routes: bool,
) -> Option<Split> {
    let (from, to) = (overlay.tail(entering), overlay.head(leaving));
    let before = overlay.arc(from, to).filter(|_| from != to).map_or(0, |arc| overlay.capacity(arc));
    let (amount, across) = flows.split(overlay, entering, leaving);
    if amount > 0 && routes {
        overlay.join(entering, leaving, across, amount);
    }
    across.filter(|_| amount > 0).map(|_| Split { from, to, amount, before })
}
