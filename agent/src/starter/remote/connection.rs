//! The way to a starter, and what is wrong with it when there is none.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use gridcast_proto::v1::starter_client::StarterClient;
use gridcast_proto::v1::{ConfigureRequest, ExecRequest, RanksRequest};
use hyper_util::rt::TokioIo;
use rustls::CertificateError;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use super::{Bulk, ENV_PORT, shown};
use crate::starter::hosts::{HostsError, Location};
use crate::starter::serve::{KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT};
use crate::tls::{Identity, TlsError};

/// TCP's own patience is minutes; `mpirun` would sit there without a word.
const CONNECT: Duration = Duration::from_secs(10);

/// Why a command did not run, or why its end is not known.
#[derive(Debug, Error)]
pub enum RemoteError {
    /// The host has no address here.
    #[error(transparent)]
    Name(#[from] HostsError),
    /// Our own keys are not usable.
    #[error(transparent)]
    Keys(#[from] TlsError),
    /// `GRIDCAST_STARTER_PORT` is not a port.
    #[error("{ENV_PORT} is `{text}`, which is no port: unset it")]
    Port {
        /// What it is.
        text: String,
    },
    /// Nothing answers there.
    #[error(
        "nothing answers on {address} ({why}): check that the node is up and runs `gridcast-starter serve`"
    )]
    NoStarter {
        /// The host's.
        address: SocketAddr,
        /// What the system said.
        why: io::Error,
    },
    /// Something answers, but one side does not accept the other's certificate.
    #[error(
        "{address}: {why}: nodes of one cluster need keys of the same run, each made out to its own name"
    )]
    KeyRefused {
        /// The host's.
        address: String,
        /// What TLS said.
        why: String,
    },
    /// Something answers that is no starter, or one that will not.
    #[error("{address}: {why}: check what listens there")]
    Refused {
        /// The host's, or its port.
        address: String,
        /// What it said.
        why: String,
    },
    /// The connection broke.
    #[error("{}", if *started {
        "the starter went away while the command ran; how the command ended is not known: check that the node is up"
    } else {
        "the starter went away before it said that the command runs: check that the node is up"
    })]
    Lost {
        /// Whether the command was running.
        started: bool,
    },
    /// Trouble on this side.
    #[error("this side's streams or signals: {0}")]
    Local(#[source] io::Error),
}

impl RemoteError {
    /// One PascalCase word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Name(_) => "NameUnresolved",
            Self::Keys(error) => error.reason(),
            Self::Port { .. } => "PortInvalid",
            Self::NoStarter { .. } => "NoStarter",
            Self::KeyRefused { .. } => "KeyRefused",
            Self::Refused { .. } => "StarterRefused",
            Self::Lost { .. } => "NodeLost",
            Self::Local(_) => "LocalFailure",
        }
    }

    /// The message with the system's word behind it.
    pub(in crate::starter) fn explained(&self) -> String {
        match self {
            Self::Keys(TlsError::Read { path, source }) => format!("{self} ({}: {source})", shown(path)),
            _ => self.to_string(),
        }
    }

    /// From the answer to the first call on a connection. In TLS 1.3 a client learns only now that its certificate was
    /// refused, and if the alert is overtaken by the end of the connection, not even that it was the certificate.
    fn unwelcome(status: &Status, address: SocketAddr) -> Self {
        let address = address.to_string();
        match tls_error(status) {
            Some(error) => Self::KeyRefused { address, why: error.to_string() },
            None if status.source().is_some() => {
                Self::KeyRefused { address, why: format!("it hung up on us ({})", innermost(status)) }
            }
            None => Self::Refused { address, why: status.message().to_owned() },
        }
    }

    /// From the answer to the call that starts a command.
    pub(super) fn refused(status: &Status, address: SocketAddr) -> Self {
        match status.source() {
            // The connection, not the starter.
            Some(_) => Self::Lost { started: false },
            None => Self::Refused { address: address.to_string(), why: status.message().to_owned() },
        }
    }
}

