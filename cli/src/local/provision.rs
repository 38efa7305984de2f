//! Makes the nodes, joins them by the fabric, starts an agent in each, and waits until all answer.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use gridcast_control::{AGENT_PORT, PROBE_PORT, STARTER_PORT};
use gridcast_core::mpi::{self, HostSlots};
use gridcast_lab::{
    Lifetime,
    fabric::{Fabric, FabricSpec, Port},
    node::{Bind, Node, NodeSpec},
};

use crate::failure::{Failure, OrFailed as _};

use super::{
    cluster::Cluster,
    intake::{Intake, NodePlan, PRIVATE},
    keys::{self, CONTROLLER},
    remote::{self, ControllerKeys},
    state::{NodeRecord, OwnedRun, Process},
};

/// Prefix of the lab's network.
const PREFIX: u8 = 16;
/// Where a node has what gridcast gives it.
pub(crate) const GRIDCAST: &str = "/gridcast";
/// `/dev/shm` of a node: what a machine gives by default is half of its memory, so nothing is taken away.
const SHM_BYTES: u64 = 1 << 30;
/// The programs that nodes run.
const TOOLS: [&str; 2] = ["gridcast-starter", "gridcast-agent"];

/// The programs that nodes run, found beside this one.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    starter: PathBuf,
    agent: PathBuf,
}

impl Tools {
    /// Finds them, or says where they should be.
    pub(crate) fn find() -> Result<Self, Failure> {
        let me = std::env::current_exe().map_err(|e| {
            Failure::input(format!("cannot find this program's own file: {e}; is /proc mounted?"))
        })?;
        let beside = me.parent().unwrap_or(Path::new("/"));
        let [starter, agent] = TOOLS.map(|tool| beside.join(tool));
        for tool in [&starter, &agent] {
            if !tool.is_file() {
                return Err(Failure::input(format!(
                    "{} is missing; it is installed beside `gridcast` (build it with `make build`)",
                    tool.display()
                )));
            }
        }
        Ok(Self { starter, agent })
    }
}

/// Makes the cluster. On failure nothing of it is left running.
pub(crate) async fn provision(intake: &Intake, run: &OwnedRun, tools: &Tools) -> Result<Cluster, Failure> {
    let origins = settle_origins(intake, run).await?;
    let names: Vec<&str> = intake.nodes.iter().map(|n| n.name.as_str()).chain([CONTROLLER]).collect();
    keys::write(&run.path.join("keys"), &names)?;
    let specs = specs(intake, run, tools, &origins)?;
    let lifetime = Lifetime::new().or_failed("ProvisionFailed", "make a pipe")?;
    let nodes = start_nodes(&specs, &lifetime, run)?;
    let records: Vec<NodeRecord> = intake.nodes.iter().zip(&nodes).map(record).collect::<Result<_, _>>()?;
    let fabric = start_fabric(intake, &nodes, &lifetime, run)?;
    let agents = nodes.iter().map(|node| start_agent(node, run)).collect::<Result<Vec<_>, _>>();
    let mut cluster = Cluster {
        remotes: Vec::new(),
        facts: Vec::new(),
        records,
        origins,
        agents: Vec::new(),
        nodes,
        fabric,
        _lifetime: lifetime,
    };
    cluster.agents = agents?;
    let keys = ControllerKeys::load(&run.path.join("keys"))?;
    cluster.remotes = cluster.records.iter().map(|r| remote::lazy(r, &keys)).collect::<Result<_, _>>()?;
    cluster.await_answers(run).await?;
    Ok(cluster)
}

/// Brings every origin to this machine; says where it is, and where the first node sees it.
async fn settle_origins(intake: &Intake, run: &OwnedRun) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    let mut settled = Vec::with_capacity(intake.data.len());
    for data in &intake.data {
        let path = data.origin.settle(&data.name, &run.path.join("origin")).await?;
        let path = path.canonicalize().or_failed("SourceMissing", format!("find {}", path.display()))?;
        let last = path.file_name().map_or_else(|| "root".into(), ToOwned::to_owned);
        let inside = Path::new(GRIDCAST).join("origin").join(&data.name).join(last);
        settled.push((path, inside));
    }
    Ok(settled)
}

