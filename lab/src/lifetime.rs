//! What ends when its owner ends, however it ends?

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::unistd::pipe2;

/// A pipe that nobody writes to. Nodes and fabric hold its read end and end when it closes: when this value is
/// dropped, or when its process dies, by whatever signal.
///
/// Both ends close on exec, so that no child keeps the write end alive by accident.
#[derive(Debug)]
pub struct Lifetime {
    read: OwnedFd,
    _write: OwnedFd,
}

impl Lifetime {
    /// A new pipe.
    pub fn new() -> io::Result<Self> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        Ok(Self { read, _write: write })
    }

    /// Another read end, to be given to a process as its standard input.
    pub fn watch(&self) -> io::Result<OwnedFd> {
        self.read.as_fd().try_clone_to_owned()
    }
}
