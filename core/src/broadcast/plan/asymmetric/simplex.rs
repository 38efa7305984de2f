//! Which amounts of several activities gain most within given limits?
//!
//! A linear programme `max c x, A x <= b, x >= 0` with `b >= 0`: doing nothing is allowed, so no first phase is needed. That
//! is the shape of a packing of trees into capacities, and columns can be added while it runs (column generation).
//!
//! Revised primal simplex (Dantzig 1953) with an explicit inverse of the basis, rebuilt from the columns now and then. Ties
//! of the ratio test, of which packings are full, are broken by limits that differ a little from the given ones (Charnes
//! 1952): positive ones are a few parts in a billion narrower, so that a result keeps to the given limits; zeros are as
//! much wider. Should it stall all the same, it takes the first column that gains (Bland 1977), which ends always.
//!
//! The prices `y` of an optimum prove it: `y >= 0`, `y A >= c`, so nothing gains more than `y b` ([`Simplex::bound`]).
//!
//! A pivot costs the product of the entries of one row and one column of the inverse, at most the square of the rows. All is
//! sequential arithmetic on a given order of rows and columns: the same input gives the same bits.

use super::super::super::random::Random;

/// A column is worth entering when it gains at least this per unit, relative to the largest gain.
const GAIN_ABOVE: f64 = 1e-9;
/// Smaller entries of a direction are rounding errors.
const PIVOT_ABOVE: f64 = 1e-9;
/// Entries of the inverse below this are zero.
const ZERO_BELOW: f64 = 1e-13;
/// How much the limits are changed against ties, relative to themselves.
const PERTURBATION: f64 = 2e-9;
/// Amounts that differ by this part of the largest limit are one, when a row is to leave.
const TOLERANCE: f64 = 1e-11;
/// The inverse is rebuilt after so many pivots, or as many as there are rows.
const REBUILD_EVERY: usize = 128;
/// Columns are looked at in blocks of so many.
const BLOCK: usize = 256;
/// After so many pivots without progress the first column that gains is taken.
const STALLED_AFTER: usize = 64;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No column gains any more.
    Optimal,
    /// The pivots ran out; what is there keeps to the limits.
    Stopped,
    /// A column gains without limit: it uses no row.
    Unbounded,
}

/// One activity.
#[derive(Clone, Debug)]
struct Column {
    gain: f64,
    /// Row and use of it per unit.
    uses: Vec<(usize, f64)>,
    /// 1 and the squares of its uses.
    size: f64,
}

/// A programme and where its solution is.
#[derive(Clone, Debug)]
pub(crate) struct Simplex {
    limits: Vec<f64>,
    /// Limits that differ a little.
    perturbed: Vec<f64>,
    columns: Vec<Column>,
    /// Per row what is in the basis there: numbers below the rows are slacks, then columns.
    basis: Vec<usize>,
    /// Per slack and column, whether it is in the basis.
    basic: Vec<bool>,
    /// Inverse of the basis, row by row.
    inverse: Vec<f64>,
    /// Amounts of what is in the basis.
    amounts: Vec<f64>,
    /// Of the rows.
    prices: Vec<f64>,
    /// Pivots so far, and those since the inverse was rebuilt.
    made: usize,
    since: usize,
    stalled: usize,
    /// Largest gain of a column.
    scale: f64,
    /// Amounts that differ by this are one.
    tolerance: f64,
    /// Where the search for a column begins.
    block: usize,
}

impl Simplex {
    /// Rows with `limits`, none negative; no column yet.
    pub(crate) fn new(limits: Vec<f64>) -> Self {
        let rows = limits.len();
        let largest = limits.iter().copied().fold(0.0, f64::max);
        let mut random = Random::new(0);
        let perturbed = limits.iter().map(|&limit| {
            let by = PERTURBATION * random.between(0.5, 1.0);
            if limit > 0.0 { limit * (1.0 - by) } else { largest * by }
        });
        let perturbed: Vec<f64> = perturbed.collect();
        let mut simplex = Self {
            limits,
            amounts: perturbed.clone(),
            perturbed,
            columns: Vec::new(),
            basis: (0..rows).collect(),
            basic: vec![true; rows],
            inverse: Vec::new(),
            prices: vec![0.0; rows],
            made: 0,
            since: 0,
            stalled: 0,
            scale: 0.0,
            tolerance: TOLERANCE * largest,
            block: 0,
        };
        simplex.inverse = simplex.identity();
        simplex
    }

    /// One more activity: what a unit gains, and what it uses of which rows (each named once).
    pub(crate) fn add(&mut self, gain: f64, uses: Vec<(usize, f64)>) {
        self.scale = self.scale.max(gain.abs());
        let size = 1.0 + uses.iter().map(|(_, uses)| uses * uses).sum::<f64>();
        self.columns.push(Column { gain, uses, size });
        self.basic.push(false);
    }

