//! Where is a dataset mounted, and how does it get there and away again?
//!
//! # Read-only on every side
//!
//! kubelet's directory is shared between the host and this container: a mount made here appears there, too, as a mount of
//! its own that is copied at that moment. A bind mount that is turned read-only *afterwards* is so in this container alone,
//! and the pods get the writable copy. So a dataset is first bound onto itself, in the part of the tree that belongs to
//! this container only, made read-only there, and that mount is bound to the target: a copy of a read-only mount is
//! read-only from its first moment, wherever it propagates to. The newer calls that make a detached mount would do in three
//! steps what takes four here, but need Linux 5.12, and the 8th generation of the SL family runs 4.18.
//!
//! # Flags
//!
//! `ro`, `nosuid` and `nodev`. A dataset keeps the modes of its source, set-user-ID among them, and its files belong to
//! root: without `nosuid` a source could bring a program that makes a pod's user root. Devices are refused by the transfer
//! already; `nodev` costs nothing. `noexec` is not set, for programs are legitimate data, but it stays where the
//! node's own file system has it.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};
use thiserror::Error;

use super::request::Target;
use super::table::{Mount, Table};

/// Mounts on one target that are removed at most: each is from a publish that did not see the one before.
const MAX_STACK: usize = 64;

/// Why a volume is not mounted, or not removed.
#[derive(Debug, Error)]
pub(super) enum MountError {
    /// The agent's answer leads out of the data directory.
    #[error("{path}, which the agent names, is not below {data}: nothing else is mounted")]
    Outside {
        /// What the agent said.
        path: PathBuf,
        /// Where datasets are.
        data: PathBuf,
    },
    /// It is not there, is no directory, or cannot be looked at.
    #[error("{path} cannot be mounted as a dataset{}", hint(source))]
    Dataset {
        /// Of the dataset, or the data directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something lies where the volume belongs.
    #[error(
        "{path} holds something although nothing is mounted there: look at it on the node, and remove it"
    )]
    Occupied {
        /// The target.
        path: PathBuf,
    },
    /// The directory cannot be made or removed.
    #[error("cannot {what} {path}")]
    Directory {
        /// Verb.
        what: &'static str,
        /// The target.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel refused.
    #[error(
        "cannot {what} {path}: gridcast-csi must be privileged, with kubelet's directory mounted Bidirectional"
    )]
    Refused {
        /// Verb.
        what: &'static str,
        /// Source or target.
        path: PathBuf,
        /// What the kernel said.
        source: Errno,
    },
    /// The mount is not what was asked for.
    #[error("{path} came out wrong ({what}); it was removed again")]
    Wrong {
        /// The target.
        path: PathBuf,
        /// In which respect.
        what: &'static str,
    },
    /// The kernel's table of mounts cannot be read.
    #[error("cannot read the table of mounts")]
    Table(#[source] io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            " (gridcast-csi needs the agent's data directory mounted at the same path)"
        }
        _ => "",
    }
}

impl MountError {
    /// One word for logs.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Outside { .. } => "OutsideData",
            Self::Dataset { .. } => "DatasetUnreadable",
            Self::Occupied { .. } => "TargetOccupied",
            Self::Directory { .. } => "TargetUnwritable",
            Self::Refused { .. } => "MountRefused",
            Self::Wrong { .. } => "MountWrong",
            Self::Table(_) => "TableUnreadable",
        }
    }
}

/// What is at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No mount.
    Nothing,
    /// A dataset, read-only: what a publish leaves.
    Dataset,
    /// Something else: a mount that was half done, or whose dataset has been removed since.
    Other,
}

/// Mounts of datasets below one directory.
#[derive(Debug)]
pub(super) struct Mounts {
    data: PathBuf,
    /// Two at once would bind the same dataset onto itself.
    one: Mutex<()>,
}

impl Mounts {
    /// Datasets are below `data`.
    pub(super) fn new(data: PathBuf) -> Self {
        Self { data, one: Mutex::new(()) }
    }

