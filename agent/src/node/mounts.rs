//! Where does the mount helper of the node reach the agent?
//!
//! A Unix socket in a directory that the two containers share and nobody else has. It is there before the agent has a
//! certificate: what is verified can be mounted while the operator is away.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use gridcast_proto::v1::mounts_server::MountsServer;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::datasets::{MountsService, Registry};

/// Serves until `stopping` becomes true.
pub(crate) fn serve(
    socket: &Path,
    registry: Arc<Registry>,
    stopping: watch::Receiver<bool>,
) -> io::Result<impl Future<Output = Result<(), tonic::transport::Error>> + use<>> {
    if let Some(directory) = socket.parent() {
        fs::create_dir_all(directory)?;
    }
    // What an agent left that was killed. It is the only one that listens here: its data directory is locked.
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    let service = MountsServer::new(MountsService::new(registry, stopping.clone()));
    let mut told = stopping;
    let stopped = async move {
        let _ = told.wait_for(|stopping| *stopping).await;
    };
    Ok(Server::builder()
        .add_service(service)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stopped))
}
