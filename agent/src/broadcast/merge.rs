//! How do the results of several members become one directory?

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gridcast_core::broadcast::dataset::{self, Entry};

use super::failure::Failure;
use super::scan::{scan, shown};
use super::staging::{Need, Staging};
use super::store::finish_directory;

/// Names that are tried for a file that differs: NAME.MEMBER, then NAME.MEMBER.2 and so on.
const MAX_NAMES: u32 = 1000;
/// Compared at a time.
const BLOCK_BYTES: usize = 256 << 10;

/// Numbers the collections of this process: each has a directory of its own.
static COLLECTIONS: AtomicU64 = AtomicU64::new(0);

/// What a member sent, stored.
#[derive(Debug)]
pub(crate) struct Received {
    /// Where.
    pub(crate) directory: PathBuf,
    /// In canonical order, paths relative to `directory`. Directories have neither mode nor time yet.
    pub(crate) entries: Vec<Entry>,
}

/// Results that are being merged, in a private directory beside the target.
#[derive(Debug)]
pub(crate) struct Merge {
    staging: Staging,
    target: PathBuf,
    merged: PathBuf,
    /// As the first member had them.
    directories: BTreeMap<Vec<u8>, Entry>,
    renamed: Vec<String>,
}

impl Merge {
    /// Prepares a collection into the directory `target`.
    pub(crate) fn new(target: &Path) -> Result<Self, Failure> {
        let number = COLLECTIONS.fetch_add(1, Ordering::Relaxed);
        let id = format!("collect-{}-{number}", std::process::id());
        // How much will come is not known: a full disk is noticed when it is full.
        let staging = Staging::beside(&target.join("results"), &id, Need { bytes: 0, entries: 2 })?;
        let merged = staging.path().join("merged");
        fs::create_dir(&merged).map_err(|error| Failure::writing(&merged, &error))?;
        Ok(Self {
            staging,
            target: target.to_owned(),
            merged,
            directories: BTreeMap::new(),
            renamed: Vec::new(),
        })
    }

    /// Where member number `index` is to be stored.
    pub(crate) fn part(&self, index: usize) -> PathBuf {
        self.staging.path().join(format!("part-{index}"))
    }

    /// Merges what `member` sent.
    pub(crate) fn add(&mut self, received: &Received, member: &str) -> Result<(), Failure> {
        // A directory that was moved as a whole: where it was, where it is.
        let mut moved: Option<(Vec<u8>, Vec<u8>)> = None;
        for entry in &received.entries {
            if let Some((from, to)) = &moved
                && let Some(rest) = entry.path.strip_prefix(from.as_slice())
                && rest.first() == Some(&b'/')
            {
                let path = [to.as_slice(), rest].concat();
                self.remember(entry, path);
                continue;
            }
            let from = received.directory.join(OsStr::from_bytes(&entry.path));
            let Some(place) = self.place(entry, &from, member)? else { continue };
            let to = self.merged.join(OsStr::from_bytes(&place));
            fs::rename(&from, &to).map_err(|error| Failure::writing(&to, &error))?;
            if place != entry.path {
                self.renamed.push(shown(Path::new(""), &place));
            }
            self.remember(entry, place.clone());
            moved = Some((entry.path.clone(), place));
        }
        fs::remove_dir_all(&received.directory).map_err(|error| Failure::writing(&received.directory, &error))
    }

    /// Moves everything to its name. Returns files, bytes, and the names of files that differed.
    pub(crate) fn publish(self) -> Result<(u64, u64, Vec<String>), Failure> {
        let failed = |error: io::Error| Failure::writing(&self.merged, &error);
        let root = File::open(&self.merged).map_err(failed)?;
        for entry in self.directories.values().rev() {
            finish_directory(&root, entry).map_err(|errno| failed(errno.into()))?;
        }
        let entries = scan(&self.merged)?.entries;
        for found in fs::read_dir(&self.merged).map_err(failed)? {
            let name = found.map_err(failed)?.file_name();
            self.staging.replace(&Path::new("merged").join(&name), &self.target.join(&name))?;
        }
        Ok((dataset::files(&entries), dataset::size_bytes(&entries), self.renamed))
    }

    fn remember(&mut self, entry: &Entry, path: Vec<u8>) {
        if entry.is_directory() {
            self.directories.insert(path.clone(), Entry { path, ..entry.clone() });
        }
    }

    /// Under which path the entry is kept; none when it is there already.
    fn place(&self, entry: &Entry, from: &Path, member: &str) -> Result<Option<Vec<u8>>, Failure> {
        let exists = |path: &[u8]| fs::symlink_metadata(self.merged.join(OsStr::from_bytes(path))).is_ok();
        if !exists(&entry.path) {
            return Ok(Some(entry.path.clone()));
        }
        let there = self.merged.join(OsStr::from_bytes(&entry.path));
        if is_same(from, &there).map_err(|error| Failure::writing(&there, &error))? {
            return Ok(None);
        }
        (1..=MAX_NAMES)
            .map(|number| {
                let suffix = if number == 1 { format!(".{member}") } else { format!(".{member}.{number}") };
                [entry.path.as_slice(), suffix.as_bytes()].concat()
            })
            .find(|path| !exists(path))
            .map(Some)
            .ok_or_else(|| Failure::TargetExists { path: there.display().to_string() })
    }
}

/// Whether nothing is lost when one of the two goes. Two directories are merged, entry by entry.
fn is_same(a: &Path, b: &Path) -> io::Result<bool> {
    let (kind_a, kind_b) = (fs::symlink_metadata(a)?, fs::symlink_metadata(b)?);
    if kind_a.is_dir() && kind_b.is_dir() {
        return Ok(true);
    }
    if kind_a.is_symlink() && kind_b.is_symlink() {
        return Ok(fs::read_link(a)? == fs::read_link(b)?);
    }
    if !kind_a.is_file() || !kind_b.is_file() || kind_a.len() != kind_b.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    let (mut block_a, mut block_b) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let mut rest = kind_a.len();
    while rest > 0 {
        let take = rest.min(BLOCK_BYTES as u64) as usize;
        a.read_exact(&mut block_a[..take])?;
        b.read_exact(&mut block_b[..take])?;
        if block_a[..take] != block_b[..take] {
            return Ok(false);
        }
        rest -= take as u64;
    }
    Ok(true)
}
