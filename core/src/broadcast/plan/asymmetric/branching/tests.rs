use proptest::prelude::*;

use super::*;

fn total(costs: &[f64], size: usize, parents: &[usize]) -> f64 {
    (1..size).map(|to| costs[parents[to] * size + to]).sum()
}

fn is_tree(parents: &[usize]) -> bool {
    (1..parents.len()).all(|start| {
        let mut vertex = start;
        (0..parents.len()).any(|_| {
            vertex = parents[vertex];
            vertex == 0
        })
    })
}

/// The cheapest of all choices of parents that make a tree.
fn by_trial(costs: &[f64], size: usize) -> f64 {
    let choices = size.pow(size as u32 - 1);
    let trees = (0..choices).filter_map(|mut choice| {
        let mut parents = vec![0; size];
        for parent in parents.iter_mut().skip(1) {
            *parent = choice % size;
            choice /= size;
        }
        (is_tree(&parents)).then(|| total(costs, size, &parents))
    });
    trees.fold(f64::INFINITY, f64::min)
}

#[test]
fn a_cycle_of_cheap_arcs_is_entered_where_that_is_cheapest() {
    // 1 and 2 feed each other for 1; from the root 1 costs 10 and 2 costs 9.
    let infinite = f64::INFINITY;
    let costs = vec![infinite, 10.0, 9.0, infinite, infinite, 1.0, infinite, 1.0, infinite];
    assert_eq!(cheapest(costs, 3), Some(vec![0, 2, 0]));
}

#[test]
fn what_cannot_be_reached_gives_none() {
    assert_eq!(cheapest(vec![f64::INFINITY; 4], 2), None);
    assert_eq!(cheapest(vec![f64::INFINITY], 1), Some(vec![0]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_tree_is_cheaper(size in 2_usize..6, numbers in prop::collection::vec(0_u32..12, 36)) {
        let costs: Vec<f64> = (0..size * size)
            .map(|index| if numbers[index] == 11 { f64::INFINITY } else { f64::from(numbers[index]) })
            .collect();
        let best = by_trial(&costs, size);
        match cheapest(costs.clone(), size) {
            Some(parents) => {
                prop_assert!(is_tree(&parents), "{parents:?}");
                prop_assert!((total(&costs, size, &parents) - best).abs() < 1e-9);
            }
            None => prop_assert!(best.is_infinite()),
        }
    }
}
