//! What does the end of a launch mean?

use gridcast_core::{
    mpi::{self, HostSlots, ObservedRank, RankEnd},
    report::PlacedRanks,
};
use gridcast_proto::v1 as wire;

use super::{Observed, Program};
use crate::StepFailure;

/// How the launcher ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code.
    pub code: i32,
    /// The signal that ended it; 0 where it ended by itself.
    pub signal: i32,
    /// The end of what it wrote to standard error.
    pub stderr_tail: Vec<u8>,
}

impl Ended {
    /// As a shell reports it: 128 + signal.
    pub fn shell_code(&self) -> i32 {
        if self.signal == 0 { self.code } else { 128 + self.signal }
    }
}

/// What a launch came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// 128 + signal where a signal ended it.
    pub exit_code: i32,
    /// Where ranks were seen.
    pub placement: Vec<PlacedRanks>,
    /// Why it is not complete, if it is not.
    pub problem: Option<StepFailure>,
}

/// Judges a launch by the launcher's end and by what the starters saw. `launcher` is the node on which it ran.
pub fn judge(
    program: &Program,
    slots: &[HostSlots],
    launcher: &str,
    ended: &Ended,
    observed: &Observed,
) -> Judgement {
    let implementation = program.implementation;
    let hosts = implementation.hosts_by_rank(slots, program.processes);
    let seen: Vec<(String, Vec<ObservedRank>)> = observed
        .iter()
        .map(|(host, ranks)| {
            let ranks = ranks.iter().map(|r| ObservedRank { rank: r.rank, world: r.world });
            (host.clone(), ranks.collect())
        })
        .collect();
    let (placement, misplaced) = match mpi::check_placement(implementation, slots, program.processes, &seen) {
        Ok(placement) => (placement, None),
        Err(error) => (error.seen.clone(), Some(StepFailure::new(error.reason(), error.to_string()))),
    };
    let exit_code = ended.shell_code();
    let problem = match (ended.signal, exit_code) {
        (0, 0) => misplaced,
        (0, _) => Some(why(program, exit_code, rank_end(&ended.stderr_tail, observed, &hosts))),
        (signal, _) => {
            let text = format!("{launcher}: {} was killed by signal {signal}", program.launcher());
            Some(StepFailure::new("LauncherKilled", text))
        }
    };
    Judgement { exit_code, placement, problem }
}

/// Why the program did not end well.
fn why(program: &Program, exit_code: i32, ended: Option<RankEnd>) -> StepFailure {
    let name = program.command.first().map_or("the program", String::as_str);
    match ended {
        Some(end) if end.end == mpi::End::Code(127) => StepFailure::new(
            "ProgramNotFound",
            format!("{name} was not found: {end}; give its path, or put it in PATH"),
        ),
        Some(end) if end.end == mpi::End::Code(126) => StepFailure::new(
            "NotExecutable",
            format!("{name} cannot be executed: {end}; is it a program of this machine?"),
        ),
        Some(end) => StepFailure::new(end.reason(), format!("{name}: {end}")),
        None => StepFailure::new(
            "ProgramFailed",
            format!("{name} ended with code {exit_code}; its output says more"),
        ),
    }
}

/// Which rank ended the run: by what the launcher said, else by what the starters saw.
fn rank_end(tail: &[u8], observed: &Observed, hosts: &[String]) -> Option<RankEnd> {
    let said = mpi::rank_end(&String::from_utf8_lossy(tail), hosts);
    let seen = || {
        let mut ended: Vec<(&String, &wire::ObservedRank)> = observed
            .iter()
            .flat_map(|(host, ranks)| ranks.iter().map(move |r| (host, r)))
            .filter(|(_, r)| r.ended && (r.signal != 0 || r.code > 0))
            .collect();
        // When one rank fails, the launcher ends the others with SIGTERM, and SIGKILL where that does not help.
        ended.sort_by_key(|(_, r)| (r.signal == 15, r.signal == 9, r.rank));
        ended.first().map(|(host, r)| RankEnd {
            rank: r.rank,
            host: Some((*host).clone()),
            end: if r.signal == 0 { mpi::End::Code(r.code) } else { mpi::End::Signal(r.signal) },
        })
    };
    said.or_else(seen)
}

#[cfg(test)]
mod tests {
    use gridcast_crds::virtual_cluster::run::Run;

    use super::*;

    fn program() -> Program {
        let run = Run { processes: 2, command: vec!["ring".into()], ..Run::default() };
        Program::try_from(&run).unwrap()
    }

    fn slots() -> Vec<HostSlots> {
        ["n0", "n1"].map(|name| HostSlots { name: name.into(), slots: 1 }).to_vec()
    }

    fn rank(rank: u32, signal: i32, code: i32) -> wire::ObservedRank {
        wire::ObservedRank { rank, world: 2, ended: true, signal, code, ..Default::default() }
    }

    fn judged(ended: &Ended, observed: &[(&str, wire::ObservedRank)]) -> String {
        let observed: Observed =
            observed.iter().map(|(host, r)| ((*host).to_owned(), vec![r.clone()])).collect();
        let judgement = judge(&program(), &slots(), "n0", ended, &observed);
        judgement.problem.map_or_else(|| format!("{}", judgement.exit_code), |problem| problem.to_string())
    }

    #[test]
    fn only_ranks_in_their_places_are_complete() {
        let ended = Ended::default();
        assert_eq!(judged(&ended, &[("n0", rank(0, 0, 0)), ("n1", rank(1, 0, 0))]), "0");
        assert_eq!(
            judged(&ended, &[("n0", rank(0, 0, 0))]),
            "PlacementMismatch: rank 1 was not seen (expected on n1)"
        );
    }

    #[test]
    fn the_rank_that_failed_first_is_named() {
        let ended = Ended { code: 137, ..Ended::default() };
        assert_eq!(
            judged(&ended, &[("n0", rank(0, 15, -1)), ("n1", rank(1, 0, 3))]),
            "RankFailed: ring: rank 1 on n1 exited with code 3"
        );
        let ended = Ended { code: 127, ..Ended::default() };
        assert!(
            judged(&ended, &[("n0", rank(0, 0, 127))]).starts_with("ProgramNotFound: ring was not found")
        );
        let killed = Ended { signal: 9, ..Ended::default() };
        assert_eq!(judged(&killed, &[]), "LauncherKilled: n0: mpirun.openmpi was killed by signal 9");
    }
}
