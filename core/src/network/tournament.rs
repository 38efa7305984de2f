//! In which order are all pairs measured so that no two measurements share a host, or a link?

use std::collections::BTreeSet;

/// Every ordered pair `(source, destination)` once, in rounds in which each host has at most one partner: a
/// 1-factorisation by the circle method, each round played in both directions. `2 (n - 1)` rounds for even `n`, `2 n`
/// for odd `n`.
pub fn rounds(hosts: usize) -> Vec<Vec<(usize, usize)>> {
    if hosts < 2 {
        return Vec::new();
    }
    // With an odd number, who meets the host that there is not has a rest.
    let players = hosts + hosts % 2;
    let mut rounds = Vec::with_capacity(2 * (players - 1));
    for turn in 0..players - 1 {
        // The last player stays, the others move round.
        let at = |seat: usize| if seat == players - 1 { seat } else { (seat + turn) % (players - 1) };
        let forth: Vec<(usize, usize)> = (0..players / 2)
            .map(|seat| if seat == 0 { (at(0), at(players - 1)) } else { (at(seat), at(players - 1 - seat)) })
            .filter(|(a, b)| *a < hosts && *b < hosts)
            .collect();
        let back = forth.iter().map(|(a, b)| (*b, *a)).collect();
        rounds.push(forth);
        rounds.push(back);
    }
    rounds
}

/// Splits rounds so that no more than `at_most` pairs (at least 1) are measured at once.
pub fn limit(rounds: Vec<Vec<(usize, usize)>>, at_most: usize) -> Vec<Vec<(usize, usize)>> {
    rounds
        .into_iter()
        .flat_map(|round| round.chunks(at_most.max(1)).map(<[_]>::to_vec).collect::<Vec<_>>())
        .collect()
}

/// Links in use, and the pairs that use them.
type Part = (BTreeSet<usize>, Vec<(usize, usize)>);

/// Splits rounds so that no two pairs measured at once use the same link, in whatever direction: a trunk that two
/// streams share shows each of them half. `links` names the links on the way of a pair, both ways.
pub fn disjoint(
    rounds: Vec<Vec<(usize, usize)>>,
    links: impl Fn(usize, usize) -> BTreeSet<usize>,
) -> Vec<Vec<(usize, usize)>> {
    let mut split = Vec::with_capacity(rounds.len());
    for round in rounds {
        let mut parts: Vec<Part> = Vec::new();
        for (source, destination) in round {
            let used = links(source, destination);
            match parts.iter_mut().find(|(taken, _)| taken.is_disjoint(&used)) {
                Some((taken, pairs)) => {
                    taken.extend(used);
                    pairs.push((source, destination));
                }
                None => parts.push((used, vec![(source, destination)])),
            }
        }
        split.extend(parts.into_iter().map(|(_, pairs)| pairs));
    }
    split
}

/// How many pairs may be measured at once, and by which rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// Pairs, at least 1.
    pub pairs: usize,
    /// One sentence for the report's notes where fewer pairs run than hosts allow; else empty.
    pub note: String,
}

/// Emulated TCP that one core carries while timers still fire in time, Mbit/s. The fabric takes 0.3 core for 941 Mbit/s
/// (measured), both ends' TCP about as much each; half of a core stays free for everything else.
const MBPS_PER_CORE: f64 = 500.0;

/// Bandwidth probes at once where all hosts live on one machine: their rates together stay within what its cores carry,
/// or the processor is measured instead of the links. Where hosts are machines of their own, disjoint pairs do not
/// disturb each other and [`rounds`] needs no [`limit`].
pub fn concurrent_pairs(cores: usize, expected_mbps: f64, hosts: usize) -> Concurrency {
    let possible = (hosts / 2).max(1);
    let budget = cores.max(1) as f64 * MBPS_PER_CORE;
    let carried = if expected_mbps > 0.0 && expected_mbps.is_finite() {
        (budget / expected_mbps).floor().clamp(1.0, possible as f64) as usize
    } else {
        1
    };
    let note = if carried < possible {
        format!(
            "bandwidth was measured {} at a time: {cores} cores carry {budget:.0} Mbit/s of emulated network \
             ({MBPS_PER_CORE:.0} each) and a pair is expected to take {expected_mbps:.0}",
            pairs(carried)
        )
    } else {
        String::new()
    };
    Concurrency { pairs: carried, note }
}

/// Latency probes at once on one machine: each keeps two agents and the fabric awake for a moment, so two pairs a core
/// leave the processor idle most of the time.
pub fn concurrent_latency_pairs(cores: usize, hosts: usize) -> Concurrency {
    let possible = (hosts / 2).max(1);
    let carried = (2 * cores.max(1)).min(possible);
    let note = if carried < possible {
        format!("latency was measured {} at a time, two for each of {cores} cores", pairs(carried))
    } else {
        String::new()
    };
    Concurrency { pairs: carried, note }
}

fn pairs(count: usize) -> String {
    if count == 1 { "one pair".to_owned() } else { format!("{count} pairs") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_few_rounds_as_there_can_be() {
        assert!(rounds(0).is_empty() && rounds(1).is_empty());
        assert_eq!(rounds(2), [[(0, 1)], [(1, 0)]]);
        assert_eq!(rounds(4).len(), 6);
        assert_eq!(rounds(5).len(), 10);
        assert!(rounds(4).iter().all(|round| round.len() == 2));
    }

    #[test]
    fn no_more_pairs_than_the_machine_carries() {
        assert_eq!(concurrent_pairs(2, 250.0, 4), Concurrency { pairs: 2, note: String::new() });
        assert_eq!(concurrent_pairs(2, 250.0, 16).pairs, 4);
        let one = concurrent_pairs(2, 940.0, 4);
        assert_eq!(one.pairs, 1);
        assert!(one.note.contains("one pair at a time: 2 cores carry 1000 Mbit/s"), "{}", one.note);
        assert_eq!(concurrent_pairs(0, f64::NAN, 0).pairs, 1);
        assert_eq!(concurrent_latency_pairs(2, 16).pairs, 4);
        assert_eq!(concurrent_latency_pairs(2, 4), Concurrency { pairs: 2, note: String::new() });
    }

    proptest! {
        #[test]
        fn each_ordered_pair_once_each_host_once_a_round(hosts in 0_usize..40, at_most in 0_usize..12) {
            let rounds = limit(rounds(hosts), at_most);
            let mut met = BTreeSet::new();
            for round in &rounds {
                prop_assert!(!round.is_empty() && round.len() <= at_most.max(1));
                let busy: BTreeSet<usize> = round.iter().flat_map(|(a, b)| [*a, *b]).collect();
                prop_assert_eq!(busy.len(), 2 * round.len());
                for pair in round { prop_assert!(met.insert(*pair)); }
            }
            prop_assert_eq!(met.len(), hosts * hosts.saturating_sub(1));
        }
    }
}
