//! What is one entry, and can it be harmful by itself?

use std::cmp::Ordering;

/// Longest path of an entry, in bytes: Linux' `PATH_MAX` with its terminating zero.
pub const MAX_PATH_BYTES: usize = 4095;
/// Longest component of a path, in bytes: `NAME_MAX` of every file system that matters.
pub const MAX_COMPONENT_BYTES: usize = 255;
/// Permission bits with setuid, setgid and sticky.
const MODE_BITS: u32 = 0o7777;

/// A directory, file or symlink of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Relative to the root, `/` between components, any bytes but NUL; empty for the root itself.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits with setuid, setgid and sticky; no file type.
    pub mode: u32,
    /// Modification time in seconds since 1970; negative before.
    pub mtime_seconds: i64,
    /// Nanoseconds to add to it, below 1,000,000,000.
    pub mtime_nanos: u32,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Apparent size in bytes, holes included.
        size: u64,
        /// Where its data is, ascending, with a hole between each two. What no extent covers reads as zeros.
        extents: Vec<Extent>,
    },
    /// A symlink, never followed.
    Symlink {
        /// What it points to, verbatim.
        target: Vec<u8>,
    },
}

/// A part of a file that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at least one.
    pub length: u64,
}

/// Why an entry cannot be part of any dataset. Paths are shown with unusual bytes escaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says it")]
pub enum EntryError {
    #[error("the path `{path}` is absolute; send paths relative to the dataset's root")]
    AbsolutePath { path: String },
    #[error("the path `{path}` has an empty, `.` or `..` component; send it without")]
    UnsafeComponent { path: String },
    #[error("the path `{path}` holds a NUL byte, which no file system can store")]
    NulByte { path: String },
    #[error(
        "the path `{path}` is too long: at most {MAX_PATH_BYTES} bytes, {MAX_COMPONENT_BYTES} a component"
    )]
    PathTooLong { path: String },
    #[error("the root of a dataset must be a directory; put a single file into a root of its own")]
    RootNotDirectory,
    #[error("`{path}`: mode {mode:o} has bits beyond 7777; send permission bits only")]
    Mode { path: String, mode: u32 },
    #[error("`{path}`: mtime has {nanos} nanoseconds; send less than 1000000000")]
    Mtime { path: String, nanos: u32 },
    #[error(
        "`{path}`: its extents must be ascending, not empty, apart from each other and inside its {size} bytes"
    )]
    Extents { path: String, size: u64 },
    #[error("`{path}`: its size of {size} bytes is above 2^63 - 1, which no file system can store")]
    Size { path: String, size: u64 },
    #[error("`{path}`: the target of a symlink must be 1 to {MAX_PATH_BYTES} bytes without NUL")]
    Target { path: String },
}

