//! Which rank ended the run, by what `mpirun` printed. A fall-back: where the starter saw the rank end, that is better.

use std::fmt;

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By a signal.
    Signal(i32),
    /// With an exit code other than zero.
    Code(i32),
    /// By `MPI_Abort` with this code.
    Abort(i32),
}

/// The first rank that ended badly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankEnd {
    /// Its number.
    pub rank: u32,
    /// Its host, where one is known.
    pub host: Option<String>,
    /// How.
    pub end: End,
}

impl RankEnd {
    /// One PascalCase word for conditions and reports.
    pub fn reason(&self) -> &'static str {
        match self.end {
            End::Signal(_) => "RankKilled",
            End::Code(_) => "RankFailed",
            End::Abort(_) => "RankAborted",
        }
    }
}

impl fmt::Display for RankEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        if let Some(host) = &self.host {
            write!(f, " on {host}")?;
        }
        match self.end {
            End::Signal(signal) => {
                write!(f, " was killed by signal {signal}{}", signal_name(signal))?;
                match signal {
                    7 => f.write_str(": usually /dev/shm is full; give the node a larger one"),
                    9 => f.write_str(": by the system when memory is short, or by someone"),
                    _ => Ok(()),
                }
            }
            End::Code(code) => write!(f, " exited with code {code}"),
            End::Abort(code) => write!(f, " called MPI_Abort with code {code}"),
        }
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (illegal instruction)",
        6 => " (abort)",
        7 => " (bus error)",
        8 => " (arithmetic error)",
        9 => " (kill)",
        11 => " (segmentation fault)",
        15 => " (terminate)",
        _ => "",
    }
}

/// Finds the rank in what `mpirun` of Open MPI 4 or 5, or MPICH's ranks, wrote to standard error. `hosts` by rank: a host is taken from
/// there, never from the text, which a program can write too.
pub fn rank_end(stderr: &str, hosts: &[String]) -> Option<RankEnd> {
    // Open MPI breaks its messages at the width of a terminal.
    let text = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let (rank, end) = aborted(&text)
        .or_else(|| aborted_mpich(&text))
        .or_else(|| killed(&text))
        .or_else(|| exited(&text))?;
    let host = hosts.get(usize::try_from(rank).ok()?)?;
    Some(RankEnd { rank, host: Some(host.clone()), end })
}

/// `… noticed that process rank 2 with PID 18226 on node n2 exited on signal 11 (Segmentation fault).`
fn killed(text: &str) -> Option<(u32, End)> {
    let rest = after(text, "noticed that process rank ")?;
    let rank = number(rest)?;
    let signal = number(after(rest, " exited on signal ")?)?;
    Some((rank, End::Signal(signal)))
}

/// `… exited with non-zero status, … The first process to do so was: Process name: [[106,1],1] Exit code: 3`, in
/// version 5 `Process name: [prterun-n0-18351@1,1]`.
fn exited(text: &str) -> Option<(u32, End)> {
    let rest = after(text, "The first process to do so was: Process name: ")?;
    let (name, rest) = rest.split_once(" Exit code: ")?;
    let rank = number(name.rsplit(',').next()?)?;
    Some((rank, End::Code(number(rest)?)))
}

/// `MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD with errorcode 7.`, in version 5 `… Errorcode: 7`.
/// The rank is one of the communicator's, so only the world's is a rank of the run.
fn aborted(text: &str) -> Option<(u32, End)> {
    let rest = after(text, "MPI_ABORT was invoked on rank ")?;
    let rank = number(rest)?;
    let rest = after(rest, "in communicator MPI_COMM_WORLD ")?;
    let code =
        after(rest, "with errorcode ").or_else(|| after(rest, "Errorcode: ")).and_then(number).unwrap_or(1);
    Some((rank, End::Abort(code)))
}

/// `Abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1`. What Hydra says
/// of other ends names a host and a process, never a rank.
fn aborted_mpich(text: &str) -> Option<(u32, End)> {
    let rest = after(text, "application called MPI_Abort(MPI_COMM_WORLD, ")?;
    let (code, rest) = rest.split_once(')')?;
    let rank = number(rest.strip_prefix(" - process ")?)?;
    Some((rank, End::Abort(code.trim().parse().ok()?)))
}

fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.find(mark).map(|at| &text[at + mark.len()..])
}

fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '-')).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts() -> Vec<String> {
        (0..4).map(|i| format!("n{i}")).collect()
    }

    fn told(stderr: &str) -> String {
        let end = rank_end(stderr, &hosts()).unwrap();
        format!("{}: {end}", end.reason())
    }

    #[test]
    fn four() {
        let killed = "-----\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code.\n-----\n\
                      mpirun.openmpi noticed that process rank 2 with PID 18226 on node ring-node-2 exited on signal \
                      11 (Segmentation fault).\n-----\n";
        assert_eq!(told(killed), "RankKilled: rank 2 on n2 was killed by signal 11 (segmentation fault)");
        let exited = "mpirun.openmpi detected that one or more processes exited with non-zero status, thus causing\n\
                      the job to be terminated. The first process to do so was:\n\n  Process name: [[106,1],1]\n  \
                      Exit code:    3\n----";
        assert_eq!(told(exited), "RankFailed: rank 1 on n1 exited with code 3");
        let aborted =
            "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 7.\n\nNOTE: x";
        assert_eq!(told(aborted), "RankAborted: rank 1 on n1 called MPI_Abort with code 7");
    }

    #[test]
    fn five() {
        let killed = "prterun noticed that process rank 2 with PID 18342 on node ring-node-2 exited on\nsignal 11 \
                      (Segmentation fault).\n";
        assert_eq!(told(killed), "RankKilled: rank 2 on n2 was killed by signal 11 (segmentation fault)");
        let exited = "prterun detected that one or more processes exited with non-zero status,\nthus causing the job \
                      to be terminated. The first process to do so was:\n\n   Process name: \
                      [prterun-ring-node-0-18351@1,3]\n   Exit code:    3\n";
        assert_eq!(told(exited), "RankFailed: rank 3 on n3 exited with code 3");
    }

    #[test]
    fn mpich() {
        let aborted = "Abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1\n";
        assert_eq!(told(aborted), "RankAborted: rank 1 on n1 called MPI_Abort with code 7");
    }

    #[test]
    fn a_bus_error_names_its_usual_cause() {
        let text = "mpirun noticed that process rank 0 with PID 0 on node x exited on signal 7 (Bus error).";
        assert!(told(text).contains("/dev/shm is full"));
    }

    #[test]
    fn nothing_is_made_up() {
        assert_eq!(rank_end("all is well", &hosts()), None);
        assert_eq!(rank_end("noticed that process rank 99 with PID 1 exited on signal 9", &hosts()), None);
        assert_eq!(
            rank_end("MPI_ABORT was invoked on rank 1 in communicator MYCOMM with errorcode 1", &hosts()),
            None
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(noticed that process rank |exited on signal |[0-9]{1,12}|MPI_ABORT was invoked on rank |[ \\PC])*") {
            let _ = rank_end(&text, &hosts());
        }
    }
}
