//! How do controllers and peers reach this node's part in broadcasts?

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridcast_core::broadcast::dataset;
use gridcast_proto::v1::broadcasts_server::{Broadcasts, BroadcastsServer};
use gridcast_proto::v1::relay_server::{Relay, RelayServer};
use gridcast_proto::v1::{self, push_message::Message};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::counters::Counters;
use super::failure::{Failure, blocking};
use super::landing::Landing;
use super::member::Member;
use super::roots::Roots;
use super::scan::{Scan, scan};
use super::{collect, coordinator, member};
use crate::access::{Call, caller};
use crate::memory;
use crate::tls::Identity;

/// A parent may call before the coordinator did: it waits this long.
const EARLY_PUSH: Duration = Duration::from_secs(30);
/// Events that wait for their reader.
const QUEUE_EVENTS: usize = 64;

/// The gRPC services `Broadcasts` and `Relay` of one agent. Clones share their state.
#[derive(Clone, Debug)]
pub struct Service {
    node: Arc<Node>,
}

/// What all broadcasts of a node share.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) identity: Identity,
    pub(crate) counters: Arc<Counters>,
    root: PathBuf,
    /// Where datasets may be read from; none = everywhere.
    pub(crate) roots: Option<Roots>,
    /// Which datasets may come here; none = all.
    pub(crate) landing: Option<Arc<dyn Landing>>,
    members: Mutex<HashMap<String, Arc<Member>>>,
    arrived: watch::Sender<()>,
    started: Mutex<HashSet<String>>,
}

impl Service {
    /// The services of the node called `name`, which shows `identity` to its peers.
    pub fn new(name: impl Into<String>, identity: Identity) -> Self {
        Self::with_root(name, identity, "/")
    }

    /// The same where the node's `/` is seen at `root`, as by an agent in a container of its own.
    pub fn with_root(name: impl Into<String>, identity: Identity, root: impl Into<PathBuf>) -> Self {
        let node = Node {
            name: name.into(),
            identity,
            counters: Arc::default(),
            root: root.into(),
            roots: None,
            landing: None,
            members: Mutex::default(),
            arrived: watch::Sender::new(()),
            started: Mutex::default(),
        };
        Self { node: Arc::new(node) }
    }

    /// The services of a Kubernetes node: datasets are read below `roots` only, and come as `landing` says.
    pub(crate) fn of_node(
        name: String,
        identity: Identity,
        roots: Vec<PathBuf>,
        landing: Arc<dyn Landing>,
    ) -> Self {
        let node = Node {
            name,
            identity,
            counters: Arc::default(),
            root: PathBuf::from("/"),
            roots: Some(Roots::new(roots)),
            landing: Some(landing),
            members: Mutex::default(),
            arrived: watch::Sender::new(()),
            started: Mutex::default(),
        };
        Self { node: Arc::new(node) }
    }

    /// What a controller calls.
    pub fn broadcasts(&self) -> BroadcastsServer<Self> {
        BroadcastsServer::new(self.clone())
    }

    /// What peers call.
    pub fn relay(&self) -> RelayServer<Self> {
        RelayServer::new(self.clone())
    }

    /// What this agent's broadcasts did so far.
    pub fn counters(&self) -> Arc<Counters> {
        self.node.counters.clone()
    }
}

impl Node {
    /// Where this process sees the node's `path`.
    pub(crate) fn local(&self, path: &str) -> Result<PathBuf, Failure> {
        let path = Path::new(path);
        let is_plain =
            path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        match path.strip_prefix("/") {
            Ok(relative) if is_plain && path.file_name().is_some() => Ok(self.root.join(relative)),
            _ => Err(Failure::invalid(format!(
                "the path `{}` must be absolute, below `/` and without `.` and `..`",
                path.display()
            ))),
        }
    }

    /// Scans `path` of this node, if datasets may be read there. Blocks.
    pub(crate) fn scan(&self, path: &Path) -> Result<Scan, Failure> {
        match &self.roots {
            None => scan(path),
            Some(roots) => {
                roots.check(path)?;
                let scan = scan(path)?;
                // Where it really was, should a link on the way have changed since.
                roots.check_open(path, &scan.directory)?;
                Ok(scan)
            }
        }
    }

    async fn inspect(self: &Arc<Self>, path: String) -> Result<v1::Opened, Failure> {
        let node = self.clone();
        blocking(move || {
            let scan = node.scan(&node.local(&path)?)?;
            Ok(v1::Opened {
                size_bytes: scan.distinct_bytes,
                files: dataset::files(&scan.entries),
                entries: scan.entries.len() as u64,
            })
        })
        .await
    }

    /// Makes a broadcast known to those who push.
    pub(crate) fn register(&self, id: &str, member: &Arc<Member>) -> Result<(), Failure> {
        let mut members = self.members();
        if members.contains_key(id) {
            return Err(Failure::invalid(format!("broadcast {id} runs already; choose another id")));
        }
        members.insert(id.to_owned(), member.clone());
        drop(members);
        self.arrived.send_replace(());
        Ok(())
    }

