//! Who am I, and whom do I believe?
//!
//! Every process of a run holds one directory of keys: `ca.pem` (the run's only authority), `cert.pem` and
//! `key.pem` (its own, with the node's name as DNS SAN). Servers accept only clients that this authority signed;
//! clients verify a server against the *node's name*, never against its address, so that names need not resolve.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use gridcast_proto::v1::Peer;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, ServerTlsConfig};

use crate::access::Subject;

/// How long a TCP and TLS connection to a peer may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
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
    #[error("keys of {origin} cannot be used with peer {name}: make the keys of the run again")]
    Config {
        /// Where the keys came from.
        origin: String,
        /// The peer's name.
        name: String,
        /// What the library said.
        source: tonic::transport::Error,
    },
    /// Key, certificate and authority do not make a server.
    #[error("the keys of {origin} cannot be used: make them again")]
    Unusable {
        /// Where the keys came from.
        origin: String,
        /// What the library said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl TlsError {
    /// One PascalCase word for conditions, events and reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "KeysUnreadable",
            Self::NotPem { .. } | Self::NotDomain { .. } | Self::Config { .. } | Self::Unusable { .. } => {
                "KeysInvalid"
            }
            Self::Address { .. } | Self::Port { .. } => "PeerInvalid",
        }
    }
}

/// The keys of one participant, shared by all that holds a clone: when they are replaced, new connections in both
/// directions use the new ones, and those that are open stay.
#[derive(Clone)]
pub struct Identity(Arc<Shared>);

struct Shared {
    /// Where the keys are from, for messages.
    origin: String,
    /// Members of a cluster have one certificate for all: it names `*.DOMAIN`.
    domain: Option<String>,
    keys: RwLock<Arc<Keys>>,
}

/// What one certificate needs to be used.
struct Keys {
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
    /// Made when the first client knocks: most processes with keys are no servers.
    acceptor: OnceLock<TlsAcceptor>,
    subject: OnceLock<Option<Subject>>,
}

impl std::fmt::Debug for Identity {
    // The private key never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("origin", &self.0.origin).finish_non_exhaustive()
    }
}

impl Identity {
    /// Loads `ca.pem`, `cert.pem` and `key.pem` of `directory`, and `domain` where there is one: then a peer called
    /// `NAME` has to show a certificate for `NAME.DOMAIN`.
    pub fn load(directory: &Path) -> Result<Self, TlsError> {
        let authority = read_pem(&directory.join("ca.pem"), "CERTIFICATE")?;
        let certificate = read_pem(&directory.join("cert.pem"), "CERTIFICATE")?;
        let key = read_pem(&directory.join("key.pem"), "PRIVATE KEY")?;
        let domain = read_domain(&directory.join("domain"))?;
        let keys = Keys::new(authority, certificate, key);
        let origin = directory.display().to_string();
        Ok(Self(Arc::new(Shared { origin, domain, keys: RwLock::new(Arc::new(keys)) })))
    }

    /// Keys that were issued rather than read, PEM each; `origin` says by whom, for messages, and a peer called `NAME` has
    /// to show a certificate for `NAME.DOMAIN`. Fails where they do not belong together.
    pub fn issued(
        origin: &str,
        domain: &str,
        authority: &str,
        certificate: &str,
        key: &str,
    ) -> Result<Self, TlsError> {
        let keys = Keys::new(authority.into(), certificate.into(), key.into());
        keys.acceptor(origin)?;
        let keys = RwLock::new(Arc::new(keys));
        let (origin, domain) = (origin.to_owned(), Some(domain.to_owned()));
        Ok(Self(Arc::new(Shared { origin, domain, keys })))
    }

    /// From now on uses the keys of `fresh`.
    pub fn replace(&self, fresh: &Self) {
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = fresh.keys();
    }

    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.0.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What takes the connections of clients that show a certificate of the same authority, with the keys of now.
    pub fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        self.keys().acceptor(&self.0.origin)
    }

    #[cfg(test)]
    pub(crate) fn client(
        &self,
    ) -> Result<Arc<rustls::ClientConfig>, Box<dyn std::error::Error + Send + Sync>> {
        self.keys().client()
    }

    /// Whose certificate this is; none where it cannot be read.
    pub(crate) fn subject(&self) -> Option<Subject> {
        let keys = self.keys();
        keys.subject.get_or_init(|| keys.read_subject()).clone()
    }

    /// A server that shows these keys and demands a client certificate of the same authority.
    pub fn server_config(&self) -> ServerTlsConfig {
        let keys = self.keys();
        ServerTlsConfig::new()
            .identity(keys.own())
            .client_ca_root(Certificate::from_pem(&keys.authority))
            .timeout(CONNECT_TIMEOUT)
    }

    /// The name that the certificate of a peer called `peer_name` must hold.
    pub fn certified_name(&self, peer_name: &str) -> String {
        self.0.domain.as_ref().map_or_else(|| peer_name.to_owned(), |domain| format!("{peer_name}.{domain}"))
    }

    /// A client that shows these keys and accepts only a server whose certificate names `peer_name` (see
    /// [`certified_name`](Self::certified_name)).
    pub fn client_config(&self, peer_name: &str) -> ClientTlsConfig {
        let keys = self.keys();
        ClientTlsConfig::new()
            .identity(keys.own())
            .ca_certificate(Certificate::from_pem(&keys.authority))
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
            |source| TlsError::Config { origin: self.0.origin.clone(), name: name.to_owned(), source };
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

impl Keys {
    fn new(authority: Vec<u8>, certificate: Vec<u8>, key: Vec<u8>) -> Self {
        Self { authority, certificate, key, acceptor: OnceLock::new(), subject: OnceLock::new() }
    }

    fn own(&self) -> tonic::transport::Identity {
        tonic::transport::Identity::from_pem(&self.certificate, &self.key)
    }

    fn acceptor(&self, origin: &str) -> Result<TlsAcceptor, TlsError> {
        if let Some(acceptor) = self.acceptor.get() {
            return Ok(acceptor.clone());
        }
        let made =
            self.server().map_err(|source| TlsError::Unusable { origin: origin.to_owned(), source })?;
        Ok(self.acceptor.get_or_init(|| made).clone())
    }

    fn server(&self) -> Result<TlsAcceptor, Box<dyn std::error::Error + Send + Sync>> {
        let mut authority = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.authority) {
            authority.add(certificate?)?;
        }
        let chain = CertificateDer::pem_slice_iter(&self.certificate).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)?;
        let clients = WebPkiClientVerifier::builder(Arc::new(authority)).build()?;
        let mut config =
            ServerConfig::builder().with_client_cert_verifier(clients).with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    #[cfg(test)]
    fn client(&self) -> Result<Arc<rustls::ClientConfig>, Box<dyn std::error::Error + Send + Sync>> {
        let chain = CertificateDer::pem_slice_iter(&self.certificate).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)?;
        let mut authority = RootCertStore::empty();
        authority.add(CertificateDer::from_pem_slice(&self.authority)?)?;
        let builder = rustls::ClientConfig::builder().with_root_certificates(authority);
        Ok(Arc::new(builder.with_client_auth_cert(chain, key)?))
    }

    fn read_subject(&self) -> Option<Subject> {
        let certificate = CertificateDer::from_pem_slice(&self.certificate).ok()?;
        Subject::of(&certificate)
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
