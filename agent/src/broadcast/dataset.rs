//! The dataset of one broadcast as a node knows it: entries, chunks, and how chunks become messages.

use std::sync::Arc;

use bytes::Bytes;
use gridcast_core::broadcast::dataset::{self, Chunk, Entry, Layout};

use super::failure::Failure;
use super::landing::Arrived;
use super::ledger::Ledger;
use super::wire::MAX_PAYLOAD_BYTES;

/// Files occupy whole blocks of this size on every file system that matters.
const BLOCK_BYTES: u64 = 4096;

/// Entries, cut, and what of it is here.
#[derive(Debug)]
pub(crate) struct Dataset {
    pub(crate) entries: Arc<[Entry]>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) ledger: Ledger,
}

impl Dataset {
    /// `entries` must have been admitted.
    pub(crate) fn new(entries: Vec<Entry>, chunk_bytes: u32) -> Self {
        let layout = dataset::layout(&entries, chunk_bytes);
        let ledger = Ledger::new(&entries, &layout);
        Self { entries: entries.into(), layout: Arc::new(layout), ledger }
    }

    /// The same dataset of which nothing is here yet.
    pub(crate) fn fresh(&self) -> Self {
        let ledger = Ledger::new(&self.entries, &self.layout);
        Self { entries: self.entries.clone(), layout: self.layout.clone(), ledger }
    }

    /// Disk space that a copy needs: data in whole blocks, a block for each directory and long symlink.
    pub(crate) fn required_bytes(&self) -> u64 {
        let blocks = |entry: &Entry| match entry.extents() {
            [] if entry.is_directory() => BLOCK_BYTES,
            extents => extents.iter().map(|extent| extent.length.next_multiple_of(BLOCK_BYTES)).sum(),
        };
        self.entries.iter().map(blocks).fold(0, u64::saturating_add)
    }

    /// Bytes outside holes.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.entries.iter().map(Entry::data_bytes).fold(0, u64::saturating_add)
    }

    /// What has arrived when all of it is here.
    pub(crate) fn arrived(&self) -> Arrived {
        let digest = self.ledger.digest().map(|digest| digest.to_hex().to_string());
        Arrived {
            digest: digest.unwrap_or_default(),
            size_bytes: self.data_bytes(),
            files: dataset::files(&self.entries),
        }
    }

    /// The files of a chunk for people: the first, and how many more.
    pub(crate) fn describe(&self, chunk: u64) -> String {
        let pieces = self.layout.chunk(chunk).map(|chunk| chunk.pieces).unwrap_or_default();
        let mut files: Vec<usize> = pieces.iter().map(|piece| piece.entry).collect();
        files.dedup();
        match files.as_slice() {
            [] => format!("chunk {chunk}"),
            [file] => format!("chunk {chunk} of `{}`", self.entries[*file].display_path()),
            [file, rest @ ..] => {
                format!("chunk {chunk} of `{}` and {} more", self.entries[*file].display_path(), rest.len())
            }
        }
    }
}

/// Reads up to `max` bytes of `chunk` from `offset` on as payloads of messages. `read` fills a buffer from (entry, offset
/// in the file); several small files share one payload.
pub(crate) fn payloads(
    chunk: &Chunk,
    offset: u32,
    max: u32,
    mut read: impl FnMut(usize, u64, &mut [u8]) -> Result<(), Failure>,
) -> Result<Vec<Bytes>, Failure> {
    let end = chunk.length.min(offset.saturating_add(max));
    let mut at = offset;
    let mut pieces = chunk.pieces.iter();
    // What is left of the piece at hand: entry, offset in the file, length.
    let mut rest: Option<(usize, u64, u32)> = None;
    let mut skip = offset;
    for piece in pieces.by_ref() {
        if skip < piece.length {
            rest = Some((piece.entry, piece.offset + u64::from(skip), piece.length - skip));
            break;
        }
        skip -= piece.length;
    }
    let mut payloads = Vec::with_capacity((end.saturating_sub(at) as usize).div_ceil(MAX_PAYLOAD_BYTES));
    while at < end {
        let mut buffer = vec![0; MAX_PAYLOAD_BYTES.min((end - at) as usize)];
        let mut filled = 0;
        while filled < buffer.len() {
            let Some((entry, position, length)) = rest else {
                return Err(Failure::Internal { detail: "a chunk is longer than its pieces".to_owned() });
            };
            let take = (length as usize).min(buffer.len() - filled);
            read(entry, position, &mut buffer[filled..filled + take])?;
            filled += take;
            rest = if take < length as usize {
                Some((entry, position + take as u64, length - take as u32))
            } else {
                pieces.next().map(|piece| (piece.entry, piece.offset, piece.length))
            };
        }
        at += buffer.len() as u32;
        payloads.push(Bytes::from(buffer));
    }
    Ok(payloads)
}

#[cfg(test)]
mod tests {
    use gridcast_core::broadcast::dataset::Piece;

    use super::*;

    #[test]
    fn payloads_join_small_pieces_and_start_anywhere() {
        let piece = |entry, offset, length| Piece { entry, offset, length };
        let chunk =
            Chunk { pieces: vec![piece(0, 10, 3), piece(1, 0, 70_000), piece(2, 5, 2)], length: 70_005 };
        let byte = |entry: usize, offset: u64| (entry as u64 * 7 + offset) as u8;
        let expected: Vec<u8> = chunk
            .pieces
            .iter()
            .flat_map(|piece| {
                (0..u64::from(piece.length)).map(move |at| byte(piece.entry, piece.offset + at))
            })
            .collect();
        for offset in [0, 1, 3, 4, 65_000, 70_002, 70_003, 70_004, 70_005] {
            let parts = payloads(&chunk, offset, u32::MAX, |entry, position, buffer| {
                for (at, slot) in buffer.iter_mut().enumerate() {
                    *slot = byte(entry, position + at as u64);
                }
                Ok(())
            })
            .unwrap();
            assert!(parts.iter().all(|part| part.len() <= MAX_PAYLOAD_BYTES));
            assert_eq!(parts.concat(), expected[offset as usize..], "from {offset}");
        }
    }
}
