//! Which bytes of which files does chunk number i hold?
//!
//! The extents of all files, in the order of the entries, are one virtual stream. It is cut into runs, each run into
//! chunks of `chunk_bytes` from the run's start:
//!
//! - a file with [`LARGE_FILE_BYTES`] of data or more is a run of its own: a change elsewhere never moves its borders;
//! - smaller files share a run as long as they fit into one chunk together. A file also starts a run where the hash of its
//!   path says so (one path in 256): after a small file grew or shrank, the runs are the same again from there on.
//!
//! The table has one line per extent and per run, not per chunk: a terabyte in one file costs two lines.

use super::entry::Entry;

/// Chunk size where none is given.
pub const DEFAULT_CHUNK_BYTES: u32 = 1 << 20;
/// Smallest chunk that may be asked for.
pub const MIN_CHUNK_BYTES: u32 = 64 << 10;
/// Largest chunk that may be asked for: each member holds several in memory.
pub const MAX_CHUNK_BYTES: u32 = 16 << 20;
/// A file with this much data has chunks of its own.
pub const LARGE_FILE_BYTES: u64 = 1 << 20;

/// A chunk size that no member should accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a chunk size of {0} bytes; choose {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES}, or 0 for {DEFAULT_CHUNK_BYTES}"
)]
pub struct ChunkBytesError(pub u32);

/// The chunk size that a request means: 0 is the default; outside the bounds it is refused.
pub fn checked_chunk_bytes(requested: u32) -> Result<u32, ChunkBytesError> {
    match requested {
        0 => Ok(DEFAULT_CHUNK_BYTES),
        MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES => Ok(requested),
        _ => Err(ChunkBytesError(requested)),
    }
}

/// How a dataset is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    chunk_bytes: u32,
    spans: Vec<Span>,
    runs: Vec<Run>,
    size_bytes: u64,
    chunks: u64,
}

/// An extent in the virtual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    position: u64,
    entry: usize,
    offset: u64,
    length: u64,
}

/// Where chunk borders restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    position: u64,
    first_chunk: u64,
}

/// One chunk: at most `chunk_bytes` from one or several files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its parts, in order.
    pub pieces: Vec<Piece>,
    /// Their bytes.
    pub length: u32,
}

/// A part of a chunk, from one extent of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Index of the file in the list of entries.
    pub entry: usize,
    /// First byte in that file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

/// Cuts the data of `entries` (checked, in canonical order) into chunks; `chunk_bytes` 0 means [`DEFAULT_CHUNK_BYTES`].
pub fn layout(entries: &[Entry], chunk_bytes: u32) -> Layout {
    let chunk_bytes = if chunk_bytes == 0 { DEFAULT_CHUNK_BYTES } else { chunk_bytes };
    let mut layout = Layout { chunk_bytes, spans: Vec::new(), runs: Vec::new(), size_bytes: 0, chunks: 0 };
    // Bytes in the run that small files still share; none after a large file.
    let mut shared: Option<u64> = None;
    for (index, entry) in entries.iter().enumerate() {
        let bytes = entry.data_bytes();
        if bytes == 0 {
            continue;
        }
        let large = bytes >= LARGE_FILE_BYTES;
        let fits =
            |taken: &u64| !large && taken + bytes <= u64::from(chunk_bytes) && !starts_run(&entry.path);
        let taken = shared.filter(fits);
        if taken.is_none() {
            layout.start_run();
        }
        shared = (!large).then(|| taken.unwrap_or(0) + bytes);
        layout.append(index, entry);
    }
    layout.chunks += layout.chunks_of_last_run();
    layout
}

/// One path in 256, the same on every host.
fn starts_run(path: &[u8]) -> bool {
    blake3::hash(path).as_bytes()[0] == 0
}

impl Layout {
    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Bytes of all chunks.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Most bytes of a chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Bytes of chunk `index`; none behind the last.
    pub fn chunk_length(&self, index: u64) -> Option<u32> {
        self.range(index).map(|(_, length)| length)
    }

    /// Chunk `index`; none behind the last.
    pub fn chunk(&self, index: u64) -> Option<Chunk> {
        let (position, length) = self.range(index)?;
        let end = position + u64::from(length);
        let first = self.spans.partition_point(|span| span.position + span.length <= position);
        let pieces = self.spans[first..]
            .iter()
            .take_while(|span| span.position < end)
            .map(|span| {
                let from = span.position.max(position);
                let to = (span.position + span.length).min(end);
                Piece {
                    entry: span.entry,
                    offset: span.offset + (from - span.position),
                    length: (to - from) as u32,
                }
            })
            .collect();
        Some(Chunk { pieces, length })
    }

    /// All chunks in order, each made when it is asked for.
    pub fn iter(&self) -> impl Iterator<Item = Chunk> + '_ {
        (0..self.chunks).map_while(|index| self.chunk(index))
    }

    /// Position in the virtual stream and length of chunk `index`.
    fn range(&self, index: u64) -> Option<(u64, u32)> {
        if index >= self.chunks {
            return None;
        }
        let next = self.runs.partition_point(|run| run.first_chunk <= index);
        let run = self.runs.get(next.checked_sub(1)?)?;
        let run_end = self.runs.get(next).map_or(self.size_bytes, |next| next.position);
        let position = run.position + (index - run.first_chunk) * u64::from(self.chunk_bytes);
        Some((position, (run_end - position).min(u64::from(self.chunk_bytes)) as u32))
    }

    fn start_run(&mut self) {
        self.chunks += self.chunks_of_last_run();
        self.runs.push(Run { position: self.size_bytes, first_chunk: self.chunks });
    }

    fn chunks_of_last_run(&self) -> u64 {
        let position = self.runs.last().map_or(0, |run| run.position);
        (self.size_bytes - position).div_ceil(u64::from(self.chunk_bytes))
    }

    fn append(&mut self, index: usize, entry: &Entry) {
        for extent in entry.extents() {
            self.spans.push(Span {
                position: self.size_bytes,
                entry: index,
                offset: extent.offset,
                length: extent.length,
            });
            self.size_bytes += extent.length;
        }
    }
}
