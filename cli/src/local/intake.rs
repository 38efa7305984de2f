//! What does the manifest ask for, and is it possible on this machine? Nothing is made before this is answered.

mod network;
mod places;
mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use gridcast_control::launch::Program;
use gridcast_core::broadcast::topology::Topology;
use gridcast_crds::{Document, Resource, VirtualCluster, source::Strategy, virtual_cluster as vc};

use crate::{args, failure::Failure};

use super::origin::Origin;

/// Directories that each node has for itself, beside the mount paths of datasets.
pub(crate) const PRIVATE: [&str; 2] = ["/data", "/scratch"];
/// Address of the first node; the lab's network is 10.42.0.0/16.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 42, 1, 1);
/// Nodes on one machine: each is two processes and some twenty megabytes.
const MAX_NODES: usize = 200;

/// A cluster as a local run makes it.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    pub(crate) name: String,
    pub(crate) nodes: Vec<NodePlan>,
    pub(crate) topology: Topology,
    pub(crate) probe: Option<vc::Probe>,
    pub(crate) require: Option<vc::Require>,
    pub(crate) tcp: vc::Tcp,
    pub(crate) data: Vec<DataPlan>,
    pub(crate) run: Option<RunPlan>,
    /// Directories of this machine by claim name, for `collect`.
    pub(crate) volumes: BTreeMap<String, PathBuf>,
    /// Where programs start.
    pub(crate) directory: PathBuf,
    pub(crate) deadline_seconds: Option<f64>,
    /// What of the manifest has no meaning here, one sentence each.
    pub(crate) notes: Vec<String>,
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct NodePlan {
    pub(crate) name: String,
    pub(crate) slots: u32,
    pub(crate) address: Ipv4Addr,
}

/// One dataset.
#[derive(Clone, Debug)]
pub(crate) struct DataPlan {
    pub(crate) name: String,
    pub(crate) mount_path: PathBuf,
    pub(crate) origin: Origin,
    pub(crate) strategy: Strategy,
}

/// The program.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    pub(crate) program: Program,
    pub(crate) collect: Vec<CollectPlan>,
}

/// A result that is brought home.
#[derive(Clone, Debug)]
pub(crate) struct CollectPlan {
    /// On the nodes, absolute.
    pub(crate) path: PathBuf,
    pub(crate) claim: String,
    /// Below the volume's directory.
    pub(crate) below: PathBuf,
}

/// Reads and checks everything that `arguments` name.
pub(crate) fn read(arguments: &args::Run) -> Result<Intake, Failure> {
    let file = &arguments.file;
    let documents = gridcast_crds::manifest::read(file)
        .map_err(|e| Failure::input(e.to_string().trim_end().to_owned()))?;
    let cluster = only_cluster(&documents, file)?;
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let spec = &cluster.spec;
    refuse_unsupported(spec)?;
    let nodes = nodes(cluster)?;
    let topology = network::topology(arguments.topology.as_deref(), &nodes)?;
    // Before the datasets, which may take a while to look at.
    let launcher = spec.run.as_ref().map(|run| places::launcher(run.implementation)).transpose()?;
    let volumes = sources::volumes(&arguments.volume)?;
    let context = sources::Context { file, documents: &documents, volumes: &volumes };
    let data = spec
        .data
        .iter()
        .enumerate()
        .map(|(index, data)| context.dataset(index, data))
        .collect::<Result<Vec<_>, _>>()?;
    places::check_mount_paths(&data, launcher.as_ref())?;
    places::check_report(arguments.report.as_deref())?;
    places::check_state_dir(&arguments.state.state_dir, &data)?;
    let directory = places::directory(spec.run.as_ref(), &data)?;
    let run = spec.run.as_ref().map(|run| context.run(run, &directory)).transpose()?;
    let probe = spec.probe();
    Ok(Intake {
        notes: notes(spec, &data, &volumes, &directory),
        probe: (probe.policy == vc::ProbePolicy::BeforeRun).then_some(probe),
        require: spec.require().cloned(),
        tcp: spec.tcp(),
        #[allow(clippy::cast_precision_loss, reason = "bounded by the schema to a year")]
        deadline_seconds: spec.active_deadline_seconds.map(|s| s as f64),
        name,
        nodes,
        topology,
        data,
        run,
        volumes,
        directory,
    })
}

fn only_cluster<'a>(documents: &'a [Document], file: &Path) -> Result<&'a VirtualCluster, Failure> {
    let mut clusters = documents.iter().filter_map(|d| match &d.resource {
        Resource::VirtualCluster(cluster) => Some(cluster.as_ref()),
        _ => None,
    });
    match (clusters.next(), clusters.next()) {
        (Some(cluster), None) => Ok(cluster),
        (None, _) => {
            Err(Failure::input(format!("{}: has no VirtualCluster; a local run needs one", file.display())))
        }
        (Some(_), Some(_)) => Err(Failure::input(format!(
            "{}: has several VirtualClusters; a local run takes one, so put each in its own file",
            file.display()
        ))),
    }
}

