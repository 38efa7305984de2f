use proptest::prelude::*;

use super::*;

fn solved(limits: &[f64], columns: &[(f64, &[(usize, f64)])]) -> Simplex {
    let mut simplex = Simplex::new(limits.to_vec());
    for (gain, uses) in columns {
        simplex.add(*gain, uses.to_vec());
    }
    assert_eq!(simplex.run(1000), Outcome::Optimal);
    simplex
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-7 * a.abs().max(b.abs()).max(1.0)
}

#[test]
fn a_programme_of_a_textbook() {
    // Dantzig: 3 x + 5 y, x <= 4, 2 y <= 12, 3 x + 2 y <= 18. Optimum 36 at (2, 6), prices (0, 3/2, 1).
    let simplex = solved(&[4.0, 12.0, 18.0], &[(3.0, &[(0, 1.0), (2, 3.0)]), (5.0, &[(1, 2.0), (2, 2.0)])]);
    let amounts = simplex.amounts();
    assert!(close(amounts[0], 2.0) && close(amounts[1], 6.0), "{amounts:?}");
    let prices = simplex.prices();
    assert!(close(prices[0], 0.0) && close(prices[1], 1.5) && close(prices[2], 1.0), "{prices:?}");
    assert!(close(simplex.bound(), 36.0) && close(simplex.gained(), 36.0));
}

#[test]
fn the_programme_that_cycles_without_care_about_ties() {
    // Beale 1955: max 3/4 a - 150 b + 1/50 c - 6 d. Optimum 1/20.
    let simplex = solved(
        &[0.0, 0.0, 1.0],
        &[
            (0.75, &[(0, 0.25), (1, 0.5)]),
            (-150.0, &[(0, -60.0), (1, -90.0)]),
            (0.02, &[(0, -0.04), (1, -0.02), (2, 1.0)]),
            (-6.0, &[(0, 9.0), (1, 3.0)]),
        ],
    );
    assert!(close(simplex.bound(), 0.05), "{}", simplex.bound());
}

#[test]
fn a_gain_without_limit_is_said() {
    let mut simplex = Simplex::new(vec![1.0]);
    simplex.add(1.0, Vec::new());
    assert_eq!(simplex.run(10), Outcome::Unbounded);
}

#[test]
fn nothing_to_do_is_optimal() {
    assert_eq!(Simplex::new(Vec::new()).run(0), Outcome::Optimal);
    assert_eq!(Simplex::new(vec![1.0]).run(0), Outcome::Optimal);
}

/// Limits, then columns as gain and dense uses.
fn programmes() -> impl Strategy<Value = (Vec<f64>, Vec<(f64, Vec<f64>)>)> {
    (1_usize..14, 1_usize..24).prop_flat_map(|(rows, columns)| {
        let limits = prop::collection::vec((0_u32..20).prop_map(f64::from), rows);
        let uses = prop_oneof![2 => Just(0.0), 2 => (1_u32..4).prop_map(f64::from)];
        let column = ((1_u32..10).prop_map(f64::from), prop::collection::vec(uses, rows));
        (limits, prop::collection::vec(column, columns))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The certificate: amounts keep to the limits, prices are dual feasible, both have one value. Columns are added one by
    /// one, with a run after each, as column generation does.
    #[test]
    fn an_optimum_is_proven_by_its_prices((limits, columns) in programmes()) {
        let mut simplex = Simplex::new(limits.clone());
        let bounded: Vec<_> =
            columns.iter().filter(|(_, uses)| uses.iter().any(|&uses| uses > 0.0)).collect();
        for (gain, uses) in &bounded {
            simplex.add(*gain, uses.iter().copied().enumerate().filter(|(_, uses)| *uses != 0.0).collect());
            prop_assert_eq!(simplex.run(1000), Outcome::Optimal);
        }
        let (amounts, prices) = (simplex.amounts(), simplex.prices());
        for (row, &limit) in limits.iter().enumerate() {
            let used: f64 = bounded.iter().zip(&amounts).map(|((_, uses), amount)| uses[row] * amount).sum();
            prop_assert!(used <= limit + 1e-6, "row {row}: {used} of {limit}");
        }
        for (gain, uses) in &bounded {
            let cost: f64 = uses.iter().zip(&prices).map(|(uses, price)| uses * price).sum();
            prop_assert!(cost >= gain - 1e-6, "{cost} for {gain}");
        }
        prop_assert!((simplex.gained() - simplex.bound()).abs() <= 1e-5, "{} {}", simplex.gained(), simplex.bound());
    }
}