/// What each node is made of, with its files written.
fn specs(
    intake: &Intake,
    run: &OwnedRun,
    tools: &Tools,
    origins: &[(PathBuf, PathBuf)],
) -> Result<Vec<NodeSpec>, Failure> {
    let hosts: String = std::iter::once("127.0.0.1 localhost\n".to_owned())
        .chain(intake.nodes.iter().map(|n| format!("{} {}\n", n.address, n.name)))
        .collect();
    let slots: Vec<HostSlots> =
        intake.nodes.iter().map(|n| HostSlots { name: n.name.clone(), slots: n.slots }).collect();
    let machinefile = match &intake.run {
        Some(run) => run.program.machinefile(&slots),
        None => mpi::machinefile(&slots),
    };
    let machinefile = machinefile.or_failed("ProvisionFailed", "write the machinefile")?;
    let shared = run.path.join("nodes");
    directory(&shared, 0o711)?;
    write(&run.path.join("hosts"), hosts.as_bytes())?;
    write(&run.path.join("machinefile"), machinefile.as_bytes())?;
    directory(&run.path.join("log"), 0o700)?;
    let mut specs = Vec::with_capacity(intake.nodes.len());
    for (index, node) in intake.nodes.iter().enumerate() {
        let mut spec = spec(intake, run, tools, node)?;
        if index == 0 {
            spec.binds.extend(origins.iter().map(|(path, inside)| bind(path, inside, true)));
            spec.binds.extend(collect_binds(intake)?);
        }
        specs.push(spec);
    }
    Ok(specs)
}

/// The volumes that results go to, made where they are not there yet.
fn collect_binds(intake: &Intake) -> Result<Vec<Bind>, Failure> {
    let claims = intake.run.iter().flat_map(|r| &r.collect).map(|c| &c.claim);
    let mut binds = BTreeMap::new();
    for claim in claims {
        let Some(path) = intake.volumes.get(claim) else { continue };
        directory(path, 0o755)?;
        binds.insert(claim, bind(path, &volume(claim), false));
    }
    Ok(binds.into_values().collect())
}

/// Where the first node sees the directory that stands for a claim.
pub(crate) fn volume(claim: &str) -> PathBuf {
    Path::new(GRIDCAST).join("volumes").join(claim)
}

fn spec(intake: &Intake, run: &OwnedRun, tools: &Tools, node: &NodePlan) -> Result<NodeSpec, Failure> {
    let home = run.path.join("nodes").join(&node.name);
    for (name, mode) in [
        ("root", 0o700),
        ("store", 0o755),
        ("agent", 0o700),
        ("run", 0o755),
        ("tmp", 0o1777),
        ("data", 0o1777),
        ("scratch", 0o1777),
        ("mounts", 0o755),
    ] {
        directory(&home.join(name), mode)?;
    }
    let inside = |path: &str| Path::new(GRIDCAST).join(path);
    let mut private: Vec<(PathBuf, PathBuf)> =
        PRIVATE.iter().map(|path| (PathBuf::from(path), home.join(path.trim_start_matches('/')))).collect();
    for data in &intake.data {
        let backing = home.join("mounts").join(&data.name);
        directory(&backing, 0o755)?;
        private.push((data.mount_path.clone(), backing));
    }
    if let Some((below, backing)) = private.iter().find_map(|(path, backing)| {
        intake.directory.strip_prefix(path).ok().map(|below| (below.to_owned(), backing.clone()))
    }) {
        // The working directory is private to each node, so nobody else can make it.
        directory(&backing.join(below), 0o1777)?;
    }
    let binds = vec![
        bind(&tools.starter, &inside("bin/gridcast-starter"), true),
        bind(&tools.starter, Path::new(mpi::REMOTE_SHELL), true),
        bind(&tools.agent, &inside("bin/gridcast-agent"), true),
        bind(&run.path.join("keys").join(&node.name), &inside("keys"), true),
        bind(&run.path.join("machinefile"), &inside("machinefile"), true),
        bind(&run.path.join("hosts"), Path::new("/etc/hosts"), true),
        bind(&home.join("store"), &inside("data"), false),
        bind(&home.join("agent"), &inside("agent"), false),
        bind(&home.join("run"), &inside("run"), false),
        bind(&home.join("tmp"), Path::new(mpi::TEMPORARY), false),
    ];
    let starter = inside("bin/gridcast-starter").display().to_string();
    let init = [
        &starter,
        "serve",
        "--name",
        &node.name,
        "--listen",
        &format!("0.0.0.0:{STARTER_PORT}"),
        "--keys",
        "/gridcast/keys",
        "--socket",
        "/gridcast/run/ranks.sock",
        "--exit-on-eof",
    ]
    .map(ToOwned::to_owned)
    .to_vec();
    let environment = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .filter(|(k, _)| k != "HOSTNAME")
        .collect();
    Ok(NodeSpec {
        name: node.name.clone(),
        address: node.address,
        prefix: PREFIX,
        root: home.join("root"),
        private,
        binds,
        shm_bytes: SHM_BYTES,
        init,
        environment,
    })
}

