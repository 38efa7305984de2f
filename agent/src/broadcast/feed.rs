//! What does one tree carry, and what of it can a child still get from memory?
//!
//! A feed is the log of one tree at one node: the chunks in the order in which they come, and a ring of the most recent
//! messages. Whoever writes never waits for those who read (a source that reads files may, by [`Feed::room`]); a reader that
//! falls behind the ring is told so, and reads that chunk from where it is stored.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blake3::Hash;
use bytes::Bytes;
use tokio::sync::watch;

use super::counters::Counters;
use super::failure::Failure;
use super::ledger::Ledger;

/// A message of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A part of a chunk.
    Data { chunk: u64, offset: u32, payload: Bytes },
    /// The end of a chunk.
    End { chunk: u64, hash: Hash },
    /// Before a chunk that a retired tree has brought to its members: they get nothing more of it here.
    Carried { chunk: u64, tree: usize },
}

/// What a reader finds at its position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The next message; the position moved behind it.
    Item(Item),
    /// The next message has left the ring: read `chunk` from `offset` on where it is stored.
    Behind { chunk: u64, offset: u32 },
    /// Nothing yet.
    Wait,
    /// Nothing any more.
    Closed,
}

/// Where a reader is.
#[derive(Debug)]
pub(crate) struct Cursor {
    reader: usize,
    ordinal: usize,
    offset: u32,
    /// For each tree whether it reaches the reader.
    of: Vec<bool>,
    /// It knows already that another tree has carried its chunk.
    told: bool,
}

impl Cursor {
    /// Whether the next message begins a chunk.
    pub(crate) fn is_between_chunks(&self) -> bool {
        self.offset == 0
    }

    fn next(&mut self) {
        (self.ordinal, self.offset, self.told) = (self.ordinal + 1, 0, false);
    }
}

/// What a message of a chunk means for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It continues the log.
    Log,
    /// The chunk was here before: it repairs a corrupted copy.
    Repair,
}

/// The log of one tree at one node.
#[derive(Debug)]
pub(crate) struct Feed {
    inner: Mutex<Inner>,
    grown: watch::Sender<()>,
    moved: watch::Sender<()>,
    ring_limit: u64,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Inner {
    log: Vec<u64>,
    logged: HashSet<u64>,
    /// Chunks that a retired tree has brought to its members, with that tree and their length.
    carried: HashMap<u64, (usize, u32)>,
    /// Bytes of the last chunk of the log that are here; none when it has ended.
    tail: Option<u32>,
    ring: VecDeque<Record>,
    ring_bytes: u64,
    written: u64,
    /// Bytes that each reader has passed.
    readers: Vec<u64>,
    /// Chunks of the log that are stored without a gap.
    position: usize,
    closed: bool,
}

#[derive(Debug)]
struct Record {
    ordinal: usize,
    offset: u32,
    item: Item,
}

impl Feed {
    /// A feed whose ring holds `ring_limit` bytes; 0 where nobody reads it.
    pub(crate) fn new(ring_limit: u64, counters: Arc<Counters>) -> Self {
        Self {
            inner: Mutex::default(),
            grown: watch::Sender::new(()),
            moved: watch::Sender::new(()),
            ring_limit,
            counters,
        }
    }

    /// Adds a part of `chunk`, which has `length` bytes. Parts come in order; a chunk ends before the next begins.
    pub(crate) fn push_data(
        &self,
        chunk: u64,
        offset: u32,
        payload: &Bytes,
        length: u32,
    ) -> Result<Place, Failure> {
        let mut inner = self.lock();
        let continues = inner.tail.is_some() && inner.log.last() == Some(&chunk);
        if !continues && inner.logged.contains(&chunk) {
            return Ok(Place::Repair);
        }
        let expected = if continues { inner.tail.unwrap_or(0) } else { 0 };
        let end = u64::from(offset) + payload.len() as u64;
        let unfinished = !continues && inner.tail.is_some();
        if unfinished || offset != expected || payload.is_empty() || end > u64::from(length) {
            return Err(Failure::corrupt(format!(
                "bytes {offset}..{end} of chunk {chunk} came out of order"
            )));
        }
        if !continues {
            inner.log.push(chunk);
            inner.logged.insert(chunk);
        }
        inner.tail = Some(end as u32);
        inner.written += payload.len() as u64;
        let ordinal = inner.log.len() - 1;
        let item = Item::Data { chunk, offset, payload: payload.clone() };
        self.remember(&mut inner, Record { ordinal, offset, item });
        drop(inner);
        self.grown.send_replace(());
        Ok(Place::Log)
    }

    /// Ends `chunk`, which has `length` bytes.
    pub(crate) fn push_end(&self, chunk: u64, hash: Hash, length: u32) -> Result<Place, Failure> {
        let mut inner = self.lock();
        let continues = inner.tail.is_some() && inner.log.last() == Some(&chunk);
        if !continues && inner.logged.contains(&chunk) {
            return Ok(Place::Repair);
        }
        if !continues || inner.tail != Some(length) {
            return Err(Failure::corrupt(format!("chunk {chunk} ended before it was complete")));
        }
        inner.tail = None;
        let ordinal = inner.log.len() - 1;
        self.remember(&mut inner, Record { ordinal, offset: length, item: Item::End { chunk, hash } });
        drop(inner);
        self.grown.send_replace(());
        Ok(Place::Log)
    }

