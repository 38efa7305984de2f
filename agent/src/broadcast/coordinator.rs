//! How does the agent of the source carry one broadcast from `Start` to its last event?

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gridcast_core::broadcast::dataset::{self, checked_chunk_bytes};
use gridcast_proto::v1::broadcast_event::Event;
use gridcast_proto::v1::relay_client::RelayClient;
use gridcast_proto::v1::{self, follow_event};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;

use super::SOURCE_RING_BYTES;
use super::copy::Copy;
use super::dataset::Dataset;
use super::failure::{Failure, Fault, blocking, join_error};
use super::feed::Feed;
use super::hop::{EntryLog, Hop, Outlet, Supply, connect, endpoint, explain, push};
use super::origin::{Origin, Shelf};
use super::routes::Routes;
use super::scan::scan;
use super::schedule::Schedule;
use super::service::{Node, check_id};
use super::source::{Reader, SourceShelf, digest, seal};
use super::wire::entry_messages;

/// Events of all members that wait for the coordinator.
const QUEUE_EVENTS: usize = 256;

type Events = mpsc::Sender<Result<v1::BroadcastEvent, Status>>;

/// What a member said, or that it is gone.
#[derive(Debug)]
enum News {
    Said(follow_event::Event),
    Lost(String),
}

/// Runs one broadcast; its last event is `Finished` or `NodeFailed`.
pub(crate) async fn run(node: Arc<Node>, request: v1::StartBroadcastRequest, events: Events) {
    let started = Instant::now();
    let id = request.id.clone();
    let outcome = tokio::select! {
        outcome = broadcast(&node, request, started, &events) => outcome,
        () = events.closed() => Err(Fault::new(&node.name, &Failure::Cancelled)),
    };
    // Tasks, connections and the copy of the source went with the future: members see their calls end and clean up.
    let event = match outcome {
        Ok(finished) => {
            tracing::info!(id, seconds = finished.seconds, digest = finished.digest, "broadcast finished");
            Event::Finished(finished)
        }
        Err(fault) => {
            tracing::info!(
                id,
                node = fault.node,
                reason = fault.reason,
                message = fault.message,
                "broadcast failed"
            );
            Event::Failed(fault.into_event())
        }
    };
    emit(&events, event).await;
}

async fn emit(events: &Events, event: Event) {
    // Whoever started it and is gone is noticed in `run`.
    let _ = events.send(Ok(v1::BroadcastEvent { event: Some(event) })).await;
}

/// A request that was checked.
#[derive(Debug)]
struct Order {
    request: v1::StartBroadcastRequest,
    routes: Routes,
    peers: Vec<v1::Peer>,
    chunk_bytes: u32,
    source_path: PathBuf,
    target: PathBuf,
}

impl Order {
    fn check(node: &Node, request: v1::StartBroadcastRequest) -> Result<Self, Failure> {
        check_id(&request.id)?;
        let source = request.source.clone().unwrap_or_default();
        if source.name != node.name {
            let detail =
                format!("this is {}, not the source {}; call the source's agent", node.name, source.name);
            return Err(Failure::InvalidRequest { detail });
        }
        let mut peers = vec![source];
        peers.extend(request.members.iter().cloned());
        let routes = Routes::new(&request.plan.clone().unwrap_or_default(), &node.name, &peers)?;
        let chunk_bytes =
            checked_chunk_bytes(request.chunk_bytes).map_err(|e| Failure::invalid(e.to_string()))?;
        let source_path = node.local(&request.source_path)?;
        let target = node.local(&request.target)?;
        Ok(Self { request, routes, peers, chunk_bytes, source_path, target })
    }
}

async fn broadcast(
    node: &Arc<Node>,
    request: v1::StartBroadcastRequest,
    started: Instant,
    events: &Events,
) -> Result<v1::Finished, Fault> {
    let here = |failure: Failure| Fault::new(&node.name, &failure);
    let order = Order::check(node, request).map_err(here)?;
    let _claim = node.claim(&order.request.id).map_err(here)?;
    // Handshakes and the scan take their time together.
    let path = order.source_path.clone();
    let chunk_bytes = order.chunk_bytes;
    let scanned =
        async { blocking(move || Ok(Arc::new(Origin::new(scan(&path)?, chunk_bytes)))).await.map_err(here) };
    let (origin, channels) = tokio::try_join!(scanned, connect_all(node, &order))?;
    let known = &origin.dataset;
    tracing::debug!(id = order.request.id, elapsed = ?started.elapsed(), "scanned and connected");
    let opened = v1::Opened {
        size_bytes: known.layout.size_bytes(),
        files: dataset::files(&known.entries),
        entries: known.entries.len() as u64,
    };
    emit(events, Event::Opened(opened)).await;
    let copy = match order.request.store_at_source {
        false => None,
        true => {
            let id = order.request.id.clone();
            let (target, known) = (order.target.clone(), known.clone());
            Some(blocking(move || Copy::prepare(target, &id, &known)).await.map_err(here)?)
        }
    };
    let mut transfer = Transfer::start(node, &order, origin, copy);
    let mut news = follow_all(&order, &transfer.origin.dataset, channels, &mut transfer.tasks);
    transfer.watch(&order, &mut news, started, events).await
}

