//! The machinefile, and where Open MPI puts ranks by it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::report::PlacedRanks;

/// A host and how many ranks it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSlots {
    /// Its name: a DNS label.
    pub name: String,
    /// Its slots, 1 to 4096.
    pub slots: u32,
}

/// Why no machinefile can be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum MachinefileError {
    #[error(
        "host name {name:?} is not a DNS label (1 to 63 of a-z, 0-9 and '-', no '-' at either end): rename the \
         cluster or the group"
    )]
    BadName { name: String },
    #[error("host {name}: slots {slots} is not between 1 and 4096")]
    BadSlots { name: String, slots: u32 },
    #[error("host {name} is named twice: Open MPI would add up its slots")]
    Duplicate { name: String },
}

impl MachinefileError {
    /// One PascalCase word for conditions and reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BadName { .. } => "BadHostName",
            Self::BadSlots { .. } => "BadSlots",
            Self::Duplicate { .. } => "DuplicateHost",
        }
    }
}

/// One line per host, in the order given, which is the order of ranks: `name slots=1 max_slots=1`.
///
/// Names are DNS labels only, so that none can add a line, a comment or a field, and Open MPI cuts none at a dot.
pub fn machinefile(hosts: &[HostSlots]) -> Result<String, MachinefileError> {
    lines(hosts, |file, host| writeln!(file, "{} slots={} max_slots={1}", host.name, host.slots))
}

/// The same where more ranks than slots are allowed: without `max_slots`, which Open MPI 5 refuses to exceed whatever it
/// is told.
pub fn machinefile_oversubscribed(hosts: &[HostSlots]) -> Result<String, MachinefileError> {
    lines(hosts, |file, host| writeln!(file, "{} slots={}", host.name, host.slots))
}

/// In MPICH's words: `name:slots`.
pub fn machinefile_hydra(hosts: &[HostSlots]) -> Result<String, MachinefileError> {
    lines(hosts, |file, host| writeln!(file, "{}:{}", host.name, host.slots))
}

fn lines(
    hosts: &[HostSlots],
    line: impl Fn(&mut String, &HostSlots) -> std::fmt::Result,
) -> Result<String, MachinefileError> {
    let mut names = BTreeSet::new();
    let mut file = String::new();
    for host in hosts {
        let HostSlots { name, slots } = host;
        if !is_dns_label(name) {
            return Err(MachinefileError::BadName { name: name.chars().take(80).collect() });
        }
        if !(1..=4096).contains(slots) {
            return Err(MachinefileError::BadSlots { name: name.clone(), slots: *slots });
        }
        if !names.insert(name) {
            return Err(MachinefileError::Duplicate { name: name.clone() });
        }
        // Writing into a String cannot fail.
        let _ = line(&mut file, host);
    }
    Ok(file)
}

