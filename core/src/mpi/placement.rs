//! Did every rank run where the machinefile says?

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::command::Implementation;
use super::machinefile::HostSlots;
use crate::report::PlacedRanks;

/// A rank as its node's starter saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedRank {
    /// Its number.
    pub rank: u32,
    /// The number of ranks as the launcher told it; 0 where it did not.
    pub world: u32,
}

/// One thing that is not as the machinefile says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Problem {
    Missing { rank: u32, expected: String },
    Misplaced { rank: u32, expected: String, seen: String },
    Twice { rank: u32, first: String, second: String },
    Unasked { rank: u32, seen: String, processes: u32 },
    OtherWorld { rank: u32, seen: String, world: u32, processes: u32 },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { rank, expected } => {
                write!(f, "rank {rank} was not seen (expected on {expected})")
            }
            Self::Misplaced { rank, expected, seen } => {
                write!(f, "rank {rank} was seen on {seen}, the machinefile puts it on {expected}")
            }
            Self::Twice { rank, first, second } if first == second => {
                write!(f, "rank {rank} was seen twice on {first}")
            }
            Self::Twice { rank, first, second } => {
                write!(f, "rank {rank} was seen on {first} and on {second}")
            }
            Self::Unasked { rank, seen, processes } => {
                write!(f, "rank {rank} was seen on {seen}, but only {processes} ranks were asked for")
            }
            Self::OtherWorld { rank, seen, world, processes } => {
                write!(f, "rank {rank} on {seen} was started as one of {world}, not of {processes}")
            }
        }
    }
}

/// Ranks were not where the machinefile says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Listed(problems))]
pub struct PlacementError {
    /// All that is wrong, in the order of ranks.
    pub problems: Vec<Problem>,
    /// Where ranks were seen all the same, for the report.
    pub seen: Vec<PlacedRanks>,
}

impl PlacementError {
    /// One PascalCase word for conditions and reports.
    pub fn reason(&self) -> &'static str {
        "PlacementMismatch"
    }
}

/// The first few of them: a message is read by a person and stored in a condition.
struct Listed<'a>(&'a [Problem]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        for (index, problem) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "; " })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Compares the ranks that the starters saw with where `implementation` puts them by the machinefile. Returns where they
/// ran, in machinefile order.
pub fn check_placement(
    implementation: Implementation,
    hosts: &[HostSlots],
    processes: u32,
    observed: &[(String, Vec<ObservedRank>)],
) -> Result<Vec<PlacedRanks>, PlacementError> {
    let expected = implementation.placement(hosts, processes);
    let home: BTreeMap<u32, &str> = expected
        .iter()
        .flat_map(|placed| placed.ranks.iter().map(|rank| (*rank, placed.host.as_str())))
        .collect();
    let mut sightings: BTreeMap<u32, Vec<(&str, u32)>> = BTreeMap::new();
    for (host, ranks) in observed {
        for seen in ranks {
            sightings.entry(seen.rank).or_default().push((host, seen.world));
        }
    }
    let mut problems = Vec::new();
    let ranks: BTreeSet<u32> = home.keys().chain(sightings.keys()).copied().collect();
    for rank in ranks {
        let expected = home.get(&rank).copied();
        let seen = sightings.get(&rank).map_or(&[][..], Vec::as_slice);
        problems.extend(problem(rank, processes, expected, seen));
    }
    let seen = placed(hosts, observed);
    if problems.is_empty() { Ok(seen) } else { Err(PlacementError { problems, seen }) }
}

/// What is wrong with one rank, the most telling thing first.
fn problem(rank: u32, processes: u32, expected: Option<&str>, seen: &[(&str, u32)]) -> Option<Problem> {
    let Some(expected) = expected else {
        let (host, _) = seen.first()?;
        return Some(Problem::Unasked { rank, seen: (*host).to_owned(), processes });
    };
    match seen {
        [] => Some(Problem::Missing { rank, expected: expected.to_owned() }),
        [(host, world)] if *world != 0 && *world != processes => {
            Some(Problem::OtherWorld { rank, seen: (*host).to_owned(), world: *world, processes })
        }
        [(host, _)] if *host == expected => None,
        [(host, _)] => {
            Some(Problem::Misplaced { rank, expected: expected.to_owned(), seen: (*host).to_owned() })
        }
        [(first, _), (second, _), ..] => {
            Some(Problem::Twice { rank, first: (*first).to_owned(), second: (*second).to_owned() })
        }
    }
}

