//! What is in a directory: entries of a dataset, with the stamps that tell whether a file changed since.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use gridcast_core::broadcast::dataset::{
    Admission, Entry, EntryKind, Extent, MAX_ENTRIES, MAX_EXTENTS, merge_extents,
};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};
use nix::unistd::{Whence, lseek};

use super::failure::Failure;

/// Holes from this size on are kept; in smaller files there are none.
pub(crate) const SMALLEST_HOLE_BYTES: u64 = 64 << 10;

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(stat: &FileStat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// A directory, or a single file as the root of its own.
#[derive(Debug)]
pub(crate) struct Scan {
    /// What the entries' paths are relative to.
    pub(crate) directory: OwnedFd,
    /// Its name for messages.
    pub(crate) label: PathBuf,
    /// In canonical order, admitted.
    pub(crate) entries: Vec<Entry>,
    /// One for each entry.
    pub(crate) stamps: Vec<Stamp>,
    /// Whether the path is a file.
    pub(crate) single_file: bool,
    /// Bytes outside holes, a hard-linked file once. All names of one are sent, so what travels can be more.
    pub(crate) distinct_bytes: u64,
}

/// Scans `path`. A symlink given as `path` itself is followed; none inside is.
pub(crate) fn scan(path: &Path) -> Result<Scan, Failure> {
    let shown = path.display().to_string();
    let real = std::fs::canonicalize(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Failure::SourceMissing { path: shown.clone() }
        }
        _ => Failure::reading(&shown, &error),
    })?;
    let metadata = std::fs::metadata(&real).map_err(|error| Failure::reading(&shown, &error))?;
    if metadata.is_dir() {
        return Scanner::new(open_directory(&real)?, path.to_owned()).tree();
    }
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(Failure::SourceMissing { path: shown });
    };
    Scanner::new(open_directory(parent)?, parent.to_owned()).single(name.as_bytes())
}

fn open_directory(path: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    nix::fcntl::open(path, flags, Mode::empty())
        .map_err(|errno| Failure::reading(&path.display().to_string(), &errno.into()))
}

struct Scanner {
    directory: OwnedFd,
    label: PathBuf,
    found: Vec<(Entry, Stamp)>,
    extents: u64,
    distinct_bytes: u64,
    /// Device and inode of the files met that have several names, at most one for each entry.
    linked: HashSet<(u64, u64)>,
}

impl Scanner {
    fn new(directory: OwnedFd, label: PathBuf) -> Self {
        Self { directory, label, found: Vec::new(), extents: 0, distinct_bytes: 0, linked: HashSet::new() }
    }

    fn tree(mut self) -> Result<Scan, Failure> {
        let root = nix::sys::stat::fstat(&self.directory).map_err(|errno| self.failed(b"", errno))?;
        self.found.push((entry(Vec::new(), EntryKind::Directory, &root), Stamp::of(&root)));
        // Directories by path, one open at a time: a deep tree costs no descriptors.
        let mut directories = vec![Vec::new()];
        while let Some(path) = directories.pop() {
            for name in self.names(&path)? {
                let below = join(&path, &name);
                if self.add(below.clone())? {
                    directories.push(below);
                }
                if self.found.len() as u64 > MAX_ENTRIES || self.extents > MAX_EXTENTS {
                    return Err(Failure::DatasetInvalid {
                        detail: format!(
                            "`{}` has more than {MAX_ENTRIES} entries or {MAX_EXTENTS} extents; split the dataset",
                            self.label.display()
                        ),
                    });
                }
            }
        }
        self.done(false)
    }

    fn single(mut self, name: &[u8]) -> Result<Scan, Failure> {
        self.add(name.to_vec())?;
        if let Some((file, stamp)) = self.found.first() {
            let root = (Entry::root_for(file), *stamp);
            self.found.push(root);
        }
        self.done(true)
    }

    fn done(self, single_file: bool) -> Result<Scan, Failure> {
        let Self { directory, label, mut found, distinct_bytes, .. } = self;
        found.sort_by(|(a, _), (b, _)| a.cmp_path(b));
        let (entries, stamps): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let mut admission = Admission::new();
        for entry in &entries {
            admission.admit(entry).map_err(|error| Failure::DatasetInvalid { detail: error.to_string() })?;
        }
        Ok(Scan { directory, label, entries, stamps, single_file, distinct_bytes })
    }

    fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let failed = |errno| self.failed(path, errno);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let relative = if path.is_empty() { &b"."[..] } else { path };
        let mut directory = Dir::openat(&self.directory, relative, flags, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for found in directory.iter() {
            let name = found.map_err(failed)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Adds the entry at `path`; true when it is a directory.
    fn add(&mut self, path: Vec<u8>) -> Result<bool, Failure> {
        let stat = fstatat(&self.directory, path.as_slice(), AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(|errno| self.failed(&path, errno))?;
        let kind = match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFDIR => EntryKind::Directory,
            SFlag::S_IFLNK => {
                let target = readlinkat(&self.directory, path.as_slice())
                    .map_err(|errno| self.failed(&path, errno))?;
                EntryKind::Symlink { target: target.into_vec() }
            }
            SFlag::S_IFREG => {
                let size = stat.st_size as u64;
                EntryKind::File { size, extents: self.extents_of(&path, &stat)? }
            }
            other => return Err(self.unsupported(&path, other)),
        };
        let is_directory = kind == EntryKind::Directory;
        let entry = entry(path, kind, &stat);
        let is_first_name =
            stat.st_nlink < 2 || is_directory || self.linked.insert((stat.st_dev, stat.st_ino));
        if is_first_name {
            self.distinct_bytes = self.distinct_bytes.saturating_add(entry.data_bytes());
        }
        self.found.push((entry, Stamp::of(&stat)));
        Ok(is_directory)
    }

    fn extents_of(&mut self, path: &[u8], stat: &FileStat) -> Result<Vec<Extent>, Failure> {
        let size = stat.st_size as u64;
        let extents = if size == 0 {
            Vec::new()
        } else if size < SMALLEST_HOLE_BYTES || stat.st_blocks as u64 * 512 >= size {
            vec![Extent { offset: 0, length: size }]
        } else {
            let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
            let file = openat(&self.directory, path, flags, Mode::empty())
                .map_err(|errno| self.failed(path, errno))?;
            data_extents(&file.into(), size).map_err(|errno| self.failed(path, errno))?
        };
        self.extents += extents.len() as u64;
        Ok(extents)
    }

    fn unsupported(&self, path: &[u8], kind: SFlag) -> Failure {
        let kind = match kind {
            SFlag::S_IFBLK => "block device",
            SFlag::S_IFCHR => "character device",
            SFlag::S_IFIFO => "FIFO",
            SFlag::S_IFSOCK => "socket",
            _ => "file of unknown type",
        };
        Failure::UnsupportedFile { path: shown(&self.label, path), kind }
    }

    fn failed(&self, path: &[u8], errno: Errno) -> Failure {
        Failure::reading(&shown(&self.label, path), &errno.into())
    }
}

/// The path of an entry for people.
pub(crate) fn shown(label: &Path, path: &[u8]) -> String {
    let whole =
        if path.is_empty() { label.to_owned() } else { label.join(std::ffi::OsStr::from_bytes(path)) };
    match whole.to_str() {
        Some(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => whole.as_os_str().as_bytes().escape_ascii().to_string(),
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

fn entry(path: Vec<u8>, kind: EntryKind, stat: &FileStat) -> Entry {
    Entry {
        path,
        kind,
        mode: stat.st_mode & 0o7777,
        mtime_seconds: stat.st_mtime,
        mtime_nanos: stat.st_mtime_nsec as u32,
    }
}

/// Where `file` of `size` bytes has data. A file system that does not know says: everywhere.
fn data_extents(file: &File, size: u64) -> Result<Vec<Extent>, Errno> {
    let whole = || vec![Extent { offset: 0, length: size }];
    let mut extents = Vec::new();
    let mut at = 0;
    while at < size {
        let data = match lseek(file.as_fd(), at.cast_signed(), Whence::SeekData) {
            Ok(data) => data as u64,
            Err(Errno::ENXIO) => break,
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => return Ok(whole()),
            Err(errno) => return Err(errno),
        };
        let hole = lseek(file.as_fd(), data.cast_signed(), Whence::SeekHole)? as u64;
        // A file that grows while it is scanned is found out when it is read; what is behind its size is not asked for.
        let end = hole.min(size);
        if data >= end {
            break;
        }
        extents.push(Extent { offset: data, length: end - data });
        if extents.len() as u64 > MAX_EXTENTS {
            return Ok(whole());
        }
        at = hole;
    }
    Ok(merge_extents(extents, SMALLEST_HOLE_BYTES))
}