    /// Pivots until nothing gains, at most `pivots` times.
    pub(crate) fn run(&mut self, pivots: usize) -> Outcome {
        for _ in 0..pivots {
            let Some((entering, gain)) = self.entering() else { return Outcome::Optimal };
            let direction = self.direction(entering);
            let Some((row, step)) = self.leaving(&direction) else { return Outcome::Unbounded };
            self.stalled = if step > self.tolerance { 0 } else { self.stalled + 1 };
            self.pivot(entering, gain, row, &direction);
            self.made += 1;
            self.since += 1;
            if self.since >= REBUILD_EVERY.max(self.rows()) {
                self.rebuild();
            }
        }
        if self.entering().is_none() { Outcome::Optimal } else { Outcome::Stopped }
    }

    /// Removes the rounding errors of the pivots since this was done last; false if there were no pivots. What was optimal
    /// may turn out not to be, quite.
    pub(crate) fn refresh(&mut self) -> bool {
        let stale = self.since > 0;
        if stale {
            self.rebuild();
        }
        stale
    }

    /// Amounts of all columns, in the order in which they were added.
    pub(crate) fn amounts(&self) -> Vec<f64> {
        let mut amounts = vec![0.0; self.columns.len()];
        for (&member, &amount) in self.basis.iter().zip(&self.amounts) {
            if let Some(column) = member.checked_sub(self.rows()) {
                amounts[column] = amount.max(0.0);
            }
        }
        amounts
    }

    /// Pivots so far.
    pub(crate) fn pivots(&self) -> usize {
        self.made
    }

    /// What one more unit of each row would gain.
    pub(crate) fn prices(&self) -> Vec<f64> {
        self.prices.iter().map(|price| price.max(0.0)).collect()
    }

    /// What all columns gain together.
    pub(crate) fn gained(&self) -> f64 {
        self.columns.iter().zip(self.amounts()).map(|(column, amount)| column.gain * amount).sum()
    }

    /// More than this cannot be gained, once a run ended [`Outcome::Optimal`].
    pub(crate) fn bound(&self) -> f64 {
        self.limits.iter().zip(self.prices()).map(|(limit, price)| limit * price).sum()
    }

    fn rows(&self) -> usize {
        self.limits.len()
    }

    fn identity(&self) -> Vec<f64> {
        let rows = self.rows();
        let mut identity = vec![0.0; rows * rows];
        identity.iter_mut().step_by(rows + 1).for_each(|entry| *entry = 1.0);
        identity
    }

    /// What enters the basis, and what a unit of it gains: the most in relation to what it uses, among the slacks and the
    /// first block of columns, from where the last search ended, in which anything gains.
    fn entering(&mut self) -> Option<(usize, f64)> {
        let rows = self.rows();
        let enough = GAIN_ABOVE * self.scale;
        if self.stalled > STALLED_AFTER {
            let all = 0..rows + self.columns.len();
            return all.map(|index| (index, self.gain(index))).find(|(_, gain)| *gain > enough);
        }
        let best_of = |indices: &mut dyn Iterator<Item = usize>| {
            let worthwhile =
                indices.map(|index| (index, self.gain(index))).filter(|(_, gain)| *gain > enough);
            let rated = worthwhile.map(|(index, gain)| (index, gain, gain * gain / self.size(index)));
            rated.reduce(|best, other| if other.2 > best.2 { other } else { best })
        };
        let mut best = best_of(&mut (0..rows));
        let blocks = self.columns.len().div_ceil(BLOCK);
        let mut found_at = self.block;
        for block in (0..blocks).map(|offset| (self.block + offset) % blocks) {
            let end = self.columns.len().min((block + 1) * BLOCK);
            if let Some(other) = best_of(&mut (rows + block * BLOCK..rows + end)) {
                best = Some(best.filter(|best| best.2 >= other.2).unwrap_or(other));
                found_at = block;
                break;
            }
        }
        self.block = found_at;
        best.map(|(index, gain, _)| (index, gain))
    }

    /// What a unit of a slack or a column gains; nothing if it is in the basis.
    fn gain(&self, index: usize) -> f64 {
        if self.basic[index] {
            return 0.0;
        }
        match index.checked_sub(self.rows()) {
            None => -self.prices[index],
            Some(column) => {
                let Column { gain, uses, .. } = &self.columns[column];
                gain - uses.iter().map(|&(row, uses)| self.prices[row] * uses).sum::<f64>()
            }
        }
    }

    fn size(&self, index: usize) -> f64 {
        index.checked_sub(self.rows()).map_or(1.0, |column| self.columns[column].size)
    }

