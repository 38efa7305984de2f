//! What of a spec can this operator not do? It is refused by the field's path, never ignored.

use gridcast_crds::{
    VirtualCluster, VirtualClusterSpec,
    virtual_cluster::{Bandwidth, Gang, Implementation, ProbePolicy, RemoteShell, TcpMode, TcpProfile},
};

use crate::virtual_cluster::{
    objects::template::{self, TemplateError},
    observed::Trouble,
};

/// Nodes whose matrices a NetworkMap keeps; of more it keeps a topology, in which no single pair can be looked up.
const MATRIX_NODES: u32 = 64;

/// The first thing that cannot be done.
pub(super) fn refusal(cluster: &VirtualCluster) -> Option<Trouble> {
    let spec = &cluster.spec;
    let unsupported = of_groups(spec)
        .or_else(|| of_scheduling(spec))
        .or_else(|| of_run(spec))
        .or_else(|| of_data(spec))
        .or_else(|| of_network(spec))
        .map(|message| Trouble::new("Unsupported", message));
    unsupported.or_else(|| {
        let error = template::check(cluster).err()?;
        let reason = match error {
            TemplateError::Invalid { .. } => "InvalidPodTemplate",
            TemplateError::Unsupported { .. } => "Unsupported",
        };
        Some(Trouble::new(reason, error.to_string()))
    })
}

fn of_groups(spec: &VirtualClusterSpec) -> Option<String> {
    let index = spec.groups.iter().position(|group| group.virtual_machine.is_some())?;
    Some(format!(
        "spec.groups[{index}].virtualMachine: virtual machines are not supported by this version; give `pod` instead"
    ))
}

fn of_scheduling(spec: &VirtualClusterSpec) -> Option<String> {
    let scheduling = spec.scheduling.as_ref()?;
    if scheduling.gang != Gang::None {
        return Some(format!(
            "spec.scheduling.gang: {:?} is not supported by this version; leave it out",
            scheduling.gang
        ));
    }
    let queue = scheduling.queue_name.as_ref().filter(|queue| !queue.is_empty())?;
    Some(format!(
        "spec.scheduling.queueName: {queue:?}: queues are not supported by this version; leave it out"
    ))
}

fn of_run(spec: &VirtualClusterSpec) -> Option<String> {
    if !spec.acceptance.is_empty() {
        return Some(
            "spec.acceptance: acceptance tests are not supported by this version; leave them out".into(),
        );
    }
    let run = spec.run.as_ref()?;
    if run.implementation == Implementation::IntelMPI {
        return Some(
            "spec.run.implementation: IntelMPI is not supported by this version; choose OpenMPI or MPICH"
                .into(),
        );
    }
    (run.remote_shell == RemoteShell::SSH).then(|| {
        "spec.run.remoteShell: SSH is not supported by this version; choose Starter, or leave it out".into()
    })
}

fn of_data(spec: &VirtualClusterSpec) -> Option<String> {
    let index = spec.data.iter().position(|data| data.source.s3.is_some())?;
    Some(format!(
        "spec.data[{index}].source.s3: S3 is not supported by this version; use `http`, or a volume that has the data"
    ))
}

fn of_network(spec: &VirtualClusterSpec) -> Option<String> {
    let tcp = spec.tcp();
    if tcp.mode != TcpMode::Off && tcp.profile == Some(TcpProfile::Auto) {
        return Some(
            "spec.network.tcp.profile: Auto is not supported by this version; name how the program communicates \
             (Asynchronous, Staggered, Synchronous or Bulk), or leave it out so that nothing is assumed"
                .into(),
        );
    }
    let require = spec.require()?;
    let probe = spec.probe();
    if probe.policy == ProbePolicy::Never {
        return Some(
            "spec.network.require: nothing is measured, as probe.policy is Never; set it to BeforeRun or remove `require`"
                .into(),
        );
    }
    if probe.bandwidth == Bandwidth::None && require.min_bandwidth_mbps.is_some() {
        return Some(
            "spec.network.require.minBandwidthMbps: no bandwidth is measured, as probe.bandwidth is None; set it to Pairs \
             or remove the requirement"
                .into(),
        );
    }
    (spec.nodes() > MATRIX_NODES).then(|| {
        format!(
            "spec.network.require: the figures of single pairs are kept for up to {MATRIX_NODES} nodes, not for {}; \
             leave it out, and look at the NetworkMap",
            spec.nodes()
        )
    })
}