/// Connects, trying the names that the host's certificate may be made out to.
pub(super) async fn connect(
    identity: &Identity,
    location: &Location,
    port: u16,
) -> Result<StarterClient<Channel>, RemoteError> {
    let address = SocketAddr::new(location.address, port);
    let mut names = location.names.iter().peekable();
    while let Some(name) = names.next() {
        match connect_as(identity, name, address).await {
            Err(RemoteAttempt { wrong_name: true, .. }) if names.peek().is_some() => {}
            Err(attempt) => return Err(attempt.error),
            Ok(channel) => {
                // One round trip, so that being unwelcome is told apart from a node that dies later.
                let mut client = StarterClient::new(channel);
                let welcome = client.ranks(RanksRequest::default()).await;
                return welcome.map(|_| client).map_err(|status| RemoteError::unwelcome(&status, address));
            }
        }
    }
    let why = "the host has no name that a certificate could be made out to".to_owned();
    Err(RemoteError::KeyRefused { address: address.to_string(), why })
}

/// The name that a starter gives itself, after a handshake in which it showed that it may bear `name`.
pub(in crate::starter) async fn ask_name(
    identity: &Identity,
    name: &str,
    address: SocketAddr,
) -> Result<String, RemoteError> {
    let channel = connect_as(identity, name, address).await.map_err(|attempt| attempt.error)?;
    // Without hosts and machinefile nothing is written.
    let reply = StarterClient::new(channel).configure(ConfigureRequest::default()).await;
    reply.map(|reply| reply.into_inner().node).map_err(|status| RemoteError::unwelcome(&status, address))
}

struct RemoteAttempt {
    error: RemoteError,
    wrong_name: bool,
}

async fn connect_as(identity: &Identity, name: &str, address: SocketAddr) -> Result<Channel, RemoteAttempt> {
    let plain = |error| RemoteAttempt { error, wrong_name: false };
    // A name that no certificate can bear is like one that this certificate does not bear.
    let endpoint = identity
        .endpoint_at(name, address)
        .map_err(|error| RemoteAttempt { error: error.into(), wrong_name: true })?
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    // By hand, so that a host that is not there is told apart from one that does not want us.
    let connected = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
    let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let stream = connected.map_err(|why| plain(RemoteError::NoStarter { address, why }))?;
    // Without it every small write waits for the answer to the one before; failing costs time, not truth.
    let _ = stream.set_nodelay(true);
    let stream = Mutex::new(Some(stream));
    let once = tower::service_fn(move |_| {
        let stream = stream.lock().ok().and_then(|mut stream| stream.take());
        async { stream.map(TokioIo::new).ok_or(io::Error::from(io::ErrorKind::NotConnected)) }
    });
    endpoint.connect_with_connector(once).await.map_err(|error| {
        let address = address.to_string();
        let Some(tls) = tls_error(&error) else {
            return plain(RemoteError::Refused { address, why: innermost(&error) });
        };
        let wrong_name = matches!(
            tls,
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            )
        );
        let why =
            if wrong_name { format!("its certificate is not made out to {name}") } else { tls.to_string() };
        RemoteAttempt { error: RemoteError::KeyRefused { address, why }, wrong_name }
    })
}

/// The TLS library's own word, wherever it is wrapped.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        // io::Error's `source` passes over the error it wraps.
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)
            && let Some(found) = tls_error(inner)
        {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn innermost(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// The two ways into a call's stream of requests.
#[derive(Debug)]
pub(super) struct Requests {
    /// The start and standard input.
    pub(super) bulk: Bulk,
    /// Signals: they go before what waits in `bulk`.
    pub(super) urgent: mpsc::Sender<ExecRequest>,
}

pub(super) fn requests(
    in_flight: usize,
) -> (Requests, impl tokio_stream::Stream<Item = ExecRequest> + Send + 'static) {
    let (bulk, bulk_out) = mpsc::channel(in_flight);
    let (urgent, urgent_out) = mpsc::channel(1);
    let merged = Urgent { urgent: ReceiverStream::new(urgent_out), bulk: ReceiverStream::new(bulk_out) };
    (Requests { bulk, urgent }, merged.fuse())
}

/// Takes from `urgent` first; ends when both have ended.
struct Urgent {
    urgent: ReceiverStream<ExecRequest>,
    bulk: ReceiverStream<ExecRequest>,
}

impl tokio_stream::Stream for Urgent {
    type Item = ExecRequest;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<ExecRequest>> {
        use std::task::Poll;
        let urgent = std::pin::Pin::new(&mut self.urgent).poll_next(context);
        if let Poll::Ready(Some(_)) = urgent {
            return urgent;
        }
        match std::pin::Pin::new(&mut self.bulk).poll_next(context) {
            Poll::Ready(None) if urgent.is_pending() => Poll::Pending,
            bulk => bulk,
        }
    }
}
