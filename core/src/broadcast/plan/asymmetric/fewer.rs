//! Which few trees bring the most?
//!
//! From a packing without a limit: a quarter of the trees, those that bring least, goes at a time, and the others get the
//! best rates for them. When few enough are left, trees that would be worth something at the prices of the few are tried in
//! their company, as long as that helps. A heuristic: the best choice of `k` trees is NP-hard.
//!
//! The first tree that is known reaches all destinations. It stays among the candidates, so with floors nobody is left out.

use super::columns::{Columns, Rates, Work};

/// Most rounds of new trees.
const ROUNDS: usize = 12;

/// Rates for at most `most` of the trees of `rates`, or of new ones.
pub(super) fn fewer(
    columns: &mut Columns<'_>,
    rates: &Rates,
    most: usize,
    floors: &[f64],
    work: &mut Work,
) -> Rates {
    let mut best = reduced(columns, columns.used(rates), most, floors, work);
    for _ in 0..ROUNDS {
        if work.is_spent() {
            break;
        }
        let known = columns.len();
        let mut candidates = with_first(columns.used(&best), usize::MAX);
        columns.search_beside(&candidates, floors, work);
        if columns.len() == known {
            break;
        }
        candidates.extend(known..columns.len());
        let next = reduced(columns, candidates, most, floors, work);
        if next.worth <= best.worth {
            break;
        }
        best = next;
    }
    best
}

fn reduced(
    columns: &Columns<'_>,
    mut chosen: Vec<usize>,
    most: usize,
    floors: &[f64],
    work: &mut Work,
) -> Rates {
    loop {
        let rates = columns.among(&chosen, floors, work);
        let used = columns.used(&rates);
        if used.len() <= most {
            return rates;
        }
        let keep = most.max(used.len() * 3 / 4);
        chosen = with_first(used, keep);
    }
}

/// The first `most` trees of a list, the first known tree among them.
fn with_first(mut trees: Vec<usize>, most: usize) -> Vec<usize> {
    if !trees.iter().take(most).any(|&tree| tree == 0) {
        trees.truncate(most.saturating_sub(1));
        trees.push(0);
    }
    trees.truncate(most);
    trees
}
