//! Unix sockets that kubelet finds: one listener each, replaced when left over, removed at the end.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use futures::{Stream, StreamExt as _};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;

use super::CsiError;
use super::authority::Neutral;

/// A listening socket. Its file goes with it.
#[derive(Debug)]
pub(super) struct Listener {
    listener: UnixListener,
    file: SocketFile,
}

#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Listens at `path`, for root only. A file that nobody listens at is left over from a plugin that was killed, and is
/// replaced; where somebody does listen this fails.
pub(super) fn bind(path: &Path) -> Result<Listener, CsiError> {
    let failed = |source| CsiError::Listen { path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(failed(io::ErrorKind::AddrInUse.into()));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let file = SocketFile(path.to_owned());
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(Listener { listener, file })
}

impl Listener {
    /// Connections, as tonic wants them.
    pub(super) fn incoming(self) -> impl Stream<Item = io::Result<Neutral>> {
        let Self { listener, file } = self;
        UnixListenerStream::new(listener).map(move |stream| {
            let _ = &file;
            stream.map(Neutral::new)
        })
    }
}
