//! The program on all nodes: which command starts it, what its starters saw, and what its end means.

mod attach;
mod judge;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use gridcast_core::{
    mpi::{self, HostSlots, Implementation, Launch, Launcher},
    report::PlacedRanks,
};
use gridcast_crds::virtual_cluster::run;
use gridcast_proto::v1::{self as wire, ExecStart, RanksRequest};

pub use attach::{Followed, LaunchUpdate, attach, stop};
pub use judge::{Ended, Judgement, judge};

use crate::{Remote, StepFailure, remote::within};

/// A starter answers from memory.
const RANKS_LIMIT: Duration = Duration::from_secs(30);

/// What is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The MPI that the nodes have.
    pub implementation: Implementation,
    /// Number of ranks.
    pub processes: u32,
    /// Program and arguments; not empty.
    pub command: Vec<String>,
    /// Variables of every process; they win over those of the launcher.
    pub environment: Vec<(String, String)>,
    /// Directory in which every process starts; empty = the starter's.
    pub directory: String,
    /// Puts the host of its rank in front of each line of output.
    pub tag_output: bool,
    /// More ranks than slots are allowed.
    pub allow_oversubscribe: bool,
}

/// A program that no launcher of ours starts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.run.{field}: {value} is not supported; choose {instead}")]
pub struct Unsupported {
    /// Below `spec.run`.
    pub field: &'static str,
    /// Its value.
    pub value: &'static str,
    /// What is.
    pub instead: &'static str,
}

impl TryFrom<&run::Run> for Program {
    type Error = Unsupported;

    fn try_from(run: &run::Run) -> Result<Self, Unsupported> {
        let implementation = match run.implementation {
            run::Implementation::OpenMPI => Implementation::OpenMpi,
            run::Implementation::MPICH => Implementation::Mpich,
            run::Implementation::IntelMPI => {
                let instead = "OpenMPI or MPICH";
                return Err(Unsupported { field: "implementation", value: "IntelMPI", instead });
            }
        };
        if run.remote_shell == run::RemoteShell::SSH {
            return Err(Unsupported { field: "remoteShell", value: "SSH", instead: "Starter" });
        }
        Ok(Self {
            implementation,
            processes: run.processes.unsigned_abs(),
            command: run.command.clone(),
            environment: run.environment.iter().map(|v| (v.name.clone(), v.value.clone())).collect(),
            directory: run.working_directory.clone().unwrap_or_default(),
            tag_output: run.tag_output,
            allow_oversubscribe: run.allow_oversubscribe,
        })
    }
}

impl Program {
    /// The launcher's program: `mpirun.openmpi` or `mpiexec.mpich` on Debian, where both can be installed.
    pub fn launcher(&self) -> &'static str {
        self.implementation.launcher()
    }

    /// The machinefile in the words of this MPI.
    pub fn machinefile(&self, slots: &[HostSlots]) -> Result<String, mpi::MachinefileError> {
        match (self.implementation, self.allow_oversubscribe) {
            (Implementation::OpenMpi, false) => mpi::machinefile(slots),
            (Implementation::OpenMpi, true) => mpi::machinefile_oversubscribed(slots),
            (Implementation::Mpich, _) => mpi::machinefile_hydra(slots),
        }
    }

    /// The command that starts it, for the first node's starter; `mpirun` instead of [`Self::launcher`] where one is given.
    pub fn argv(&self, mpirun: Option<&str>) -> Vec<String> {
        let usual = Launch::new(self.implementation, self.processes, self.command.clone());
        mpi::launch_command(&Launch {
            mpirun: mpirun.map_or(usual.mpirun.clone(), str::to_owned),
            tag_output: self.tag_output,
            allow_oversubscribe: self.allow_oversubscribe,
            ..usual
        })
    }

    /// What `mpirun` finds in its environment, the program's own variables included: whatever `OMPI_MCA_*`, `PRTE_MCA_*`,
    /// `PMIX_MCA_*`, `HYDRA_*`, `MPIR_CVAR_*` or `FI_*` the manifest sets reaches launcher, daemons and ranks, and wins.
    /// Of `launcher`, the implementation and oversubscription are the program's.
    pub fn environment(&self, launcher: &Launcher) -> BTreeMap<String, String> {
        let mut environment = mpi::launcher_environment(&Launcher {
            implementation: self.implementation,
            allow_oversubscribe: self.allow_oversubscribe,
            ..launcher.clone()
        });
        environment.extend(self.environment.iter().cloned());
        environment
    }

    /// What the first node's starter is asked to start.
    pub fn start(&self, launcher: &Launcher, launch: &str) -> ExecStart {
        ExecStart {
            argv: self.argv(None),
            environment: self.environment(launcher).into_iter().collect::<HashMap<_, _>>(),
            inherit_environment: true,
            directory: self.directory.clone(),
            launch: launch.to_owned(),
        }
    }

    /// The host of each rank, for the tags of its output; empty where none are wanted.
    pub fn tag_hosts(&self, slots: &[HostSlots]) -> Vec<String> {
        if self.tag_output { self.implementation.hosts_by_rank(slots, self.processes) } else { Vec::new() }
    }
}

