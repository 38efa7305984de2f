//! What does a node do that follows a broadcast?

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gridcast_core::broadcast::dataset::{Admission, Entry, MAX_EXTENTS, checked_chunk_bytes};
use gridcast_proto::v1::follow_event::Event;
use gridcast_proto::v1::{self, push_ack::Ack, push_message::Message};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tonic::{Status, Streaming};

use super::dataset::Dataset;
use super::failure::{Failure, Fault, blocking, join_error};
use super::feed::{Feed, Item, Place};
use super::hop::{EntryLog, Hop, Outlet, Supply, dataset, push};
use super::intake::{Acks, Intake, IntakeSender, Parents, queue};
use super::origin::Shelf;
use super::routes::Routes;
use super::service::{Node, check_id};
use super::staging::{Need, Staging};
use super::store::Store;
use super::wire::{self, EntryParser, MAX_PAYLOAD_BYTES};
use super::{HOP_GRACE, RING_BYTES, verify};

/// Between two reports of progress.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Events of a member on their way to the coordinator.
pub(crate) type Events = mpsc::Sender<Result<v1::FollowEvent, Status>>;

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

/// A broadcast that this node follows.
#[derive(Debug)]
pub(crate) struct Member {
    node: Arc<Node>,
    request: v1::FollowRequest,
    routes: Routes,
    chunk_bytes: u32,
    feeds: Vec<Arc<Feed>>,
    entries: Arc<EntryLog>,
    /// Which tree's entries are taken, and what came of them.
    admitting: Mutex<(Option<usize>, Admitting)>,
    dataset: watch::Sender<Option<Arc<Dataset>>>,
    shelf: Arc<OnceLock<Arc<dyn Shelf>>>,
    seal: watch::Sender<Option<v1::Seal>>,
    intake: IntakeSender,
    acks: Arc<Acks>,
    /// Everything is stored and its digest is right.
    complete: watch::Sender<bool>,
    /// What those who receive found out.
    faults: mpsc::Sender<Fault>,
    received: AtomicU64,
    /// Calls of parents.
    inbound: Mutex<JoinSet<()>>,
}

/// What only [`Member::follow`] reads.
#[derive(Debug)]
struct Ends {
    arrivals: mpsc::Receiver<super::intake::Arrival>,
    faults: mpsc::Receiver<Fault>,
}

/// Follows until everything is published, verified and passed on, or something failed, or the coordinator is gone. Whatever
/// happens, in the end nothing is left but what was published.
pub(crate) async fn run(node: Arc<Node>, request: v1::FollowRequest, events: Events) {
    let id = request.id.clone();
    let (member, ends) = match Member::new(node.clone(), request) {
        Ok(made) => made,
        Err(failure) => {
            let fault = Fault::new(&node.name, &failure);
            return report(&events, Event::Failed(fault.into_follow(&node.name))).await;
        }
    };
    let outcome = tokio::select! {
        outcome = member.clone().follow(ends, &events) => outcome,
        () = events.closed() => Err(Fault::new(&node.name, &Failure::Cancelled)),
    };
    node.forget(&id, &member);
    member.end(outcome.as_ref().err()).await;
    // What is left of the staging directory goes with its last owner, off the async threads.
    let _ = tokio::task::spawn_blocking(move || drop(member)).await;
    match outcome {
        Ok(()) => tracing::debug!(id, "followed to the end"),
        Err(fault) => {
            tracing::info!(id, node = fault.node, reason = fault.reason, message = fault.message, "gave up");
            report(&events, Event::Failed(fault.into_follow(&node.name))).await;
        }
    }
}

async fn report(events: &Events, event: Event) {
    // A coordinator that is gone is noticed elsewhere.
    let _ = events.send(Ok(v1::FollowEvent { event: Some(event) })).await;
}

