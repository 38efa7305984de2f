#![allow(clippy::float_cmp, reason = "equal draws have equal figures")]

use super::*;

/// Times `Flat` in the study's own simulation of 100 destinations, ten draws of other seeds: the bound, then depth-first,
/// Dijkstra and random, each in lockstep and from disk, then the chain from disk.
const STUDY: [(Condition, f64, [(Strategy, f64, f64); 3], f64); 8] = {
    use Strategy::{DepthFirst as D, Dijkstra as J, Random as R};
    [
        (Condition::Mixed, 22.1, [(D, 12.2, 12.5), (J, 3.9, 9.9), (R, 0.6, 0.7)], 21.2),
        (Condition::Uniform500, 82.6, [(D, 72.8, 74.3), (J, 13.4, 15.6), (R, 3.5, 3.9)], 25.9),
        (Condition::Uniform100, 51.8, [(D, 24.4, 28.8), (J, 13.0, 17.5), (R, 2.4, 2.7)], 21.3),
        (Condition::Trunks, 39.5, [(D, 16.6, 19.9), (J, 16.6, 32.8), (R, 1.3, 1.7)], 32.8),
        (Condition::MixedAsymmetric, 26.5, [(D, 18.2, 18.2), (J, 6.0, 10.1), (R, 0.8, 1.0)], 16.7),
        (Condition::Uniform500Asymmetric, 76.9, [(D, 64.7, 65.5), (J, 8.4, 12.5), (R, 3.0, 3.7)], 22.3),
        (Condition::Uniform100Asymmetric, 46.0, [(D, 17.4, 19.2), (J, 7.4, 12.1), (R, 1.5, 2.1)], 13.1),
        (Condition::TrunksAsymmetric, 38.0, [(D, 13.9, 17.9), (J, 11.9, 27.1), (R, 0.9, 1.6)], 30.4),
    ]
};

#[test]
fn a_draw_is_four_clusters_on_edge_and_core_switches() {
    for condition in Condition::ALL {
        let drawn = draw(condition, 100, 5);
        let Draw { topology, source, destinations } = &drawn;
        assert_eq!(topology.validate(), Ok(()));
        assert_eq!((topology.hosts.len(), topology.switches.len()), (231, 1 + 4 + 5 + 4 + 2 + 1));
        assert_eq!((destinations.len(), destinations.contains(source)), (100, false));
        let symmetric = topology.links.iter().all(|link| link.back_mbps.is_none());
        assert_eq!(symmetric, condition.is_symmetric());
        assert_eq!(drawn, draw(condition, 100, 5));
        assert_ne!(drawn, draw(condition, 100, 6));
    }
    assert_eq!(draw(Condition::Mixed, 1000, 1).destinations.len(), 230);
}