    /// How what is in the basis changes when a unit of `entering` enters.
    fn direction(&self, entering: usize) -> Vec<f64> {
        let rows = self.rows();
        let slack = [(entering, 1.0)];
        let uses = match entering.checked_sub(rows) {
            Some(column) => self.columns[column].uses.as_slice(),
            None => &slack,
        };
        let mut direction = vec![0.0; rows];
        for (row, change) in direction.iter_mut().enumerate() {
            let inverse = &self.inverse[row * rows..(row + 1) * rows];
            *change = uses.iter().map(|&(row, uses)| inverse[row] * uses).sum();
        }
        direction
    }

    /// The row that is exhausted first, and after how much; of those that are so almost at once, the one that divides best
    /// (Harris 1973).
    fn leaving(&self, direction: &[f64]) -> Option<(usize, f64)> {
        let rows = direction.iter().zip(&self.amounts).enumerate();
        let limiting: Vec<(usize, f64, f64)> = rows
            .filter(|(_, (change, _))| **change > PIVOT_ABOVE)
            .map(|(row, (&change, &amount))| (row, change, amount.max(0.0)))
            .collect();
        let stalled = self.stalled > STALLED_AFTER;
        let tolerance = if stalled { 0.0 } else { self.tolerance };
        let almost = limiting.iter().map(|(_, change, amount)| (amount + tolerance) / change);
        let almost = almost.reduce(f64::min)?;
        let together = limiting.iter().filter(|(_, change, amount)| amount / change <= almost);
        let best = if stalled {
            together.min_by_key(|(row, _, _)| self.basis[*row])
        } else {
            together.reduce(|best, other| if other.1 > best.1 { other } else { best })
        };
        best.map(|&(row, change, amount)| (row, amount / change))
    }

    fn pivot(&mut self, entering: usize, gain: f64, row: usize, direction: &[f64]) {
        let step = self.amounts[row].max(0.0) / direction[row];
        let pivot_row = self.divide(row, direction);
        for &(index, entry) in &pivot_row {
            self.prices[index] += gain * entry;
        }
        for (amount, change) in self.amounts.iter_mut().zip(direction) {
            *amount -= step * change;
        }
        self.amounts[row] = step;
        self.basic[self.basis[row]] = false;
        self.basic[entering] = true;
        self.basis[row] = entering;
    }

    /// Makes the inverse that of a basis with `direction` at `row`; the entries of that row.
    fn divide(&mut self, row: usize, direction: &[f64]) -> Vec<(usize, f64)> {
        let rows = self.rows();
        let mut pivot_row = Vec::new();
        for (index, entry) in self.inverse[row * rows..(row + 1) * rows].iter_mut().enumerate() {
            *entry /= direction[row];
            if entry.abs() < ZERO_BELOW {
                *entry = 0.0;
            } else {
                pivot_row.push((index, *entry));
            }
        }
        for (other, &change) in direction.iter().enumerate() {
            if other != row && change.abs() >= ZERO_BELOW {
                let line = &mut self.inverse[other * rows..(other + 1) * rows];
                for &(index, entry) in &pivot_row {
                    line[index] -= change * entry;
                }
            }
        }
        pivot_row
    }

    /// The inverse, amounts and prices from the columns of the basis, free of the errors of many pivots.
    fn rebuild(&mut self) {
        let rows = self.rows();
        let members: Vec<usize> = self.basis.iter().copied().filter(|&member| member >= rows).collect();
        // Slacks stand in their own rows; columns take the others, each where it divides best.
        let mut free = vec![true; rows];
        for &member in self.basis.iter().filter(|&&member| member < rows) {
            free[member] = false;
        }
        self.inverse = self.identity();
        let mut basis: Vec<usize> = (0..rows).collect();
        for member in members {
            let direction = self.direction(member);
            let candidates = (0..rows).filter(|&row| free[row]);
            let best = candidates
                .reduce(|best, row| if direction[row].abs() > direction[best].abs() { row } else { best });
            let Some(row) = best.filter(|&row| direction[row].abs() > ZERO_BELOW) else {
                // It depends on the others up to rounding: its slack stands in for it.
                self.basic[member] = false;
                continue;
            };
            self.divide(row, &direction);
            free[row] = false;
            basis[row] = member;
        }
        for &member in &basis {
            self.basic[member] = true;
        }
        self.basis = basis;
        self.since = 0;
        self.value();
    }

    /// Amounts and prices that belong to the inverse.
    fn value(&mut self) {
        let rows = self.rows();
        let mut prices = vec![0.0; rows];
        for (row, &member) in self.basis.iter().enumerate() {
            let line = &self.inverse[row * rows..(row + 1) * rows];
            let amount: f64 = line.iter().zip(&self.perturbed).map(|(entry, limit)| entry * limit).sum();
            self.amounts[row] = amount.max(0.0);
            let gain = member.checked_sub(rows).map_or(0.0, |column| self.columns[column].gain);
            if gain != 0.0 {
                for (price, entry) in prices.iter_mut().zip(line) {
                    *price += gain * entry;
                }
            }
        }
        self.prices = prices;
    }
}

#[cfg(test)]
mod tests;
