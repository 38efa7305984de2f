//! How do arriving messages become verified, stored chunks, without ever holding up the network's threads?
//!
//! A bounded queue of messages, then one chunk at a time: it is collected in memory, hashed and written off the async
//! threads. A chunk whose hash does not match is thrown away and asked for again. A slow disk fills the queue, then the
//! HTTP/2 window; the parent then serves this node from its own disk, and nobody else waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use blake3::{Hash, Hasher};
use bytes::Bytes;
use gridcast_proto::v1::{PushAck, push_ack::Ack};
use tokio::sync::mpsc;
use tonic::Status;

use super::counters::Counters;
use super::failure::{Failure, blocking};
use super::feed::{Feed, Item};
use super::store::Store;
use super::{INTAKE_MESSAGES, MAX_REPAIRS};

/// A message on its way to the disk.
#[derive(Debug)]
pub(crate) struct Arrival {
    tree: usize,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Data { chunk: u64, offset: u32, payload: Held },
    End { chunk: u64, hash: Hash },
}

/// Payload that is counted as long as it is held.
#[derive(Debug)]
struct Held {
    payload: Bytes,
    counters: Arc<Counters>,
}

impl Held {
    fn new(payload: Bytes, counters: &Arc<Counters>) -> Self {
        counters.buffer(payload.len() as u64);
        Self { payload, counters: counters.clone() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.counters.release(self.payload.len() as u64);
    }
}

/// The writing end of the queue.
#[derive(Clone, Debug)]
pub(crate) struct IntakeSender {
    queue: mpsc::Sender<Arrival>,
    counters: Arc<Counters>,
}

impl IntakeSender {
    /// Waits while the queue is full. What comes after the last chunk was stored is not needed.
    pub(crate) async fn send(&self, tree: usize, item: Item) {
        let content = match item {
            Item::Data { chunk, offset, payload } => {
                Content::Data { chunk, offset, payload: Held::new(payload, &self.counters) }
            }
            Item::End { chunk, hash } => Content::End { chunk, hash },
            // It comes, or has come, by that tree.
            Item::Carried { .. } => return,
        };
        let _ = self.queue.send(Arrival { tree, content }).await;
    }
}

/// A queue of [`INTAKE_MESSAGES`].
pub(crate) fn queue(counters: &Arc<Counters>) -> (IntakeSender, mpsc::Receiver<Arrival>) {
    let (queue, arrivals) = mpsc::channel(INTAKE_MESSAGES);
    (IntakeSender { queue, counters: counters.clone() }, arrivals)
}

/// The way back to the parent of each tree.
#[derive(Debug)]
pub(crate) struct Acks(Vec<Mutex<Slot>>);

type Way = mpsc::Sender<Result<PushAck, Status>>;

#[derive(Debug)]
enum Slot {
    Free,
    Taken(Way),
    Closed,
}

impl Acks {
    pub(crate) fn new(trees: usize) -> Self {
        Self((0..trees).map(|_| Mutex::new(Slot::Free)).collect())
    }

    /// Takes the way back of `tree`; false when there is one already, or all is over.
    pub(crate) fn connect(&self, tree: usize, way: Way) -> bool {
        let mut slot = self.0[tree].lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = matches!(*slot, Slot::Free);
        if is_free {
            *slot = Slot::Taken(way);
        }
        is_free
    }

    /// Sends `ack`; waits while the parent does not read.
    pub(crate) async fn send(&self, tree: usize, ack: Ack) {
        if let Some(way) = self.way(tree) {
            // A parent that is gone is noticed where its messages are read.
            let _ = way.send(Ok(PushAck { ack: Some(ack) })).await;
        }
    }

    /// Sends `ack` unless the parent is behind: a later one replaces it.
    pub(crate) fn offer(&self, tree: usize, ack: Ack) {
        if let Some(way) = self.way(tree) {
            let _ = way.try_send(Ok(PushAck { ack: Some(ack) }));
        }
    }

    /// Forgets all ways: the calls end, and no other begins.
    pub(crate) fn close(&self) {
        for slot in &self.0 {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Slot::Closed;
        }
    }

