use super::super::super::super::random::Random;
use super::*;

fn costs(size: usize, random: &mut Random) -> Costs {
    let costs = (0..size * size).map(|index| {
        let (from, to) = (index / size, index % size);
        if from == to || to == 0 { f64::INFINITY } else { random.between(0.0, 2.0) }
    });
    Costs { size, costs: costs.collect(), ways: Vec::new() }
}

/// Every choice of parents or of absence.
fn by_trial(costs: &Costs, prizes: &[f64]) -> f64 {
    let (size, choices) = (costs.size, costs.size + 1);
    let trees = (0..choices.pow(size as u32 - 1)).filter_map(|mut choice| {
        let mut parents: Parents = vec![None; size];
        for parent in parents.iter_mut().skip(1) {
            *parent = (choice % choices < size).then_some(choice % choices);
            choice /= choices;
        }
        let reached = parents.iter().flatten().count();
        (feeding_order(&parents).len() == reached).then(|| costs.worth(prizes, &parents))
    });
    trees.filter(|worth| worth.is_finite()).fold(0.0, f64::max)
}

#[test]
fn no_tree_is_worth_more_than_the_first() {
    let mut random = Random::new(1);
    for _ in 0..60 {
        let costs = costs(5, &mut random);
        let prizes = [0.0, 1.0, 1.0, random.between(0.0, 3.0), 1.0];
        let best = costs.trees(&prizes).first().map_or(0.0, |tree| costs.worth(&prizes, tree)).max(0.0);
        assert!((best - by_trial(&costs, &prizes)).abs() < 1e-9);
    }
}

#[test]
fn heuristics_come_close() {
    let mut random = Random::new(2);
    let (mut found, mut best) = (0.0, 0.0);
    for _ in 0..60 {
        let costs = costs(10, &mut random);
        let prizes = vec![1.0; 10];
        let worth =
            |trees: Vec<Parents>| trees.iter().map(|tree| costs.worth(&prizes, tree)).fold(0.0, f64::max);
        found += worth(costs.some(&prizes));
        best += worth(costs.all(&prizes));
    }
    assert!(found >= 0.97 * best && found <= best + 1e-9, "{found} of {best}");
}