    /// The retired `tree` has brought `chunk`, of `length` bytes, to its members. Where it is `here` for that reason, or will
    /// be, it joins the log, to be read where it is stored; otherwise its data follows.
    pub(crate) fn carried(&self, chunk: u64, tree: usize, length: u32, here: bool) -> Result<(), Failure> {
        let mut inner = self.lock();
        if inner.tail.is_some() || inner.logged.contains(&chunk) {
            return Err(Failure::corrupt(format!("chunk {chunk} of tree {tree} came out of order")));
        }
        inner.carried.insert(chunk, (tree, length));
        if here {
            inner.log.push(chunk);
            inner.logged.insert(chunk);
            inner.written += u64::from(length);
        }
        drop(inner);
        self.grown.send_replace(());
        Ok(())
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.grown.send_replace(());
    }

    /// A reader at the beginning. `of` says for each tree whether it reaches the reader.
    pub(crate) fn subscribe(&self, of: Vec<bool>) -> Cursor {
        let mut inner = self.lock();
        inner.readers.push(0);
        Cursor { reader: inner.readers.len() - 1, ordinal: 0, offset: 0, of, told: false }
    }

    /// What is at the cursor; moves it behind what it returns.
    pub(crate) fn step(&self, cursor: &mut Cursor) -> Step {
        let mut inner = self.lock();
        let Some(&chunk) = inner.log.get(cursor.ordinal) else {
            return if inner.closed { Step::Closed } else { Step::Wait };
        };
        if let Some(&(tree, length)) =
            inner.carried.get(&chunk).filter(|_| cursor.offset == 0 && !cursor.told)
        {
            cursor.told = true;
            if cursor.of.get(tree).copied().unwrap_or(false) {
                cursor.next();
                inner.readers[cursor.reader] += u64::from(length);
                drop(inner);
                self.moved.send_replace(());
            }
            return Step::Item(Item::Carried { chunk, tree });
        }
        let key = (cursor.ordinal, cursor.offset);
        let at = inner.ring.partition_point(|record| (record.ordinal, record.offset) < key);
        match inner.ring.get(at) {
            Some(record) if (record.ordinal, record.offset) == key => {
                let item = record.item.clone();
                match &item {
                    Item::Data { payload, .. } => {
                        cursor.offset += payload.len() as u32;
                        inner.readers[cursor.reader] += payload.len() as u64;
                    }
                    Item::End { .. } => cursor.next(),
                    Item::Carried { .. } => {}
                }
                drop(inner);
                self.moved.send_replace(());
                Step::Item(item)
            }
            // The front is younger, or a reader that reads from a store is in the middle of a record.
            Some(_) => Step::Behind { chunk, offset: cursor.offset },
            None => {
                let is_tail = cursor.ordinal + 1 == inner.log.len();
                if is_tail && inner.tail == Some(cursor.offset) {
                    Step::Wait
                } else {
                    Step::Behind { chunk, offset: cursor.offset }
                }
            }
        }
    }

    /// The reader got `bytes` of the chunk at its position from elsewhere.
    pub(crate) fn advance(&self, cursor: &mut Cursor, bytes: u32) {
        cursor.offset += bytes;
        self.lock().readers[cursor.reader] += u64::from(bytes);
        self.moved.send_replace(());
    }

    /// The reader got the end of the chunk at its position from elsewhere.
    pub(crate) fn advance_chunk(&self, cursor: &mut Cursor) {
        cursor.next();
        self.moved.send_replace(());
    }

    /// Waits until the fastest of the first `readers` readers is less than `ahead` bytes behind the end.
    pub(crate) async fn room(&self, readers: usize, ahead: u64) {
        let mut moved = self.moved.subscribe();
        loop {
            moved.mark_unchanged();
            {
                let inner = self.lock();
                let fastest = inner.readers.iter().take(readers).max().copied().unwrap_or(0);
                if readers == 0 || inner.written - fastest < ahead {
                    return;
                }
            }
            // The sender is in self: this ends only by a change.
            if moved.changed().await.is_err() {
                return;
            }
        }
    }

    /// Changes when a message is added or the feed closes.
    pub(crate) fn grown(&self) -> watch::Receiver<()> {
        self.grown.subscribe()
    }

    /// How many chunks of the log are in `ledger` without a gap.
    pub(crate) fn position(&self, ledger: &Ledger) -> u64 {
        let mut inner = self.lock();
        inner.position += ledger.contiguous(&inner.log[inner.position..]);
        inner.position as u64
    }

    fn remember(&self, inner: &mut Inner, record: Record) {
        if self.ring_limit == 0 {
            return;
        }
        let size = |item: &Item| if let Item::Data { payload, .. } = item { payload.len() as u64 } else { 0 };
        let bytes = size(&record.item);
        inner.ring.push_back(record);
        inner.ring_bytes += bytes;
        self.counters.buffer(bytes);
        while inner.ring_bytes > self.ring_limit {
            let Some(oldest) = inner.ring.pop_front() else { break };
            inner.ring_bytes -= size(&oldest.item);
            self.counters.release(size(&oldest.item));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.counters.release(self.lock().ring_bytes);
    }
}

#[cfg(test)]
mod tests;
