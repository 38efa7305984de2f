#![allow(clippy::float_cmp, reason = "the levels of these demands are exact")]

use super::*;

/// What a demand takes of which arcs, and who feeds it.
type Taken<'a> = (&'a [(usize, f64)], &'a [usize]);

/// Demands on arcs `0..capacities.len()`: what each takes of which, and who feeds it.
fn filled(capacities: &[f64], demands: &[Taken<'_>]) -> Vec<f64> {
    let demands: Vec<Demand> = demands
        .iter()
        .map(|(uses, fed_by)| Demand {
            uses: uses.iter().map(|&(arc, pace)| (Resource::Arc(arc), pace)).collect(),
            fed_by: fed_by.to_vec(),
        })
        .collect();
    fill(&demands, |resource| match resource {
        Resource::Arc(arc) => capacities[arc],
        _ => f64::INFINITY,
    })
}

#[test]
fn who_is_held_up_elsewhere_leaves_the_rest_to_the_others() {
    // The textbook's three on two links: the long one gets a third of the narrow link, the other on the wide one the rest.
    let (wide, narrow) = (0, 1);
    let long: &[(usize, f64)] = &[(wide, 1.0), (narrow, 1.0)];
    let demands = [(long, &[][..]), (&[(narrow, 1.0)], &[]), (&[(narrow, 1.0)], &[]), (&[(wide, 1.0)], &[])];
    assert_eq!(filled(&[100.0, 30.0], &demands), [10.0, 10.0, 10.0, 90.0]);
}

#[test]
fn nobody_grows_beyond_who_feeds_it_and_leaves_what_it_cannot_use() {
    let demands: [Taken<'_>; 3] = [(&[(0, 1.0)], &[]), (&[(1, 1.0)], &[0]), (&[(1, 1.0)], &[])];
    assert_eq!(filled(&[20.0, 100.0], &demands), [20.0, 20.0, 80.0]);
}

#[test]
fn those_who_feed_each_other_stop_together() {
    let demands: [Taken<'_>; 2] = [(&[(0, 1.0)], &[1]), (&[(1, 1.0)], &[0])];
    assert_eq!(filled(&[20.0, 100.0], &demands), [20.0, 20.0]);
}

#[test]
fn paces_and_resources_that_are_used_several_times_count() {
    // The first takes 1 + 3 of the arc for each 1 it grows, the second 1.
    let demands: [Taken<'_>; 2] = [(&[(0, 1.0), (0, 3.0)], &[]), (&[(0, 1.0), (1, 1.0)], &[])];
    assert_eq!(filled(&[100.0, 50.0], &demands), [20.0, 20.0]);
    assert_eq!(filled(&[100.0, 12.0], &demands), [22.0, 12.0]);
}

#[test]
fn where_nothing_is_left_nothing_grows() {
    let demands: [Taken<'_>; 2] = [(&[(0, 1.0)], &[]), (&[(1, 1.0)], &[])];
    assert_eq!(filled(&[0.0, 5.0], &demands), [0.0, 5.0]);
    assert_eq!(filled(&[], &[]), Vec::<f64>::new());
}

#[test]
fn thousands_of_levels_add_up_no_error() {
    let count: usize = 5000;
    let capacities: Vec<f64> = (0..count).map(|arc| 1.0 / (arc + 3) as f64).chain([1e9]).collect();
    let uses: Vec<[(usize, f64); 2]> = (0..count).map(|arc| [(arc, 1.0), (count, 1.0)]).collect();
    let demands: Vec<Taken<'_>> = uses.iter().map(|uses| (&uses[..], &[][..])).collect();
    assert_eq!(filled(&capacities, &demands), capacities[..count]);
}
