//! Who was asked to run how many ranks?

use std::collections::BTreeMap;

use gridcast_control::launch::Program;
use gridcast_core::mpi::{self, Implementation, Launcher, MachinefileError};
use gridcast_crds::VirtualCluster;
use k8s_openapi::api::core::v1::ConfigMap;

use super::{Blueprint, hosts, labels};

/// The machinefile in the form that the run's MPI reads; Open MPI's where nothing is run.
pub fn machinefile(cluster: &VirtualCluster) -> Result<String, MachinefileError> {
    let hosts = hosts(cluster);
    match program(cluster) {
        Some(program) => program.machinefile(&hosts),
        None => mpi::machinefile(&hosts),
    }
}

/// What `mpirun` finds in its environment, so that it needs no options. Where nothing is run, whichever MPI it is of.
pub fn environment(cluster: &VirtualCluster) -> BTreeMap<String, String> {
    let launcher = launcher(cluster);
    let mut environment = match program(cluster) {
        Some(program) => program.environment(&launcher),
        None => [Implementation::OpenMpi, Implementation::Mpich]
            .into_iter()
            .flat_map(|implementation| {
                mpi::launcher_environment(&Launcher { implementation, ..launcher.clone() })
            })
            .collect(),
    };
    // A user without a line in the image's /etc/passwd has no shell, and Open MPI warns that it assumes one.
    environment.entry("SHELL".to_owned()).or_insert_with(|| "/bin/sh".to_owned());
    environment
}

/// What the launcher's environment depends on, of a cluster of pods.
///
/// Each pod believes that it has its machine to itself, so that MPI would bind the first rank of each to the same core, and
/// ranks that wait would starve those that work. Only where the manifest forbids that two members share a machine may
/// ranks be bound and spin. A network other than TCP can be there only where a template asks for a device.
pub fn launcher(cluster: &VirtualCluster) -> Launcher {
    Launcher {
        shared_cores: cluster.spec.scheduling.as_ref().is_none_or(|scheduling| scheduling.allow_colocation),
        tcp_only: !asks_for_devices(cluster),
        ..Launcher::default()
    }
}

fn program(cluster: &VirtualCluster) -> Option<Program> {
    Program::try_from(cluster.spec.run.as_ref()?).ok()
}

fn asks_for_devices(cluster: &VirtualCluster) -> bool {
    let templates = cluster.spec.groups.iter().filter_map(|group| group.pod.as_ref()?.spec.as_ref());
    let limits = templates
        .flat_map(|spec| &spec.containers)
        .filter_map(|container| container.resources.as_ref())
        .flat_map(|resources| {
            resources.limits.iter().chain(&resources.requests).flatten().map(|(name, _)| name)
        })
        .any(|name| name.contains('/'));
    // A device may also come by a claim, and its name says nothing.
    let claims = cluster.spec.groups.iter().filter_map(|group| group.pod.as_ref()?.spec.as_ref());
    limits || claims.filter_map(|spec| spec.resource_claims.as_ref()).any(|claims| !claims.is_empty())
}

impl Blueprint<'_> {
    /// The ConfigMap that records it. Members get the same bytes from the operator by gRPC: a changed ConfigMap takes a
    /// minute to arrive in a pod.
    pub fn machinefile_config_map(&self) -> Result<ConfigMap, MachinefileError> {
        let file = machinefile(self.cluster)?;
        Ok(ConfigMap {
            metadata: self.metadata(format!("{}-machinefile", self.name())),
            data: Some(labels(&[("machinefile", &file)])),
            ..ConfigMap::default()
        })
    }
}
