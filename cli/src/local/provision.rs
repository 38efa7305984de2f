//! Makes the nodes, joins them by the fabric, starts an agent in each, and waits until all answer.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::{
        fd::AsFd as _,
        unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use gridcast_core::mpi::{self, HostSlots};
use gridcast_lab::{
    Lifetime,
    fabric::{Fabric, FabricSpec, Port},
    node::{Bind, Node, NodeSpec},
};
use gridcast_proto::v1::{DescribeReply, DescribeRequest, RanksRequest, WatchRequest};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::sync::mpsc;

use crate::failure::{Failure, OrFailed as _};

use super::{
    intake::{Intake, NodePlan, PRIVATE},
    keys::{self, CONTROLLER},
    remote::{self, AGENT_PORT, ControllerKeys, PROBE_PORT, Remote, STARTER_PORT},
    state::{NodeRecord, OwnedRun, Process},
};

/// Prefix of the lab's network.
const PREFIX: u8 = 16;
/// Where a node has what gridcast gives it.
pub(crate) const GRIDCAST: &str = "/gridcast";
/// Agents and starters answer within milliseconds; on a loaded machine with many nodes, within seconds.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// `/dev/shm` of a node: what a machine gives by default is half of its memory, so nothing is taken away.
const SHM_BYTES: u64 = 1 << 30;
/// Open MPI's session directories and sockets have paths of at most 108 bytes, so nothing long is added there.
const TOOLS: [&str; 2] = ["gridcast-starter", "gridcast-agent"];

/// From the end of a node's agent to that of its first process, where both end.
const NODE_END: Duration = Duration::from_millis(100);

/// Something of a cluster that went away by itself.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    /// One PascalCase word.
    pub(crate) reason: &'static str,
    /// Names the node.
    pub(crate) message: String,
}

/// A provisioned cluster. Dropping it ends all of its processes.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) remotes: Vec<Remote>,
    /// What each agent said of its host, in the order of nodes.
    pub(crate) facts: Vec<DescribeReply>,
    pub(crate) records: Vec<NodeRecord>,
    /// Paths of the datasets' origins in the first node.
    pub(crate) origins: Vec<PathBuf>,
    agents: Vec<Child>,
    nodes: Vec<Node>,
    fabric: Fabric,
    // Last: nodes and fabric are asked to end first, and end in any case when this closes.
    _lifetime: Lifetime,
}

/// The programs that nodes run, found beside this one.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    starter: PathBuf,
    agent: PathBuf,
}

impl Tools {
    /// Finds them, or says where they should be.
    pub(crate) fn find() -> Result<Self, Failure> {
        let me = std::env::current_exe()
            .map_err(|e| Failure::input(format!("cannot find this program's own file: {e}; is /proc mounted?")))?;
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
        origins: origins.iter().map(|(_, inside)| inside.clone()).collect(),
        agents: Vec::new(),
        nodes,
        fabric,
        _lifetime: lifetime,
    };
    cluster.agents = agents?;
    let keys = ControllerKeys::load(&run.path.join("keys"))?;
    cluster.remotes = cluster.records.iter().map(|r| Remote::lazy(r, &keys)).collect::<Result<_, _>>()?;
    cluster.await_answers(run).await?;
    Ok(cluster)
}

impl Cluster {
    /// Processes outside the nodes.
    pub(crate) fn processes(&self) -> Vec<Process> {
        i32::try_from(self.fabric.pid()).ok().and_then(Process::of).into_iter().collect()
    }

    /// Waits until each agent and each starter answers.
    async fn await_answers(&mut self, run: &OwnedRun) -> Result<(), Failure> {
        let waits = self.remotes.iter().map(|remote| async move {
            let agent = retry(async || remote.agent().describe(DescribeRequest {}).await);
            let starter = retry(async || remote.starter().ranks(RanksRequest::default()).await);
            let (facts, starter) = tokio::join!(agent, starter);
            let late = |what: &str, reason: &str, status: &tonic::Status| {
                let log = run.path.join("log").join(format!("{}-{what}.log", remote.name));
                Failure::failed(
                    reason,
                    format!("{}: the {what} does not answer: {}{}", remote.name, status.message(), last_line(&log)),
                )
            };
            starter.map_err(|s| late("starter", "NoStarter", &s))?;
            facts.map_err(|s| late("agent", "NoAgent", &s))
        });
        self.facts = futures::future::try_join_all(waits).await?;
        Ok(())
    }

