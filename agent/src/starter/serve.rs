//! Who is PID 1 of a node, and when does it end?

use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gridcast_proto::v1::rank_reports_server::RankReportsServer;
use gridcast_proto::v1::relay_server::RelayServer;
use gridcast_proto::v1::starter_server::StarterServer;
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::children::Children;
use super::command::Place;
use super::fetch::FetchService;
use super::members::Files;
use super::ranks::{RankReportsService, Ranks};
use super::service::{FIRST_MESSAGE, StarterService};
use super::single_copy;
use crate::bind;
use crate::tls::{Identity, TlsError};

/// Either side that is silent for the sum of both has gone. Generous: ranks that spin starve what else runs on a
/// machine, and a live peer may take long.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// See [`KEEP_ALIVE_INTERVAL`].
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_mins(1);
/// What a caller may send ahead of what the command reads, beside the messages of `streams::INPUT_IN_FLIGHT`.
const WINDOW_BYTES: u32 = 128 * 1024;
/// All streams of one connection together.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// A rank's report takes milliseconds; a connection that stays is somebody else's.
const REPORT_CONNECTION_AGE: Duration = Duration::from_secs(30);
/// Between SIGTERM and SIGKILL when the starter itself is told to end.
const END_GRACE: Duration = Duration::from_secs(5);
/// What replies may take to leave after that.
const DRAIN: Duration = Duration::from_secs(1);

/// What a node's starter needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// The node's name, as in the machinefile and the certificate.
    pub name: String,
    /// Where members of the cluster reach it.
    pub listen: SocketAddr,
    /// Directory of `ca.pem`, `cert.pem`, `key.pem`.
    pub keys: PathBuf,
    /// Where ranks report; its directory has to exist.
    pub socket: PathBuf,
    /// The hosts file of this node, rewritten in place when the node is told its fellows.
    pub hosts: PathBuf,
    /// The machinefile, likewise.
    pub machinefile: PathBuf,
    /// End at once when standard input reaches its end.
    pub exit_on_eof: bool,
}

