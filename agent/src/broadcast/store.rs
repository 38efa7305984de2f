//! How does a dataset become files, chunk by chunk, and then exactly what it was at its source?
//!
//! All names are relative to the staging directory and were admitted: each parent is a directory that this module made, so
//! no symlink is ever followed. Files exist from their first chunk on and get mode and mtime with their last; directories
//! at the end, bottom-up, so that one without write permission can be filled.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use gridcast_core::broadcast::dataset::{Entry, EntryKind, Extent};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate, openat};
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags, fchmod, fchmodat, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::symlinkat;

use super::dataset::{Dataset, payloads};
use super::failure::Failure;
use super::origin::{OpenFile, Shelf};

/// How far ahead of the data blocks are reserved: a full disk is noticed early, and reserving never takes long (on tmpfs
/// it touches every page).
const RESERVE_BYTES: u64 = 16 << 20;

/// Names this module's files in an [`OpenFile`].
const SLOT: u8 = 1;

/// A dataset that is being stored.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) dataset: Arc<Dataset>,
    directory: File,
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Bytes of each entry that are still to come; all of them before its first chunk.
    missing: Vec<u64>,
    open: Option<Writing>,
}

#[derive(Debug)]
struct Writing {
    entry: usize,
    file: File,
    reserved: u64,
}

impl Shelf for Store {
    fn read(&self, open: &mut OpenFile, chunk: u64, offset: u32, max: u32) -> Result<Vec<Bytes>, Failure> {
        let Some(chunk) = self.dataset.layout.chunk(chunk) else {
            return Err(Failure::Internal { detail: format!("there is no chunk {chunk}") });
        };
        payloads(&chunk, offset, max, |entry, position, buffer| {
            let file = open.get(SLOT, entry, || self.open(entry, OFlag::O_RDONLY))?;
            let entry = &self.dataset.entries[entry];
            file.read_exact_at(buffer, position).map_err(|error| self.failed_io(entry, &error))
        })
    }
}

impl Store {
    /// Makes directories, symlinks and files without data in `directory`, which is empty and private; `path` is its name
    /// for messages.
    pub(crate) fn prepare(directory: OwnedFd, path: PathBuf, dataset: Arc<Dataset>) -> Result<Self, Failure> {
        let missing = dataset.entries.iter().map(Entry::data_bytes).collect();
        let state = Mutex::new(State { missing, open: None });
        let store = Self { dataset, directory: directory.into(), path, state };
        for (index, entry) in store.dataset.entries.iter().enumerate() {
            store.prepare_entry(index, entry)?;
        }
        Ok(store)
    }

    fn prepare_entry(&self, index: usize, entry: &Entry) -> Result<(), Failure> {
        let failed = |errno| self.failed(entry, errno);
        let name = entry.path.as_slice();
        match &entry.kind {
            EntryKind::Directory if entry.is_root() => Ok(()),
            EntryKind::Directory => mkdirat(&self.directory, name, Mode::S_IRWXU).map_err(failed),
            EntryKind::Symlink { target } => {
                symlinkat(target.as_slice(), &self.directory, name).map_err(failed)?;
                let flag = UtimensatFlags::NoFollowSymlink;
                utimensat(&self.directory, name, &TimeSpec::UTIME_OMIT, &mtime(entry), flag).map_err(failed)
            }
            EntryKind::File { extents, .. } if extents.is_empty() => {
                let file = self.create(index)?;
                self.finish_file(entry, &file)
            }
            EntryKind::File { .. } => Ok(()),
        }
    }

    /// Writes `chunk`, whose bytes are `parts`. They must have been verified.
    pub(crate) fn write(&self, chunk: u64, parts: &[Bytes]) -> Result<(), Failure> {
        let Some(chunk) = self.dataset.layout.chunk(chunk) else {
            return Err(Failure::Internal { detail: format!("there is no chunk {chunk}") });
        };
        let mut state = self.state();
        let mut parts = parts.iter().cloned();
        let mut part = Bytes::new();
        for piece in &chunk.pieces {
            let mut position = piece.offset;
            let end = piece.offset + u64::from(piece.length);
            self.open_for_writing(&mut state, piece.entry)?;
            let State { missing, open: Some(writing) } = &mut *state else {
                return Err(Failure::Internal { detail: "no file is open".to_owned() });
            };
            let entry = &self.dataset.entries[piece.entry];
            self.reserve(entry, writing, position, end)?;
            while position < end {
                if part.is_empty() {
                    part = parts.next().ok_or_else(|| Failure::corrupt("a chunk is too short"))?;
                    continue;
                }
                let take = part.len().min((end - position) as usize);
                writing
                    .file
                    .write_all_at(&part[..take], position)
                    .map_err(|error| self.failed_io(entry, &error))?;
                part.advance(take);
                position += take as u64;
            }
            missing[piece.entry] = missing[piece.entry].saturating_sub(u64::from(piece.length));
            if missing[piece.entry] == 0 {
                self.finish_file(entry, &writing.file)?;
                state.open = None;
            }
        }
        Ok(())
    }

