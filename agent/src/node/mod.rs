//! What does the agent of a Kubernetes node do beside what every agent does?
//!
//! It proves its node to the operator and serves as that node and nothing else ([`enrol`]); it works in the network
//! namespaces of the node's pods ([`pods`]); it keeps the node's datasets and hands them to the mount helper
//! ([`datasets`]); it tells how it is ([`admin`]). Whatever of this must outlive it lies in its state directory:
//!
//! ```text
//! data/NAMESPACE/PATH   datasets
//! records/UID.json      what is known of each
//! journal/POD/          settings of a pod that were changed
//! settings.*            the same for the node itself, where its network is not the machine's
//! agent.lock            one agent at a time
//! ```

mod admin;
pub(crate) mod datasets;
mod enrol;
mod label;
mod mounts;
pub(crate) mod pods;

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use gridcast_core::failure::chain;
use gridcast_proto::v1::datasets_server::DatasetsServer;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tonic::service::RoutesBuilder;

use self::admin::{Admin, Serving};
use self::datasets::{DatasetsService, Door, Registry};
use self::enrol::Enrolment;
use self::pods::Pods;
use crate::bind::everywhere;
use crate::broadcast;
use crate::namespace::Namespace;
use crate::probe::Turns;
use crate::service::Node;
use crate::space::{Place, Space};

/// An agent that was told to stop ends within this; its successor waits for it.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(10);
const LOCK: &str = "agent.lock";
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// The agent of a Kubernetes node. It gets its certificate from the operator.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The node's name
    #[arg(long, env = "NODE_NAME", value_name = "NODE")]
    name: String,
    /// The node's address, where the agent is reached
    #[arg(long, env = "HOST_IP", value_name = "IP")]
    address: IpAddr,
    /// Port of the agent
    #[arg(long, env = "GRIDCAST_PORT", default_value_t = 7411, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// UDP and TCP port for probes of peers, on the node and in its pods; the same on every node
    #[arg(long, env = "GRIDCAST_PROBE_PORT", default_value_t = 7413, value_parser = clap::value_parser!(u16).range(1..))]
    probe_port: u16,
    /// Port of /metrics, /healthz and /readyz; 0 for none
    #[arg(long, env = "GRIDCAST_METRICS_PORT", value_name = "PORT", default_value_t = 7414)]
    metrics_port: u16,
    /// Where the operator signs certificates
    #[arg(long, env = "GRIDCAST_OPERATOR", value_name = "HOST:PORT")]
    operator: String,
    /// The token of the agent's pod, for the audience gridcast.io
    #[arg(long, env = "GRIDCAST_TOKEN", value_name = "FILE")]
    token: PathBuf,
    /// The authority of the agents, PEM
    #[arg(long, env = "GRIDCAST_AUTHORITY", value_name = "FILE")]
    authority: PathBuf,
    /// Datasets and what must outlive the agent
    #[arg(long, env = "GRIDCAST_STATE", value_name = "DIRECTORY", default_value = "/var/lib/gridcast")]
    state: PathBuf,
    /// Where the mount helper asks
    #[arg(
        long,
        env = "GRIDCAST_MOUNTS_SOCKET",
        value_name = "FILE",
        default_value = "/run/gridcast/mounts/agent.sock"
    )]
    mounts_socket: PathBuf,
    /// Directory below which Broadcasts may read the node's files; may be given several times
    #[arg(
        long = "source-root",
        env = "GRIDCAST_SOURCE_ROOT",
        value_name = "DIRECTORY",
        value_delimiter = ','
    )]
    source_roots: Vec<PathBuf>,
    /// The node's /proc, with all its processes and writable settings
    #[arg(long, env = "GRIDCAST_PROC", value_name = "DIRECTORY", default_value = "/proc")]
    proc: PathBuf,
}

