use proptest::prelude::{ProptestConfig, prop_assert, proptest};

use super::*;
use crate::broadcast::random::Random;

/// The sum of the best levels by the plain dynamic programme over all positions.
fn plain(bounds: &[f64], most: usize) -> f64 {
    let mut sorted = bounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // What is behind each position is worth with one of the levels at it.
    let mut worth = vec![0.0_f64; count + 1];
    for _ in 0..most {
        let mut next = vec![0.0_f64; count + 1];
        for from in 0..count {
            for (to, behind) in worth.iter().enumerate().skip(from + 1) {
                next[from] = next[from].max(sorted[from] * (to - from) as f64 + behind);
            }
        }
        worth = next;
    }
    worth[0]
}

fn uniform(count: usize, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.between(100.0, 1000.0)).collect()
}

/// Percent of the sum that `most` levels keep of uniform bounds, the average over ten draws.
fn kept(count: usize, most: usize) -> f64 {
    let share = |seed: u64| {
        let bounds = uniform(count, seed);
        floor(&bounds, most).iter().sum::<f64>() / bounds.iter().sum::<f64>()
    };
    (0..10).map(share).sum::<f64>() * 10.0
}

#[test]
fn few_levels_keep_what_the_study_says() {
    for (hosts, levels, least, most) in [
        (100, 4, 82.0, 87.5),
        (100, 8, 91.5, 93.5),
        (100, 16, 96.0, 97.5),
        (300, 8, 90.5, 92.0),
        (300, 16, 95.5, 96.5),
    ] {
        let kept = kept(hosts, levels);
        assert!((least..=most).contains(&kept), "{levels} levels keep {kept} % for {hosts} hosts");
    }
}

#[test]
fn two_levels_of_three_are_the_better_two() {
    assert_eq!(choose(&[10.0, 20.0, 100.0, 100.0], 2), [10.0, 100.0]);
    assert_eq!(choose(&[10.0, 90.0, 100.0], 2), [10.0, 90.0]);
    assert_eq!(choose(&[10.0, 90.0, 100.0], 1), [10.0]);
    assert_eq!(choose(&[100.0, 10.0, 90.0, 10.0], 0), [10.0, 90.0, 100.0]);
    assert_eq!(floor(&[100.0, 10.0, 90.0, 10.0], 2), [90.0, 10.0, 90.0, 10.0]);
    assert!(choose(&[], 3).is_empty() && floor(&[], 0).is_empty());
}

#[test]
fn ten_thousand_bounds_take_no_time_that_grows_with_their_square() {
    let bounds = uniform(10_000, 1);
    let levels = choose(&bounds, 16);
    assert_eq!(levels.len(), 16);
    assert!(levels.windows(2).all(|pair| pair[0] < pair[1]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn levels_are_as_good_as_those_of_the_plain_programme(
        whole in proptest::collection::vec(1_u32..60, 1..40), most in 1_usize..9,
    ) {
        let bounds: Vec<f64> = whole.iter().map(|&mbps| f64::from(mbps)).collect();
        let floors = floor(&bounds, most);
        let sum: f64 = floors.iter().sum();
        prop_assert!((sum - plain(&bounds, most)).abs() < 1e-9);
        prop_assert!(floors.iter().zip(&bounds).all(|(floor, bound)| *floor > 0.0 && floor <= bound));
        let mut different = floors;
        different.sort_by(f64::total_cmp);
        different.dedup();
        prop_assert!(different.len() <= most);
    }
}
