//! What runs inside a node on behalf of its cluster?
//!
//! # Participants
//!
//! - The **starter** ([`serve`]): PID 1 of a node. It reaps every orphan, starts what it is asked to start, keeps the
//!   list of ranks that were seen here, and takes the whole node with it when it ends.
//! - The **remote shell** ([`remote`]): `gridcast-starter exec HOST CMD…`, what `mpirun` calls where it would call
//!   `ssh`. Every node has it, because from the 65th host on Open MPI's daemons are started by workers.
//! - The **rank** ([`rank`]): `gridcast-starter rank -- PROGRAM…`, what `mpirun` starts in place of the program. It
//!   reports to the starter of its own node over a Unix socket and then becomes the program.
//! - The **controller**: `gridcast local` calls `Exec` to launch; the operator, which may be replaced at any moment, tells
//!   each node its fellows ([`members`]), asks whether a launch would work ([`check`]), and leaves it to the first node
//!   ([`launch`]). Both call `Ranks` to compare where ranks ran with where the machinefile wanted them.
//! - The **collector** of results, a pod with keys of the cluster: calls `Relay.Fetch` ([`fetch`]).
//! - The **init container** ([`install`]): brings the binary into a pod whose image knows nothing of it.
//!
//! # Guarantees
//!
//! - *Only members.* `Starter` is served over mutual TLS to holders of keys of the same run; a foreign certificate
//!   gets no further than the handshake. Consequence: no sshd, no port 22, no host keys.
//! - *Nothing outlives its caller, except the launch.* When the caller of `Exec` goes away (its stream is reset, its connection breaks, or
//!   it stays silent for a keep-alive), the command's process group gets SIGTERM, and SIGKILL after
//!   [`command::KILL_GRACE`]. When the starter ends as PID 1, the kernel ends everything else in the node.
//! - *A launch outlives everybody but its node.* It is told by id, to as many callers as ask, also after it has ended; it
//!   ends by itself, by `StopLaunch`, or with the starter.
//! - *Output is complete, and its end is certain.* What the command itself wrote arrives before `Exited`. A daemon that
//!   it left behind with the pipes open does not hold the reply: reading goes on while such output keeps coming, ends
//!   after [`streams::QUIET`] of silence and at the latest after [`streams::LINGER`]. (An ssh session hangs there.)
//! - *Bounded memory.* A caller that does not read stops the command at its next write, a command that does not read
//!   stops the caller; in between lie at most [`streams::REPLIES_IN_FLIGHT`] messages of [`streams::CHUNK_BYTES`] and
//!   HTTP/2's window. Signals travel in the same stream as standard input: behind input that the command does not
//!   read, a signal waits too, and the caller's remedy is to drop the call.
//! - *A rank of one millisecond is seen.* The report is answered before the program starts.
//! - *The truth about ranks.* A rank's process is the one that the kernel names as the socket's peer, not one that
//!   the report claims; its end is learned from a pidfd, so a reused PID is never mistaken for it.
//!
//! # Not promised
//!
//! No pseudo-terminal, no port forwarding, no limits on what a member's command may do: whoever holds keys of the run
//! may run anything that the starter's user may.

pub mod check;
pub mod children;
pub mod command;
pub mod environment;
pub mod fetch;
pub mod hosts;
pub mod install;
pub mod launch;
pub mod members;
pub mod pidfd;
pub mod program;
pub mod rank;
pub mod ranks;
pub mod remote;
pub mod serve;
pub mod service;
pub mod session;
pub mod single_copy;
pub mod ssh;
pub mod streams;

/// TCP port of `Starter` in every node.
pub const STARTER_PORT: u16 = 7412;
/// Where a node keeps its keys: `ca.pem`, `cert.pem`, `key.pem`.
pub const DEFAULT_KEYS: &str = "/gridcast/keys";
/// The Unix socket of `RankReports`.
pub const DEFAULT_SOCKET: &str = "/gridcast/run/ranks.sock";
/// The file that names resolve from.
pub const DEFAULT_HOSTS: &str = "/etc/hosts";
/// The list of hosts that `mpirun` reads.
pub const DEFAULT_MACHINEFILE: &str = gridcast_core::mpi::MACHINEFILE;

/// Id of the launch that a command belongs to; set by the starter, read by the rank.
pub const ENV_LAUNCH: &str = "GRIDCAST_LAUNCH";
/// Name of the node a command runs on; set by the starter.
pub const ENV_NODE: &str = "GRIDCAST_NODE";
/// Socket that a rank reports to; set by the starter.
pub const ENV_SOCKET: &str = "GRIDCAST_SOCKET";
/// Key directory of the remote shell and of the starter, instead of [`DEFAULT_KEYS`].
pub const ENV_KEYS: &str = "GRIDCAST_KEYS";
/// Hosts file of the remote shell and of the starter, instead of [`DEFAULT_HOSTS`].
pub const ENV_HOSTS: &str = "GRIDCAST_HOSTS";
/// Machinefile that the starter writes, instead of [`DEFAULT_MACHINEFILE`].
pub const ENV_MACHINEFILE: &str = "GRIDCAST_MACHINEFILE";
/// Address that the starter listens at, instead of [`STARTER_PORT`] of every address.
pub const ENV_LISTEN: &str = "GRIDCAST_LISTEN";
/// Port that the remote shell dials, instead of [`STARTER_PORT`].
pub const ENV_PORT: &str = "GRIDCAST_STARTER_PORT";

/// A variable of this process's environment; unset, empty and not UTF-8 are all `None`.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
