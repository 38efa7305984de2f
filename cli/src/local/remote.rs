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

use gridcast_control::{AGENT_PORT, Remote, STARTER_PORT};
use gridcast_proto::v1::Peer;
use hyper_util::rt::TokioIo;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};

use crate::failure::{Failure, OrFailed as _};

use super::{keys::CONTROLLER, state::NodeRecord};

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

/// Connections to a node's servers, opened when they are first used.
pub(crate) fn lazy(node: &NodeRecord, keys: &ControllerKeys) -> Result<Remote, Failure> {
    let peer = Peer {
        name: node.name.clone(),
        address: node.address.to_string(),
        port: AGENT_PORT.into(),
        ..Peer::default()
    };
    let [agent, starter] = [AGENT_PORT, STARTER_PORT].map(|port| channel(node, port, keys));
    Ok(Remote::new(node.name.clone(), peer, agent?, Some(starter?)))
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