    fn way(&self, tree: usize) -> Option<Way> {
        match &*self.0.get(tree)?.lock().unwrap_or_else(PoisonError::into_inner) {
            Slot::Taken(way) => Some(way.clone()),
            Slot::Free | Slot::Closed => None,
        }
    }
}

/// Who asks for a corrupted chunk again.
#[derive(Debug)]
pub(crate) struct Parents {
    pub(crate) feeds: Vec<Arc<Feed>>,
    pub(crate) acks: Arc<Acks>,
}

/// The reading end: stores chunks until all are here.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) arrivals: mpsc::Receiver<Arrival>,
    pub(crate) store: Arc<Store>,
    /// None where nobody can be asked again.
    pub(crate) parents: Option<Parents>,
    pub(crate) counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Assembly {
    chunk: u64,
    length: u32,
    parts: Vec<Held>,
}

impl Intake {
    /// Returns when every chunk is verified and stored.
    pub(crate) async fn run(mut self) -> Result<(), Failure> {
        let mut assemblies: HashMap<usize, Assembly> = HashMap::new();
        let mut attempts: HashMap<u64, u32> = HashMap::new();
        while !self.store.dataset.ledger.progress().complete {
            let Some(Arrival { tree, content }) = self.arrivals.recv().await else {
                return Err(Failure::Internal { detail: "the intake lost its senders".to_owned() });
            };
            match content {
                Content::Data { chunk, offset, payload } => {
                    self.collect(assemblies.entry(tree).or_default(), chunk, offset, payload);
                }
                Content::End { chunk, hash } => {
                    let assembly = assemblies.remove(&tree).unwrap_or_default();
                    if self.store.dataset.ledger.has(chunk) {
                        continue;
                    }
                    if self.store_chunk(assembly, chunk, hash).await? {
                        self.acknowledge();
                        continue;
                    }
                    let attempts = attempts.entry(chunk).or_default();
                    *attempts += 1;
                    self.ask_again(tree, chunk, *attempts).await?;
                }
            }
        }
        Ok(())
    }

    /// A part that does not continue its chunk, or would make it too long, empties the assembly: the hash will not match.
    fn collect(&self, assembly: &mut Assembly, chunk: u64, offset: u32, payload: Held) {
        if offset == 0 {
            *assembly = Assembly { chunk, ..Assembly::default() };
        }
        let end = u64::from(assembly.length) + payload.payload.len() as u64;
        let limit = self.store.dataset.layout.chunk_length(chunk).unwrap_or(0);
        if assembly.chunk == chunk && assembly.length == offset && end <= u64::from(limit) {
            assembly.length = end as u32;
            assembly.parts.push(payload);
        } else {
            *assembly = Assembly::default();
        }
    }

    /// False when the hash does not match.
    async fn store_chunk(&self, assembly: Assembly, chunk: u64, hash: Hash) -> Result<bool, Failure> {
        let store = self.store.clone();
        blocking(move || {
            let length = store.dataset.layout.chunk_length(chunk).unwrap_or(0);
            let mut hasher = Hasher::new();
            for part in &assembly.parts {
                hasher.update(&part.payload);
            }
            if assembly.chunk != chunk || assembly.length != length || hasher.finalize() != hash {
                return Ok(false);
            }
            let parts: Vec<Bytes> = assembly.parts.iter().map(|part| part.payload.clone()).collect();
            store.write(chunk, &parts)?;
            store.dataset.ledger.record(chunk, hash, length);
            Ok(true)
        })
        .await
    }

    fn acknowledge(&self) {
        let Some(Parents { feeds, acks }) = &self.parents else { return };
        for (tree, feed) in feeds.iter().enumerate() {
            let chunks = feed.position(&self.store.dataset.ledger);
            acks.offer(tree, Ack::Position(gridcast_proto::v1::Position { chunks }));
        }
    }

    async fn ask_again(&self, tree: usize, chunk: u64, attempts: u32) -> Result<(), Failure> {
        let what = self.store.dataset.describe(chunk);
        let Some(parents) = self.parents.as_ref().filter(|_| attempts <= MAX_REPAIRS) else {
            return Err(Failure::corrupt(format!("{what} did not match its hash {attempts} times")));
        };
        tracing::warn!(%what, attempts, "a chunk does not match its hash; asking for it again");
        self.counters.count_repaired();
        parents.acks.send(tree, Ack::Resend(gridcast_proto::v1::Resend { chunk })).await;
        Ok(())
    }
}