impl Entry {
    /// The root of a dataset that is the single file `file`: plain permissions, the file's mtime, so that the digest is
    /// that of the file and its name alone.
    pub fn root_for(file: &Self) -> Self {
        Self {
            path: Vec::new(),
            kind: EntryKind::Directory,
            mode: 0o755,
            mtime_seconds: file.mtime_seconds,
            mtime_nanos: file.mtime_nanos,
        }
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.path.is_empty()
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.kind, EntryKind::Directory)
    }

    /// The path of the directory it is in; none for the root.
    pub fn parent(&self) -> Option<&[u8]> {
        if self.is_root() {
            return None;
        }
        let slash = self.path.iter().rposition(|&byte| byte == b'/');
        Some(slash.map_or(&[][..], |at| &self.path[..at]))
    }

    /// Where its data is; empty unless it is a file.
    pub fn extents(&self) -> &[Extent] {
        match &self.kind {
            EntryKind::File { extents, .. } => extents,
            EntryKind::Directory | EntryKind::Symlink { .. } => &[],
        }
    }

    /// Bytes outside holes.
    pub fn data_bytes(&self) -> u64 {
        self.extents().iter().map(|extent| extent.length).fold(0, u64::saturating_add)
    }

    /// The path for people: unusual bytes escaped, the root as `.`.
    pub fn display_path(&self) -> String {
        display(&self.path)
    }

    /// Canonical order: component by component, so that a directory comes directly before its content.
    pub fn cmp_path(&self, other: &Self) -> Ordering {
        cmp_paths(&self.path, &other.path)
    }

    /// Whether it is harmless and storable by itself. [`Admission`](super::Admission) checks it among its neighbours.
    pub fn check(&self) -> Result<(), EntryError> {
        self.check_path()?;
        if self.mode & !MODE_BITS != 0 {
            return Err(EntryError::Mode { path: self.display_path(), mode: self.mode });
        }
        if self.mtime_nanos >= 1_000_000_000 {
            return Err(EntryError::Mtime { path: self.display_path(), nanos: self.mtime_nanos });
        }
        match &self.kind {
            EntryKind::Directory => Ok(()),
            _ if self.is_root() => Err(EntryError::RootNotDirectory),
            EntryKind::File { size, extents } => self.check_extents(*size, extents),
            EntryKind::Symlink { target } => {
                let storable = (1..=MAX_PATH_BYTES).contains(&target.len()) && !target.contains(&0);
                if storable { Ok(()) } else { Err(EntryError::Target { path: self.display_path() }) }
            }
        }
    }

    fn check_path(&self) -> Result<(), EntryError> {
        let path = || display(&self.path[..self.path.len().min(MAX_PATH_BYTES)]);
        if self.is_root() {
            return Ok(());
        }
        if self.path.len() > MAX_PATH_BYTES {
            return Err(EntryError::PathTooLong { path: path() });
        }
        if self.path.contains(&0) {
            return Err(EntryError::NulByte { path: path() });
        }
        if self.path[0] == b'/' {
            return Err(EntryError::AbsolutePath { path: path() });
        }
        for component in self.path.split(|&byte| byte == b'/') {
            if matches!(component, b"" | b"." | b"..") {
                return Err(EntryError::UnsafeComponent { path: path() });
            }
            if component.len() > MAX_COMPONENT_BYTES {
                return Err(EntryError::PathTooLong { path: path() });
            }
        }
        Ok(())
    }

    fn check_extents(&self, size: u64, extents: &[Extent]) -> Result<(), EntryError> {
        if i64::try_from(size).is_err() {
            return Err(EntryError::Size { path: self.display_path(), size });
        }
        let mut end = None;
        for extent in extents {
            let next = extent.offset.checked_add(extent.length).filter(|&next| next <= size);
            let apart = end.is_none_or(|end| extent.offset > end);
            match next {
                Some(next) if apart && extent.length > 0 => end = Some(next),
                _ => return Err(EntryError::Extents { path: self.display_path(), size }),
            }
        }
        Ok(())
    }
}

/// Joins extents that touch, or are closer than `smallest_hole` bytes: the gap then travels as zeros. A hole at the end
/// of a file stays whatever its size. `extents` must be ascending.
pub fn merge_extents(extents: impl IntoIterator<Item = Extent>, smallest_hole: u64) -> Vec<Extent> {
    let mut merged: Vec<Extent> = Vec::new();
    for extent in extents.into_iter().filter(|extent| extent.length > 0) {
        match merged.last_mut() {
            Some(last) if extent.offset <= last.end() || extent.offset - last.end() < smallest_hole => {
                last.length = extent.end().max(last.end()) - last.offset;
            }
            _ => merged.push(extent),
        }
    }
    merged
}

impl Extent {
    /// The first byte behind it.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// Component by component is byte by byte with `/` below every other byte; NUL is in no path.
pub(super) fn cmp_paths(a: &[u8], b: &[u8]) -> Ordering {
    let key = |&byte: &u8| if byte == b'/' { 0 } else { byte };
    a.iter().map(key).cmp(b.iter().map(key))
}

pub(super) fn display(path: &[u8]) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    match std::str::from_utf8(path) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => path.escape_ascii().to_string(),
    }
}