/// Connects to every member at once.
async fn connect_all(node: &Node, order: &Order) -> Result<Vec<Channel>, Fault> {
    let mut connecting = JoinSet::new();
    for (index, peer) in order.request.members.iter().enumerate() {
        let endpoint = endpoint(&node.identity, peer).map_err(|failure| Fault::new(&peer.name, &failure))?;
        connecting.spawn(async move { (index, connect(&endpoint).await) });
    }
    let mut channels = BTreeMap::new();
    while let Some(joined) = connecting.join_next().await {
        let (index, channel) = joined.map_err(|error| Fault::new(&node.name, &join_error(&error)))?;
        let channel = channel
            .map_err(|detail| Fault::new(&order.request.members[index].name, &Failure::lost(detail)))?;
        channels.insert(index, channel);
    }
    Ok(channels.into_values().collect())
}

/// Calls `Follow` on every member; what they say comes out of one queue.
fn follow_all(
    order: &Order,
    known: &Dataset,
    channels: Vec<Channel>,
    tasks: &mut JoinSet<Result<Done, Fault>>,
) -> mpsc::Receiver<(usize, News)> {
    let (queue, news) = mpsc::channel(QUEUE_EVENTS);
    for (index, channel) in channels.into_iter().enumerate() {
        let request = v1::FollowRequest {
            id: order.request.id.clone(),
            source: order.peers[0].name.clone(),
            members: order.peers.clone(),
            target: order.request.target.clone(),
            plan: order.request.plan.clone(),
            chunk_bytes: order.chunk_bytes,
            self_: order.request.members[index].name.clone(),
            required_bytes: known.required_bytes(),
            entries: known.entries.len() as u64,
        };
        let queue = queue.clone();
        tasks.spawn(async move {
            let lost = follow(channel, request, index, &queue).await;
            // A member that ends its call after it has verified is done; `watch` knows.
            let _ = queue.send((index, News::Lost(lost))).await;
            Ok(Done::Call)
        });
    }
    news
}

