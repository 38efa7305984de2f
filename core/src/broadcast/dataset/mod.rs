//! What is a dataset, so that two hosts agree on every byte of it before the first byte is sent?
//!
//! A dataset is a list of [`Entry`]s in canonical order, then the bytes of its files. The entries carry no content
//! hashes: they leave the source before anything was read. [`layout`] joins the extents of all files to one virtual stream
//! and cuts it into chunks; the hash of each chunk becomes known when the source has read it; [`Manifest`] folds entries
//! and hashes into the digest that names the dataset.
//!
//! - The first entry is the root: a directory with an empty path. A dataset that is a single file is a root directory
//!   with that one file in it ([`Entry::root_for`]); receivers have one form to publish, a directory.
//! - Canonical order compares paths component by component ([`Entry::cmp_path`]): a directory comes directly before all
//!   that is in it. [`Admission`] therefore checks any number of entries with the memory of one path.
//! - Whoever sends entries may be hostile: what [`Admission`] lets pass never names a place outside the root. A receiver
//!   must still create files without following symlinks.

mod admission;
mod entry;
mod layout;
mod manifest;

pub use admission::{Admission, AdmissionError, MAX_ENTRIES, MAX_EXTENTS};
pub use entry::{Entry, EntryError, EntryKind, Extent, MAX_COMPONENT_BYTES, MAX_PATH_BYTES, merge_extents};
pub use layout::{
    Chunk, ChunkBytesError, DEFAULT_CHUNK_BYTES, LARGE_FILE_BYTES, Layout, MAX_CHUNK_BYTES, MIN_CHUNK_BYTES,
    Piece, checked_chunk_bytes, layout,
};
pub use manifest::{Manifest, ManifestError};

/// Bytes outside holes of all files.
pub fn size_bytes(entries: &[Entry]) -> u64 {
    entries.iter().map(Entry::data_bytes).fold(0, u64::saturating_add)
}

/// Number of regular files.
pub fn files(entries: &[Entry]) -> u64 {
    entries.iter().filter(|entry| matches!(entry.kind, EntryKind::File { .. })).count() as u64
}

/// Puts entries into canonical order, as [`Admission`] wants them.
pub fn sort(entries: &mut [Entry]) {
    entries.sort_by(Entry::cmp_path);
}

#[cfg(test)]
mod tests;
