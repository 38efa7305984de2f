//! How does the source read its origin once, as fast as its fastest child takes it?

use std::sync::{Arc, OnceLock};

use blake3::Hasher;
use bytes::Bytes;
use gridcast_proto::v1;
use tokio::sync::watch;

use super::dataset::Dataset;
use super::failure::{Failure, blocking};
use super::feed::Feed;
use super::origin::{OpenFile, Origin, Shelf};
use super::schedule::Schedule;
use super::store::Store;

/// Read at a time.
const SLICE_BYTES: u32 = 256 << 10;
/// The source reads this far ahead of its fastest child: the time in which a slice is read, even at 10 Gbit/s.
const AHEAD_BYTES: u64 = 2 << 20;

/// Where the source reads what a child that fell behind needs: its own copy where it has one, else the origin.
#[derive(Debug)]
pub(crate) struct SourceShelf {
    pub(crate) origin: Arc<Origin>,
    pub(crate) copy: OnceLock<Arc<Store>>,
}

impl Shelf for SourceShelf {
    fn read(&self, open: &mut OpenFile, chunk: u64, offset: u32, max: u32) -> Result<Vec<Bytes>, Failure> {
        match self.copy.get().filter(|copy| copy.dataset.ledger.has(chunk)) {
            Some(copy) => copy.read(open, chunk, offset, max),
            None => self.origin.read(open, chunk, offset, max),
        }
    }
}

/// Reads what one tree carries into its feed.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) origin: Arc<Origin>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) tree: usize,
    pub(crate) feed: Arc<Feed>,
    /// How many of the feed's readers set the pace: children, not the copy on the source's own disk.
    pub(crate) pacing: usize,
}

impl Reader {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let mut open = OpenFile::default();
        while let Some(chunk) = self.schedule.next(self.tree) {
            open = self.chunk(chunk, open).await?;
        }
        self.feed.close();
        Ok(())
    }

    async fn chunk(&self, chunk: u64, mut open: OpenFile) -> Result<OpenFile, Failure> {
        let dataset = &self.origin.dataset;
        let length = dataset.layout.chunk_length(chunk).unwrap_or(0);
        let mut hasher = Hasher::new();
        let mut offset = 0;
        while offset < length {
            self.feed.room(self.pacing, AHEAD_BYTES).await;
            let origin = self.origin.clone();
            let (parts, state) = blocking(move || {
                let parts = origin.read(&mut open, chunk, offset, SLICE_BYTES)?;
                for part in &parts {
                    hasher.update(part);
                }
                Ok((parts, (hasher, open)))
            })
            .await?;
            (hasher, open) = state;
            for part in parts {
                self.feed.push_data(chunk, offset, &part, length)?;
                offset += part.len() as u32;
            }
        }
        let hash = hasher.finalize();
        // A second tree carries the chunk again: it must be what the first one carried.
        if !dataset.ledger.record(chunk, hash, length) && dataset.ledger.hash(chunk) != Some(hash) {
            return Err(Failure::SourceChanged { path: dataset.describe(chunk) });
        }
        self.feed.push_end(chunk, hash, length)?;
        Ok(open)
    }
}

/// Seals the dataset, when all of it was read and nothing has changed since it was scanned.
pub(crate) async fn seal(origin: Arc<Origin>, seal: &watch::Sender<Option<v1::Seal>>) -> Result<(), Failure> {
    let sealed = blocking(move || {
        origin.check_unchanged()?;
        digest(&origin.dataset)
    })
    .await?;
    seal.send_replace(Some(sealed));
    Ok(())
}

/// The seal of a dataset of which every chunk is here.
pub(crate) fn digest(dataset: &Dataset) -> Result<v1::Seal, Failure> {
    let digest = dataset.ledger.digest();
    let digest = digest.ok_or_else(|| Failure::Internal { detail: "not every chunk was read".to_owned() })?;
    Ok(v1::Seal { digest: Bytes::copy_from_slice(digest.as_bytes()), chunks: dataset.layout.chunks() })
}
