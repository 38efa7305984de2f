//! How does one ask a running fabric what it has counted?
//!
//! It listens on a Unix socket beside its specification and writes its counters as JSON to whoever connects. When
//! it ends it leaves them in a file.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Counters;

/// Name of the socket in the fabric's directory.
const SOCKET: &str = "fabric.sock";
/// Name of the file in the fabric's directory.
const LAST: &str = "fabric-counters.json";
/// Longest time that an asker may take to read.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most of them at a time.
const MOST_READERS: usize = 8;

/// The counters of the fabric whose specification lies in `directory`: of the running one, else those it ended with.
pub fn counters(directory: &Path) -> io::Result<Counters> {
    let asked = named(directory).and_then(|(_handle, name)| UnixStream::connect(name)).and_then(|stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(serde_json::from_reader(BufReader::new(stream))?)
    });
    asked.or_else(|error| match File::open(directory.join(LAST)) {
        Ok(file) => Ok(serde_json::from_reader(BufReader::new(file))?),
        Err(_) => Err(error),
    })
}

/// A short name for the socket, valid while the handle is: the path of a socket has at most 107 bytes, and that of a
/// state directory may have more.
fn named(directory: &Path) -> io::Result<(File, PathBuf)> {
    let handle = File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(directory)?;
    let name = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", handle.as_raw_fd()));
    Ok((handle, name))
}

/// The fabric's side.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    directory: PathBuf,
    answering: Vec<JoinHandle<()>>,
}

impl Control {
    /// Listens in `directory`.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        // Left over from a fabric that was killed; the directory is that of one fabric at a time.
        for name in [SOCKET, LAST] {
            match fs::remove_file(directory.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let (_handle, name) = named(directory)?;
        let listener = UnixListener::bind(name)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, directory: directory.to_path_buf(), answering: Vec::new() })
    }

    /// Becomes readable when somebody asks.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers one who asks. Writing is left to a thread, so that packets do not wait for a slow reader; who asks while
    /// there are [`MOST_READERS`] is turned away.
    pub(crate) fn answer(&mut self, counters: impl FnOnce() -> Counters) -> io::Result<()> {
        let Ok((mut stream, _)) = self.listener.accept() else { return Ok(()) };
        self.answering.retain(|thread| !thread.is_finished());
        if self.answering.len() >= MOST_READERS {
            return Ok(());
        }
        let text = serde_json::to_vec(&counters())?;
        let write = move || {
            let written = stream.set_write_timeout(Some(PATIENCE)).and_then(|()| stream.write_all(&text));
            if let Err(error) = written {
                tracing::debug!(%error, "who asked for counters did not read them");
            }
        };
        self.answering.push(thread::Builder::new().name("counters".to_owned()).spawn(write)?);
        Ok(())
    }

    /// Leaves the last counters in a file and takes the socket away.
    pub(crate) fn close(self, counters: &Counters) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(counters)?;
        let temporary = self.directory.join(format!("{LAST}.new"));
        fs::write(&temporary, text)?;
        fs::rename(temporary, self.directory.join(LAST))?;
        fs::remove_file(self.directory.join(SOCKET))
    }
}
