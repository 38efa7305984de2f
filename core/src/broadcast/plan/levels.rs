//! Which few rates keep the most of many?
//!
//! Nested trees give each destination one of a few levels: the largest one that is not above what it could get. With one
//! level for each different bound nothing is lost; with at most `most` levels, the best choice loses the least in total.
//! The lowest level is the least bound, so that everybody is served.
//!
//! Let v₁ < … < vₘ be the different bounds and cᵢ the number of destinations with a bound of at least vᵢ. The levels
//! i₁ < … < iₖ are worth Σ (v(iₖ) - v(iₖ₋₁)) c(iₖ), so the best value with the highest level i satisfies
//!
//! > f(k, i) = vᵢ cᵢ + max over j < i of (f(k - 1, j) - vⱼ cᵢ).
//!
//! The lines f(k - 1, j) - vⱼ c have ever steeper slopes and are asked for at ever smaller c: the upper envelope of lines
//! (the "convex hull trick") finds all maxima of a row in one pass. O(N log N + most · m) time, O(most · m) space, where the
//! plain dynamic programme takes O(most · m²).

use std::collections::VecDeque;

use super::packing::SAME;

/// For each bound the level that its owner gets, Mbit/s: never above the bound, at most `most` different ones, the sum as
/// large as can be. With `most` 0 each bound is its own level.
pub(crate) fn floor(bounds: &[f64], most: usize) -> Vec<f64> {
    let levels = choose(bounds, most);
    let level =
        |bound: &f64| levels.partition_point(|level| level <= bound).checked_sub(1).map(|at| levels[at]);
    bounds.iter().map(|bound| level(bound).unwrap_or(0.0)).collect()
}

/// At most `most` of the bounds, ascending, the least one among them; all that differ with `most` 0.
pub(crate) fn choose(bounds: &[f64], most: usize) -> Vec<f64> {
    let mut values = bounds.to_vec();
    values.sort_by(f64::total_cmp);
    let total = values.len();
    let mut at_least: Vec<f64> = Vec::new();
    let mut different: Vec<f64> = Vec::new();
    for (below, value) in values.into_iter().enumerate() {
        if different.last().is_none_or(|last| value - last > SAME * value) {
            different.push(value);
            at_least.push((total - below) as f64);
        }
    }
    if most == 0 || different.len() <= most {
        return different;
    }
    best(&different, &at_least, most).into_iter().map(|at| different[at]).collect()
}

/// A line of the envelope: what level `from` was worth, less its slope for each destination above.
#[derive(Clone, Copy, Debug)]
struct Line {
    from: usize,
    worth: f64,
    slope: f64,
}

impl Line {
    fn at(self, count: f64) -> f64 {
        self.worth - self.slope * count
    }
}

/// Indices of the best `most` levels of `values`, given how many destinations can take each.
fn best(values: &[f64], at_least: &[f64], most: usize) -> Vec<usize> {
    let count = values.len();
    // The first level is the least value, whatever follows.
    let mut worth = vec![f64::NEG_INFINITY; count];
    worth[0] = values[0] * at_least[0];
    let mut before: Vec<Vec<usize>> = Vec::with_capacity(most - 1);
    let mut rows = vec![worth];
    for level in 1..most {
        let (row, from) = next_row(values, at_least, &rows[level - 1], level);
        rows.push(row);
        before.push(from);
    }
    // More levels are never worth less: the last row has the best, unless rounding says otherwise.
    let mut at = 0;
    let last = &rows[most - 1];
    for i in most - 1..count {
        if last[i] > last[at] {
            at = i;
        }
    }
    let mut chosen = vec![at];
    for from in before.iter().rev() {
        at = from[at];
        chosen.push(at);
    }
    chosen.reverse();
    chosen
}

/// What each value is worth as the highest of `level + 1` levels, and which one is best below it.
fn next_row(values: &[f64], at_least: &[f64], row: &[f64], level: usize) -> (Vec<f64>, Vec<usize>) {
    let count = values.len();
    let (mut next, mut from) = (vec![f64::NEG_INFINITY; count], vec![0; count]);
    let mut envelope: VecDeque<Line> = VecDeque::new();
    for i in level..count {
        let line = Line { from: i - 1, worth: row[i - 1], slope: values[i - 1] };
        // Only the least value can be the first level.
        if line.worth.is_finite() {
            while envelope.len() >= 2
                && hidden(envelope[envelope.len() - 2], envelope[envelope.len() - 1], line)
            {
                envelope.pop_back();
            }
            envelope.push_back(line);
        }
        // Counts fall, so a line that was passed once is passed for good.
        while envelope.len() >= 2 && envelope[1].at(at_least[i]) >= envelope[0].at(at_least[i]) {
            envelope.pop_front();
        }
        next[i] = values[i] * at_least[i] + envelope[0].at(at_least[i]);
        from[i] = envelope[0].from;
    }
    (next, from)
}

/// Whether the middle one of three lines, in order of slope, is nowhere above both others.
fn hidden(flat: Line, middle: Line, steep: Line) -> bool {
    // Where `steep` meets `flat`, is it above `middle`?
    (steep.worth - flat.worth) * (middle.slope - flat.slope)
        >= (middle.worth - flat.worth) * (steep.slope - flat.slope)
}

#[cfg(test)]
mod tests;