    /// Gives directories their modes and times, bottom-up: the last step before the whole gets its published name.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        for entry in self.dataset.entries.iter().rev().filter(|entry| entry.is_directory()) {
            finish_directory(&self.directory, entry).map_err(|errno| self.failed(entry, errno))?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_for_writing(&self, state: &mut State, entry: usize) -> Result<(), Failure> {
        if state.open.as_ref().is_some_and(|writing| writing.entry == entry) {
            return Ok(());
        }
        let is_new = state.missing[entry] == self.dataset.entries[entry].data_bytes();
        let file = if is_new { self.create(entry)? } else { self.open(entry, OFlag::O_WRONLY)? };
        // A file that is opened again reserves nothing: it came back because several trees fill it at once.
        let reserved = if is_new { 0 } else { u64::MAX };
        state.open = Some(Writing { entry, file, reserved });
        Ok(())
    }

    fn create(&self, index: usize) -> Result<File, Failure> {
        let entry = &self.dataset.entries[index];
        let file = self.open(index, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL)?;
        if let EntryKind::File { size, extents } = &entry.kind {
            // Only a hole at the end needs it; all else is written.
            if extents.last().map_or(0, Extent::end) < *size {
                file.set_len(*size).map_err(|error| self.failed_io(entry, &error))?;
            }
        }
        Ok(file)
    }

    fn open(&self, index: usize, flags: OFlag) -> Result<File, Failure> {
        let entry = &self.dataset.entries[index];
        let name = entry.path.as_slice();
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
            .map(File::from)
            .map_err(|errno| self.failed(entry, errno))
    }

    /// Reserves blocks of the extent that `position..end` is in.
    fn reserve(&self, entry: &Entry, writing: &mut Writing, position: u64, end: u64) -> Result<(), Failure> {
        let extents = entry.extents();
        if end <= writing.reserved || entry.data_bytes() < RESERVE_BYTES {
            return Ok(());
        }
        let at = extents.partition_point(|extent| extent.end() <= position);
        let extent_end = extents.get(at).map_or(end, Extent::end);
        let until = extent_end.min(end.saturating_add(RESERVE_BYTES));
        let length = (until - position).cast_signed();
        match fallocate(&writing.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, position.cast_signed(), length) {
            // Not every file system can; writing will tell there.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL | Errno::EINTR) => {}
            Err(errno) => return Err(self.failed(entry, errno)),
        }
        writing.reserved = until;
        Ok(())
    }

    fn finish_file(&self, entry: &Entry, file: &File) -> Result<(), Failure> {
        let failed = |errno| self.failed(entry, errno);
        // After the last write, which would clear setuid and setgid and set the time.
        fchmod(file.as_fd(), Mode::from_bits_truncate(entry.mode)).map_err(failed)?;
        futimens(file.as_fd(), &TimeSpec::UTIME_OMIT, &mtime(entry)).map_err(failed)
    }

    fn failed(&self, entry: &Entry, errno: Errno) -> Failure {
        self.failed_io(entry, &errno.into())
    }

    fn failed_io(&self, entry: &Entry, error: &std::io::Error) -> Failure {
        Failure::writing(&self.path.join(std::ffi::OsStr::from_bytes(&entry.path)), error)
    }
}

/// Gives the directory `entry` below `root` its mode and time. Those in it must be done before.
pub(crate) fn finish_directory(root: &File, entry: &Entry) -> Result<(), Errno> {
    let mode = Mode::from_bits_truncate(entry.mode);
    if entry.is_root() {
        fchmod(root, mode)?;
        return futimens(root, &TimeSpec::UTIME_OMIT, &mtime(entry));
    }
    let name = std::ffi::OsStr::from_bytes(&entry.path);
    utimensat(root, name, &TimeSpec::UTIME_OMIT, &mtime(entry), UtimensatFlags::NoFollowSymlink)?;
    fchmodat(root, name, mode, FchmodatFlags::FollowSymlink)
}

fn mtime(entry: &Entry) -> TimeSpec {
    TimeSpec::new(entry.mtime_seconds, i64::from(entry.mtime_nanos))
}

#[cfg(test)]
mod tests;
