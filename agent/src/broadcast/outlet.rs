//! How does whoever reads a tree's log get it in order, however far it has fallen behind?
//!
//! An [`Outlet`] yields the log of a feed from the ring or, for a reader that fell behind, from where chunks are stored.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gridcast_proto::v1;
use tokio::sync::watch;

use super::counters::Counters;
use super::dataset::Dataset;
use super::failure::{Failure, blocking};
use super::feed::{Cursor, Feed, Item, Step};
use super::ledger::Ledger;
use super::origin::{OpenFile, Shelf};

/// What a reader that fell behind reads at a time.
const SLICE_BYTES: u32 = 256 << 10;

/// The messages that carry the entries, as they arrive.
#[derive(Debug)]
pub(crate) struct EntryLog {
    inner: Mutex<Entries>,
    grown: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Entries {
    messages: Vec<v1::Entries>,
    complete: bool,
    readers: usize,
}

impl EntryLog {
    /// A log that is emptied when `readers` have read it to its end.
    pub(crate) fn new(readers: usize) -> Self {
        Self { inner: Mutex::new(Entries { readers, ..Entries::default() }), grown: watch::Sender::new(()) }
    }

    pub(crate) fn push(&self, entries: v1::Entries) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.complete |= entries.last;
        if inner.readers > 0 {
            inner.messages.push(entries);
        }
        drop(inner);
        self.grown.send_replace(());
    }

    /// Message number `index`; none behind the last.
    async fn get(&self, index: usize) -> Option<v1::Entries> {
        let mut grown = self.grown.subscribe();
        loop {
            grown.mark_unchanged();
            {
                let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(entries) = inner.messages.get(index) {
                    return Some(entries.clone());
                }
                if inner.complete {
                    inner.readers = inner.readers.saturating_sub(1);
                    if inner.readers == 0 {
                        inner.messages = Vec::new();
                    }
                    return None;
                }
            }
            grown.changed().await.ok()?;
        }
    }
}

/// What a hop needs of the node it starts from.
#[derive(Clone, Debug)]
pub(crate) struct Supply {
    pub(crate) feed: Arc<Feed>,
    pub(crate) entries: Arc<EntryLog>,
    pub(crate) dataset: watch::Receiver<Option<Arc<Dataset>>>,
    pub(crate) shelf: Arc<OnceLock<Arc<dyn Shelf>>>,
    pub(crate) seal: watch::Receiver<Option<v1::Seal>>,
    pub(crate) counters: Arc<Counters>,
}

/// Reads a feed from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Outlet {
    supply: Supply,
    cursor: Cursor,
    open: OpenFile,
    grown: watch::Receiver<()>,
    /// Read from the shelf and not yet taken.
    pending: VecDeque<Item>,
}

impl Outlet {
    /// Begins to read now: readers are counted in the order in which they begin. `of` says for each tree whether it reaches
    /// whoever reads.
    pub(crate) fn new(supply: Supply, of: Vec<bool>) -> Self {
        let cursor = supply.feed.subscribe(of);
        let grown = supply.feed.grown();
        Self { supply, cursor, open: OpenFile::default(), grown, pending: VecDeque::new() }
    }

    /// The next message; none when the feed has closed.
    ///
    /// May be dropped while it waits: the position moves only together with what is returned or kept.
    pub(crate) async fn next(&mut self) -> Result<Option<Item>, Failure> {
        loop {
            if let Some(item) = self.pending.pop_front() {
                return Ok(Some(item));
            }
            self.grown.mark_unchanged();
            match self.supply.feed.step(&mut self.cursor) {
                Step::Item(item) => return Ok(Some(item)),
                Step::Closed => return Ok(None),
                Step::Wait => self.changed().await?,
                Step::Behind { chunk, offset } => self.catch_up(chunk, offset).await?,
            }
        }
    }

    /// Message number `index` of the entries; none behind the last.
    pub(crate) async fn entries(&self, index: usize) -> Option<v1::Entries> {
        self.supply.entries.get(index).await
    }

    /// The dataset, when its entries are complete.
    pub(crate) async fn dataset(&mut self) -> Result<Arc<Dataset>, Failure> {
        dataset(&mut self.supply.dataset).await
    }

    /// What is sent last.
    pub(crate) fn seal(&self) -> watch::Receiver<Option<v1::Seal>> {
        self.supply.seal.clone()
    }

    pub(crate) fn count_sent(&self, bytes: u64) {
        self.supply.counters.count_sent(bytes);
    }

    pub(crate) fn count_resent(&self) {
        self.supply.counters.count_resent();
    }

    /// Whether the next message begins a chunk.
    pub(crate) fn is_between_chunks(&self) -> bool {
        self.pending.is_empty() && self.cursor.is_between_chunks()
    }

    async fn changed(&mut self) -> Result<(), Failure> {
        self.grown.changed().await.map_err(|_| Failure::Cancelled)
    }

    async fn catch_up(&mut self, chunk: u64, offset: u32) -> Result<(), Failure> {
        let dataset = dataset(&mut self.supply.dataset).await?;
        wait_for(&dataset.ledger, chunk).await?;
        let items = self.read(&dataset, chunk, offset).await?;
        for item in items {
            match &item {
                Item::Data { payload, .. } => {
                    self.supply.feed.advance(&mut self.cursor, payload.len() as u32);
                }
                Item::End { .. } => self.supply.feed.advance_chunk(&mut self.cursor),
                Item::Carried { .. } => {}
            }
            self.pending.push_back(item);
        }
        Ok(())
    }

    /// A slice of a stored chunk; with its end, where the slice reaches it.
    pub(crate) async fn read(
        &mut self,
        dataset: &Dataset,
        chunk: u64,
        offset: u32,
    ) -> Result<Vec<Item>, Failure> {
        let shelf = self.supply.shelf.get().cloned();
        let shelf = shelf.ok_or_else(|| Failure::Internal { detail: "nothing is stored yet".to_owned() })?;
        let mut open = std::mem::take(&mut self.open);
        let (parts, open) = blocking(move || {
            let parts = shelf.read(&mut open, chunk, offset, SLICE_BYTES)?;
            Ok((parts, open))
        })
        .await?;
        self.open = open;
        let mut at = offset;
        let mut items = Vec::with_capacity(parts.len() + 1);
        for payload in parts {
            let length = payload.len() as u32;
            items.push(Item::Data { chunk, offset: at, payload });
            at += length;
        }
        self.supply.counters.count_from_store(u64::from(at - offset));
        if Some(at) == dataset.layout.chunk_length(chunk) {
            let hash = dataset.ledger.hash(chunk);
            let hash =
                hash.ok_or_else(|| Failure::Internal { detail: "a stored chunk has no hash".to_owned() })?;
            items.push(Item::End { chunk, hash });
        }
        Ok(items)
    }
}

/// The dataset, when its entries are complete.
pub(crate) async fn dataset(
    known: &mut watch::Receiver<Option<Arc<Dataset>>>,
) -> Result<Arc<Dataset>, Failure> {
    let known = known.wait_for(Option::is_some).await.map_err(|_| Failure::Cancelled)?;
    known.clone().ok_or(Failure::Cancelled)
}

async fn wait_for(ledger: &Ledger, chunk: u64) -> Result<(), Failure> {
    let mut progress = ledger.watch();
    loop {
        progress.mark_unchanged();
        if ledger.has(chunk) {
            return Ok(());
        }
        progress.changed().await.map_err(|_| Failure::Cancelled)?;
    }
}
