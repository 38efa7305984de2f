//! Who am I, and whom do I believe?
//!
//! Every process of a run holds one directory of keys: `ca.pem` (the run's only authority), `cert.pem` and
//! `key.pem` (its own, with the node's name as DNS SAN). Servers accept only clients that this authority signed;
//! clients verify a server against the *node's name*, never against its address, so that names need not resolve.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridcast_proto::v1::Peer;
use thiserror::Error;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, ServerTlsConfig};

/// How long a TCP and TLS connection to a peer may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An idle connection with a call on it is asked for a sign of life this often: agents that are gone without a
/// FIN (a killed network namespace) are noticed within `KEEP_ALIVE_INTERVAL + KEEP_ALIVE_TIMEOUT`.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// See [`KEEP_ALIVE_INTERVAL`].
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Keys are a few KiB; anything larger is the wrong file.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// Why keys or a peer's address could not be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file of the directory is missing or unreadable.
    #[error("cannot read {path}: give the directory that holds ca.pem, cert.pem and key.pem")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is there but is not what its name says.
    #[error("{path} holds no PEM block of {expected}: make the keys of the run again")]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        expected: &'static str,
    },
    /// The peer's address is not a literal IP address.
    #[error(
        "address `{address}` of peer {name} is not an IP address: names are resolved by the controller, not here"
    )]
    Address {
        /// The peer's name.
        name: String,
        /// What was given.
        address: String,
    },
    /// The peer's port is not a TCP port.
    #[error("port {port} of peer {name} is not between 1 and 65535")]
    Port {
        /// The peer's name.
        name: String,
        /// What was given.
        port: u32,
    },
    /// The TLS library refused the keys or the name.
    #[error("keys of {directory} cannot be used with peer {name}: make the keys of the run again")]
    Config {
        /// The directory the keys came from.
        directory: PathBuf,
        /// The peer's name.
        name: String,
        /// What the library said.
        source: tonic::transport::Error,
    },
}

impl TlsError {
    /// One PascalCase word for conditions, events and reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "KeysUnreadable",
            Self::NotPem { .. } | Self::Config { .. } => "KeysInvalid",
            Self::Address { .. } | Self::Port { .. } => "PeerInvalid",
        }
    }
}

/// The keys of one participant of a run. Cheap enough to clone: a few KiB.
#[derive(Clone)]
pub struct Identity {
    directory: PathBuf,
    authority: Certificate,
    own: tonic::transport::Identity,
}

impl std::fmt::Debug for Identity {
    // The private key never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Identity {
    /// Loads `ca.pem`, `cert.pem` and `key.pem` of `directory`.
    pub fn load(directory: &Path) -> Result<Self, TlsError> {
        let authority = read_pem(&directory.join("ca.pem"), "CERTIFICATE")?;
        let certificate = read_pem(&directory.join("cert.pem"), "CERTIFICATE")?;
        let key = read_pem(&directory.join("key.pem"), "PRIVATE KEY")?;
        Ok(Self {
            directory: directory.to_owned(),
            authority: Certificate::from_pem(authority),
            own: tonic::transport::Identity::from_pem(certificate, key),
        })
    }

    /// A server that shows these keys and demands a client certificate of the same authority.
    pub fn server_config(&self) -> ServerTlsConfig {
        ServerTlsConfig::new()
            .identity(self.own.clone())
            .client_ca_root(self.authority.clone())
            .timeout(CONNECT_TIMEOUT)
    }

    /// A client that shows these keys and accepts only a server whose certificate names `peer_name`.
    pub fn client_config(&self, peer_name: &str) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .identity(self.own.clone())
            .ca_certificate(self.authority.clone())
            .domain_name(peer_name)
    }

    /// The endpoint of a peer, not yet connected. Settings suit both small calls and bulk data: no Nagle delay,
    /// keep-alive only while a call is open (an idle connection causes no traffic).
    pub fn endpoint(&self, peer: &Peer) -> Result<Endpoint, TlsError> {
        self.endpoint_at(&peer.name, peer_address(peer)?)
    }

    /// The same for a name and an address that were known separately.
    pub fn endpoint_at(&self, name: &str, address: SocketAddr) -> Result<Endpoint, TlsError> {
        let failed =
            |source| TlsError::Config { directory: self.directory.clone(), name: name.to_owned(), source };
        let endpoint = Channel::from_shared(format!("https://{address}"))
            .map_err(|_| TlsError::Address { name: name.to_owned(), address: address.to_string() })?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(false);
        endpoint.tls_config(self.client_config(name)).map_err(failed)
    }
}

/// The socket address of a peer; only literal IP addresses, so that nothing here ever asks a resolver.
pub fn peer_address(peer: &Peer) -> Result<SocketAddr, TlsError> {
    let address: IpAddr = peer
        .address
        .parse()
        .map_err(|_| TlsError::Address { name: peer.name.clone(), address: peer.address.clone() })?;
    let port = u16::try_from(peer.port).ok().filter(|port| *port != 0);
    let port = port.ok_or_else(|| TlsError::Port { name: peer.name.clone(), port: peer.port })?;
    Ok(SocketAddr::new(address, port))
}

fn read_pem(path: &Path, expected: &'static str) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    let not_pem = || TlsError::NotPem { path: path.to_owned(), expected };
    if std::fs::metadata(path).map_err(failed)?.len() > MAX_PEM_BYTES {
        return Err(not_pem());
    }
    let text = std::fs::read(path).map_err(failed)?;
    let label = format!("{expected}-----");
    let found = text.windows(label.len()).any(|window| window == label.as_bytes());
    if found { Ok(text) } else { Err(not_pem()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_wrong_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let load = || Identity::load(directory.path()).unwrap_err();
        assert!(load().to_string().contains("ca.pem: give the directory"), "{}", load());
        std::fs::write(directory.path().join("ca.pem"), "-----BEGIN CERTIFICATE-----").unwrap();
        assert!(load().to_string().contains("cert.pem: give the directory"), "{}", load());
        std::fs::write(directory.path().join("cert.pem"), "-----BEGIN PRIVATE KEY-----").unwrap();
        let error = load();
        assert_eq!(error.reason(), "KeysInvalid");
        assert!(error.to_string().contains("cert.pem holds no PEM block of CERTIFICATE"), "{error}");
    }

    #[test]
    fn only_literal_addresses_are_peers() {
        let peer = |address: &str, port| Peer {
            name: "node-1".into(),
            address: address.into(),
            port,
            ..Peer::default()
        };
        assert_eq!(peer_address(&peer("10.42.0.2", 7411)).unwrap(), "10.42.0.2:7411".parse().unwrap());
        assert_eq!(peer_address(&peer("fd00::2", 7411)).unwrap(), "[fd00::2]:7411".parse().unwrap());
        for (wrong, word) in [
            (peer("localhost", 7411), "`localhost`"),
            (peer("", 1), "``"),
            (peer("::1", 0), "port 0"),
            (peer("::1", 65_536), "port 65536"),
        ] {
            let error = peer_address(&wrong).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("node-1"), "{error}");
        }
    }
}