/// Why a starter does not serve, or no longer.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The keys are not usable.
    #[error(transparent)]
    Keys(#[from] TlsError),
    /// The address is taken or is none of this node.
    #[error("cannot listen on {address}: free the port, or give another address with --listen")]
    Listen {
        /// As asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The socket of the ranks cannot be made.
    #[error("cannot make the socket {path}: create its directory, writable, or give another with --socket")]
    Socket {
        /// As asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Signals or the subreaper attribute are not to be had.
    #[error("cannot become the parent of this node's orphans")]
    Parent(#[source] io::Error),
    /// A server ended by itself.
    #[error("the server ended")]
    Server(#[source] tonic::transport::Error),
}

impl ServeError {
    /// One PascalCase word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Keys(error) => error.reason(),
            Self::Listen { .. } => "PortBusy",
            Self::Socket { .. } => "SocketFailed",
            Self::Parent(_) => "ReaperFailed",
            Self::Server(_) => "ServerFailed",
        }
    }
}

/// Serves until SIGTERM (or SIGINT, unless PID 1: a terminal's Ctrl-C is for the owner, who then ends the node in
/// good order). Needs a runtime with I/O and time; one thread is enough.
pub async fn serve(options: Options) -> Result<(), ServeError> {
    let Options { name, listen, keys, socket, hosts, machinefile, exit_on_eof } = options;
    // First of all: it waits for a child of its own.
    let variables = single_copy::variables();
    let children = Arc::new(Children::default());
    if exit_on_eof {
        end_with_owner(Arc::clone(&children)).map_err(ServeError::Parent)?;
    }
    // Registered before anything is started, so that no end of a child is missed.
    let parent = |kind| signal(kind).map_err(ServeError::Parent);
    let (child, mut terminate, mut interrupt) = (
        parent(SignalKind::child())?,
        parent(SignalKind::terminate())?,
        interrupt().map_err(ServeError::Parent)?,
    );
    // Where it is not PID 1 (a test, a container with an init of its own), orphans come to it all the same.
    nix::sys::prctl::set_child_subreaper(true).map_err(|error| ServeError::Parent(error.into()))?;
    tokio::spawn(Arc::clone(&children).collect_on(child));

    let identity = Arc::new(Identity::load(&keys)?);
    let ranks = Arc::new(Ranks::default());
    let place = Arc::new(Place { node: name.clone(), socket: socket.display().to_string(), variables });
    let files = Arc::new(Files::new(hosts, machinefile));
    let service =
        StarterService::new(Arc::clone(&children), place, Arc::clone(&ranks), files, Arc::clone(&identity));
    let (drain, draining) = oneshot::channel::<()>();
    let fetch = FetchService::new(&name, identity.as_ref().clone());
    let members = members_server(&identity, listen, service.clone(), fetch, draining)?;
    let reports = reports_server(&socket, ranks)?;
    tracing::info!(name, %listen, socket = %socket.display(), "the starter serves");
    let members = tokio::spawn(members);
    tokio::pin!(members);
    tokio::select! {
        ended = &mut members => return ended.map_err(|error| ServeError::Parent(error.into()))?,
        ended = reports => return ended.map_err(ServeError::Server),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    service.close();
    children.end_all(END_GRACE).await;
    service.settle().await;
    // Callers still learn how their commands ended.
    let _ = drain.send(());
    let _ = tokio::time::timeout(DRAIN, members).await;
    let _ = std::fs::remove_file(&socket);
    Ok(())
}

type ServerEnd<E> = Result<(), E>;

fn members_server(
    identity: &Identity,
    listen: SocketAddr,
    service: StarterService,
    fetch: FetchService,
    draining: oneshot::Receiver<()>,
) -> Result<impl Future<Output = ServerEnd<ServeError>> + Send + use<>, ServeError> {
    let tls = identity.server_config().timeout(FIRST_MESSAGE);
    let listener = bind::tcp(listen).and_then(TcpListener::from_std);
    let listener = listener.map_err(|source| ServeError::Listen { address: listen, source })?;
    let router = Server::builder()
        .tls_config(tls)
        .map_err(ServeError::Server)?
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .add_service(StarterServer::new(service))
        .add_service(RelayServer::new(fetch));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let drained = async {
        // A sender that is dropped means the same.
        let _ = draining.await;
    };
    let server = router.serve_with_incoming_shutdown(incoming, drained);
    Ok(async { server.await.map_err(ServeError::Server) })
}

fn reports_server(
    socket: &Path,
    ranks: Arc<Ranks>,
) -> Result<impl Future<Output = ServerEnd<tonic::transport::Error>> + use<>, ServeError> {
    let failed = |source| ServeError::Socket { path: socket.to_owned(), source };
    // A file that nobody listens on is left over from a starter that was killed.
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return Err(failed(io::ErrorKind::AddrInUse.into()));
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(failed)?;
    // Ranks may run as any user.
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666)).map_err(failed)?;
    Ok(Server::builder()
        .max_connection_age(REPORT_CONNECTION_AGE)
        .add_service(RankReportsServer::new(RankReportsService::new(ranks)))
        .serve_with_incoming(UnixListenerStream::new(listener)))
}

/// SIGINT, or a wait without end for PID 1.
fn interrupt() -> io::Result<Interrupt> {
    if std::process::id() == 1 {
        Ok(Interrupt(None))
    } else {
        signal(SignalKind::interrupt()).map(Some).map(Interrupt)
    }
}

struct Interrupt(Option<tokio::signal::unix::Signal>);

impl Interrupt {
    async fn recv(&mut self) -> Option<()> {
        match &mut self.0 {
            Some(signal) => signal.recv().await,
            None => std::future::pending().await,
        }
    }
}

/// A thread of its own, so that a busy runtime cannot delay it. The owner holds the write end of standard input and
/// never writes; when it dies, however it dies, reading ends.
fn end_with_owner(children: Arc<Children>) -> io::Result<()> {
    let wait = move || {
        let mut ignored = [0; 64];
        let mut stdin = io::stdin().lock();
        loop {
            match stdin.read(&mut ignored) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        // As PID 1 the exit alone would do; elsewhere nobody else ends the commands.
        children.signal_all(libc::SIGKILL);
        std::process::exit(0);
    };
    std::thread::Builder::new().name("owner".to_owned()).stack_size(64 * 1024).spawn(wait).map(drop)
}
