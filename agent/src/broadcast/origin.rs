//! How are the bytes of a scanned directory read, each file in the state in which it was scanned?

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstat, fstatat};

use super::dataset::{Dataset, payloads};
use super::failure::Failure;
use super::scan::{Scan, Stamp, shown};

/// A scanned directory whose data is read chunk by chunk.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) dataset: Arc<Dataset>,
    directory: OwnedFd,
    label: PathBuf,
    stamps: Vec<Stamp>,
    distinct_bytes: u64,
    read_bytes: AtomicU64,
}

/// The file that a reader has open: consecutive chunks are mostly of the same.
#[derive(Debug, Default)]
pub(crate) struct OpenFile(Option<((u8, usize), File)>);

/// Where chunks can be read again. Only those that the ledger has may be asked for.
pub(crate) trait Shelf: Send + Sync + std::fmt::Debug {
    /// Reads up to `max` bytes of `chunk` from `offset` on, as payloads of messages. Blocks.
    fn read(&self, open: &mut OpenFile, chunk: u64, offset: u32, max: u32) -> Result<Vec<Bytes>, Failure>;
}

/// Names this module's files in an [`OpenFile`].
const SLOT: u8 = 0;

impl Shelf for Origin {
    /// Each file must be, before and after, as it was scanned. Its ctime tells writes, truncation, and removal or
    /// replacement of its name (which change the number of links), so the open file is all that needs to be looked at.
    fn read(&self, open: &mut OpenFile, chunk: u64, offset: u32, max: u32) -> Result<Vec<Bytes>, Failure> {
        let chunk = self
            .dataset
            .layout
            .chunk(chunk)
            .ok_or_else(|| Failure::Internal { detail: format!("there is no chunk {chunk}") })?;
        payloads(&chunk, offset, max, |entry, position, buffer| {
            let file = open.get(SLOT, entry, || self.open(entry))?;
            file.read_exact_at(buffer, position).map_err(|error| self.failed(entry, &error))?;
            self.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            self.check_open(entry, file)
        })
    }
}

impl OpenFile {
    /// The file of `entry`; `open` opens it where another one, or none, is open. `slot` tells whose entry it is.
    pub(crate) fn get(
        &mut self,
        slot: u8,
        entry: usize,
        open: impl FnOnce() -> Result<File, Failure>,
    ) -> Result<&File, Failure> {
        let file = match self.0.take() {
            Some((key, file)) if key == (slot, entry) => file,
            _ => open()?,
        };
        Ok(&self.0.insert(((slot, entry), file)).1)
    }
}

impl Origin {
    /// Cuts what was scanned.
    pub(crate) fn new(scan: Scan, chunk_bytes: u32) -> Self {
        let Scan { directory, label, entries, stamps, single_file: _, distinct_bytes } = scan;
        let dataset = Arc::new(Dataset::new(entries, chunk_bytes));
        Self { dataset, directory, label, stamps, distinct_bytes, read_bytes: AtomicU64::new(0) }
    }

    /// The scanned directory read as `dataset`, whose entries have the same paths.
    pub(crate) fn with_dataset(scan: Scan, dataset: Arc<Dataset>) -> Self {
        let Scan { directory, label, entries: _, stamps, single_file: _, distinct_bytes } = scan;
        Self { dataset, directory, label, stamps, distinct_bytes, read_bytes: AtomicU64::new(0) }
    }

    /// Bytes outside holes, a hard-linked file once: the size to report. What travels is that of the layout.
    pub(crate) fn distinct_bytes(&self) -> u64 {
        self.distinct_bytes
    }

    /// Bytes read so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Fails if any file is no longer what was scanned.
    pub(crate) fn check_unchanged(&self) -> Result<(), Failure> {
        for (index, entry) in self.dataset.entries.iter().enumerate() {
            // Directories change when an unrelated file comes or goes; a new file is not part of this dataset.
            if entry.is_directory() {
                continue;
            }
            let stat = fstatat(&self.directory, entry.path.as_slice(), AtFlags::AT_SYMLINK_NOFOLLOW)
                .map_err(|errno| self.failed(index, &errno.into()))?;
            self.compare(index, Stamp::of(&stat))?;
        }
        Ok(())
    }

    fn open(&self, entry: usize) -> Result<File, Failure> {
        let name = self.dataset.entries[entry].path.as_slice();
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = openat(&self.directory, name, flags, Mode::empty())
            .map_err(|errno| self.failed(entry, &errno.into()))?;
        let file = File::from(file);
        self.check_open(entry, &file)?;
        Ok(file)
    }

    fn check_open(&self, entry: usize, file: &File) -> Result<(), Failure> {
        let stat = fstat(file).map_err(|errno| self.failed(entry, &errno.into()))?;
        self.compare(entry, Stamp::of(&stat))
    }

    fn compare(&self, entry: usize, now: Stamp) -> Result<(), Failure> {
        if self.stamps[entry] == now {
            return Ok(());
        }
        Err(Failure::SourceChanged { path: self.path(entry) })
    }

    fn failed(&self, entry: usize, error: &io::Error) -> Failure {
        match error.kind() {
            // Shorter than it was, or replaced by a symlink.
            io::ErrorKind::UnexpectedEof => Failure::SourceChanged { path: self.path(entry) },
            _ if error.raw_os_error() == Some(libc::ELOOP) => {
                Failure::SourceChanged { path: self.path(entry) }
            }
            _ => Failure::reading(&self.path(entry), error),
        }
    }

    /// The path of an entry for people.
    pub(crate) fn path(&self, entry: usize) -> String {
        shown(&self.label, &self.dataset.entries[entry].path)
    }
}
