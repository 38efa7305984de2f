//! How does a member take what its parents send?

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use gridcast_core::broadcast::dataset::{Admission, Entry, MAX_EXTENTS};
use gridcast_proto::v1::{self, push_ack::Ack, push_message::Message};
use tokio::sync::{mpsc, watch};
use tonic::{Status, Streaming};

use super::HOP_GRACE;
use super::dataset::Dataset;
use super::failure::{Failure, Fault, blocking};
use super::feed::Item;
use super::hop::explain;
use super::member::Member;
use super::outlet::dataset;
use super::wire::{self, EntryParser, MAX_PAYLOAD_BYTES};
use crate::access::{Caller, Role};

/// Puts arriving entries together and admits them.
#[derive(Debug, Default)]
pub(crate) struct Admitting {
    parser: EntryParser,
    admission: Admission,
    entries: Vec<Entry>,
}

impl Admitting {
    /// The entries, when `message` is the last one.
    pub(crate) fn add(&mut self, message: &v1::Entries) -> Result<Option<Vec<Entry>>, Failure> {
        for wire in &message.entries {
            if let Some(entry) = self.parser.parse(wire, MAX_EXTENTS)? {
                self.admission.admit(&entry).map_err(|error| Failure::corrupt(error.to_string()))?;
                self.entries.push(entry);
            }
        }
        if !message.last {
            return Ok(None);
        }
        if !self.parser.is_complete() || self.entries.is_empty() {
            return Err(Failure::corrupt("the entries ended early"));
        }
        Ok(Some(std::mem::take(&mut self.entries)))
    }
}

impl Member {
    /// Takes the call of a parent; its acknowledgements are the answer.
    pub(crate) fn accept(
        self: Arc<Self>,
        open: &v1::PushOpen,
        caller: &Caller,
        stream: Streaming<v1::PushMessage>,
    ) -> Result<mpsc::Receiver<Result<v1::PushAck, Status>>, Failure> {
        let tree = open.tree as usize;
        // A source pod drives its own dataset only, whatever it is called in the plan of another.
        if caller.role() == Some(Role::Source) && !caller.is(&self.request.source) {
            let detail = format!("{} does not come from {}", self.request.id, open.from);
            return Err(Failure::NotPermitted { detail });
        }
        if self.routes.parent(tree, &self.node.name) != Some(open.from.as_str()) {
            let detail = format!("tree {tree} does not lead from {} to {}", open.from, self.node.name);
            return Err(Failure::InvalidRequest { detail });
        }
        let (way, acks) = mpsc::channel(64);
        let _ = way.try_send(Ok(v1::PushAck { ack: Some(Ack::Ready(v1::PushReady {})) }));
        if !self.acks.connect(tree, way) {
            return Err(Failure::invalid(format!("tree {tree} is pushed already, or the broadcast is over")));
        }
        let parent = open.from.clone();
        let this = self.clone();
        let mut inbound = self.inbound.lock().unwrap_or_else(PoisonError::into_inner);
        inbound.spawn(async move {
            if let Err(fault) = this.clone().inbound(tree, &parent, stream).await {
                let _ = this.faults.send(fault).await;
            }
        });
        Ok(acks)
    }

    /// Reads what a parent sends until it hangs up, which it may when it has been told that all is here.
    async fn inbound(
        self: Arc<Self>,
        tree: usize,
        parent: &str,
        mut stream: Streaming<v1::PushMessage>,
    ) -> Result<(), Fault> {
        let mut complete = self.complete.subscribe();
        let (mut sealed, mut done) = (false, false);
        loop {
            tokio::select! {
                is_complete = became_true(&mut complete), if sealed && !done => {
                    if !is_complete {
                        return Ok(());
                    }
                    self.acks.send(tree, Ack::Done(v1::PushDone {})).await;
                    done = true;
                }
                message = stream.message() => match message {
                    Ok(Some(v1::PushMessage { message: Some(message) })) => {
                        sealed |= matches!(message, Message::Seal(_));
                        let taken = self.take(tree, message).await;
                        taken.map_err(|failure| Fault::new(&self.node.name, &failure))?;
                    }
                    Ok(Some(_)) => {}
                    _ if done => return Ok(()),
                    lost => {
                        let detail = lost.err().map_or("it hung up".to_owned(), |status| explain(&status));
                        tracing::debug!(parent, tree, detail, "lost a parent");
                        tokio::time::sleep(HOP_GRACE).await;
                        let lost = Failure::lost(format!("{} lost it: {detail}", self.node.name));
                        return Err(Fault::new(parent, &lost));
                    }
                },
            }
        }
    }

