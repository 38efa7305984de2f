//! How does this command reach a node's agent and starter?
//!
//! By gRPC with mutual TLS over a TCP connection that is opened inside the node's network namespace: it goes over that
//! namespace's loopback and never over the fabric, so control traffic does not disturb what is measured.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use gridcast_proto::v1::{
    agent_client::AgentClient, broadcasts_client::BroadcastsClient, starter_client::StarterClient,
};
use hyper_util::rt::TokioIo;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};

use crate::failure::{Failure, OrFailed as _, chain};

use super::{keys::CONTROLLER, state::NodeRecord};

/// Port of an agent's gRPC server.
pub(crate) const AGENT_PORT: u16 = 7411;
/// Port of a starter's gRPC server.
pub(crate) const STARTER_PORT: u16 = 7412;
/// Port of the probe's reflector and sink.
pub(crate) const PROBE_PORT: u16 = 7413;

/// Messages of the control plane are small; the largest are lists of settings and ranks.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The controller's keys.
#[derive(Clone, Debug)]
pub(crate) struct ControllerKeys {
    authority: Certificate,
    identity: Identity,
}

impl ControllerKeys {
    /// Reads the controller's keys of a run.
    pub(crate) fn load(keys: &Path) -> Result<Self, Failure> {
        let place = keys.join(CONTROLLER);
        let read = |file: &str| {
            let path = place.join(file);
            std::fs::read(&path).or_failed("KeysFailed", format!("read {}", path.display()))
        };
        Ok(Self {
            authority: Certificate::from_pem(read("ca.pem")?),
            identity: Identity::from_pem(read("cert.pem")?, read("key.pem")?),
        })
    }
}

/// One node's servers, connected.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    agent: Channel,
    starter: Channel,
}

impl Remote {
    /// Connections to a node's servers, opened when they are first used.
    pub(crate) fn lazy(node: &NodeRecord, keys: &ControllerKeys) -> Result<Self, Failure> {
        Ok(Self {
            name: node.name.clone(),
            address: node.address,
            agent: channel(node, AGENT_PORT, keys)?,
            starter: channel(node, STARTER_PORT, keys)?,
        })
    }

    /// The agent's service.
    pub(crate) fn agent(&self) -> AgentClient<Channel> {
        AgentClient::new(self.agent.clone())
    }

    /// The agent's broadcasts.
    pub(crate) fn broadcasts(&self) -> BroadcastsClient<Channel> {
        BroadcastsClient::new(self.agent.clone())
    }

    /// The starter.
    pub(crate) fn starter(&self) -> StarterClient<Channel> {
        StarterClient::new(self.starter.clone())
    }

    /// The node as its peers reach it.
    pub(crate) fn peer(&self) -> gridcast_proto::v1::Peer {
        gridcast_proto::v1::Peer {
            name: self.name.clone(),
            address: self.address.to_string(),
            port: AGENT_PORT.into(),
            ..Default::default()
        }
    }

    /// Says what went wrong in a call to this node's agent or starter.
    pub(crate) fn failed(&self, reason: &str, what: &str, status: &tonic::Status) -> Failure {
        if is_gone(status) {
            let text = format!("{}: the node no longer answers while {what}: {}", self.name, chain(status));
            return Failure::failed("AgentLost", text);
        }
        Failure::failed(reason, format!("{}: {what}: {}", self.name, status.message()))
    }
}

/// Whether a call failed because its server went away, rather than by the server's own word.
pub(crate) fn is_gone(status: &tonic::Status) -> bool {
    use std::error::Error as _;
    status.source().is_some() || status.code() == tonic::Code::Unavailable
}

fn channel(node: &NodeRecord, port: u16, keys: &ControllerKeys) -> Result<Channel, Failure> {
    let tls = ClientTlsConfig::new()
        .domain_name(&node.name)
        .ca_certificate(keys.authority.clone())
        .identity(keys.identity.clone());
    let endpoint = Endpoint::from_shared(format!("https://{}:{port}", node.name))
        .and_then(|e| e.connect_timeout(CONNECT_TIMEOUT).tls_config(tls))
        .or_failed("KeysFailed", format!("use the controller's keys for {}", node.name))?;
    let pid = node.init.pid;
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| async move {
        let opened =
            tokio::task::spawn_blocking(move || gridcast_lab::node::connect(pid, target, CONNECT_TIMEOUT))
                .await;
        let stream = opened.map_err(io::Error::other)??;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok::<_, io::Error>(TokioIo::new(tokio::net::TcpStream::from_std(stream)?))
    })))
}
