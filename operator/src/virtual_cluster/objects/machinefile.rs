//! Who was asked to run how many ranks?

use gridcast_core::mpi::{self, MachinefileError};
use k8s_openapi::api::core::v1::ConfigMap;

use super::{Blueprint, hosts, labels};

impl Blueprint<'_> {
    /// The machinefile, in the form that the run's implementation reads.
    pub fn machinefile(&self) -> Result<String, MachinefileError> {
        crate::virtual_cluster::steps::machinefile(self.cluster)
    }

    /// The ConfigMap that records it. Members get the same bytes from the operator by gRPC: a changed ConfigMap takes a
    /// minute to arrive in a pod.
    pub fn machinefile_config_map(&self) -> Result<ConfigMap, MachinefileError> {
        let file = self.machinefile()?;
        Ok(ConfigMap {
            metadata: self.metadata(format!("{}-machinefile", self.name())),
            data: Some(labels(&[("machinefile", &file)])),
            ..ConfigMap::default()
        })
    }
}