    /// What is at `target`. That it is a dataset says also that it is the right one: kubelet's target is of one volume of
    /// one pod, whose attributes never change, and nobody else mounts there. A Broadcast that was made anew under the same
    /// name meanwhile does not replace the data under a running pod.
    pub(super) fn state(&self, target: &Path) -> Result<State, MountError> {
        let table = Table::read().map_err(MountError::Table)?;
        let Some(top) = table.top(target) else { return Ok(State::Nothing) };
        let good = top.is_read_only() && !top.is_deleted() && self.is_dataset(&table, top);
        Ok(if good { State::Dataset } else { State::Other })
    }

    fn is_dataset(&self, table: &Table, mount: &Mount) -> bool {
        // A data directory that is not there holds nothing.
        let Ok(data) = fs::canonicalize(&self.data) else { return false };
        table.shows(mount, &data)
    }

    /// Mounts the dataset at `path` on `target`, where nothing is mounted; leaves neither mount nor directory if that
    /// fails. Does not wait for anything, so that a call that is given up is so before or after it.
    pub(super) fn publish(&self, path: &Path, target: &Path) -> Result<(), MountError> {
        let source = self.dataset(path)?;
        clear(target)?;
        let made = fs::DirBuilder::new().mode(0o750).create(target);
        made.map_err(|source| MountError::Directory { what: "make", path: target.to_owned(), source })?;
        let done = self.bind(&source, target).and_then(|()| check(&source, target));
        if done.is_err() {
            let undone = unmount_all(target).and_then(|()| clear(target));
            if let Err(error) = undone {
                let error = gridcast_core::failure::chain(&error);
                tracing::error!(target = %target.display(), error, "a failed mount could not be undone");
            }
        }
        done
    }

    /// The dataset with all symlinks resolved.
    fn dataset(&self, path: &Path) -> Result<PathBuf, MountError> {
        let real = |path: &Path| {
            fs::canonicalize(path).map_err(|source| MountError::Dataset { path: path.to_owned(), source })
        };
        let (data, source) = (real(&self.data)?, real(path)?);
        if !path.is_absolute() || source == data || !source.starts_with(&data) {
            return Err(MountError::Outside { path: path.to_owned(), data: self.data.clone() });
        }
        if !source.is_dir() {
            return Err(MountError::Dataset { path: source, source: io::ErrorKind::NotADirectory.into() });
        }
        Ok(source)
    }

    fn bind(&self, source: &Path, target: &Path) -> Result<(), MountError> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |what, path: &Path| {
            let path = path.to_owned();
            move |source| MountError::Refused { what, path, source }
        };
        call_mount(Some(source), source, MsFlags::MS_BIND).map_err(refused("bind", source))?;
        let done = (|| {
            // Where the data directory itself is shared, this mount must not be.
            call_mount(None, source, MsFlags::MS_PRIVATE).map_err(refused("make private", source))?;
            let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | flags(source);
            call_mount(None, source, flags).map_err(refused("make read-only", source))?;
            call_mount(Some(source), target, MsFlags::MS_BIND).map_err(refused("mount on", target))
        })();
        let undone = umount2(source, MntFlags::MNT_DETACH).map_err(refused("release", source));
        done.and(undone)
    }

    /// Removes the mount and the directory; there may be several, or none.
    pub(super) fn unpublish(&self, target: &Path) -> Result<(), MountError> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        unmount_all(target)?;
        clear(target)
    }

    /// Removes datasets from targets that kubelet has no record of any more. It writes the record before it asks for a
    /// volume and removes it after the volume has gone, so this is nothing that it will ever ask to have removed.
    pub(super) fn sweep(&self) {
        let table = match Table::read() {
            Ok(table) => table,
            Err(error) => {
                tracing::warn!(%error, "mounts that are left over cannot be looked for");
                return;
            }
        };
        for mount in table.mounts() {
            let Some(target) = Target::of(mount.point()) else { continue };
            if !is_forgotten(&target) || !self.is_dataset(&table, mount) {
                continue;
            }
            match self.unpublish(&target.path) {
                Ok(()) => {
                    tracing::info!(target = %target.path.display(), "removed a mount that kubelet has no record of");
                }
                Err(error) => {
                    let error = gridcast_core::failure::chain(&error);
                    tracing::warn!(target = %target.path.display(), error, "a mount that is left over stays");
                }
            }
        }
    }
}

