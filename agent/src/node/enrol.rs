//! How does a node's agent get its certificate, and the next one?
//!
//! The operator is the authority. It is asked over TLS (its name is `gridcast-operator`, its authority comes with the
//! agent's pod), the pod's token proves which node this is, and what comes back lives for a day. A new key is made for each
//! certificate; none is ever written to a disk. Failures are told and tried again, for as long as it takes.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gridcast_core::failure::chain;
use gridcast_proto::NODES_DOMAIN;
use gridcast_proto::v1::IssueRequest;
use gridcast_proto::v1::certificates_client::CertificatesClient;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use rcgen::{CertificateParams, KeyPair};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::access::Role;
use crate::tls::{Identity, TlsError};

/// The operator's name in its certificate.
const OPERATOR: &str = "gridcast-operator";
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The operator asks the API server about the token.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 4;
/// Tokens and authorities are a few KiB.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// A certificate that is to live for less is renewed all the same only this often.
const SHORTEST_LIFE: Duration = Duration::from_secs(3);
/// After a stranger was refused, how soon the next one makes the agent look at its authority again.
const AUTHORITY_PAUSE: Duration = Duration::from_secs(30);

/// Where a node's certificate comes from.
#[derive(Debug, Clone)]
pub(crate) struct Enrolment {
    /// Of the node.
    pub(crate) name: String,
    /// HOST:PORT of the operator's service `Certificates`.
    pub(crate) operator: String,
    /// The pod's token.
    pub(crate) token: PathBuf,
    /// PEM of the authority that the operator is believed by.
    pub(crate) authority: PathBuf,
}

/// A certificate with its key.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) identity: Identity,
    pub(crate) until: Instant,
    renew: Instant,
    authority: Vec<u8>,
}

#[derive(Debug, Error)]
enum EnrolError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("`{0}` is no HOST:PORT: check --operator")]
    Address(String),
    #[error("cannot resolve `{host}`: is the cluster's DNS there?")]
    Resolve { host: String, source: hickory_resolver::net::NetError },
    #[error("`{0}` has no address: is the operator running?")]
    NoAddress(String),
    #[error("cannot connect to the operator at {address}: is it running?")]
    Connect { address: SocketAddr, source: tonic::transport::Error },
    #[error("the operator refused: {0}")]
    Refused(String),
    #[error("cannot make a key")]
    Key(#[from] rcgen::Error),
    #[error(transparent)]
    Keys(#[from] TlsError),
    #[error(
        "the certificate that came is not that of an agent called {0}: is NODE_NAME the name of this node?"
    )]
    NotOurs(String),
}

impl EnrolError {
    fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "FileUnreadable",
            Self::Address(_) => "InvalidArgument",
            Self::Resolve { .. } | Self::NoAddress(_) => "NameUnresolved",
            Self::Connect { .. } => "OperatorUnreachable",
            Self::Refused(_) => "OperatorRefused",
            Self::Key(_) => "KeyFailed",
            Self::Keys(error) => error.reason(),
            Self::NotOurs(_) => "WrongCertificate",
        }
    }
}

