//! What does the manifest ask for, and is it possible on this machine? Nothing is made before this is answered.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use gridcast_core::broadcast::topology::Topology;
use gridcast_crds::{
    Document, Resource, VirtualCluster,
    source::{ClaimPath, Source, Strategy},
    virtual_cluster as vc,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::{args, failure::Failure};

use super::origin::{self, Origin};

/// The launcher that a local run uses.
pub(crate) const MPIRUN: &str = "mpirun.openmpi";
/// Directories that each node has for itself, beside the mount paths of datasets.
pub(crate) const PRIVATE: [&str; 2] = ["/data", "/scratch"];
/// Address of the first node; the lab's network is 10.42.0.0/16.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 42, 1, 1);
/// Nodes on one machine: each is two processes and some twenty megabytes.
const MAX_NODES: usize = 200;
/// The default link, Mbit/s and milliseconds one way.
const DEFAULT_LINK: (f64, f64) = (1000.0, 0.1);

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
    pub(crate) processes: u32,
    pub(crate) command: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) tag_output: bool,
    pub(crate) allow_oversubscribe: bool,
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
    let documents = gridcast_crds::manifest::read(file).map_err(|e| Failure::input(e.to_string().trim_end().to_owned()))?;
    let cluster = only_cluster(&documents, file)?;
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let spec = &cluster.spec;
    refuse_unsupported(spec)?;
    let nodes = nodes(cluster)?;
    let topology = topology(arguments.topology.as_deref(), &nodes)?;
    let volumes = volumes(&arguments.volume)?;
    let context = Context { file, documents: &documents, volumes: &volumes };
    let data = spec
        .data
        .iter()
        .enumerate()
        .map(|(index, data)| context.dataset(index, data))
        .collect::<Result<Vec<_>, _>>()?;
    let directory = directory(spec.run.as_ref(), &data)?;
    let run = spec.run.as_ref().map(|run| context.run(run, &directory)).transpose()?;
    if run.is_some() {
        find_mpirun()?;
    }
    let probe = spec.probe();
    Ok(Intake {
        notes: notes(spec),
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
        (None, _) => Err(Failure::input(format!("{}: has no VirtualCluster; a local run needs one", file.display()))),
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
        return refuse("spec.acceptance", "node baselines are not measured by a local run; remove it to run here");
    }
    if spec.nodes() == 0 {
        return refuse("spec.groups", "have no replica together; give at least one group `replicas: 1`");
    }
    let Some(run) = &spec.run else { return Ok(()) };
    if run.implementation != vc::Implementation::OpenMPI {
        return refuse("spec.run.implementation", "a local run launches with OpenMPI only; set it to OpenMPI");
    }
    if run.remote_shell != vc::RemoteShell::Starter {
        return refuse("spec.run.remoteShell", "a local run starts remote daemons by Starter only; set it to Starter");
    }
    Ok(())
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

/// The topology of the file, or one switch. Its hosts are exactly the nodes.
fn topology(file: Option<&Path>, nodes: &[NodePlan]) -> Result<Topology, Failure> {
    let names: Vec<String> = nodes.iter().map(|n| n.name.clone()).collect();
    let Some(file) = file else {
        return Ok(Topology::one_switch(&names, DEFAULT_LINK.0, DEFAULT_LINK.1));
    };
    let refuse = |why: String| Failure::input(format!("--topology {}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|e| refuse(format!("cannot be read: {e}")))?;
    let topology: Topology = serde_saphyr::from_str(&text).map_err(|e| refuse(e.to_string()))?;
    topology.validate().map_err(|e| refuse(e.to_string()))?;
    let declared: BTreeSet<&str> = topology.hosts.iter().map(|h| h.name()).collect();
    let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    if let Some(unknown) = declared.difference(&wanted).next() {
        return Err(refuse(format!(
            "hosts: {unknown} is no node of the cluster; its nodes are {}",
            names.join(" ")
        )));
    }
    if let Some(missing) = wanted.difference(&declared).next() {
        return Err(refuse(format!("hosts: node {missing} is missing; add it and its link")));
    }
    Ok(topology)
}

fn volumes(given: &[(String, PathBuf)]) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let mut volumes = BTreeMap::new();
    for (name, directory) in given {
        let refuse = |why: &str| Failure::input(format!("--volume {name}={}: {why}", directory.display()));
        let path = if directory.exists() {
            if !directory.is_dir() {
                return Err(refuse("is not a directory"));
            }
            directory.canonicalize().map_err(|e| refuse(&e.to_string()))?
        } else {
            // Made when results are to go there; its parent must be there, so that a mistyped path is noticed.
            let parent = directory.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let parent = parent.canonicalize().map_err(|_| {
                refuse(&format!("neither it nor {} exists; give a directory of this machine", parent.display()))
            })?;
            parent.join(directory.file_name().ok_or_else(|| refuse("has no last component"))?)
        };
        if volumes.insert(name.clone(), path).is_some() {
            return Err(refuse("the same NAME is given twice"));
        }
    }
    Ok(volumes)
}

struct Context<'a> {
    file: &'a Path,
    documents: &'a [Document],
    volumes: &'a BTreeMap<String, PathBuf>,
}

impl Context<'_> {
    fn dataset(&self, index: usize, data: &vc::Data) -> Result<DataPlan, Failure> {
        let field = format!("spec.data[{index}].source");
        let origin = self.origin(&field, &data.source)?;
        if let Origin::Path(path) = &origin {
            origin::check(&field, path)?;
        }
        let strategy = data.strategy();
        if !matches!(strategy, Strategy::Stable | Strategy::Chain | Strategy::Flat) {
            return Err(Failure::input(format!(
                "spec.data[{index}].strategy: {strategy:?} is not among the strategies of this version; use Stable, Chain or Flat"
            )));
        }
        Ok(DataPlan { name: data.name.clone(), mount_path: PathBuf::from(&data.mount_path), origin, strategy })
    }

    fn origin(&self, field: &str, source: &Source) -> Result<Origin, Failure> {
        if let Some(node) = &source.node {
            return Ok(Origin::Path(PathBuf::from(&node.path)));
        }
        if let Some(claim) = &source.persistent_volume_claim {
            let field = format!("{field}.persistentVolumeClaim");
            return self.volume(&field, claim).map(Origin::Path);
        }
        if let Some(map) = &source.config_map {
            let found = self.find(|r| match r {
                Resource::ConfigMap(m) if m.metadata.name.as_deref() == Some(&map.name) => Some(config_map_files(m)),
                _ => None,
            });
            return self.keys(&format!("{field}.configMap.name"), "ConfigMap", &map.name, found, false);
        }
        if let Some(secret) = &source.secret {
            let found = self.find(|r| match r {
                Resource::Secret(s) if s.metadata.name.as_deref() == Some(&secret.secret_name) => Some(secret_files(s)),
                _ => None,
            });
            return self.keys(&format!("{field}.secret.secretName"), "Secret", &secret.secret_name, found, true);
        }
        if let Some(http) = &source.http {
            return url(&format!("{field}.http"), http);
        }
        Err(Failure::input(format!(
            "{field}.{}: is not read by a local run; use `node`, `persistentVolumeClaim`, `configMap`, `secret` or `http`",
            source.kind().unwrap_or_default()
        )))
    }

    fn find<T>(&self, pick: impl Fn(&Resource) -> Option<T>) -> Option<T> {
        self.documents.iter().find_map(|d| pick(&d.resource))
    }

    fn keys(
        &self,
        field: &str,
        kind: &str,
        name: &str,
        files: Option<BTreeMap<String, Vec<u8>>>,
        secret: bool,
    ) -> Result<Origin, Failure> {
        let files = files.ok_or_else(|| {
            Failure::input(format!(
                "{field}: {} has no {kind} {name}; a local run reads it from a further document of the same file",
                self.file.display()
            ))
        })?;
        let bad = files.keys().find(|k| k.is_empty() || k.contains('/') || k.contains('\0') || matches!(k.as_str(), "." | ".."));
        match bad {
            Some(key) => Err(Failure::input(format!("{field}: key {key:?} of {kind} {name} cannot be a file name"))),
            None => Ok(Origin::Keys { files, secret }),
        }
    }

    fn volume(&self, field: &str, claim: &ClaimPath) -> Result<PathBuf, Failure> {
        let name = &claim.claim_name;
        let directory = self.volumes.get(name).ok_or_else(|| {
            Failure::input(format!("{field}.claimName: nothing stands for {name}; add --volume {name}=DIR"))
        })?;
        Ok(claim.path.as_ref().map_or_else(|| directory.clone(), |path| directory.join(path)))
    }

    fn run(&self, run: &vc::Run, directory: &Path) -> Result<RunPlan, Failure> {
        let collect = run.collect.iter().enumerate().map(|(index, collect)| {
            let claim = &collect.to.persistent_volume_claim;
            self.volume(&format!("spec.run.collect[{index}].to.persistentVolumeClaim"), claim)?;
            Ok(CollectPlan {
                path: directory.join(&collect.path),
                claim: claim.claim_name.clone(),
                below: claim.path.clone().unwrap_or_default().into(),
            })
        });
        Ok(RunPlan {
            processes: run.processes.unsigned_abs(),
            command: run.command.clone(),
            environment: run.environment.iter().map(|v| (v.name.clone(), v.value.clone())).collect(),
            tag_output: run.tag_output,
            allow_oversubscribe: run.allow_oversubscribe,
            collect: collect.collect::<Result<_, Failure>>()?,
        })
    }
}

