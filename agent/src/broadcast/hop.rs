//! How does one tree travel over one hop?
//!
//! [`push`] sends to a child what an [`Outlet`] yields, with the chunks that the child asks for again in between.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gridcast_core::failure::chain;
use gridcast_proto::v1::relay_client::RelayClient;
use gridcast_proto::v1::{self, push_ack::Ack, push_message::Message};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use super::dataset::Dataset;
use super::failure::{Failure, Fault};
use super::feed::Item;
use super::ledger::Ledger;
use super::outlet::Outlet;
use super::pace::Pace;
use super::wire::message;
use super::{HOP_GRACE, MAX_FRAME_BYTES, STREAM_WINDOW_BYTES};
use crate::tls::Identity;

/// Messages between a hop and its HTTP/2 stream.
const QUEUE_MESSAGES: usize = 4;
/// A child may have asked for this many chunks at once; more is not a corrupted chunk but a broken child.
const MAX_RESENDS: usize = 1024;
/// Connecting to a child is tried this often: its agent answers from its first moment on, so more is of no use.
const CONNECT_ATTEMPTS: u32 = 3;
const CONNECT_PAUSE: Duration = Duration::from_millis(300);

/// Chunks that the child asked for again.
#[derive(Debug)]
struct Resends {
    chunks: Mutex<VecDeque<u64>>,
    grown: watch::Sender<()>,
}

impl Resends {
    fn new() -> Self {
        Self { chunks: Mutex::default(), grown: watch::Sender::new(()) }
    }

    fn ask(&self, chunk: u64) -> Result<(), Failure> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        if chunks.len() >= MAX_RESENDS {
            return Err(Failure::corrupt(format!("a child asked for {MAX_RESENDS} chunks again")));
        }
        chunks.push_back(chunk);
        drop(chunks);
        self.grown.send_replace(());
        Ok(())
    }

    /// The next one that is here.
    async fn next(&self, ledger: &Ledger) -> Result<u64, Failure> {
        let mut grown = self.grown.subscribe();
        let mut progress = ledger.watch();
        loop {
            grown.mark_unchanged();
            progress.mark_unchanged();
            {
                let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(at) = chunks.iter().position(|&chunk| ledger.has(chunk)) {
                    return chunks.remove(at).ok_or(Failure::Cancelled);
                }
            }
            tokio::select! {
                changed = grown.changed() => changed.map_err(|_| Failure::Cancelled)?,
                changed = progress.changed() => changed.map_err(|_| Failure::Cancelled)?,
            }
        }
    }
}

/// One hop of one tree.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    pub(crate) id: String,
    pub(crate) tree: usize,
    pub(crate) from: String,
    pub(crate) child: v1::Peer,
    pub(crate) identity: Identity,
    /// Mbit/s of payload that it is held to.
    pub(crate) pace: Option<f64>,
}

/// Carries the feed that `outlet` reads to the child. Returns when the child has everything, or the fault: that of the child
/// only after [`HOP_GRACE`], so that whoever is really gone is named first.
pub(crate) async fn push(hop: Hop, outlet: Outlet) -> Result<(), Fault> {
    let (node, failure) = match run(&hop, outlet).await {
        Ok(()) => return Ok(()),
        Err(HopError::Here(failure)) => (hop.from.as_str(), failure),
        Err(HopError::Child(detail)) => {
            tracing::debug!(child = hop.child.name, tree = hop.tree, detail, "lost a child");
            tokio::time::sleep(HOP_GRACE).await;
            (hop.child.name.as_str(), Failure::lost(format!("{} lost it: {detail}", hop.from)))
        }
    };
    Err(Fault::new(node, &failure))
}

enum HopError {
    Here(Failure),
    Child(String),
}

async fn run(hop: &Hop, outlet: Outlet) -> Result<(), HopError> {
    let endpoint = endpoint(&hop.identity, &hop.child).map_err(HopError::Here)?;
    let channel = connect(&endpoint).await.map_err(HopError::Child)?;
    tracing::debug!(child = hop.child.name, tree = hop.tree, "connected");
    let (queue, messages) = mpsc::channel(QUEUE_MESSAGES);
    let resends = Resends::new();
    // The child answers the call when it knows the broadcast; messages already travel.
    let acks = async {
        let call = RelayClient::new(channel).push(ReceiverStream::new(messages)).await;
        let mut acks = call.map_err(|status| HopError::Child(explain(&status)))?.into_inner();
        loop {
            let ack = acks.message().await.map_err(|status| HopError::Child(explain(&status)))?;
            match ack.and_then(|ack| ack.ack) {
                Some(Ack::Done(_)) => return Ok(()),
                Some(Ack::Resend(v1::Resend { chunk })) => resends.ask(chunk).map_err(HopError::Here)?,
                Some(Ack::Error(error)) => return Err(HopError::Child(error.message)),
                Some(Ack::Position(position)) => {
                    tracing::trace!(child = hop.child.name, tree = hop.tree, position.chunks, "stored");
                }
                Some(Ack::Ready(_)) => {}
                None => return Err(HopError::Child("it ended the call early".to_owned())),
            }
        }
    };
    tokio::select! {
        done = acks => done,
        failure = pump(hop, outlet, &queue, &resends) => Err(HopError::Here(failure)),
    }
}