fn is_dns_label(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Where Open MPI 4 and 5 put ranks when told `--map-by slot`: each host is filled in machinefile order with
/// consecutive ranks. Ranks beyond all slots are spread evenly, the first hosts taking one more (observed with 4.1.4
/// and 5.0.11). Hosts without a rank are left out.
pub fn expected_placement(hosts: &[HostSlots], processes: u32) -> Vec<PlacedRanks> {
    let slots: u64 = hosts.iter().map(|host| u64::from(host.slots)).sum();
    let beyond = u64::from(processes).saturating_sub(slots);
    let count = hosts.len().max(1) as u64;
    let mut next = 0;
    let mut placed = Vec::new();
    for (index, host) in (0_u64..).zip(hosts) {
        let extra = beyond / count + u64::from(index < beyond % count);
        let end = (u64::from(next) + u64::from(host.slots) + extra).min(u64::from(processes)) as u32;
        if end > next {
            placed.push(PlacedRanks { host: host.name.clone(), ranks: (next..end).collect() });
        }
        next = end;
    }
    placed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts(slots: &[u32]) -> Vec<HostSlots> {
        slots
            .iter()
            .enumerate()
            .map(|(i, slots)| HostSlots { name: format!("ring-node-{i}"), slots: *slots })
            .collect()
    }

    #[test]
    fn one_line_a_host() {
        assert_eq!(
            machinefile(&hosts(&[1, 4])).unwrap(),
            "ring-node-0 slots=1 max_slots=1\nring-node-1 slots=4 max_slots=4\n"
        );
        assert_eq!(machinefile_oversubscribed(&hosts(&[2])).unwrap(), "ring-node-0 slots=2\n");
        assert_eq!(machinefile_hydra(&hosts(&[1, 2])).unwrap(), "ring-node-0:1\nring-node-1:2\n");
    }

    #[test]
    fn names_that_break_the_format_are_refused() {
        for name in ["", "a\nb", "a b", "a#b", "#a", "a.b", "-a", "a-", "A", "a\tb", "a\r", &"x".repeat(64)] {
            let error = machinefile(&[HostSlots { name: name.to_owned(), slots: 1 }]).expect_err(name);
            assert_eq!(error.reason(), "BadHostName");
            assert!(!error.to_string().contains('\n'));
        }
        let twice = [hosts(&[1]), hosts(&[1])].concat();
        assert_eq!(machinefile(&twice).unwrap_err().reason(), "DuplicateHost");
        assert_eq!(machinefile(&hosts(&[0])).unwrap_err().reason(), "BadSlots");
    }

    #[test]
    fn five_thousand_hosts_fit_a_config_map() {
        let file = machinefile(&hosts(&vec![1; 5000])).unwrap();
        assert_eq!(file.lines().count(), 5000);
        assert!(file.len() < 512 << 10);
    }

    /// What Open MPI 4.1.4 and 5.0.11 did with `--map-by slot` and `slot:OVERSUBSCRIBE`.
    #[test]
    fn ranks_go_where_open_mpi_puts_them() {
        let places = |slots: &[u32], processes| -> Vec<Vec<u32>> {
            expected_placement(&hosts(slots), processes).into_iter().map(|p| p.ranks).collect()
        };
        assert_eq!(places(&[1, 1, 2], 4), [vec![0], vec![1], vec![2, 3]]);
        assert_eq!(places(&[3, 2], 4), [vec![0, 1, 2], vec![3]]);
        assert_eq!(places(&[1, 1, 1], 2), [vec![0], vec![1]]);
        assert_eq!(places(&[1, 1, 1, 1], 6), [vec![0, 1], vec![2, 3], vec![4], vec![5]]);
        assert_eq!(places(&[2, 1, 1], 7), [vec![0, 1, 2], vec![3, 4], vec![5, 6]]);
        assert_eq!(places(&[2, 1, 1], 9), [vec![0, 1, 2, 3], vec![4, 5, 6], vec![7, 8]]);
    }

    proptest! {
        #[test]
        fn no_name_adds_a_line_or_a_field(names in proptest::collection::vec(any::<String>(), 0..6)) {
            let hosts: Vec<_> = names.into_iter().map(|name| HostSlots { name, slots: 1 }).collect();
            if let Ok(file) = machinefile(&hosts) {
                prop_assert_eq!(file.lines().count(), hosts.len());
                for (line, host) in file.lines().zip(&hosts) {
                    prop_assert_eq!(line.split_whitespace().collect::<Vec<_>>(),
                        vec![host.name.as_str(), "slots=1", "max_slots=1"]);
                    prop_assert!(!line.contains('#'));
                }
            }
        }

        #[test]
        fn nearly_valid_names_too(name in "[a-z0-9.# \n-]{1,70}") {
            if let Ok(file) = machinefile(&[HostSlots { name: name.clone(), slots: 3 }]) {
                prop_assert_eq!(file, format!("{name} slots=3 max_slots=3\n"));
            }
        }

        #[test]
        fn every_rank_has_one_place(slots in proptest::collection::vec(1_u32..5, 1..8), processes in 1_u32..60) {
            let ranks: Vec<u32> =
                expected_placement(&hosts(&slots), processes).into_iter().flat_map(|p| p.ranks).collect();
            prop_assert_eq!(ranks, (0..processes).collect::<Vec<_>>());
        }
    }
}
