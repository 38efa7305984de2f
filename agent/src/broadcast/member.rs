//! What does a node do that follows a broadcast?

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gridcast_core::broadcast::dataset::checked_chunk_bytes;
use gridcast_proto::v1::follow_event::Event;
use gridcast_proto::v1::{self, push_ack::Ack};
use tokio::sync::{SetOnce, mpsc, watch};
use tokio::task::JoinSet;
use tonic::Status;

use super::dataset::Dataset;
use super::failure::{Failure, Fault, blocking, join_error};
use super::feed::Feed;
use super::hop::{Hop, push};
use super::inbound::Admitting;
use super::intake::{Acks, Arrival, Intake, IntakeSender, Parents, queue};
use super::landing::{self, Arrival as Admitted};
use super::origin::Shelf;
use super::outlet::{EntryLog, Outlet, Supply, dataset};
use super::routes::Routes;
use super::service::{Node, check_id};
use super::staging::{Need, Staging};
use super::store::Store;
use super::wire;
use super::{RING_BYTES, verify};

/// Between two reports of progress.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Events of a member on their way to the coordinator.
pub(crate) type Events = mpsc::Sender<Result<v1::FollowEvent, Status>>;

/// A broadcast that this node follows.
#[derive(Debug)]
pub(crate) struct Member {
    pub(super) node: Arc<Node>,
    pub(super) request: v1::FollowRequest,
    pub(super) routes: Routes,
    pub(super) chunk_bytes: u32,
    pub(super) feeds: Vec<Arc<Feed>>,
    pub(super) entries: Arc<EntryLog>,
    /// Which tree's entries are taken, and what came of them.
    pub(super) admitting: Mutex<(Option<usize>, Admitting)>,
    pub(super) dataset: watch::Sender<Option<Arc<Dataset>>>,
    pub(super) shelf: Arc<OnceLock<Arc<dyn Shelf>>>,
    pub(super) seal: watch::Sender<Option<v1::Seal>>,
    pub(super) intake: IntakeSender,
    pub(super) acks: Arc<Acks>,
    /// Everything is stored and its digest is right.
    pub(super) complete: watch::Sender<bool>,
    /// What the node's registry of datasets knows it by.
    pub(super) arrival: SetOnce<Arc<dyn Admitted>>,
    /// Where it is built.
    pub(super) staging: Mutex<Option<Staging>>,
    /// What those who receive found out.
    pub(super) faults: mpsc::Sender<Fault>,
    pub(super) received: AtomicU64,
    /// Calls of parents.
    pub(super) inbound: Mutex<JoinSet<()>>,
}

