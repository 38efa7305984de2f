//! How do results come home from all members?
//!
//! Members are asked in order. What a member sends is checked and stored in a private directory beside the target, then
//! merged into what came before: a file that is there already with the same content stays once; one that differs is kept as
//! `NAME.MEMBER`. In the end the whole is moved to its name in one step; what had that name before is replaced.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use blake3::Hasher;
use gridcast_core::broadcast::dataset::Entry;
use gridcast_proto::v1::relay_client::RelayClient;
use gridcast_proto::v1::{self, push_message::Message};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Status};

use super::dataset::Dataset;
use super::failure::{Failure, REASON_KEY, blocking};
use super::feed::Item;
use super::hop::{connect, endpoint, explain, wire_item};
use super::inbound::Admitting;
use super::intake::{Intake, queue};
use super::merge::{Merge, Received};
use super::origin::{OpenFile, Origin, Shelf};
use super::scan::scan;
use super::service::Node;
use super::source::digest;
use super::store::Store;
use super::wire::{self, entry_messages, message};

/// Messages between the disk and the network.
const QUEUE_MESSAGES: usize = 8;
/// Read at a time.
const SLICE_BYTES: u32 = 256 << 10;

type Messages = Pin<Box<dyn Stream<Item = Result<v1::PushMessage, Status>> + Send>>;

/// Streams `path` of this node: what a hop carries, from one reader to one reader.
pub(crate) async fn fetch(
    node: &Arc<Node>,
    path: &str,
) -> Result<mpsc::Receiver<Result<v1::PushMessage, Status>>, Failure> {
    let path = node.local(path)?;
    let (origin, single_file) = blocking(move || {
        let scan = scan(&path)?;
        let single_file = scan.single_file;
        Ok((Arc::new(Origin::new(scan, 0)), single_file))
    })
    .await?;
    let (queue, messages) = mpsc::channel(QUEUE_MESSAGES);
    let node = node.clone();
    tokio::spawn(async move {
        if let Err(failure) = send(&origin, single_file, &node.name, &queue).await {
            let _ = queue.send(Err(failure.status(&node.name))).await;
        }
    });
    Ok(messages)
}

async fn send(
    origin: &Arc<Origin>,
    single_file: bool,
    from: &str,
    queue: &mpsc::Sender<Result<v1::PushMessage, Status>>,
) -> Result<(), Failure> {
    let put = async |content| queue.send(Ok(message(content))).await.map_err(|_| Failure::Cancelled);
    put(Message::Open(v1::PushOpen { from: from.to_owned(), single_file, ..v1::PushOpen::default() }))
        .await?;
    for entries in entry_messages(&origin.dataset.entries) {
        put(Message::Entries(entries)).await?;
    }
    let layout = &origin.dataset.layout;
    let mut open = OpenFile::default();
    for chunk in 0..layout.chunks() {
        let length = layout.chunk_length(chunk).unwrap_or(0);
        let mut hasher = Hasher::new();
        let mut offset = 0;
        while offset < length {
            let reader = origin.clone();
            let (parts, state) = blocking(move || {
                let parts = reader.read(&mut open, chunk, offset, SLICE_BYTES)?;
                for part in &parts {
                    hasher.update(part);
                }
                Ok((parts, (hasher, open)))
            })
            .await?;
            (hasher, open) = state;
            for payload in parts {
                let length = payload.len() as u32;
                put(wire_item(Item::Data { chunk, offset, payload })).await?;
                offset += length;
            }
        }
        let hash = hasher.finalize();
        origin.dataset.ledger.record(chunk, hash, length);
        put(wire_item(Item::End { chunk, hash })).await?;
    }
    let checked = origin.clone();
    let seal = blocking(move || {
        checked.check_unchanged()?;
        digest(&checked.dataset)
    })
    .await?;
    put(Message::Seal(seal)).await
}

/// Fetches the path from all members and merges it below the target. The error names the node at fault.
pub(crate) async fn collect(
    node: &Arc<Node>,
    request: v1::CollectRequest,
) -> Result<v1::CollectReply, (String, Failure)> {
    let here = |failure: Failure| (node.name.clone(), failure);
    let name = Path::new(&request.path).file_name().map(PathBuf::from);
    let Some(name) = name.filter(|_| !request.members.is_empty()) else {
        return Err(here(Failure::invalid("give a path with a last component, and at least one member")));
    };
    node.local(&request.path).map_err(here)?;
    let target = node.local(&request.target).map_err(here)?;
    let mut merge = blocking(move || Merge::new(&target)).await.map_err(here)?;
    let mut members = Vec::new();
    for member in &request.members {
        let failed = |failure: Failure| (member.name.clone(), failure);
        let Some(messages) = open(node, member, &request.path).await.map_err(failed)? else { continue };
        let part = merge.part(members.len());
        let received = receive(node, messages, part, name.clone()).await.map_err(failed)?;
        let member_name = member.name.clone();
        merge = blocking(move || {
            merge.add(&received, &member_name)?;
            Ok(merge)
        })
        .await
        .map_err(here)?;
        members.push(member.name.clone());
    }
    if members.is_empty() {
        return Err(here(Failure::SourceMissing { path: format!("{} of any member", request.path) }));
    }
    let (files, size_bytes, renamed) = blocking(move || merge.publish()).await.map_err(here)?;
    Ok(v1::CollectReply { files, size_bytes, members, renamed })
}