    /// Tells through `lost` what goes away, for as long as the cluster lives: an agent, a whole node, the fabric.
    pub(crate) fn watch(&self, run: &OwnedRun, lost: &mpsc::Sender<Loss>) -> Result<(), Failure> {
        for (remote, record) in self.remotes.iter().zip(&self.records) {
            let (remote, init, lost) = (remote.clone(), record.init, lost.clone());
            let log = run.path.join("log").join(format!("{}-agent.log", remote.name));
            tokio::spawn(async move {
                if let Ok(events) = remote.agent().watch(WatchRequest {}).await {
                    let mut events = events.into_inner();
                    while let Ok(Some(_)) = events.message().await {}
                }
                // With its node an agent goes first.
                tokio::time::sleep(NODE_END).await;
                let (reason, what) = if init.alive() {
                    ("AgentLost", format!("its agent is gone{}", last_line(&log)))
                } else {
                    ("NodeLost", "its first process, the starter, is gone, and the node with it".to_owned())
                };
                // Nobody listens once the cluster is released.
                let _ = lost.send(Loss { reason, message: format!("{}: {what}", remote.name) }).await;
            });
        }
        let end = self.fabric.watch().or_failed("ProvisionFailed", "watch the fabric")?;
        let (lost, log) = (lost.clone(), run.path.join("log/fabric.log"));
        // Ends with the fabric, which the release ends.
        std::thread::spawn(move || {
            while poll(&mut [PollFd::new(end.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) == Err(Errno::EINTR) {}
            let message = format!("the process that is the network between the nodes is gone{}", last_line(&log));
            let _ = lost.blocking_send(Loss { reason: "FabricLost", message });
        });
        Ok(())
    }

    /// Shows a staged dataset at its mount path, read-only, on every node.
    pub(crate) fn mount(&self, staged: &Path, mount_path: &Path) -> Result<(), Failure> {
        for node in &self.nodes {
            gridcast_lab::node::bind(node.pid(), staged, mount_path, true).or_failed(
                "MountFailed",
                format!("mount {} at {} on {}", staged.display(), mount_path.display(), node.name()),
            )?;
        }
        Ok(())
    }

    /// Ends everything and waits until it is gone.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        let stopped: Vec<std::io::Result<_>> = std::thread::scope(|scope| {
            let waits: Vec<_> = self.nodes.iter_mut().map(|node| scope.spawn(|| node.stop())).collect();
            waits.into_iter().filter_map(|w| w.join().ok()).collect()
        });
        let fabric = self.fabric.stop();
        self.reap_agents();
        for (result, record) in stopped.into_iter().zip(&self.records) {
            result.or_failed("ReleaseFailed", format!("end node {}", record.name))?;
        }
        fabric.map(drop).or_failed("ReleaseFailed", "end the fabric")
    }

    /// The agents ended with their nodes.
    fn reap_agents(&mut self) {
        for agent in &mut self.agents {
            let _ = agent.wait();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        self.reap_agents();
    }
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
    let machinefile = mpi::machinefile(&slots).or_failed("ProvisionFailed", "write the machinefile")?;
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
    for (name, mode) in [("root", 0o700), ("store", 0o755), ("agent", 0o700), ("run", 0o755), ("data", 0o1777), ("scratch", 0o1777), ("mounts", 0o755)] {
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
        bind(&tools.agent, &inside("bin/gridcast-agent"), true),
        bind(&run.path.join("keys").join(&node.name), &inside("keys"), true),
        bind(&run.path.join("machinefile"), &inside("machinefile"), true),
        bind(&run.path.join("hosts"), Path::new("/etc/hosts"), true),
        bind(&home.join("store"), &inside("data"), false),
        bind(&home.join("agent"), &inside("agent"), false),
        bind(&home.join("run"), &inside("run"), false),
    ];
    let starter = inside("bin/gridcast-starter").display().to_string();
    let init = [&starter, "serve", "--name", &node.name, "--listen", &format!("0.0.0.0:{STARTER_PORT}"), "--keys", "/gridcast/keys", "--socket", "/gridcast/run/ranks.sock", "--exit-on-eof"]
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
                    Node::start(spec, watch, log).map_err(|e| Failure::failed(e.reason(), crate::failure::chain(&e)))
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

fn start_fabric(intake: &Intake, nodes: &[Node], lifetime: &Lifetime, run: &OwnedRun) -> Result<Fabric, Failure> {
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
    let mut command: Command = gridcast_lab::node::command_in(node.pid(), "/", "/gridcast/bin/gridcast-agent");
    command
        .args(["--name", node.name(), "--keys", "/gridcast/keys", "--state", "/gridcast/agent"])
        .args(["--listen", &format!("0.0.0.0:{AGENT_PORT}"), "--probe-port", &PROBE_PORT.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .or_failed("ProvisionFailed", format!("start the agent of {}", node.name()))
}

fn log(run: &OwnedRun, name: &str) -> Result<File, Failure> {
    let path = run.path.join("log").join(format!("{name}.log"));
    File::create(&path).or_failed("StateUnwritable", format!("make {}", path.display()))
}

/// The last thing that a log says, as the end of a sentence.
fn last_line(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().rfind(|l| !l.trim().is_empty()).map(|l| format!("; it said: {}", l.trim())).unwrap_or_default()
}

/// Asks again while the server is not there yet, up to [`READY_TIMEOUT`].
async fn retry<T>(mut call: impl AsyncFnMut() -> Result<tonic::Response<T>, tonic::Status>) -> Result<T, tonic::Status> {
    let deadline = tokio::time::Instant::now() + READY_TIMEOUT;
    loop {
        match tokio::time::timeout_at(deadline, call()).await {
            Ok(Ok(reply)) => return Ok(reply.into_inner()),
            Ok(Err(status)) if !remote::is_gone(&status) => return Err(status),
            Ok(Err(status)) if tokio::time::Instant::now() >= deadline => return Err(status),
            Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(_) => return Err(tonic::Status::deadline_exceeded(format!("no answer in {READY_TIMEOUT:?}"))),
        }
    }
}