/// Sends everything; ends only with a failure of this node. Whether all arrived is for the child to say.
async fn pump(
    hop: &Hop,
    outlet: Outlet,
    queue: &mpsc::Sender<v1::PushMessage>,
    resends: &Resends,
) -> Failure {
    match try_pump(hop, outlet, queue, resends).await {
        // The call has ended: its acknowledgements say why.
        Ok(()) => std::future::pending().await,
        Err(failure) => failure,
    }
}

async fn try_pump(
    hop: &Hop,
    mut outlet: Outlet,
    queue: &mpsc::Sender<v1::PushMessage>,
    resends: &Resends,
) -> Result<(), Failure> {
    let open = v1::PushOpen {
        id: hop.id.clone(),
        tree: hop.tree as u32,
        from: hop.from.clone(),
        single_file: false,
    };
    let mut messages = 0;
    let mut next = Some(Message::Open(open));
    while let Some(content) = next {
        if queue.send(message(content)).await.is_err() {
            return Ok(());
        }
        next = outlet.entries(messages).await.map(Message::Entries);
        messages += 1;
    }
    let dataset = outlet.dataset().await?;
    let mut seal = Some(outlet.seal());
    let mut closed = false;
    let mut pace = Pace::new(hop.pace);
    loop {
        let between = outlet.is_between_chunks();
        let content = tokio::select! {
            biased;
            chunk = resends.next(&dataset.ledger), if between => {
                if !resend(&mut outlet, &dataset, chunk?, queue).await? {
                    return Ok(());
                }
                continue;
            }
            item = outlet.next(), if !closed => {
                let Some(item) = item? else {
                    closed = true;
                    continue;
                };
                pace.take(count(&outlet, &item)).await;
                wire_item(item)
            }
            sealed = wait_seal(seal.as_mut()), if closed && seal.is_some() => {
                seal = None;
                Message::Seal(sealed?)
            }
        };
        if queue.send(message(content)).await.is_err() {
            return Ok(());
        }
    }
}

/// Counts the payload that is sent.
fn count(outlet: &Outlet, item: &Item) -> u64 {
    let Item::Data { payload, .. } = item else { return 0 };
    let bytes = payload.len() as u64;
    outlet.count_sent(bytes);
    bytes
}

async fn wait_seal(seal: Option<&mut watch::Receiver<Option<v1::Seal>>>) -> Result<v1::Seal, Failure> {
    let seal = seal.ok_or(Failure::Cancelled)?.wait_for(Option::is_some).await;
    seal.map_err(|_| Failure::Cancelled)?.clone().ok_or(Failure::Cancelled)
}

/// Sends a whole chunk from where it is stored; false when the call has ended.
async fn resend(
    outlet: &mut Outlet,
    dataset: &Dataset,
    chunk: u64,
    queue: &mpsc::Sender<v1::PushMessage>,
) -> Result<bool, Failure> {
    outlet.count_resent();
    let mut offset = 0;
    loop {
        for item in outlet.read(dataset, chunk, offset).await? {
            let is_end = matches!(item, Item::End { .. });
            if let Item::Data { payload, .. } = &item {
                offset += payload.len() as u32;
            }
            count(outlet, &item);
            if queue.send(message(wire_item(item))).await.is_err() {
                return Ok(false);
            }
            if is_end {
                return Ok(true);
            }
        }
    }
}

/// A message of the log on the wire.
pub(crate) fn wire_item(item: Item) -> Message {
    match item {
        Item::Data { chunk, offset, payload } => Message::Data(v1::Data { chunk, offset, payload }),
        Item::End { chunk, hash } => {
            Message::ChunkEnd(v1::ChunkEnd { chunk, blake3: Bytes::copy_from_slice(hash.as_bytes()) })
        }
        Item::Carried { chunk, tree } => Message::Carried(v1::Carried { chunk, tree: tree as u32 }),
    }
}

/// The endpoint of a child, or of a member whose results are fetched. A sign of life may wait behind bulk data.
pub(crate) fn endpoint(identity: &Identity, peer: &v1::Peer) -> Result<Endpoint, Failure> {
    let endpoint = control_endpoint(identity, peer)?;
    Ok(endpoint
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(30))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .max_frame_size(MAX_FRAME_BYTES))
}

/// The endpoint of a member as the coordinator calls it: nothing but events travels there, so that a member which vanished
/// is noticed well within [`HOP_GRACE`].
pub(crate) fn control_endpoint(identity: &Identity, peer: &v1::Peer) -> Result<Endpoint, Failure> {
    let endpoint = identity.endpoint(peer).map_err(|error| Failure::invalid(error.to_string()))?;
    Ok(endpoint
        .http2_keep_alive_interval(Duration::from_secs(3))
        .keep_alive_timeout(Duration::from_secs(7))
        // hyper takes a connection for idle whose client was dropped, even while a call's answers still come.
        .keep_alive_while_idle(true)
        .connect_timeout(Duration::from_secs(5)))
}

/// Connects, and says in the end why it could not.
pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Channel, String> {
    let mut attempt = 1;
    loop {
        match endpoint.connect().await {
            Ok(channel) => return Ok(channel),
            Err(error) if attempt >= CONNECT_ATTEMPTS => return Err(chain(&error)),
            Err(_) => {}
        }
        attempt += 1;
        tokio::time::sleep(CONNECT_PAUSE).await;
    }
}

/// A status for people, with what is behind it.
pub(crate) fn explain(status: &tonic::Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => format!("{}: {}", status.message(), chain(source)),
        None => status.message().to_owned(),
    }
}