impl Member {
    fn new(node: Arc<Node>, request: v1::FollowRequest) -> Result<(Arc<Self>, Ends), Failure> {
        if request.self_ != node.name {
            let detail =
                format!("this is {}, not {}; check the addresses of the peers", node.name, request.self_);
            return Err(Failure::InvalidRequest { detail });
        }
        check_id(&request.id)?;
        let plan = request.plan.clone().unwrap_or_default();
        let routes = Routes::new(&plan, &request.source, &request.members)?;
        let chunk_bytes =
            checked_chunk_bytes(request.chunk_bytes).map_err(|e| Failure::invalid(e.to_string()))?;
        let children: Vec<u64> =
            (0..routes.trees()).map(|tree| routes.children(tree, &node.name).len() as u64).collect();
        let feeding = children.iter().filter(|children| **children > 0).count().max(1) as u64;
        let ring = |children: &u64| if *children > 0 { RING_BYTES / feeding } else { 0 };
        let feeds = children.iter().map(|n| Arc::new(Feed::new(ring(n), node.counters.clone()))).collect();
        let (intake, arrivals) = queue(&node.counters);
        let (faults, found) = mpsc::channel(8);
        let member = Self {
            entries: Arc::new(EntryLog::new(children.iter().sum::<u64>() as usize)),
            acks: Arc::new(Acks::new(routes.trees())),
            node,
            request,
            routes,
            chunk_bytes,
            feeds,
            admitting: Mutex::default(),
            dataset: watch::Sender::new(None),
            shelf: Arc::default(),
            seal: watch::Sender::new(None),
            intake,
            complete: watch::Sender::new(false),
            faults,
            received: AtomicU64::new(0),
            inbound: Mutex::default(),
        };
        Ok((Arc::new(member), Ends { arrivals, faults: found }))
    }

    async fn follow(self: Arc<Self>, ends: Ends, events: &Events) -> Result<(), Fault> {
        let Ends { arrivals, mut faults } = ends;
        let here = |failure: Failure| Fault::new(&self.node.name, &failure);
        let target = self.node.local(&self.request.target).map_err(here)?;
        let staging = self.stage(target.clone()).await.map_err(here)?;
        self.node.register(&self.request.id, &self).map_err(here)?;
        report(events, Event::Ready(v1::FollowReady {})).await;
        let mut hops = self.spawn_hops();
        let receive = self.clone().receive(staging, target, arrivals, events);
        tokio::pin!(receive);
        let progress = self.report_progress(events);
        tokio::pin!(progress);
        let mut received = false;
        loop {
            if received && hops.is_empty() {
                return Ok(());
            }
            tokio::select! {
                result = &mut receive, if !received => {
                    result.map_err(here)?;
                    received = true;
                }
                Some(hop) = hops.join_next(), if !hops.is_empty() => match hop {
                    Ok(result) => result?,
                    Err(error) => return Err(here(join_error(&error))),
                },
                Some(fault) = faults.recv() => return Err(fault),
                () = &mut progress => {}
            }
        }
    }

    async fn stage(&self, target: PathBuf) -> Result<Staging, Failure> {
        let id = self.request.id.clone();
        let need = Need { bytes: self.request.required_bytes, entries: self.request.entries };
        blocking(move || Staging::for_target(&target, &id, need)).await
    }

    fn spawn_hops(&self) -> JoinSet<Result<(), Fault>> {
        let mut hops = JoinSet::new();
        for (tree, feed) in self.feeds.iter().enumerate() {
            for child in self.routes.children(tree, &self.node.name) {
                let supply = Supply {
                    feed: feed.clone(),
                    entries: self.entries.clone(),
                    dataset: self.dataset.subscribe(),
                    shelf: self.shelf.clone(),
                    seal: self.seal.subscribe(),
                    counters: self.node.counters.clone(),
                };
                let hop = Hop {
                    id: self.request.id.clone(),
                    tree,
                    from: self.node.name.clone(),
                    child,
                    identity: self.node.identity.clone(),
                };
                hops.spawn(push(hop, Outlet::new(supply)));
            }
        }
        hops
    }