async fn follow(
    channel: Channel,
    request: v1::FollowRequest,
    index: usize,
    queue: &mpsc::Sender<(usize, News)>,
) -> String {
    let mut stream = match RelayClient::new(channel).follow(request).await {
        Ok(reply) => reply.into_inner(),
        Err(status) => return explain(&status),
    };
    loop {
        match stream.message().await {
            Ok(Some(v1::FollowEvent { event: Some(event) })) => {
                if queue.send((index, News::Said(event))).await.is_err() {
                    return String::new();
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => return "it ended the call".to_owned(),
            Err(status) => return explain(&status),
        }
    }
}

/// What a task of the source did.
#[derive(Debug)]
enum Done {
    Call,
    Hop,
    Read,
    /// The source's own copy was published, then compared.
    Published {
        at: Instant,
        bytes: u64,
    },
    Verified {
        difference: Option<String>,
    },
}

/// What runs at the source. Dropping it stops everything.
#[derive(Debug)]
struct Transfer {
    node: Arc<Node>,
    origin: Arc<Origin>,
    seal: watch::Sender<Option<v1::Seal>>,
    go: watch::Sender<bool>,
    tasks: JoinSet<Result<Done, Fault>>,
    readers: usize,
    copy: Option<Arc<Copy>>,
}

impl Transfer {
    /// Starts hops (which connect at once) and readers (which wait until every member is ready).
    fn start(node: &Arc<Node>, order: &Order, origin: Arc<Origin>, copy: Option<Copy>) -> Self {
        let known = origin.dataset.clone();
        let trees = order.routes.trees();
        // Without members the copy alone is fed, by a tree that reaches nobody.
        let reach: Vec<usize> =
            if trees == 0 { vec![0] } else { (0..trees).map(|tree| order.routes.reach(tree)).collect() };
        let children = |tree| if trees == 0 { Vec::new() } else { order.routes.children(tree, &node.name) };
        let hops: usize = (0..reach.len()).map(|tree| children(tree).len()).sum();
        let schedule = Arc::new(Schedule::new(known.layout.chunks(), &reach));
        let entries = Arc::new(EntryLog::new(hops));
        entry_messages(&known.entries).into_iter().for_each(|message| entries.push(message));
        let shelf = SourceShelf { origin: origin.clone(), copy: OnceLock::new() };
        if let Some(copy) = &copy {
            let _ = shelf.copy.set(copy.store.clone());
        }
        let shelf: Arc<OnceLock<Arc<dyn Shelf>>> =
            Arc::new(OnceLock::from(Arc::new(shelf) as Arc<dyn Shelf>));
        let copy = copy.map(Arc::new);
        let mut transfer = Self {
            node: node.clone(),
            origin,
            seal: watch::Sender::new(None),
            go: watch::Sender::new(false),
            tasks: JoinSet::new(),
            readers: reach.len(),
            copy,
        };
        let mut outlets = Vec::new();
        let (_, dataset) = watch::channel(Some(known));
        for tree in 0..reach.len() {
            let feed = Arc::new(Feed::new(SOURCE_RING_BYTES / reach.len() as u64, node.counters.clone()));
            let supply = Supply {
                feed: feed.clone(),
                entries: entries.clone(),
                dataset: dataset.clone(),
                shelf: shelf.clone(),
                seal: transfer.seal.subscribe(),
                counters: node.counters.clone(),
            };
            let children = children(tree);
            let pacing = children.len().max(usize::from(transfer.copy.is_some()));
            for child in children {
                transfer.spawn_hop(&order.request.id, tree, child, Outlet::new(supply.clone()));
            }
            if transfer.copy.is_some() {
                outlets.push(Outlet::new(supply));
            }
            transfer.spawn_reader(tree, feed, schedule.clone(), pacing);
        }
        transfer.spawn_copy(outlets);
        transfer
    }

    fn spawn_hop(&mut self, id: &str, tree: usize, child: v1::Peer, outlet: Outlet) {
        let hop = Hop {
            id: id.to_owned(),
            tree,
            from: self.node.name.clone(),
            child,
            identity: self.node.identity.clone(),
        };
        self.tasks.spawn(async move { push(hop, outlet).await.map(|()| Done::Hop) });
    }

    fn spawn_reader(&mut self, tree: usize, feed: Arc<Feed>, schedule: Arc<Schedule>, pacing: usize) {
        let reader = Reader { origin: self.origin.clone(), schedule, tree, feed, pacing };
        let mut go = self.go.subscribe();
        let name = self.node.name.clone();
        self.tasks.spawn(async move {
            if go.wait_for(|go| *go).await.is_err() {
                return Err(Fault::new(&name, &Failure::Cancelled));
            }
            reader.run().await.map(|()| Done::Read).map_err(|failure| Fault::new(&name, &failure))
        });
    }

    fn spawn_copy(&mut self, outlets: Vec<Outlet>) {
        let Some(copy) = self.copy.clone() else { return };
        let name = self.node.name.clone();
        let counters = self.node.counters.clone();
        let mut seal = self.seal.subscribe();
        self.tasks.spawn(async move {
            let published = async {
                copy.fill(outlets, &counters).await?;
                // Not before the source is known to be unchanged.
                seal.wait_for(Option::is_some).await.map_err(|_| Failure::Cancelled)?;
                copy.publish().await
            };
            published.await.map_err(|failure| Fault::new(&name, &failure))?;
            let bytes = copy.store.dataset.ledger.progress().bytes;
            Ok(Done::Published { at: Instant::now(), bytes })
        });
    }

    fn spawn_verify(&mut self) {
        let Some(copy) = self.copy.clone() else { return };
        let name = self.node.name.clone();
        self.tasks.spawn(async move {
            let difference = copy.difference().await.map_err(|failure| Fault::new(&name, &failure))?;
            Ok(Done::Verified { difference })
        });
    }

    /// Turns what members and tasks report into events until all have verified, or one has failed.
    async fn watch(
        &mut self,
        order: &Order,
        news: &mut mpsc::Receiver<(usize, News)>,
        started: Instant,
        events: &Events,
    ) -> Result<v1::Finished, Fault> {
        let members = &order.request.members;
        let mut ledger = Attendance::new(members.len(), self.copy.is_some());
        let mut seconds: f64 = 0.0;
        self.go.send_replace(members.is_empty());
        while !ledger.is_complete() {
            tokio::select! {
                Some((index, news)) = news.recv() => {
                    let name = members[index].name.clone();
                    match news {
                        News::Said(event) => {
                            let now = started.elapsed();
                            self.said(&mut ledger, index, name, event, now, &mut seconds, events).await?;
                        }
                        News::Lost(detail) if !ledger.verified[index] => {
                            return Err(Fault::new(&name, &Failure::lost(detail)));
                        }
                        News::Lost(_) => {}
                    }
                }
                Some(joined) = self.tasks.join_next() => {
                    let done = joined.map_err(|error| Fault::new(&self.node.name, &join_error(&error)))??;
                    self.done(&mut ledger, done, started, &mut seconds, events).await?;
                }
                else => return Err(Fault::new(&self.node.name, &Failure::Internal { detail: "nothing is left to wait for".to_owned() })),
            }
        }
        self.finished(seconds).await
    }

    #[allow(clippy::too_many_arguments, reason = "the state of one loop, in two functions to be read")]
    async fn said(
        &mut self,
        ledger: &mut Attendance,
        index: usize,
        name: String,
        event: follow_event::Event,
        now: Duration,
        seconds: &mut f64,
        events: &Events,
    ) -> Result<(), Fault> {
        match event {
            follow_event::Event::Ready(_) => {
                ledger.ready[index] = true;
                if ledger.ready.iter().all(|ready| *ready) {
                    tracing::debug!(elapsed = ?now, "every member is ready");
                    self.go.send_replace(true);
                }
            }
            follow_event::Event::Progress(v1::FollowProgress { bytes }) => {
                let event = Event::Progress(v1::NodeProgress { node: name, bytes });
                // Who does not read fast enough gets the next one.
                let _ = events.try_send(Ok(v1::BroadcastEvent { event: Some(event) }));
            }
            follow_event::Event::Published(v1::FollowPublished { bytes_received }) => {
                *seconds = seconds.max(now.as_secs_f64());
                let published = v1::NodePublished { node: name, seconds: now.as_secs_f64(), bytes_received };
                emit(events, Event::Published(published)).await;
            }
            follow_event::Event::Verified(verified) => {
                let v1::FollowVerified { verified, message, .. } = verified;
                conclude(&name, verified, message, events).await?;
                ledger.verified[index] = true;
            }
            follow_event::Event::Failed(failed) => return Err(Fault::reported(&name, failed)),
        }
        Ok(())
    }

    async fn done(
        &mut self,
        ledger: &mut Attendance,
        done: Done,
        started: Instant,
        seconds: &mut f64,
        events: &Events,
    ) -> Result<(), Fault> {
        let name = self.node.name.clone();
        match done {
            Done::Call | Done::Hop => {}
            Done::Read => {
                self.readers -= 1;
                if self.readers == 0 {
                    tracing::debug!(elapsed = ?started.elapsed(), "the source is read");
                    let sealed = seal(self.origin.clone(), &self.seal).await;
                    sealed.map_err(|failure| Fault::new(&name, &failure))?;
                    ledger.sealed = true;
                }
            }
            Done::Published { at, bytes } => {
                let own = at.duration_since(started).as_secs_f64();
                *seconds = seconds.max(own);
                let published = v1::NodePublished { node: name, seconds: own, bytes_received: bytes };
                emit(events, Event::Published(published)).await;
                self.spawn_verify();
            }
            Done::Verified { difference } => {
                conclude(&name, difference.is_none(), difference.unwrap_or_default(), events).await?;
                ledger.copied = true;
            }
        }
        Ok(())
    }

    async fn finished(&self, seconds: f64) -> Result<v1::Finished, Fault> {
        let known = &self.origin.dataset;
        let sealed = digest(known).map_err(|failure| Fault::new(&self.node.name, &failure))?;
        let digest =
            super::wire::hash(&sealed.digest).map_err(|failure| Fault::new(&self.node.name, &failure))?;
        Ok(v1::Finished {
            digest: digest.to_hex().to_string(),
            size_bytes: known.layout.size_bytes(),
            files: dataset::files(&known.entries),
            source_bytes_read: self.origin.read_bytes(),
            seconds,
        })
    }
}

/// Tells the caller what the comparison of a published directory said; a difference ends the broadcast.
async fn conclude(node: &str, verified: bool, message: String, events: &Events) -> Result<(), Fault> {
    let event = v1::NodeVerified { node: node.to_owned(), verified, message: message.clone() };
    emit(events, Event::Verified(event)).await;
    if verified {
        return Ok(());
    }
    Err(Fault::new(node, &Failure::corrupt(format!("the published directory differs: {message}"))))
}

/// Who is how far.
#[derive(Debug)]
struct Attendance {
    ready: Vec<bool>,
    verified: Vec<bool>,
    sealed: bool,
    copied: bool,
}

impl Attendance {
    fn new(members: usize, copy: bool) -> Self {
        Self { ready: vec![false; members], verified: vec![false; members], sealed: false, copied: !copy }
    }

    fn is_complete(&self) -> bool {
        self.sealed && self.copied && self.verified.iter().all(|verified| *verified)
    }
}
