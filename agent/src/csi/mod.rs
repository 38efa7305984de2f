//! How does a pod get to see a dataset, and not before it is whole?
//!
//! `gridcast-csi` is the volume plugin `csi.gridcast.io` of one node. A pod names a Broadcast of its own namespace in an
//! inline volume; kubelet asks this plugin to publish it, the plugin asks the node's agent, and holds kubelet's call until
//! the agent has the dataset verified. Then it binds the dataset, read-only, to where kubelet wants it.
//!
//! # Participants
//!
//! - *kubelet* finds the socket of [`registration`] in its directory of plugins and calls the node part of CSI
//!   ([`node`]). It keeps its own record of a volume (`vol_data.json` beside the target) from before the first publish
//!   until after the last unpublish, and calls again what failed, at growing intervals of up to two minutes. It gives a
//!   call two minutes.
//! - The *agent* of this node answers on a Unix socket that only this plugin shares with it ([`wait`]). It knows which
//!   datasets are here, and keeps those that are mounted.
//! - The *kernel's* table of mounts ([`mounts`]) is all the state there is here: nothing is remembered between calls, so
//!   nothing is lost when this process dies, and a call that is repeated finds what its forerunner did.
//!
//! # What holds
//!
//! - *The namespace is kubelet's word.* It comes from what kubelet adds to the volume's attributes about the pod, and is
//!   believed only if the pod's UID beside it is the one in the target path, which no author of a manifest can know.
//! - *A pod never sees an empty directory.* The target is made right before the mount and removed again if that
//!   fails; kubelet starts no container before the publish has succeeded, and a `subPath` that is not in the dataset cannot be
//!   made in it.
//! - *It is read-only everywhere.* The mount has its flags before it reaches the shared tree; see [`mounts`].
//! - *No orphans.* Where something may be left of a volume (a mount, or the agent's note of it) the call fails with a code
//!   that kubelet takes as uncertain; for such a volume, too, it calls unpublish when the pod goes, and after its own
//!   restart it does so for everything that it finds a record of. A mount for which kubelet has no record left is
//!   removed when the plugin starts, and the agent is told of whatever it takes to be mounted and is not.
//!
//! There is no listener but the two Unix sockets, one thread, and no timer while nobody waits.

mod authority;
mod identity;
mod mounts;
mod node;
mod registration;
mod request;
mod socket;
mod table;
mod wait;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use gridcast_proto::csi::v1::identity_server::IdentityServer;
use gridcast_proto::csi::v1::node_server::NodeServer;
use thiserror::Error;
use tonic::transport::Server;

use mounts::Mounts;
use wait::Agent;

/// Name of the driver, as in the CSIDriver object and in pods' volumes.
pub const DRIVER: &str = "csi.gridcast.io";

/// Where things are, and who this node is.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Unix socket for kubelet's calls; kubelet must see it under the same path
    #[arg(
        long,
        env = "GRIDCAST_CSI_SOCKET",
        default_value = "/var/lib/kubelet/plugins/csi.gridcast.io/csi.sock"
    )]
    pub socket: PathBuf,
    /// Unix socket by which kubelet finds the plugin
    #[arg(
        long,
        env = "GRIDCAST_CSI_REGISTRATION",
        default_value = "/var/lib/kubelet/plugins_registry/csi.gridcast.io-reg.sock"
    )]
    pub registration: PathBuf,
    /// Unix socket of the node's agent
    #[arg(long, env = "GRIDCAST_MOUNTS_SOCKET", default_value = "/run/gridcast/mounts/agent.sock")]
    pub mounts_socket: PathBuf,
    /// Name of the Kubernetes node
    #[arg(long, env = "NODE_NAME")]
    pub node_name: String,
    /// Directory that holds the node's datasets; nothing outside of it is ever mounted
    #[arg(long, env = "GRIDCAST_DATA", default_value = "/var/lib/gridcast/data")]
    pub data: PathBuf,
    /// How long a call waits for a dataset; kubelet gives up after 120
    #[arg(long, env = "GRIDCAST_CSI_WAIT_SECONDS", default_value_t = 100, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=110))]
    pub wait_seconds: u32,
}

/// Why the plugin does not run.
#[derive(Debug, Error)]
pub enum CsiError {
    /// A socket cannot be made.
    #[error("cannot listen at {path}: mount kubelet's directory there, and stop what else uses it")]
    Listen {
        /// Of the socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The server ended.
    #[error("the server at {path} failed")]
    Serve {
        /// Of the socket.
        path: PathBuf,
        /// Why.
        source: tonic::transport::Error,
    },
}

/// Serves kubelet until `stop`, then removes the sockets, so that kubelet knows that the plugin has gone.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> Result<(), CsiError> {
    let Options { socket, registration, mounts_socket, node_name, data, wait_seconds } = options;
    let mounts = Mounts::new(data);
    mounts.sweep();
    let listener = socket::bind(&socket)?;
    let agent = Agent::new(mounts_socket, node_name.clone(), Duration::from_secs(wait_seconds.into()));
    let node = Arc::new(node::Node::new(node_name.clone(), agent, mounts));
    let settling = async {
        node.settle().await;
        std::future::pending::<Infallible>().await
    };
    let serving = Server::builder()
        .add_service(IdentityServer::new(identity::Identity))
        .add_service(NodeServer::from_arc(Arc::clone(&node)))
        .serve_with_incoming(listener.incoming());
    tracing::info!(node = node_name, socket = %socket.display(), "ready");
    // Only now: kubelet calls back as soon as it sees the other socket.
    tokio::select! {
        served = serving => served.map_err(|source| CsiError::Serve { path: socket.clone(), source }),
        registered = registration::keep(&registration, &socket) => registered,
        never = settling => match never {},
        () = stop => {
            tracing::info!("stopping");
            Ok(())
        }
    }
}
