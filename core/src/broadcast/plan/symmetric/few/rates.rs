//! Which rates of given trees bring the most?
//!
//! Maximise `worth * x` with `uses * x <= capacity` for each arc and `x >= 0`: a linear programme with few columns and many
//! rows, by the simplex method on a condensed tableau (Dantzig 1947). All rates 0 are a vertex of it, and every tableau on
//! the way is one, so that it can stop at any: the number of steps is bounded, which also ends a cycle, if there ever is one.
//! O(rows trees) a step.

/// Numbers below are rounding errors.
const NOTHING: f64 = 1e-9;

/// The best rates. Each row has the uses of one arc by tree, and its capacity, at least 0.
pub(super) fn best(worth: &[f64], rows: Vec<(Vec<f64>, f64)>) -> Vec<f64> {
    let trees = worth.len();
    let mut tableau: Vec<Vec<f64>> = rows
        .into_iter()
        .map(|(mut row, capacity)| {
            row.push(capacity.max(0.0));
            row
        })
        .collect();
    let mut gains: Vec<f64> = worth.to_vec();
    // Trees at 0, by column: their own number, or beyond it that of a row's slack.
    let mut columns: Vec<usize> = (0..trees).collect();
    let mut basis: Vec<usize> = (trees..trees + tableau.len()).collect();
    for _ in 0..20 * trees {
        let Some(column) =
            (0..trees).reduce(|best, next| if gains[next] > gains[best] { next } else { best })
        else {
            break;
        };
        let limit = |row: &Vec<f64>| (row[column] > NOTHING).then(|| row[trees] / row[column]);
        let limits = tableau.iter().enumerate().filter_map(|(place, row)| Some((limit(row)?, place)));
        let first = limits.reduce(|best, next| if next.0 < best.0 { next } else { best });
        let Some((_, place)) = first.filter(|_| gains[column] > NOTHING) else { break };
        pivot(&mut tableau, &mut gains, place, column);
        std::mem::swap(&mut basis[place], &mut columns[column]);
    }
    let mut rates = vec![0.0; trees];
    for (row, &number) in tableau.iter().zip(&basis) {
        if let Some(rate) = rates.get_mut(number) {
            *rate = row[trees];
        }
    }
    rates
}

/// Exchanges a column and a row.
fn pivot(tableau: &mut [Vec<f64>], gains: &mut [f64], place: usize, column: usize) {
    let mut pivot = std::mem::take(&mut tableau[place]);
    let by = pivot[column];
    pivot[column] = 1.0;
    for entry in &mut pivot {
        *entry /= by;
    }
    for row in tableau.iter_mut().filter(|row| !row.is_empty()) {
        let factor = std::mem::replace(&mut row[column], 0.0);
        if factor != 0.0 {
            for (entry, own) in row.iter_mut().zip(&pivot) {
                *entry -= factor * own;
            }
            // Rounding must not make a rate negative.
            if let Some(last) = row.last_mut() {
                *last = last.max(0.0);
            }
        }
    }
    let factor = std::mem::replace(&mut gains[column], 0.0);
    for (entry, own) in gains.iter_mut().zip(&pivot) {
        *entry -= factor * own;
    }
    tableau[place] = pivot;
}