    async fn take(&self, tree: usize, message: Message) -> Result<(), Failure> {
        match message {
            Message::Open(_) => Err(Failure::corrupt("a parent opened its call twice")),
            Message::Entries(entries) => self.take_entries(tree, entries).await,
            Message::Data(v1::Data { chunk, offset, payload }) => {
                let length = self.chunk_length(chunk).await?;
                if payload.len() > MAX_PAYLOAD_BYTES {
                    return Err(Failure::corrupt(format!("a message of {} bytes", payload.len())));
                }
                self.received.fetch_add(payload.len() as u64, Ordering::Relaxed);
                self.node.counters.count_received(payload.len() as u64);
                self.feeds[tree].push_data(chunk, offset, &payload, length)?;
                self.intake.send(tree, Item::Data { chunk, offset, payload }).await;
                Ok(())
            }
            Message::ChunkEnd(v1::ChunkEnd { chunk, blake3 }) => {
                let length = self.chunk_length(chunk).await?;
                let hash = wire::hash(&blake3)?;
                self.feeds[tree].push_end(chunk, hash, length)?;
                self.intake.send(tree, Item::End { chunk, hash }).await;
                Ok(())
            }
            Message::Carried(v1::Carried { chunk, tree: by }) => {
                let by = by as usize;
                if by == tree || by >= self.routes.trees() {
                    return Err(Failure::corrupt(format!("chunk {chunk} of tree {by} in tree {tree}")));
                }
                let length = self.chunk_length(chunk).await?;
                let here = self.routes.parent(by, &self.node.name).is_some();
                self.feeds[tree].carried(chunk, by, length, here)
            }
            Message::Seal(seal) => {
                self.seal.send_if_modified(|known| {
                    let is_new = known.is_none();
                    known.get_or_insert(seal);
                    is_new
                });
                self.feeds[tree].close();
                Ok(())
            }
        }
    }

    /// The first tree whose entries arrive brings them; all carry the same.
    async fn take_entries(&self, tree: usize, entries: v1::Entries) -> Result<(), Failure> {
        let complete = {
            let mut admitting = self.admitting.lock().unwrap_or_else(PoisonError::into_inner);
            if *admitting.0.get_or_insert(tree) != tree {
                return Ok(());
            }
            admitting.1.add(&entries)?
        };
        self.entries.push(entries);
        if let Some(entries) = complete {
            let chunk_bytes = self.chunk_bytes;
            let dataset = blocking(move || Ok(Arc::new(Dataset::new(entries, chunk_bytes)))).await?;
            self.dataset.send_replace(Some(dataset));
        }
        Ok(())
    }

    async fn chunk_length(&self, chunk: u64) -> Result<u32, Failure> {
        let known = self.dataset.borrow().clone();
        let dataset = match known {
            Some(dataset) => dataset,
            // Another tree brings the entries.
            None => dataset(&mut self.dataset.subscribe()).await?,
        };
        let length = dataset.layout.chunk_length(chunk);
        length.ok_or_else(|| Failure::corrupt(format!("chunk {chunk} of {}", dataset.layout.chunks())))
    }
}

/// False when it never will.
async fn became_true(flag: &mut watch::Receiver<bool>) -> bool {
    flag.wait_for(|flag| *flag).await.is_ok()
}