    /// Takes it back.
    pub(crate) fn forget(&self, id: &str, member: &Arc<Member>) {
        let mut members = self.members();
        if members.get(id).is_some_and(|known| Arc::ptr_eq(known, member)) {
            members.remove(id);
        }
    }

    /// Claims `id` for a broadcast that starts here; dropping the claim gives it back.
    pub(crate) fn claim(self: &Arc<Self>, id: &str) -> Result<Claim, Failure> {
        if !self.started.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned()) {
            return Err(Failure::invalid(format!("broadcast {id} runs already; choose another id")));
        }
        Ok(Claim { node: self.clone(), id: id.to_owned() })
    }

    async fn member(&self, id: &str) -> Option<Arc<Member>> {
        let mut arrived = self.arrived.subscribe();
        loop {
            arrived.mark_unchanged();
            if let Some(member) = self.members().get(id) {
                return Some(member.clone());
            }
            arrived.changed().await.ok()?;
        }
    }

    fn members(&self) -> MutexGuard<'_, HashMap<String, Arc<Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An id in use at the source.
#[derive(Debug)]
pub(crate) struct Claim {
    node: Arc<Node>,
    id: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.node.started.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

#[tonic::async_trait]
impl Broadcasts for Service {
    type StartStream = ReceiverStream<Result<v1::BroadcastEvent, Status>>;

    async fn start(
        &self,
        request: Request<v1::StartBroadcastRequest>,
    ) -> Result<Response<Self::StartStream>, Status> {
        caller(&self.node.identity, &request, Call::Broadcasts)?;
        let (events, stream) = mpsc::channel(QUEUE_EVENTS);
        let broadcast = coordinator::run(self.node.clone(), request.into_inner(), events);
        tokio::spawn(async {
            broadcast.await;
            memory::give_back().await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn inspect(&self, request: Request<v1::InspectRequest>) -> Result<Response<v1::Opened>, Status> {
        caller(&self.node.identity, &request, Call::Broadcasts)?;
        let inspected = self.node.inspect(request.into_inner().source_path).await;
        inspected.map(Response::new).map_err(|failure| failure.status(&self.node.name))
    }

    async fn collect(
        &self,
        request: Request<v1::CollectRequest>,
    ) -> Result<Response<v1::CollectReply>, Status> {
        caller(&self.node.identity, &request, Call::Broadcasts)?;
        if self.node.landing.is_some() {
            let detail = "a node keeps no results: they are collected by a pod".to_owned();
            return Err(Failure::NotPermitted { detail }.status(&self.node.name));
        }
        let collected = collect::collect(&self.node, request.into_inner()).await;
        collected.map(Response::new).map_err(|(node, failure)| failure.status(&node))
    }
}

#[tonic::async_trait]
impl Relay for Service {
    type FollowStream = ReceiverStream<Result<v1::FollowEvent, Status>>;
    type PushStream = ReceiverStream<Result<v1::PushAck, Status>>;
    type FetchStream = ReceiverStream<Result<v1::PushMessage, Status>>;

    async fn follow(
        &self,
        request: Request<v1::FollowRequest>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let caller = caller(&self.node.identity, &request, Call::Follow)?;
        if caller.role().is_some() {
            caller.must_be(&request.get_ref().source, "source")?;
        }
        let (events, stream) = mpsc::channel(QUEUE_EVENTS);
        let broadcast = member::run(self.node.clone(), request.into_inner(), events);
        tokio::spawn(async {
            broadcast.await;
            memory::give_back().await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn push(
        &self,
        request: Request<Streaming<v1::PushMessage>>,
    ) -> Result<Response<Self::PushStream>, Status> {
        let caller = caller(&self.node.identity, &request, Call::Push)?;
        let mut stream = request.into_inner();
        let Some(v1::PushMessage { message: Some(Message::Open(open)) }) = stream.message().await? else {
            return Err(Status::invalid_argument("a push begins with PushOpen"));
        };
        caller.must_be(&open.from, "from")?;
        let member = tokio::time::timeout(EARLY_PUSH, self.node.member(&open.id)).await;
        let Ok(Some(member)) = member else {
            let message = format!("{} does not follow broadcast {}", self.node.name, open.id);
            return Err(Status::not_found(message));
        };
        let acks =
            member.accept(&open, &caller, stream).map_err(|failure| failure.status(&self.node.name))?;
        Ok(Response::new(ReceiverStream::new(acks)))
    }

    async fn fetch(&self, request: Request<v1::FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        caller(&self.node.identity, &request, Call::Fetch)?;
        let messages = collect::fetch(&self.node, &request.into_inner().path).await;
        let messages = messages.map_err(|failure| failure.status(&self.node.name))?;
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

/// Longest id of a broadcast: it becomes part of a file's name.
const MAX_ID_BYTES: usize = 128;

/// Ids are `[a-z0-9-]`.
pub(crate) fn check_id(id: &str) -> Result<(), Failure> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(is_plain) {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "the id `{}` must be 1 to {MAX_ID_BYTES} of a-z, 0-9 and `-`",
        id.escape_debug()
    )))
}
