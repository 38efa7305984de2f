//! What names a dataset?
//!
//! The digest is the BLAKE3 hash of this encoding; integers are little-endian, `bytes` is a u32 length and then that many:
//!
//! ```text
//! dataset = "gridcast dataset 1\n"  u32 chunk_bytes  u64 entries  entry*  u64 chunks  hash*
//! entry   = bytes path  u32 mode  i64 mtime_seconds  u32 mtime_nanos  kind
//! kind    = u8 1                                                            directory
//!         | u8 2  u64 size  u64 extents  (u64 offset  u64 length)*          file
//!         | u8 3  bytes target                                              symlink
//! hash    = the 32 bytes of the BLAKE3 hash of one chunk, in the order of the layout
//! ```
//!
//! Every field has one encoding and every count comes before what it counts: two datasets never encode alike. Chunk hashes
//! may be recorded in any order; those that come early wait, 32 bytes each.

use std::collections::BTreeMap;

use blake3::{Hash, Hasher};

use super::entry::{Entry, EntryKind};
use super::layout::Layout;

const MAGIC: &[u8] = b"gridcast dataset 1\n";

/// The digest of a dataset, growing with each chunk whose hash becomes known.
#[derive(Clone, Debug)]
pub struct Manifest {
    hasher: Hasher,
    chunks: u64,
    next: u64,
    early: BTreeMap<u64, Hash>,
}

/// Why a hash cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// There is no such chunk.
    #[error("chunk {index} of a dataset of {chunks} chunks")]
    OutOfRange {
        /// What was recorded.
        index: u64,
        /// How many there are.
        chunks: u64,
    },
}

impl Manifest {
    /// The manifest of `entries` cut by `layout`, no hash known yet.
    pub fn new(entries: &[Entry], layout: &Layout) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(MAGIC);
        hasher.update(&layout.chunk_bytes().to_le_bytes());
        hasher.update(&(entries.len() as u64).to_le_bytes());
        for entry in entries {
            hash_entry(&mut hasher, entry);
        }
        hasher.update(&layout.chunks().to_le_bytes());
        Self { hasher, chunks: layout.chunks(), next: 0, early: BTreeMap::new() }
    }

    /// Records the hash of chunk `index`; false when it was recorded before, which changes nothing.
    pub fn record(&mut self, index: u64, hash: Hash) -> Result<bool, ManifestError> {
        if index >= self.chunks {
            return Err(ManifestError::OutOfRange { index, chunks: self.chunks });
        }
        if index < self.next || self.early.contains_key(&index) {
            return Ok(false);
        }
        self.early.insert(index, hash);
        while let Some(hash) = self.early.remove(&self.next) {
            self.hasher.update(hash.as_bytes());
            self.next += 1;
        }
        Ok(true)
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// How many hashes are recorded.
    pub fn recorded(&self) -> u64 {
        self.next + self.early.len() as u64
    }

    /// The first chunk whose hash is not recorded; none when all are.
    pub fn first_missing(&self) -> Option<u64> {
        (self.next < self.chunks).then_some(self.next)
    }

    /// The digest of the dataset; none before every hash is recorded.
    pub fn digest(&self) -> Option<Hash> {
        self.first_missing().is_none().then(|| self.hasher.finalize())
    }
}

fn hash_entry(hasher: &mut Hasher, entry: &Entry) {
    hash_bytes(hasher, &entry.path);
    hasher.update(&entry.mode.to_le_bytes());
    hasher.update(&entry.mtime_seconds.to_le_bytes());
    hasher.update(&entry.mtime_nanos.to_le_bytes());
    match &entry.kind {
        EntryKind::Directory => {
            hasher.update(&[1]);
        }
        EntryKind::File { size, extents } => {
            hasher.update(&[2]);
            hasher.update(&size.to_le_bytes());
            hasher.update(&(extents.len() as u64).to_le_bytes());
            for extent in extents {
                hasher.update(&extent.offset.to_le_bytes());
                hasher.update(&extent.length.to_le_bytes());
            }
        }
        EntryKind::Symlink { target } => {
            hasher.update(&[3]);
            hash_bytes(hasher, target);
        }
    }
}

/// Paths and targets are checked to be below 4 KiB; an unchecked one of 4 GiB would only get a digest of its own.
fn hash_bytes(hasher: &mut Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u32).to_le_bytes());
    hasher.update(bytes);
}
