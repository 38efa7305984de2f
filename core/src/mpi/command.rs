//! The command that starts a program on all nodes.

use super::hydra;
use super::machinefile::{HostSlots, expected_placement};
use crate::report::PlacedRanks;

/// The MPI of the nodes, as far as starting a program differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Implementation {
    /// Open MPI 4 or 5.
    #[default]
    OpenMpi,
    /// MPICH 4.
    Mpich,
}

impl Implementation {
    /// The program that launches. Its name on Debian, where both can be installed: `mpirun` may belong to either.
    pub fn launcher(self) -> &'static str {
        match self {
            Self::OpenMpi => "mpirun.openmpi",
            Self::Mpich => "mpiexec.mpich",
        }
    }

    /// Where it puts ranks.
    pub fn placement(self, hosts: &[HostSlots], processes: u32) -> Vec<PlacedRanks> {
        match self {
            Self::OpenMpi => expected_placement(hosts, processes),
            Self::Mpich => hydra::placement(hosts, processes),
        }
    }

    /// The host of each rank, by rank.
    pub fn hosts_by_rank(self, hosts: &[HostSlots], processes: u32) -> Vec<String> {
        let mut by_rank: Vec<(u32, String)> = self
            .placement(hosts, processes)
            .into_iter()
            .flat_map(|placed| placed.ranks.into_iter().map(move |rank| (rank, placed.host.clone())))
            .collect();
        by_rank.sort_unstable();
        by_rank.into_iter().map(|(_, host)| host).collect()
    }
}

/// Names by which a launcher is found where its own is not there. Debian names each after its MPI, because several can be
/// installed; elsewhere the MPI that is in PATH is the one.
pub fn other_names(launcher: &str) -> &'static [&'static str] {
    match launcher {
        "mpirun.openmpi" => &["mpirun"],
        "mpiexec.mpich" => &["mpiexec.hydra", "mpiexec"],
        _ => &[],
    }
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Whose words the command is in.
    pub implementation: Implementation,
    /// The launcher: a name, or a path.
    pub mpirun: String,
    /// The machinefile's path on the launcher.
    pub machinefile: String,
    /// Number of ranks.
    pub processes: u32,
    /// Program and arguments; not empty.
    pub program: Vec<String>,
    /// Each line of output begins with the rank that wrote it (see [`super::TagFilter`]).
    pub tag_output: bool,
    /// More ranks than slots are allowed. Hydra needs no word for it.
    pub allow_oversubscribe: bool,
    /// The starter's path on every node.
    pub starter: String,
}

impl Launch {
    /// A launch by the standard paths.
    pub fn new(implementation: Implementation, processes: u32, program: Vec<String>) -> Self {
        Self {
            implementation,
            mpirun: implementation.launcher().to_owned(),
            machinefile: super::MACHINEFILE.to_owned(),
            processes,
            program,
            tag_output: false,
            allow_oversubscribe: false,
            starter: super::STARTER.to_owned(),
        }
    }
}

/// `mpirun.openmpi --hostfile … --map-by slot -np N … gridcast-starter rank -- PROGRAM…`, the same for Open MPI 4 and 5, or
/// MPICH's `mpiexec` likewise.
///
/// What the environment says already is said again here: options win over variables that a user's profile may set.
pub fn launch_command(launch: &Launch) -> Vec<String> {
    match launch.implementation {
        Implementation::OpenMpi => open_mpi(launch),
        Implementation::Mpich => hydra::command(launch),
    }
}

fn open_mpi(launch: &Launch) -> Vec<String> {
    let mapping = if launch.allow_oversubscribe { "slot:OVERSUBSCRIBE" } else { "slot" };
    let processes = launch.processes.to_string();
    let mut command = vec![launch.mpirun.as_str(), "--hostfile", &launch.machinefile];
    command.extend(["--map-by", mapping, "-np", &processes]);
    if launch.tag_output {
        command.push("--tag-output");
    }
    command.extend([launch.starter.as_str(), "rank", "--"]);
    command.extend(launch.program.iter().map(String::as_str));
    command.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_keeps_its_arguments() {
        let program = ["./ring", "--size", "4 MiB", "-np", "--"].map(str::to_owned).to_vec();
        let launch = Launch { tag_output: true, ..Launch::new(Implementation::OpenMpi, 4, program.clone()) };
        let command = launch_command(&launch);
        assert_eq!(
            command[..8],
            [
                "mpirun.openmpi",
                "--hostfile",
                "/gridcast/machinefile",
                "--map-by",
                "slot",
                "-np",
                "4",
                "--tag-output"
            ]
        );
        assert_eq!(command[8..11], ["/gridcast/bin/gridcast-starter", "rank", "--"]);
        assert_eq!(command[11..], program);
    }

    #[test]
    fn each_launcher_has_a_name_outside_of_debian() {
        for implementation in [Implementation::OpenMpi, Implementation::Mpich] {
            assert!(!other_names(implementation.launcher()).is_empty());
        }
        assert!(other_names("mpirun").is_empty());
    }

    #[test]
    fn oversubscription_only_where_allowed() {
        let launch = Launch::new(Implementation::OpenMpi, 2, vec!["true".to_owned()]);
        assert!(!launch_command(&launch).concat().contains("OVERSUBSCRIBE"));
        let launch = Launch { allow_oversubscribe: true, ..launch };
        assert!(launch_command(&launch).contains(&"slot:OVERSUBSCRIBE".to_owned()));
    }
}