fn bind(source: &Path, target: &Path, read_only: bool) -> Bind {
    Bind { source: source.to_owned(), target: target.to_owned(), read_only }
}

/// Makes a directory with exactly this mode, whatever the umask is.
fn directory(path: &Path, mode: u32) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .or_failed("StateUnwritable", format!("make {}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).or_failed("StateUnwritable", format!("write {}", path.display()))
}

fn start_nodes(specs: &[NodeSpec], lifetime: &Lifetime, run: &OwnedRun) -> Result<Vec<Node>, Failure> {
    let starts: Vec<Result<Node, Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = specs
            .iter()
            .map(|spec| {
                scope.spawn(move || {
                    let log = log(run, &format!("{}-starter", spec.name))?;
                    let watch = lifetime.watch().or_failed("ProvisionFailed", "watch the run's life")?;
                    Node::start(spec, watch, log)
                        .map_err(|e| Failure::failed(e.reason(), crate::failure::chain(&e)))
                })
            })
            .collect();
        let panicked = || Err(Failure::failed("ProvisionFailed", "a node's start panicked"));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
    });
    starts.into_iter().collect()
}

fn record((plan, node): (&NodePlan, &Node)) -> Result<NodeRecord, Failure> {
    let init = Process::of(node.pid())
        .ok_or_else(|| Failure::failed("NodeEnded", format!("{}: ended while it began", plan.name)))?;
    Ok(NodeRecord { name: plan.name.clone(), address: plan.address, init })
}

fn start_fabric(
    intake: &Intake,
    nodes: &[Node],
    lifetime: &Lifetime,
    run: &OwnedRun,
) -> Result<Fabric, Failure> {
    let port = |(plan, node): (&NodePlan, &Node)| Port {
        host: plan.name.clone(),
        pid: node.pid(),
        address: plan.address,
        prefix: PREFIX,
    };
    let ports = intake.nodes.iter().zip(nodes).map(port).collect();
    let spec = FabricSpec { topology: intake.topology.clone(), ports, seed: 0 };
    let place = run.path.join("fabric");
    directory(&place, 0o700)?;
    let watch = lifetime.watch().or_failed("ProvisionFailed", "watch the run's life")?;
    Fabric::start(&spec, &place, watch, log(run, "fabric")?)
        .map_err(|e| Failure::failed("FabricFailed", crate::failure::chain(&e)))
}

fn start_agent(node: &Node, run: &OwnedRun) -> Result<Child, Failure> {
    let log = log(run, &format!("{}-agent", node.name()))?;
    let mut command: Command =
        gridcast_lab::node::command_in(node.pid(), "/", "/gridcast/bin/gridcast-agent");
    command
        .args(["--name", node.name(), "--keys", "/gridcast/keys", "--state", "/gridcast/agent"])
        .args(["--listen", &format!("0.0.0.0:{AGENT_PORT}"), "--probe-port", &PROBE_PORT.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // Ctrl-C is for this command alone: agents must live to restore settings.
        .process_group(0)
        .spawn()
        .or_failed("ProvisionFailed", format!("start the agent of {}", node.name()))
}

fn log(run: &OwnedRun, name: &str) -> Result<File, Failure> {
    let path = run.path.join("log").join(format!("{name}.log"));
    File::create(&path).or_failed("StateUnwritable", format!("make {}", path.display()))
}