/// The ranks seen by host: machinefile order, then hosts that it does not name.
fn placed(hosts: &[HostSlots], observed: &[(String, Vec<ObservedRank>)]) -> Vec<PlacedRanks> {
    let mut by_host: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for (host, ranks) in observed {
        by_host.entry(host).or_default().extend(ranks.iter().map(|seen| seen.rank));
    }
    let mut placed = Vec::new();
    for host in hosts {
        if let Some(ranks) = by_host.remove(host.name.as_str()) {
            placed.push((host.name.clone(), ranks));
        }
    }
    placed.extend(by_host.into_iter().map(|(host, ranks)| (host.to_owned(), ranks)));
    placed
        .into_iter()
        .filter(|(_, ranks)| !ranks.is_empty())
        .map(|(host, ranks)| PlacedRanks { host, ranks: ranks.into_iter().collect() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_placement(
        hosts: &[HostSlots],
        processes: u32,
        observed: &[(String, Vec<ObservedRank>)],
    ) -> Result<Vec<PlacedRanks>, PlacementError> {
        super::check_placement(Implementation::OpenMpi, hosts, processes, observed)
    }

    fn hosts() -> Vec<HostSlots> {
        ["n0", "n1", "n2"].map(|name| HostSlots { name: name.to_owned(), slots: 1 }).to_vec()
    }

    fn seen(places: &[(&str, &[u32])]) -> Vec<(String, Vec<ObservedRank>)> {
        places
            .iter()
            .map(|(host, ranks)| {
                let ranks = ranks.iter().map(|rank| ObservedRank { rank: *rank, world: 3 }).collect();
                ((*host).to_owned(), ranks)
            })
            .collect()
    }

    fn message(places: &[(&str, &[u32])]) -> String {
        check_placement(&hosts(), 3, &seen(places)).unwrap_err().to_string()
    }

    #[test]
    fn as_the_machinefile_says() {
        let placed =
            check_placement(&hosts(), 3, &seen(&[("n2", &[2]), ("n0", &[0]), ("n1", &[1])])).unwrap();
        assert_eq!(placed.iter().map(|p| p.host.as_str()).collect::<Vec<_>>(), ["n0", "n1", "n2"]);
        let placed = check_placement(&hosts(), 2, &[]).unwrap_err();
        assert_eq!(placed.problems.len(), 2);
    }

    #[test]
    fn each_departure_is_named() {
        assert_eq!(message(&[("n0", &[0]), ("n1", &[1])]), "rank 2 was not seen (expected on n2)");
        assert_eq!(
            message(&[("n0", &[0, 2]), ("n1", &[1])]),
            "rank 2 was seen on n0, the machinefile puts it on n2"
        );
        assert_eq!(
            message(&[("n0", &[0]), ("n1", &[1, 0]), ("n2", &[2])]),
            "rank 0 was seen on n0 and on n1"
        );
        assert_eq!(message(&[("n0", &[0, 0]), ("n1", &[1]), ("n2", &[2])]), "rank 0 was seen twice on n0");
        assert_eq!(
            message(&[("n0", &[0]), ("n1", &[1]), ("n2", &[2, 7])]),
            "rank 7 was seen on n2, but only 3 ranks were asked for"
        );
    }

    /// The trap of Open MPI 5 with variables for 4: all on the launcher, exit code 0.
    #[test]
    fn all_on_the_launcher_is_a_mismatch() {
        let error = check_placement(&hosts(), 3, &seen(&[("n0", &[0, 1, 2])])).unwrap_err();
        assert_eq!(error.reason(), "PlacementMismatch");
        assert_eq!(error.problems.len(), 2);
        assert_eq!(error.seen, [PlacedRanks { host: "n0".to_owned(), ranks: vec![0, 1, 2] }]);
    }

    /// A program of another MPI: each rank believes to be alone.
    #[test]
    fn a_world_of_another_size_is_a_mismatch() {
        let alone = vec![("n0".to_owned(), vec![ObservedRank { rank: 0, world: 1 }])];
        let hosts = [HostSlots { name: "n0".to_owned(), slots: 2 }];
        let error = check_placement(&hosts, 2, &alone).unwrap_err();
        assert_eq!(
            error.to_string(),
            "rank 0 on n0 was started as one of 1, not of 2; rank 1 was not seen (expected on n0)"
        );
    }

    #[test]
    fn a_long_list_is_cut() {
        let hosts: Vec<_> = (0..100).map(|i| HostSlots { name: format!("n{i}"), slots: 1 }).collect();
        let text = check_placement(&hosts, 100, &[]).unwrap_err().to_string();
        assert!(text.ends_with("; and 96 more"), "{text}");
        assert!(text.len() < 400);
    }
}