/// The ranks that each node's starter saw.
pub type Observed = Vec<(String, Vec<wire::ObservedRank>)>;

/// The ranks that each node's starter saw. A node that does not answer fails it.
pub async fn observe(remotes: &[Remote], launch: &str) -> Result<Observed, StepFailure> {
    let asks = remotes.iter().map(|remote| async move {
        let seen = ranks(remote, launch, RANKS_LIMIT).await;
        seen.map_err(|s| match remote.failed("NodeLost", "asking for its ranks", &s) {
            StepFailure { message, .. } if crate::is_gone(&s) => StepFailure::new("NodeLost", message),
            failure => failure,
        })
    });
    futures::future::try_join_all(asks.collect::<Vec<_>>()).await
}

/// The ranks that the starters saw which answer within `limit`: what is known of a launch that was cut short.
pub async fn observe_some(remotes: &[Remote], launch: &str, limit: Duration) -> Observed {
    let asks: Vec<_> = remotes.iter().map(|remote| ranks(remote, launch, limit)).collect();
    futures::future::join_all(asks).await.into_iter().filter_map(Result::ok).collect()
}

async fn ranks(
    remote: &Remote,
    launch: &str,
    limit: Duration,
) -> Result<(String, Vec<wire::ObservedRank>), tonic::Status> {
    let request = RanksRequest { launch: launch.to_owned() };
    let reply = within(limit, remote.starter()?.ranks(request)).await?;
    Ok((remote.name.clone(), reply.ranks))
}

/// Where ranks were seen, as the report has it, whether or not they should have been there.
pub fn placed(observed: &Observed) -> Vec<PlacedRanks> {
    let with_ranks = observed.iter().filter(|(_, ranks)| !ranks.is_empty());
    with_ranks
        .map(|(host, ranks)| {
            let mut ranks: Vec<u32> = ranks.iter().map(|r| r.rank).collect();
            ranks.sort_unstable();
            ranks.dedup();
            PlacedRanks { host: host.clone(), ranks }
        })
        .collect()
}

/// How long ago the first rank reported.
pub fn first_rank(observed: &Observed) -> Option<Duration> {
    let ages = observed.iter().flat_map(|(_, ranks)| ranks).map(|rank| rank.age_micros);
    ages.max().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use gridcast_crds::virtual_cluster::run::{EnvironmentVariable, RemoteShell, Run};

    use super::*;

    fn ring() -> Run {
        Run { processes: 2, command: vec!["ring".into()], ..Run::default() }
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let run = Run { implementation: run::Implementation::IntelMPI, ..ring() };
        let error = Program::try_from(&run).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.run.implementation: IntelMPI is not supported; choose OpenMPI or MPICH"
        );
        let run = Run { remote_shell: RemoteShell::SSH, ..ring() };
        assert_eq!(Program::try_from(&run).unwrap_err().field, "remoteShell");
    }

    /// A tree of daemons instead of a star: for clusters whose launcher cannot start them all.
    #[test]
    fn a_radix_passes_through_and_wins() {
        let mut run = ring();
        for (name, value) in [
            ("OMPI_MCA_routed_radix", "2"),
            ("OMPI_MCA_plm_rsh_no_tree_spawn", "0"),
            ("PRTE_MCA_routed_radix", "2"),
            ("OMPI_MCA_rmaps_base_mapping_policy", "node"),
        ] {
            run.environment.push(EnvironmentVariable { name: name.into(), value: value.into() });
        }
        let environment = Program::try_from(&run).unwrap().environment(&Launcher::default());
        for variable in &run.environment {
            assert_eq!(environment[&variable.name], variable.value);
        }
    }

    #[test]
    fn steps_can_be_tasks() {
        fn task<T: Send>(_: T) {}
        task(observe(&[], ""));
        task(observe_some(&[], "", RANKS_LIMIT));
    }
}