/// Fields whose meaning a local run cannot honour: refused, never ignored.
fn refuse_unsupported(spec: &gridcast_crds::VirtualClusterSpec) -> Result<(), Failure> {
    let refuse = |field: &str, why: &str| Err(Failure::input(format!("{field}: {why}")));
    if spec.suspend {
        return refuse("spec.suspend", "is true, so nothing may run; set it to false");
    }
    if !spec.acceptance.is_empty() {
        return refuse(
            "spec.acceptance",
            "node baselines are not measured by a local run; remove it to run here",
        );
    }
    if spec.nodes() == 0 {
        return refuse("spec.groups", "have no replica together; give at least one group `replicas: 1`");
    }
    let probe = spec.probe();
    let never = probe.policy == vc::ProbePolicy::Never;
    if never && spec.require().is_some() {
        return refuse(
            "spec.network.require",
            "nothing is measured, as probe.policy is Never; set it to BeforeRun or remove `require`",
        );
    }
    if probe.bandwidth == vc::Bandwidth::None
        && spec.require().is_some_and(|r| r.min_bandwidth_mbps.is_some())
    {
        return refuse(
            "spec.network.require.minBandwidthMbps",
            "no bandwidth is measured, as probe.bandwidth is None; set it to Pairs or remove `minBandwidthMbps`",
        );
    }
    let Some(run) = &spec.run else { return Ok(()) };
    Program::try_from(run).map(drop).map_err(|unsupported| Failure::input(unsupported.to_string()))
}

fn nodes(cluster: &VirtualCluster) -> Result<Vec<NodePlan>, Failure> {
    let nodes: Vec<NodePlan> = cluster
        .node_names()
        .zip(0u32..)
        .map(|((name, group), index)| NodePlan {
            name,
            slots: group.slots(),
            address: Ipv4Addr::from(u32::from(FIRST_ADDRESS) + (index / 250) * 256 + index % 250),
        })
        .collect();
    if nodes.len() > MAX_NODES {
        return Err(Failure::input(format!(
            "spec.groups: {} nodes are more than the {MAX_NODES} that a local run takes; lower `replicas`",
            nodes.len()
        )));
    }
    Ok(nodes)
}

/// Names for a message, so many that the reader sees the pattern.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(" ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What the user should know beforehand: what has no meaning without Kubernetes, and what may not be what it seems.
fn notes(
    spec: &gridcast_crds::VirtualClusterSpec,
    data: &[DataPlan],
    volumes: &BTreeMap<String, PathBuf>,
    directory: &Path,
) -> Vec<String> {
    let mut notes = Vec::new();
    let images: BTreeSet<&str> = spec
        .groups
        .iter()
        .filter_map(|g| g.pod.as_ref()?.spec.as_ref())
        .flat_map(|p| p.containers.iter().filter_map(|c| c.image.as_deref()))
        .collect();
    if !images.is_empty() {
        let images: Vec<&str> = images.into_iter().collect();
        notes.push(format!("image {} is not used: nodes see this machine's files", images.join(", ")));
    }
    if spec.groups.iter().any(|g| g.virtual_machine.is_some()) {
        notes.push("virtualMachine is not used: nodes are network namespaces".to_owned());
    }
    if spec.restart.as_ref().is_some_and(|r| r.max_restarts > 0) {
        notes.push("restart is not used: a local run launches once".to_owned());
    }
    if spec
        .scheduling
        .as_ref()
        .is_some_and(|s| s.gang != vc::Gang::None || s.queue_name.as_deref().is_some_and(|q| !q.is_empty()))
    {
        notes.push("scheduling is not used: all nodes are made here and now".to_owned());
    }
    for private in PRIVATE {
        if let Some(data) = data.iter().find(|d| d.mount_path == Path::new(private)) {
            notes.push(format!(
                "dataset {} takes the place of the nodes' own {private}, so it is read-only there",
                data.name
            ));
        }
    }
    let given = spec.run.as_ref().is_some_and(|r| r.working_directory.is_some());
    if let (Some(private), false) = (places::private(directory), given) {
        notes.push(format!(
            "the current directory is below {private}, which each node has for itself, so programs do not find its files; \
             set run.workingDirectory"
        ));
    }
    let sources = spec.data.iter().filter_map(|d| d.source.persistent_volume_claim.as_ref());
    let targets = spec.run.iter().flat_map(|r| &r.collect).map(|c| &c.to.persistent_volume_claim);
    let claims: BTreeSet<&str> = sources.chain(targets).map(|c| c.claim_name.as_str()).collect();
    for unused in volumes.keys().filter(|name| !claims.contains(name.as_str())) {
        notes.push(format!("--volume {unused} is not used: the manifest names no claim {unused}"));
    }
    notes
}
