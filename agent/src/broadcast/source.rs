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
use super::pace::Pace;
use super::schedule::{Schedule, Turn};
use super::store::Store;

/// Read at a time.
const SLICE_BYTES: u32 = 256 << 10;
/// The source reads at most this far ahead of its fastest child: the time in which a slice is read, even at 10 Gbit/s.
pub(crate) const AHEAD_BYTES: u64 = 2 << 20;

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
    /// It reads this far ahead of the fastest of them: well within what the feed's ring holds.
    pub(crate) ahead: u64,
    /// Mbit/s of payload that the tree is held to.
    pub(crate) pace: Option<f64>,
}

impl Reader {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let mut open = OpenFile::default();
        let mut pace = Pace::new(self.pace);
        while let Some(Turn { chunk, carried }) = self.schedule.next(self.tree) {
            let length = self.origin.dataset.layout.chunk_length(chunk).unwrap_or(0);
            match carried {
                None => open = self.chunk(chunk, length, open, &mut pace).await?,
                // Those that need it are served from where it is stored.
                Some(tree) => {
                    self.feed.room(self.pacing, self.ahead).await;
                    pace.take(u64::from(length)).await;
                    self.feed.carried(chunk, tree, length, true)?;
                }
            }
        }
        self.feed.close();
        Ok(())
    }

    async fn chunk(
        &self,
        chunk: u64,
        length: u32,
        mut open: OpenFile,
        pace: &mut Pace,
    ) -> Result<OpenFile, Failure> {
        let dataset = &self.origin.dataset;
        let mut hasher = Hasher::new();
        let mut offset = 0;
        while offset < length {
            self.feed.room(self.pacing, self.ahead).await;
            pace.take(u64::from(SLICE_BYTES.min(length - offset))).await;
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
        dataset.ledger.record(chunk, hash, length);
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
