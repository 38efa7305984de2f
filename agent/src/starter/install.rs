//! How does the starter get into a node whose image knows nothing of it?
//!
//! An init container brings it: from an image that holds nothing but this binary, as any user, without capabilities, on
//! a read-only root, into the directory that the node's containers share. It stands between the creation of a pod and its
//! first process, so it copies, makes what any user of the node must be able to write, and ends; no runtime, no threads.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gridcast_core::mpi::REMOTE_SHELL;
use thiserror::Error;

use super::DEFAULT_HOSTS;
use super::hosts::MAX_BYTES;

/// What the copy is called.
const PROGRAM: &str = "gridcast-starter";
/// Everybody's, but each may remove only what is its own: as /tmp.
const SHARED_DIRECTORY: u32 = 0o1777;
/// Rewritten in place by a starter of whatever user.
const SHARED_FILE: u32 = 0o666;
/// What every reader of the file expects, where the container has none.
const NO_HOSTS: &[u8] = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";

/// Where to install.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of the binary; made if it is not there.
    pub to: PathBuf,
    /// Directory that the node's containers share: `run`, `tmp`, `machinefile` and `hosts` are made in it.
    pub gridcast: PathBuf,
}

/// Why a node cannot be prepared.
#[derive(Debug, Error)]
pub enum InstallError {
    /// The binary cannot be copied.
    #[error("cannot copy the starter to {path}: give a directory with --to that this user may write")]
    Copy {
        /// The copy.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory cannot be made, or is not everybody's.
    #[error(
        "cannot make {path} writable for every user: mount an emptyDir there, or give another --gridcast"
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file cannot be made, or is not everybody's.
    #[error(
        "cannot make {path}, writable for every user: mount an emptyDir above it, or give another --gridcast"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl InstallError {
    /// One PascalCase word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Copy { .. } => "CopyFailed",
            Self::Directory { .. } => "DirectoryFailed",
            Self::File { .. } => "FileFailed",
        }
    }
}

/// Installs; a second time (a retried init container) does the same again.
pub fn run(options: &Options) -> Result<(), InstallError> {
    for name in ["run", "tmp"] {
        let path = options.gridcast.join(name);
        shared_directory(&path).map_err(|source| InstallError::Directory { path, source })?;
    }
    for (name, content) in [("machinefile", Vec::new()), ("hosts", own_hosts(Path::new(DEFAULT_HOSTS)))] {
        let path = options.gridcast.join(name);
        shared_file(&path, &content).map_err(|source| InstallError::File { path, source })?;
    }
    // Last: whoever sees the binary finds everything else in place.
    let path = options.to.join(PROGRAM);
    copy_self(&options.to, &path).map_err(|source| InstallError::Copy { path, source })
}

/// The binary once more, by the name that is a remote shell without arguments.
fn link(directory: &Path) -> io::Result<()> {
    let name = Path::new(REMOTE_SHELL).file_name().unwrap_or_default();
    match std::os::unix::fs::symlink(PROGRAM, directory.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Under a name of its own first, so that nobody ever executes half a binary.
fn copy_self(directory: &Path, path: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    link(directory)?;
    let temporary = directory.join(format!(".{PROGRAM}.{}", std::process::id()));
    let copied = copy_to(&temporary).and_then(|()| fs::rename(&temporary, path));
    if copied.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    copied
}

fn copy_to(temporary: &Path) -> io::Result<()> {
    // In a container every attempt has the same number: one that was killed left its file.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut from = File::open("/proc/self/exe")?;
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o755).open(temporary)?;
    // In the kernel where it can be: std tries copy_file_range and sendfile first.
    io::copy(&mut from, &mut to)?;
    // The umask has its say in `mode`, not here.
    to.set_permissions(Permissions::from_mode(0o755))
}

/// The container's own file, which kubelet wrote: localhost, the pod's own names, and the template's `hostAliases`.
fn own_hosts(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut content));
    if read.is_ok() && !content.is_empty() { content } else { NO_HOSTS.to_vec() }
}

fn shared_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    share(path, SHARED_DIRECTORY)
}

fn shared_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(SHARED_FILE).open(path)?;
    file.write_all(content)?;
    share(path, SHARED_FILE)
}

/// Another user's may be left as it is, if it is everybody's already.
fn share(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).or_else(|error| {
        let now = fs::metadata(path)?.permissions().mode();
        if now & mode == mode { Ok(()) } else { Err(error) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_second_attempt_does_the_same_again() {
        let root = tempfile::tempdir().unwrap();
        let options = Options { to: root.path().join("bin"), gridcast: root.path().to_owned() };
        for _ in 0..2 {
            run(&options).unwrap();
            let inside = |name: &str| root.path().join(name);
            assert_eq!([mode(&inside("run")), mode(&inside("tmp"))], [0o1777, 0o1777]);
            assert_eq!([mode(&inside("hosts")), mode(&inside("machinefile"))], [0o666, 0o666]);
            assert_eq!(mode(&inside("bin/gridcast-starter")), 0o755);
            assert_eq!(mode(&inside("bin/gridcast-ssh")), 0o755);
            assert_eq!(fs::read_dir(inside("bin")).unwrap().count(), 2, "no temporary file stays");
            // As somebody else's attempt would leave it.
            fs::write(inside("hosts"), "half").unwrap();
        }
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(fs::read(root.path().join("bin/gridcast-starter")).unwrap() == own, "the copy is whole");
    }

    #[test]
    fn a_container_without_a_hosts_file_still_knows_itself() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(own_hosts(&root.path().join("none")), NO_HOSTS);
        let file = root.path().join("hosts");
        fs::write(&file, "").unwrap();
        assert_eq!(own_hosts(&file), NO_HOSTS);
        fs::write(&file, "10.0.0.1 me\n").unwrap();
        assert_eq!(own_hosts(&file), b"10.0.0.1 me\n");
    }

    #[test]
    fn what_cannot_be_made_is_named() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        let blocked = root.path().join("file");
        let options = Options { to: blocked.clone(), gridcast: root.path().to_owned() };
        let error = run(&options).unwrap_err();
        assert_eq!(error.reason(), "CopyFailed");
        assert!(error.to_string().contains("file/gridcast-starter"), "{error}");
        let error = run(&Options { to: root.path().to_owned(), gridcast: blocked }).unwrap_err();
        assert_eq!(error.reason(), "DirectoryFailed");
        assert!(error.to_string().contains("file/run"), "{error}");
    }
}