/// The messages of one member; none where it has no such path.
async fn open(node: &Arc<Node>, member: &v1::Peer, path: &str) -> Result<Option<Messages>, Failure> {
    if member.name == node.name {
        return match fetch(node, path).await {
            Ok(messages) => Ok(Some(Box::pin(ReceiverStream::new(messages)))),
            Err(Failure::SourceMissing { .. }) => Ok(None),
            Err(failure) => Err(failure),
        };
    }
    let endpoint = endpoint(&node.identity, member)?;
    let channel = connect(&endpoint).await.map_err(Failure::lost)?;
    let request = v1::FetchRequest { path: path.to_owned() };
    match RelayClient::new(channel).fetch(request).await {
        Ok(reply) => Ok(Some(Box::pin(reply.into_inner()))),
        Err(status) if status.code() == Code::NotFound && status.metadata().contains_key(REASON_KEY) => {
            Ok(None)
        }
        Err(status) => Err(remote(&status)),
    }
}

/// What a member's status means here.
fn remote(status: &Status) -> Failure {
    if status.metadata().contains_key(REASON_KEY) {
        return Failure::SourceUnreadable {
            path: "its results".to_owned(),
            error: status.message().to_owned(),
        };
    }
    Failure::lost(explain(status))
}

/// Stores what `messages` carry below `part`, under `name`.
async fn receive(
    node: &Arc<Node>,
    mut messages: Messages,
    part: PathBuf,
    name: PathBuf,
) -> Result<Received, Failure> {
    let mut single_file = false;
    let mut admitting = Admitting::default();
    let entries = loop {
        match next(&mut messages).await? {
            Message::Open(open) => single_file = open.single_file,
            Message::Entries(entries) => {
                if let Some(entries) = admitting.add(&entries)? {
                    break entries;
                }
            }
            _ => return Err(Failure::corrupt("data came before the entries were complete")),
        }
    };
    let known = blocking(move || Ok(Arc::new(Dataset::new(entries, 0)))).await?;
    let root = if single_file { part.clone() } else { part.join(&name) };
    let store = blocking({
        let known = known.clone();
        move || {
            let failed = |error: io::Error| Failure::writing(&root, &error);
            fs::create_dir_all(&root).map_err(failed)?;
            let directory = File::open(&root).map_err(failed)?;
            Ok(Arc::new(Store::prepare(directory.into(), root, known)?))
        }
    })
    .await?;
    let (intake, arrivals) = queue(&node.counters);
    let counters = node.counters.clone();
    let storing = Intake { arrivals, store: store.clone(), parents: None, counters }.run();
    let reading = async {
        loop {
            match next(&mut messages).await? {
                Message::Data(v1::Data { chunk, offset, payload }) => {
                    intake.send(0, Item::Data { chunk, offset, payload }).await;
                }
                Message::ChunkEnd(v1::ChunkEnd { chunk, blake3 }) => {
                    intake.send(0, Item::End { chunk, hash: wire::hash(&blake3)? }).await;
                }
                Message::Seal(seal) => return wire::hash(&seal.digest),
                Message::Open(_) | Message::Entries(_) => return Err(Failure::corrupt("entries came twice")),
                Message::Carried(_) => return Err(Failure::corrupt("a chunk of another tree")),
            }
        }
    };
    let (sealed, ()) = tokio::try_join!(reading, storing)?;
    if known.ledger.digest() != Some(sealed) {
        return Err(Failure::corrupt("the digest of what arrived is not that of what was sent"));
    }
    if single_file {
        // A symlink that was asked for leads to a file of another name.
        let stored = known.entries.last().map(|file| part.join(OsStr::from_bytes(&file.path)));
        let stored = stored.unwrap_or_else(|| part.clone());
        fs::rename(&stored, part.join(&name)).map_err(|error| Failure::writing(&stored, &error))?;
    }
    let prefix = name.as_os_str().as_bytes();
    let place = |entry: &Entry| Entry { path: below(prefix, &entry.path, single_file), ..entry.clone() };
    let entries = known.entries.iter().filter(|entry| !(single_file && entry.is_root())).map(place).collect();
    Ok(Received { directory: part, entries })
}

fn below(prefix: &[u8], path: &[u8], single_file: bool) -> Vec<u8> {
    match path {
        _ if single_file => prefix.to_vec(),
        [] => prefix.to_vec(),
        _ => [prefix, b"/", path].concat(),
    }
}

async fn next(messages: &mut Messages) -> Result<Message, Failure> {
    match messages.next().await {
        Some(Ok(v1::PushMessage { message: Some(message) })) => Ok(message),
        Some(Ok(_)) => Err(Failure::corrupt("an empty message")),
        Some(Err(status)) => Err(remote(&status)),
        None => Err(Failure::lost("it ended the call early")),
    }
}