impl Enrolment {
    /// A certificate, however long it takes.
    pub(crate) async fn certificate(&self) -> Issued {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.attempt().await {
                Ok(issued) => {
                    let seconds = issued.until.saturating_duration_since(Instant::now()).as_secs();
                    tracing::info!(node = self.name, seconds, "got a certificate");
                    return issued;
                }
                Err(error) => {
                    let seconds = pause.as_secs();
                    tracing::warn!(
                        reason = error.reason(),
                        error = chain(&error),
                        seconds,
                        "no certificate yet"
                    );
                }
            }
            sleep(pause + jitter(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Replaces the keys of `identity` again and again: after two thirds of their life, or when the authority has changed,
    /// which is looked at when somebody was refused. `until` is told how long they live.
    pub(crate) async fn renew(
        &self,
        first: Issued,
        identity: &Identity,
        until: &watch::Sender<Instant>,
        refused: &Arc<Notify>,
    ) {
        let mut issued = first;
        loop {
            tokio::select! {
                () = sleep_until(issued.renew) => {}
                () = self.authority_changed(&issued.authority, refused) => {
                    tracing::warn!("the authority has changed: getting a new certificate");
                }
            }
            issued = self.certificate().await;
            identity.replace(&issued.identity);
            until.send_replace(issued.until);
        }
    }

    async fn authority_changed(&self, known: &[u8], refused: &Notify) {
        loop {
            refused.notified().await;
            if read(&self.authority).await.is_ok_and(|now| now != known) {
                return;
            }
            sleep(AUTHORITY_PAUSE).await;
        }
    }

    async fn attempt(&self) -> Result<Issued, EnrolError> {
        let authority = read(&self.authority).await?;
        let token = read(&self.token).await?;
        let key = KeyPair::generate()?;
        // The name is the token's.
        let request = CertificateParams::default().serialize_request(&key)?.pem()?;
        let channel = self.connect(&authority).await?;
        let asked = Instant::now();
        let ask = IssueRequest { token: String::from_utf8_lossy(&token).trim().to_owned(), csr_pem: request };
        let reply = CertificatesClient::new(channel).issue(ask).await;
        let reply = reply.map_err(|status| EnrolError::Refused(status.message().to_owned()))?.into_inner();
        let identity = Identity::issued(
            "the operator",
            NODES_DOMAIN,
            &reply.authority_pem,
            &reply.certificate_pem,
            &key.serialize_pem(),
        )?;
        let (subject, name) = (identity.subject(), identity.certified_name(&self.name));
        if !subject.is_some_and(|subject| subject.role == Some(Role::Agent) && subject.covers(&name)) {
            return Err(EnrolError::NotOurs(self.name.clone()));
        }
        let life = Duration::from_secs(u64::try_from(reply.valid_seconds).unwrap_or(0)).max(SHORTEST_LIFE);
        Ok(Issued { identity, until: asked + life, renew: asked + life * 2 / 3, authority })
    }

    /// Connects to the first of the operator's addresses that answers.
    async fn connect(&self, authority: &[u8]) -> Result<Channel, EnrolError> {
        let tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)).domain_name(OPERATOR);
        let mut failed = EnrolError::NoAddress(self.operator.clone());
        for address in resolve(&self.operator).await? {
            let failure = |source| EnrolError::Connect { address, source };
            let endpoint = Endpoint::from_shared(format!("https://{address}"))
                .and_then(|endpoint| endpoint.tls_config(tls.clone()))
                .map_err(failure)?;
            match endpoint.connect_timeout(CONNECT_TIMEOUT).timeout(CALL_TIMEOUT).connect().await {
                Ok(channel) => return Ok(channel),
                Err(source) => failed = failure(source),
            }
        }
        Err(failed)
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, EnrolError> {
    let failed = |source| EnrolError::Read { path: path.to_owned(), source };
    let place = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        if fs::metadata(&place)?.len() > MAX_FILE_BYTES {
            return Err(io::Error::other("it is larger than 256 KiB"));
        }
        fs::read(&place)
    });
    reading.await.map_err(io::Error::other).flatten().map_err(failed)
}

/// The addresses of HOST:PORT. Names are looked up as /etc/resolv.conf says, anew each time: it may have changed.
async fn resolve(address: &str) -> Result<Vec<SocketAddr>, EnrolError> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let wrong = || EnrolError::Address(address.escape_debug().take(300).collect());
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    if host.is_empty() {
        return Err(wrong());
    }
    let failed = |source| EnrolError::Resolve { host: host.to_owned(), source };
    let resolver = TokioResolver::builder_tokio().and_then(ResolverBuilder::build).map_err(failed)?;
    let found = resolver.lookup_ip(host).await.map_err(failed)?;
    let addresses: Vec<IpAddr> = found.iter().take(MAX_ADDRESSES).collect();
    Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
}

/// Up to a quarter more, so that a thousand nodes do not ask at once.
fn jitter(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) % 250;
    pause * random as u32 / 1_000
}

#[cfg(test)]
mod tests;
