//! How does one process work in several network namespaces?
//!
//! A namespace belongs to a thread, and a socket to the namespace in which it was made. So whatever opens a socket or
//! touches /proc/sys does it on a thread of its own that has entered the namespace first and ends with its work; what
//! came of it (a bound socket, a value) is used from anywhere. No thread of the runtime ever changes its namespace.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};
use tokio::sync::oneshot;

/// A network namespace: the process's own, or one that is kept open here.
#[derive(Clone, Debug, Default)]
pub struct Namespace(Option<Arc<File>>);

impl Namespace {
    /// The namespace at `path`, like `/proc/1234/ns/net`. It lives at least as long as this.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Some(Arc::new(File::open(path)?))))
    }

    /// Moves the calling thread there, for good.
    pub fn enter(&self) -> io::Result<()> {
        match &self.0 {
            None => Ok(()),
            Some(namespace) => Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?),
        }
    }

    /// Runs `work`, which may block, on a thread inside.
    pub async fn run<T, W>(&self, work: W) -> io::Result<T>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        if self.0.is_none() {
            return tokio::task::spawn_blocking(work).await.map_err(io::Error::other);
        }
        let namespace = self.clone();
        let (give, take) = oneshot::channel();
        std::thread::Builder::new().name("in-namespace".to_owned()).spawn(move || {
            // A caller that went away wants no result.
            let _ = give.send(namespace.enter().map(|()| work()));
        })?;
        take.await.map_err(|_| io::Error::other("the thread in the network namespace panicked"))?
    }
}