/// What only [`Member::follow`] reads.
#[derive(Debug)]
struct Ends {
    arrivals: mpsc::Receiver<Arrival>,
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
    let here = |failure: Failure| Fault::new(&node.name, &failure);
    let outcome = tokio::select! {
        outcome = member.clone().follow(ends, &events) => outcome,
        () = events.closed() => Err(here(Failure::Cancelled)),
        () = member.released() => Err(here(Failure::Released)),
    };
    node.forget(&id, &member);
    if let (Err(fault), Some(arrival)) = (&outcome, member.arrival.get()) {
        arrival.failed(&fault.reason, &fault.message);
    }
    member.end(outcome.as_ref().err()).await;
    // Off the async threads: it may hold many files.
    let _ = tokio::task::spawn_blocking(move || {
        drop(member.staging().take());
        // Only now may another transfer have the target.
        drop(member);
    })
    .await;
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
            arrival: SetOnce::new(),
            staging: Mutex::new(None),
            faults,
            received: AtomicU64::new(0),
            inbound: Mutex::default(),
        };
        Ok((Arc::new(member), Ends { arrivals, faults: found }))
    }

    async fn follow(self: Arc<Self>, ends: Ends, events: &Events) -> Result<(), Fault> {
        let Ends { arrivals, mut faults } = ends;
        let here = |failure: Failure| Fault::new(&self.node.name, &failure);
        self.clone().stage().await.map_err(here)?;
        self.node.register(&self.request.id, &self).map_err(here)?;
        report(events, Event::Ready(v1::FollowReady {})).await;
        let mut hops = self.spawn_hops();
        let receive = self.clone().receive(arrivals, events);
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

    async fn stage(self: Arc<Self>) -> Result<(), Failure> {
        let target = self.node.local(&self.request.target)?;
        let (id, source) = (&self.request.id, &self.request.source);
        if let Some(arrival) = landing::begin(&self.node, id, source, target.clone()).await? {
            let _ = self.arrival.set(arrival);
        }
        blocking(move || {
            let need = Need { bytes: self.request.required_bytes, entries: self.request.entries };
            *self.staging() = Some(Staging::for_target(&target, &self.request.id, need)?);
            Ok(())
        })
        .await
    }

    /// Ready when the dataset is not wanted any more.
    async fn released(&self) {
        let arrival = self.arrival.wait().await;
        arrival.cancelled().await;
    }

    fn staging(&self) -> MutexGuard<'_, Option<Staging>> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn_hops(&self) -> JoinSet<Result<(), Fault>> {
        let mut hops = JoinSet::new();
        for (tree, feed) in self.feeds.iter().enumerate() {
            for child in self.routes.children(tree, &self.node.name) {
                let of = self.routes.of(&child.name);
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
                    pace: self.routes.hop_pace(tree),
                };
                hops.spawn(push(hop, Outlet::new(supply, of)));
            }
        }
        hops
    }

    /// Stores, publishes and verifies what arrives.
    async fn receive(
        self: Arc<Self>,
        arrivals: mpsc::Receiver<Arrival>,
        events: &Events,
    ) -> Result<(), Failure> {
        let dataset = dataset(&mut self.dataset.subscribe()).await?;
        let this = self.clone();
        let known = dataset.clone();
        let (store, holes) = blocking(move || this.prepare(known)).await?;
        let parents = Parents { feeds: self.feeds.clone(), acks: self.acks.clone() };
        let counters = self.node.counters.clone();
        Intake { arrivals, store: store.clone(), parents: Some(parents), counters }.run().await?;
        let digest = self.check_seal(&dataset).await?;
        self.complete.send_replace(true);
        let this = self.clone();
        blocking(move || {
            store.finish()?;
            this.staging().as_mut().map_or(Err(Failure::Cancelled), Staging::publish)
        })
        .await?;
        let bytes_received = self.received.load(Ordering::Relaxed);
        report(events, Event::Published(v1::FollowPublished { bytes_received })).await;
        let target = self.node.local(&self.request.target)?;
        let arrival = self.arrival.get().cloned();
        let difference = blocking(move || {
            let difference = verify::difference(&target, &dataset, holes);
            if let Some(arrival) = arrival.filter(|_| difference.is_none()) {
                arrival.verified(&dataset.arrived())?;
            }
            Ok(difference)
        })
        .await?;
        let verified = difference.is_none();
        let message = difference.unwrap_or_default();
        report(events, Event::Verified(v1::FollowVerified { verified, message, digest })).await;
        Ok(())
    }

    /// Makes directories and the like; from now on children can be served. Also says whether the file system reports holes.
    fn prepare(&self, dataset: Arc<Dataset>) -> Result<(Arc<Store>, bool), Failure> {
        let (directory, path, holes) = {
            let staging = self.staging();
            let staging = staging.as_ref().ok_or(Failure::Cancelled)?;
            let directory = staging.directory().try_clone_to_owned();
            let directory = directory.map_err(|error| Failure::writing(staging.path(), &error))?;
            (directory, staging.path().to_owned(), staging.reports_holes())
        };
        let store = Arc::new(Store::prepare(directory, path, dataset)?);
        let _ = self.shelf.set(store.clone());
        Ok((store, holes))
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
            // What comes after that is `Published`, which says it all.
            if bytes != last && !*self.complete.borrow() {
                last = bytes;
                if let Some(arrival) = self.arrival.get() {
                    let known = self.dataset.borrow().clone();
                    arrival.progress(bytes, known.map_or(0, |dataset| dataset.data_bytes()));
                }
                // A coordinator that does not keep up gets the next one.
                let event = Event::Progress(v1::FollowProgress { bytes });
                let _ = events.try_send(Ok(v1::FollowEvent { event: Some(event) }));
            }
        }
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