    /// Stores, publishes and verifies what arrives.
    async fn receive(
        self: Arc<Self>,
        staging: Staging,
        target: PathBuf,
        arrivals: mpsc::Receiver<super::intake::Arrival>,
        events: &Events,
    ) -> Result<(), Failure> {
        let dataset = dataset(&mut self.dataset.subscribe()).await?;
        let holes = blocking({
            let this = self.clone();
            let dataset = dataset.clone();
            move || {
                let directory = staging.directory().try_clone_to_owned();
                let directory = directory.map_err(|error| Failure::writing(staging.path(), &error))?;
                let holes = staging.reports_holes();
                let store = Arc::new(Store::prepare(directory, staging.path().to_owned(), dataset)?);
                let _ = this.shelf.set(store.clone());
                Ok((staging, store, holes))
            }
        })
        .await?;
        let (mut staging, store, holes) = holes;
        let parents = Parents { feeds: self.feeds.clone(), acks: self.acks.clone() };
        let counters = self.node.counters.clone();
        Intake { arrivals, store: store.clone(), parents: Some(parents), counters }.run().await?;
        let digest = self.check_seal(&dataset).await?;
        self.complete.send_replace(true);
        staging = blocking(move || {
            store.finish()?;
            staging.publish()?;
            Ok(staging)
        })
        .await?;
        drop(staging);
        let bytes_received = self.received.load(Ordering::Relaxed);
        report(events, Event::Published(v1::FollowPublished { bytes_received })).await;
        let difference = blocking(move || verify::difference(&target, &dataset, holes)).await?;
        let verified = difference.is_none();
        let message = difference.unwrap_or_default();
        report(events, Event::Verified(v1::FollowVerified { verified, message, digest })).await;
        Ok(())
    }

    /// The digest, if what was sent last names what is here.
    async fn check_seal(&self, dataset: &Dataset) -> Result<String, Failure> {
        let mut seal = self.seal.subscribe();
        let seal = seal.wait_for(Option::is_some).await.map_err(|_| Failure::Cancelled)?.clone();
        let sealed = seal.ok_or(Failure::Cancelled)?;
        let digest = dataset.ledger.digest().map(|digest| digest.to_hex().to_string()).unwrap_or_default();
        let sent = wire::hash(&sealed.digest)?.to_hex().to_string();
        if sent != digest || sealed.chunks != dataset.layout.chunks() {
            let detail = format!("the dataset's digest is {digest}, the source sent {sent}");
            return Err(Failure::CorruptData { detail });
        }
        Ok(digest)
    }

    async fn report_progress(&self, events: &Events) {
        let mut last = 0;
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let bytes = self.dataset.borrow().as_ref().map_or(0, |dataset| dataset.ledger.progress().bytes);
            if bytes != last {
                last = bytes;
                // A coordinator that does not keep up gets the next one.
                let event = Event::Progress(v1::FollowProgress { bytes });
                let _ = events.try_send(Ok(v1::FollowEvent { event: Some(event) }));
            }
        }
    }

    /// Takes the call of a parent; its acknowledgements are the answer.
    pub(crate) fn accept(
        self: Arc<Self>,
        open: &v1::PushOpen,
        stream: Streaming<v1::PushMessage>,
    ) -> Result<mpsc::Receiver<Result<v1::PushAck, Status>>, Failure> {
        let tree = open.tree as usize;
        if self.routes.parent(tree, &self.node.name) != Some(open.from.as_str()) {
            let detail = format!("tree {tree} does not lead from {} to {}", open.from, self.node.name);
            return Err(Failure::InvalidRequest { detail });
        }
        let (way, acks) = mpsc::channel(64);
        let _ = way.try_send(Ok(v1::PushAck { ack: Some(Ack::Ready(v1::PushReady {})) }));
        if !self.acks.connect(tree, way) {
            return Err(Failure::invalid(format!("tree {tree} is pushed already")));
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
                        let detail = lost.err().map_or("it hung up".to_owned(), |status| super::hop::explain(&status));
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
                let place = self.feeds[tree].push_data(chunk, offset, &payload, length)?;
                if place == Place::Repair {
                    tracing::trace!(chunk, offset, "repair");
                }
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

    /// Ends the calls of parents; they learn why.
    async fn end(&self, fault: Option<&Fault>) {
        if let Some(fault) = fault {
            let error = v1::PushError { reason: fault.reason.clone(), message: fault.message.clone() };
            for tree in 0..self.routes.trees() {
                self.acks.offer(tree, Ack::Error(error.clone()));
            }
        }
        self.acks.close();
        let mut inbound = {
            let mut inbound = self.inbound.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *inbound)
        };
        inbound.shutdown().await;
    }
}

/// False when it never will.
async fn became_true(flag: &mut watch::Receiver<bool>) -> bool {
    flag.wait_for(|flag| *flag).await.is_ok()
}
