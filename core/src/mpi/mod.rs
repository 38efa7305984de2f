//! How does a set of nodes become an MPI run, and did it become the one that was asked for?
//!
//! Open MPI 4 and 5 are served at once: they read different variables and ignore each other's, and a run whose
//! variables are ignored succeeds on the launcher alone. What was observed is therefore compared with what the
//! machinefile says ([`check_placement`]) before anything is called complete. MPICH (Hydra) has its own machinefile,
//! command and variables; tags and places of ranks are the same.

mod command;
mod death;
mod environment;
mod hydra;
mod machinefile;
mod output;
mod placement;

pub use command::{Implementation, Launch, launch_command, other_names};
pub use death::{End, RankEnd, rank_end};
pub use environment::{Interface, Launcher, launcher_environment};
pub use machinefile::{
    HostSlots, MachinefileError, expected_placement, machinefile, machinefile_hydra,
    machinefile_oversubscribed,
};
pub use output::{TagFilter, TagStyle};
pub use placement::{ObservedRank, PlacementError, Problem, check_placement};

/// Where a node finds its starter.
pub const STARTER: &str = "/gridcast/bin/gridcast-starter";
/// The same program under the name by which it is a remote shell: for launchers that take the name of one program.
pub const REMOTE_SHELL: &str = "/gridcast/bin/gridcast-ssh";
/// Where `mpirun`, its daemons and ranks keep what they need while they run, on every node. Short: the paths of sockets
/// are made from it, and end at 107 bytes.
pub const TEMPORARY: &str = "/gridcast/tmp";
/// Where a node finds its machinefile.
pub const MACHINEFILE: &str = "/gridcast/machinefile";