/// Whether nobody will ever ask to have this volume removed, and nothing is left of it: kubelet has no record, the kernel
/// no mount. Where kubelet keeps its pods cannot be seen (another directory than before), nothing is known.
pub(super) fn is_gone(target: &Target) -> Result<bool, MountError> {
    let table = Table::read().map_err(MountError::Table)?;
    // …/pods of …/pods/UID/volumes/kubernetes.io~csi/NAME/mount
    let is_seen = target.path.ancestors().nth(5).is_some_and(Path::is_dir);
    Ok(is_seen && is_forgotten(target) && table.top(&target.path).is_none())
}

/// Whether kubelet has no record of the volume.
fn is_forgotten(target: &Target) -> bool {
    let record = target.path.with_file_name("vol_data.json");
    matches!(fs::symlink_metadata(record), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

fn call_mount(source: Option<&Path>, target: &Path, flags: MsFlags) -> Result<(), Errno> {
    mount(source, target, None::<&str>, flags, None::<&str>)
}

/// Flags of the mount: a remount sets them all, so what the node's own file system forbids is named again.
fn flags(source: &Path) -> MsFlags {
    let inherited = match statvfs(source) {
        Ok(system) if system.flags().contains(FsFlags::ST_NOEXEC) => MsFlags::MS_NOEXEC,
        _ => MsFlags::empty(),
    };
    MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | inherited
}

/// Looks at what a pod will see.
fn check(source: &Path, target: &Path) -> Result<(), MountError> {
    let wrong = |what| MountError::Wrong { path: target.to_owned(), what };
    let identity = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    match (identity(source), identity(target)) {
        (Ok(there), Ok(here)) if there == here => {}
        _ => return Err(wrong("it shows another directory")),
    }
    let needed = FsFlags::ST_RDONLY | FsFlags::ST_NOSUID | FsFlags::ST_NODEV;
    match statvfs(target) {
        Ok(system) if system.flags().contains(needed) => Ok(()),
        _ => Err(wrong("it is not read-only, nosuid and nodev")),
    }
}

/// Removes whatever is mounted on `target`. Detached, because a process that still looks at it must not keep a pod from
/// ending; the data stays readable for that process until it lets go.
pub(super) fn unmount_all(target: &Path) -> Result<(), MountError> {
    for _ in 0..MAX_STACK {
        match umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            // Not a mount, or not there at all.
            Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
            Err(source) => {
                return Err(MountError::Refused { what: "unmount", path: target.to_owned(), source });
            }
        }
    }
    Err(MountError::Occupied { path: target.to_owned() })
}

/// Removes the target's directory, if it is there and empty. Nothing is ever removed in it.
pub(super) fn clear(target: &Path) -> Result<(), MountError> {
    match fs::remove_dir(target) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            Err(MountError::Occupied { path: target.to_owned() })
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(MountError::Directory { what: "remove", path: target.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_kubelets_directory_cannot_be_seen_no_volume_is_gone() {
        let kubelet = tempfile::tempdir().unwrap();
        let path = kubelet.path().join("pods/1b9d6bcd/volumes/kubernetes.io~csi/ics/mount");
        let target = Target { path, pod_uid: "1b9d6bcd".into() };
        assert!(!is_gone(&target).unwrap(), "kubelet may live elsewhere since");
        fs::create_dir(kubelet.path().join("pods")).unwrap();
        assert!(is_gone(&target).unwrap());
    }
}
