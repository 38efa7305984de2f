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
/// Longest DNS name.
const MAX_DOMAIN_BYTES: usize = 253;

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
    /// The file `domain` is there but holds no DNS name.
    #[error("{path} holds no DNS name: it must be one line of labels like `members.example.org`")]
    NotDomain {
        /// The file.
        path: PathBuf,
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
            Self::NotPem { .. } | Self::NotDomain { .. } | Self::Config { .. } => "KeysInvalid",
            Self::Address { .. } | Self::Port { .. } => "PeerInvalid",
        }
    }
}

/// The keys of one participant of a run. Cheap enough to clone: a few KiB.
#[derive(Clone)]
pub struct Identity {
    directory: PathBuf,
    /// Members of a cluster have one certificate for all: it names `*.DOMAIN`.
    domain: Option<String>,
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
    /// Loads `ca.pem`, `cert.pem` and `key.pem` of `directory`, and `domain` where there is one: then a peer called
    /// `NAME` has to show a certificate for `NAME.DOMAIN`.
    pub fn load(directory: &Path) -> Result<Self, TlsError> {
        let authority = read_pem(&directory.join("ca.pem"), "CERTIFICATE")?;
        let certificate = read_pem(&directory.join("cert.pem"), "CERTIFICATE")?;
        let key = read_pem(&directory.join("key.pem"), "PRIVATE KEY")?;
        Ok(Self {
            directory: directory.to_owned(),
            domain: read_domain(&directory.join("domain"))?,
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

    /// The name that the certificate of a peer called `peer_name` must hold.
    pub fn certified_name(&self, peer_name: &str) -> String {
        self.domain.as_ref().map_or_else(|| peer_name.to_owned(), |domain| format!("{peer_name}.{domain}"))
    }

    /// A client that shows these keys and accepts only a server whose certificate names `peer_name` (see
    /// [`certified_name`](Self::certified_name)).
    pub fn client_config(&self, peer_name: &str) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .identity(self.own.clone())
            .ca_certificate(self.authority.clone())
            .domain_name(self.certified_name(peer_name))
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

/// None where there is no such file.
fn read_domain(path: &Path) -> Result<Option<String>, TlsError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(TlsError::Read { path: path.to_owned(), source }),
    };
    let not_domain = || TlsError::NotDomain { path: path.to_owned() };
    let text = String::from_utf8(text).map_err(|_| not_domain())?;
    let domain = text.trim();
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(inner)
    };
    if domain.len() <= MAX_DOMAIN_BYTES && domain.split('.').all(is_label) {
        Ok(Some(domain.to_owned()))
    } else {
        Err(not_domain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_completes_the_names_of_peers() {
        let directory = tempfile::tempdir().unwrap();
        for (file, label) in [("ca", "CERTIFICATE"), ("cert", "CERTIFICATE"), ("key", "PRIVATE KEY")] {
            let text = format!("-----BEGIN {label}-----\n-----END {label}-----\n");
            std::fs::write(directory.path().join(format!("{file}.pem")), text).unwrap();
        }
        let load = || Identity::load(directory.path());
        assert_eq!(load().unwrap().certified_name("ring-node-0"), "ring-node-0");
        let domain = directory.path().join("domain");
        std::fs::write(&domain, "1f0c.members.gridcast.io\n").unwrap();
        assert_eq!(load().unwrap().certified_name("ring-node-0"), "ring-node-0.1f0c.members.gridcast.io");
        for wrong in ["", "a..b", "a b", "a/b", &"a.".repeat(200)] {
            std::fs::write(&domain, wrong).unwrap();
            let error = load().unwrap_err();
            assert_eq!(error.reason(), "KeysInvalid");
            assert!(error.to_string().contains("domain holds no DNS name"), "{error}");
        }
    }

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