/// Serves until `stop` is ready, then lets running calls end for a moment.
pub async fn serve(options: Options, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let Options {
        name,
        address,
        port,
        probe_port,
        metrics_port,
        operator,
        token,
        authority,
        state,
        mounts_socket,
        source_roots,
        proc,
    } = options;
    check_roots(&source_roots)?;
    let _lock = claim(&state).await?;
    let (stopping, stopped) = watch::channel(false);
    tokio::pin!(stop);
    let registry = open_registry(&state).await?;
    let admin = Admin::new(registry.clone());
    if metrics_port != 0 {
        let place = SocketAddr::new(address, metrics_port);
        let failed = || {
            format!(
                "cannot listen at {place} for health and metrics: stop what listens there, or give --metrics-port"
            )
        };
        admin.listen(place).await.with_context(failed)?;
    }
    let mounts = mounts::serve(&mounts_socket, registry.clone(), stopped)
        .with_context(|| format!("cannot make the socket {}", mounts_socket.display()))?;
    let mounts = tokio::spawn(mounts);

    let enrolment = Enrolment { name: name.clone(), operator, token, authority };
    let issued = tokio::select! {
        issued = enrolment.certificate() => issued,
        () = &mut stop => {
            stopping.send_replace(true);
            leave(None, &registry, &state).await;
            return Ok(());
        }
    };
    let identity = issued.identity.clone();
    let turns = Turns::default();
    // The node's family of addresses need not be its pods'.
    let probes = everywhere(probe_port);
    let pods = Pods::open(proc.clone(), state.join("journal"), probes, turns.clone())
        .await
        .with_context(|| format!("cannot use {} or {}", state.join("journal").display(), proc.display()))?;
    let space = Space::new(Place {
        namespace: Namespace::default(),
        proc,
        group: None,
        probes: SocketAddr::new(address, probe_port),
        journal: state.clone(),
        turns,
    });
    let node = Node::open(name.clone(), identity.clone(), space, Some(pods.clone()), stopping).await?;
    let broadcast =
        broadcast::Service::of_node(name, identity.clone(), source_roots, Arc::new(Door(registry.clone())));
    let (until, lives) = watch::channel(issued.until);
    let serving = Serving { counters: broadcast.counters(), meters: node.meters(), pods, until: lives };
    let mut services = RoutesBuilder::default();
    node.add_to(&mut services);
    services
        .add_service(broadcast.broadcasts())
        .add_service(broadcast.relay())
        .add_service(DatasetsServer::new(DatasetsService::new(registry.clone(), identity.clone())));
    let refused = Arc::new(Notify::new());
    let place = SocketAddr::new(address, port);
    let served = node.serve(place, services, Some(refused.clone()), || admin.serves(serving), stop);
    tokio::select! {
        served = served => served?,
        () = enrolment.renew(issued, &identity, &until, &refused) => {}
        error = failure_of(mounts) => return Err(error),
    }
    leave(Some(&node), &registry, &state).await;
    Ok(())
}

/// An agent that has nothing to remember leaves nothing on its node: it may have been uninstalled.
async fn leave(node: Option<&Node>, registry: &Arc<Registry>, state: &Path) {
    if let Some(node) = node
        && let Err(status) = node.close().await
    {
        tracing::warn!(error = status.message(), "a journal could not be closed");
    }
    let (registry, state) = (registry.clone(), state.to_owned());
    let tidy = move || {
        registry.forget_kept_data_that_vanished();
        for directory in ["journal", "records", "data"] {
            // One that holds something stays.
            let _ = fs::remove_dir(state.join(directory));
        }
        let _ = fs::remove_file(state.join(LOCK));
    };
    let _ = tokio::task::spawn_blocking(tidy).await;
}

/// Whether `path` still names `file`.
fn is_at(file: &File, path: &Path) -> bool {
    let named = fs::metadata(path).map(|found| found.ino());
    named.ok().zip(file.metadata().ok()).is_some_and(|(named, own)| named == own.ino())
}

/// Why the server of mounts has ended; that it was told to is none.
async fn failure_of(mounts: JoinHandle<Result<(), tonic::transport::Error>>) -> anyhow::Error {
    match mounts.await {
        Ok(Ok(())) => std::future::pending().await,
        Ok(Err(error)) => anyhow!("the server of mounts failed: {}", chain(&error)),
        Err(error) => anyhow!("the server of mounts ended: {error}"),
    }
}

async fn open_registry(state: &Path) -> anyhow::Result<Arc<Registry>> {
    let place = state.to_owned();
    let open = move || {
        let registry = Registry::open(&place)?;
        match label::for_containers(&place.join("data")) {
            Ok(true) => tracing::info!("datasets are labelled for containers from now on"),
            Ok(false) => {}
            // Their readers would be told nothing but that permission is denied.
            Err(error) => {
                tracing::warn!(%error, "cannot label the datasets for containers: where SELinux is enforced, pods cannot read them");
            }
        }
        Ok::<_, datasets::DatasetError>(registry)
    };
    let opened = tokio::task::spawn_blocking(open).await?;
    opened.with_context(|| format!("cannot use {}", state.display()))
}

/// Makes the state directory and locks it. Others on the node must not reach datasets around the volumes, since files
/// keep the modes of their source.
async fn claim(state: &Path) -> anyhow::Result<File> {
    let failed = || format!("cannot use {}: check --state", state.display());
    fs::create_dir_all(state).with_context(failed)?;
    fs::set_permissions(state, fs::Permissions::from_mode(0o700)).with_context(failed)?;
    let path = state.join(LOCK);
    let deadline = Instant::now() + PREDECESSOR_PATIENCE;
    loop {
        let lock = File::create(&path).with_context(failed)?;
        match lock.try_lock() {
            Ok(()) if is_at(&lock, &path) => return Ok(lock),
            // A predecessor has removed it in the end.
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => sleep(LOCK_PAUSE).await,
            Err(fs::TryLockError::WouldBlock) => {
                return Err(anyhow!("{} is locked by another agent of this node", state.display()));
            }
            Err(fs::TryLockError::Error(error)) => return Err(error).with_context(failed),
        }
    }
}

fn check_roots(roots: &[PathBuf]) -> anyhow::Result<()> {
    match roots.iter().find(|root| !root.is_absolute()) {
        Some(root) => Err(anyhow!("--source-root is `{}`: give absolute directories", root.display())),
        None => Ok(()),
    }
}
