//! What does one tree carry, and what of it can a child still get from memory?
//!
//! A feed is the log of one tree at one node: the chunks in the order in which they come, and a ring of the most recent
//! messages. Whoever writes never waits for those who read (a source that reads files may, by [`Feed::room`]); a reader that
//! falls behind the ring is told so, and reads that chunk from where it is stored.

use std::collections::{HashSet, VecDeque};
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
}

impl Cursor {
    /// Whether the next message begins a chunk.
    pub(crate) fn is_between_chunks(&self) -> bool {
        self.offset == 0
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

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.grown.send_replace(());
    }

    /// A reader at the beginning.
    pub(crate) fn subscribe(&self) -> Cursor {
        let mut inner = self.lock();
        inner.readers.push(0);
        Cursor { reader: inner.readers.len() - 1, ordinal: 0, offset: 0 }
    }

    /// What is at the cursor; moves it behind what it returns.
    pub(crate) fn step(&self, cursor: &mut Cursor) -> Step {
        let mut inner = self.lock();
        let Some(&chunk) = inner.log.get(cursor.ordinal) else {
            return if inner.closed { Step::Closed } else { Step::Wait };
        };
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
                    Item::End { .. } => (cursor.ordinal, cursor.offset) = (cursor.ordinal + 1, 0),
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
        (cursor.ordinal, cursor.offset) = (cursor.ordinal + 1, 0);
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
mod tests {
    use super::*;

    fn feed(limit: u64) -> Feed {
        Feed::new(limit, Arc::default())
    }

    fn data(chunk: u64, offset: u32, bytes: &'static [u8]) -> Item {
        Item::Data { chunk, offset, payload: Bytes::from_static(bytes) }
    }

    fn push(feed: &Feed, item: &Item, length: u32) -> Place {
        match item {
            Item::Data { chunk, offset, payload } => {
                feed.push_data(*chunk, *offset, payload, length).unwrap()
            }
            Item::End { chunk, hash } => feed.push_end(*chunk, *hash, length).unwrap(),
        }
    }

    #[test]
    fn a_reader_gets_messages_before_their_chunk_is_complete() {
        let feed = feed(100);
        let mut cursor = feed.subscribe();
        assert_eq!(feed.step(&mut cursor), Step::Wait);
        push(&feed, &data(7, 0, b"ab"), 4);
        assert_eq!(feed.step(&mut cursor), Step::Item(data(7, 0, b"ab")));
        assert_eq!(feed.step(&mut cursor), Step::Wait);
        push(&feed, &data(7, 2, b"cd"), 4);
        let end = Item::End { chunk: 7, hash: blake3::hash(b"abcd") };
        push(&feed, &end, 4);
        assert_eq!(feed.step(&mut cursor), Step::Item(data(7, 2, b"cd")));
        assert_eq!(feed.step(&mut cursor), Step::Item(end));
        assert_eq!(feed.step(&mut cursor), Step::Wait);
        feed.close();
        assert_eq!(feed.step(&mut cursor), Step::Closed);
    }

    #[test]
    fn a_slow_reader_is_sent_to_the_store_and_comes_back() {
        let feed = feed(4);
        let mut slow = feed.subscribe();
        for chunk in 0..3 {
            push(&feed, &data(chunk, 0, b"abcd"), 4);
            push(&feed, &Item::End { chunk, hash: blake3::hash(b"abcd") }, 4);
        }
        for chunk in 0..2 {
            assert_eq!(feed.step(&mut slow), Step::Behind { chunk, offset: 0 });
            feed.advance(&mut slow, 2);
            assert_eq!(feed.step(&mut slow), Step::Behind { chunk, offset: 2 });
            feed.advance(&mut slow, 2);
            feed.advance_chunk(&mut slow);
        }
        assert_eq!(feed.step(&mut slow), Step::Item(data(2, 0, b"abcd")));
    }

    #[test]
    fn the_ring_is_bounded_and_gives_back_what_it_counted() {
        let counters = Arc::new(Counters::default());
        let feed = Feed::new(10, counters.clone());
        for chunk in 0..100 {
            push(&feed, &data(chunk, 0, b"abcd"), 4);
            push(&feed, &Item::End { chunk, hash: blake3::hash(b"") }, 4);
        }
        assert_eq!(counters.buffered_bytes(), 8);
        assert_eq!(counters.buffered_bytes_peak(), 12);
        drop(feed);
        assert_eq!(counters.buffered_bytes(), 0);
    }

    #[test]
    fn only_a_chunk_that_was_here_is_a_repair() {
        let feed = feed(100);
        push(&feed, &data(0, 0, b"abcd"), 4);
        push(&feed, &Item::End { chunk: 0, hash: blake3::hash(b"") }, 4);
        assert_eq!(push(&feed, &data(0, 0, b"abcd"), 4), Place::Repair);
        assert_eq!(push(&feed, &Item::End { chunk: 0, hash: blake3::hash(b"") }, 4), Place::Repair);
        assert_eq!(push(&feed, &data(1, 0, b"ab"), 4), Place::Log);
        let bytes = Bytes::from_static(b"ab");
        for (chunk, offset, length) in [(1, 0, 4), (1, 3, 4), (1, 2, 3), (2, 0, 4)] {
            assert!(feed.push_data(chunk, offset, &bytes, length).is_err(), "{chunk} {offset} {length}");
        }
        assert!(feed.push_end(1, blake3::hash(b""), 4).is_err());
        assert!(feed.push_end(5, blake3::hash(b""), 4).is_err());
    }

    #[tokio::test]
    async fn a_writer_that_wants_to_waits_for_the_fastest_reader_only() {
        let feed = Arc::new(feed(100));
        let mut fast = feed.subscribe();
        let _slow = feed.subscribe();
        push(&feed, &data(0, 0, b"abcd"), 8);
        let waiting = tokio::spawn({
            let feed = feed.clone();
            async move { feed.room(2, 4).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        feed.step(&mut fast);
        waiting.await.unwrap();
    }
}