fn config_map_files(map: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map.data.iter().flatten().map(|(k, v)| (k.clone(), v.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone()));
    text.chain(binary).collect()
}

fn secret_files(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone())).collect()
}

fn url(field: &str, http: &gridcast_crds::source::HttpSource) -> Result<Origin, Failure> {
    if http.secret_name.is_some() {
        return Err(Failure::input(format!("{field}.secretName: a local run sends no credentials; remove it")));
    }
    let url = reqwest::Url::parse(&http.url).map_err(|e| Failure::input(format!("{field}.url: {e}")))?;
    let file = url.path_segments().and_then(|mut s| s.next_back()).filter(|f| !f.is_empty() && !matches!(*f, "." | ".."));
    match file {
        Some(file) => Ok(Origin::Url { file: file.to_owned(), url }),
        None => Err(Failure::input(format!("{field}.url: must end with the name of a file"))),
    }
}

/// Where programs start: `workingDirectory`, or where this command was called.
fn directory(run: Option<&vc::Run>, data: &[DataPlan]) -> Result<PathBuf, Failure> {
    let Some(directory) = run.and_then(|r| r.working_directory.as_ref()).map(PathBuf::from) else {
        return std::env::current_dir()
            .map_err(|e| Failure::input(format!("the current directory cannot be found: {e}; go to another")));
    };
    let private = |p: &Path| PRIVATE.iter().any(|d| p.starts_with(d));
    let staged = data.iter().any(|d| directory.starts_with(&d.mount_path));
    if private(&directory) || staged || directory.is_dir() {
        return Ok(directory);
    }
    Err(Failure::input(format!(
        "spec.run.workingDirectory: {} is not a directory of this machine; make it, or use one below /scratch, which each node has for itself",
        directory.display()
    )))
}

fn find_mpirun() -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|d| d.join(MPIRUN).is_file()) {
        return Ok(());
    }
    Err(Failure::input(format!("{MPIRUN} is not in PATH; install Open MPI (`apt-get install openmpi-bin`)")))
}

/// What a local run leaves aside because it has no meaning without Kubernetes.
fn notes(spec: &gridcast_crds::VirtualClusterSpec) -> Vec<String> {
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
    notes
}
