//! Is what was published what was sent?

use std::path::Path;
use std::sync::Arc;

use blake3::Hasher;
use gridcast_core::broadcast::dataset::{Entry, EntryKind, Extent};

use super::dataset::Dataset;
use super::origin::{OpenFile, Origin, Shelf};
use super::scan::{SMALLEST_HOLE_BYTES, scan};

/// Bytes read at a time.
const SLICE_BYTES: u32 = 1 << 20;
/// Blocks of a file system may be larger than those of the source: a hole may lose this much at each end.
const HOLE_SLACK_BYTES: u64 = SMALLEST_HOLE_BYTES / 2;

/// Scans and reads `path` again and compares it with `dataset`, all of whose chunks are here. Returns the first difference.
/// `holes`: whether the file system reports them.
pub(crate) fn difference(path: &Path, dataset: &Arc<Dataset>, holes: bool) -> Option<String> {
    let found = match scan(path) {
        Ok(found) => found,
        Err(failure) => return Some(failure.to_string()),
    };
    if let Some(difference) = compare_entries(&dataset.entries, &found.entries, holes) {
        return Some(difference);
    }
    // The paths are the same in the same order: the chunks of the manifest name the same files here.
    let published = Origin::with_dataset(found, dataset.clone());
    let mut open = OpenFile::default();
    for chunk in 0..dataset.layout.chunks() {
        let length = dataset.layout.chunk_length(chunk).unwrap_or(0);
        let mut hasher = Hasher::new();
        let mut offset = 0;
        while offset < length {
            match published.read(&mut open, chunk, offset, SLICE_BYTES) {
                Ok(parts) => {
                    for part in parts {
                        hasher.update(&part);
                        offset += part.len() as u32;
                    }
                }
                Err(failure) => return Some(failure.to_string()),
            }
        }
        if dataset.ledger.hash(chunk) != Some(hasher.finalize()) {
            return Some(format!("{} reads differently than it was sent", dataset.describe(chunk)));
        }
    }
    None
}

fn compare_entries(sent: &[Entry], found: &[Entry], holes: bool) -> Option<String> {
    for (sent, found) in sent.iter().zip(found) {
        match sent.cmp_path(found) {
            std::cmp::Ordering::Less => return Some(format!("`{}` is missing", sent.display_path())),
            std::cmp::Ordering::Greater => return Some(format!("`{}` was not sent", found.display_path())),
            std::cmp::Ordering::Equal => {}
        }
        if let Some(difference) = compare_entry(sent, found, holes) {
            return Some(format!("`{}` has {difference}", sent.display_path()));
        }
    }
    match (sent.get(found.len()), found.get(sent.len())) {
        (Some(missing), _) => Some(format!("`{}` is missing", missing.display_path())),
        (_, Some(extra)) => Some(format!("`{}` was not sent", extra.display_path())),
        (None, None) => None,
    }
}

fn compare_entry(sent: &Entry, found: &Entry, holes: bool) -> Option<String> {
    match (&sent.kind, &found.kind) {
        (EntryKind::Directory, EntryKind::Directory) => {}
        (EntryKind::Symlink { target: sent }, EntryKind::Symlink { target: found }) if sent == found => {}
        (EntryKind::File { size, extents }, EntryKind::File { size: found, extents: stored }) => {
            if size != found {
                return Some(format!("{found} bytes, not {size}"));
            }
            if let Some(offset) = holes.then(|| lost_hole(*size, extents, stored)).flatten() {
                return Some(format!("data where a hole at {offset} was sent"));
            }
        }
        _ => return Some("another type or target".to_owned()),
    }
    // Linux gives all symlinks the same mode.
    if sent.mode != found.mode && !matches!(sent.kind, EntryKind::Symlink { .. }) {
        return Some(format!("mode {:o}, not {:o}", found.mode, sent.mode));
    }
    let (was, is) = ((sent.mtime_seconds, sent.mtime_nanos), (found.mtime_seconds, found.mtime_nanos));
    (was != is).then(|| format!("mtime {}.{:09}, not {}.{:09}", is.0, is.1, was.0, was.1))
}

/// Where a hole of the smallest size or more that was sent holds data now.
fn lost_hole(size: u64, sent: &[Extent], stored: &[Extent]) -> Option<u64> {
    let starts = std::iter::once(0).chain(sent.iter().map(Extent::end));
    let ends = sent.iter().map(|extent| extent.offset).chain(std::iter::once(size));
    starts
        .zip(ends)
        .filter(|(start, end)| end - start >= SMALLEST_HOLE_BYTES)
        .find(|(start, end)| {
            let (from, to) = (start + HOLE_SLACK_BYTES, end - HOLE_SLACK_BYTES);
            let at = stored.partition_point(|extent| extent.end() <= from);
            stored.get(at).is_some_and(|extent| extent.offset < to)
        })
        .map(|(start, _)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_is_kept_up_to_the_size_of_blocks() {
        let extent = |offset, length| Extent { offset, length };
        let sent = [extent(0, 4096), extent(200 << 10, 10)];
        let size = 400 << 10;
        assert_eq!(lost_hole(size, &sent, &sent), None);
        assert_eq!(lost_hole(size, &sent, &[extent(0, 16 << 10), extent(192 << 10, 16 << 10)]), None);
        assert_eq!(lost_hole(size, &sent, &[extent(0, size)]), Some(4096));
        assert_eq!(
            lost_hole(size, &sent, &[extent(0, 4096), extent(200 << 10, 200 << 10)]),
            Some((200 << 10) + 10)
        );
        assert_eq!(lost_hole(10, &[], &[extent(0, 10)]), None);
    }
}
