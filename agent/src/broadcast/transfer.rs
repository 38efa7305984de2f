//! What runs at the source while a broadcast travels?

use std::sync::{Arc, OnceLock};

use gridcast_core::broadcast::dataset;
use gridcast_proto::v1::{self, follow_event};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::chronicle::Chronicle;
use super::copy::Copy;
use super::dataset::Dataset;
use super::failure::{Failure, Fault, join_error};
use super::feed::Feed;
use super::hop::{Hop, push};
use super::order::Order;
use super::origin::{Origin, Shelf};
use super::outlet::{EntryLog, Outlet, Supply};
use super::schedule::Schedule;
use super::service::Node;
use super::source::{AHEAD_BYTES, Reader, SourceShelf, digest, seal};
use super::wire::entry_messages;
use super::{LEAST_SOURCE_RING_BYTES, SOURCE_RING_BYTES};

/// What a member said, or that it is gone.
#[derive(Debug)]
pub(crate) enum News {
    Said(follow_event::Event),
    Lost(String),
}

/// What a task of the source did.
#[derive(Debug)]
enum Done {
    Call,
    Hop,
    Read,
    /// All has been read once.
    Complete,
    /// The source's own copy was published, then compared.
    Published {
        at: Instant,
        bytes: u64,
    },
    Verified {
        difference: Option<String>,
    },
}

async fn copy_cancelled(copy: Option<&Copy>) {
    match copy {
        Some(copy) => copy.cancelled().await,
        None => std::future::pending().await,
    }
}

/// What runs at the source. Dropping it stops everything.
#[derive(Debug)]
pub(crate) struct Transfer {
    node: Arc<Node>,
    origin: Arc<Origin>,
    seal: watch::Sender<Option<v1::Seal>>,
    go: watch::Sender<bool>,
    tasks: JoinSet<Result<Done, Fault>>,
    copy: Option<Arc<Copy>>,
}

impl Transfer {
    /// What is sent.
    pub(crate) fn known(&self) -> Arc<Dataset> {
        self.origin.dataset.clone()
    }

    /// Runs a call to a member.
    pub(crate) fn spawn_call(&mut self, call: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            call.await;
            Ok(Done::Call)
        });
    }

    /// Starts hops (which connect at once) and readers (which wait until every member is ready).
    pub(crate) fn start(node: &Arc<Node>, order: &Order, origin: Arc<Origin>, copy: Option<Copy>) -> Self {
        let known = origin.dataset.clone();
        let trees = order.routes.trees();
        // Without members the copy alone is fed, by a tree that reaches nobody.
        let reach: Vec<usize> =
            if trees == 0 { vec![0] } else { (0..trees).map(|tree| order.routes.reach(tree)).collect() };
        let children = |tree| if trees == 0 { Vec::new() } else { order.routes.children(tree, &node.name) };
        let hops: usize = (0..reach.len()).map(|tree| children(tree).len()).sum();
        let schedule = Arc::new(Schedule::new(known.layout.chunks(), &reach));
        let entries = Arc::new(EntryLog::new(hops));
        for message in entry_messages(&known.entries) {
            entries.push(message);
        }
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
            copy,
        };
        let mut outlets = Vec::new();
        let (_, dataset) = watch::channel(Some(known));
        for tree in 0..reach.len() {
            let ring = (SOURCE_RING_BYTES / reach.len() as u64).max(LEAST_SOURCE_RING_BYTES);
            let feed = Arc::new(Feed::new(ring, node.counters.clone()));
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
                let outlet = Outlet::new(supply.clone(), order.routes.of(&child.name));
                transfer.spawn_hop(&order.request.id, tree, child, outlet, order.routes.hop_pace(tree));
            }
            if transfer.copy.is_some() {
                // It reads all trees.
                outlets.push(Outlet::new(supply, vec![true; reach.len()]));
            }
            let reader = Reader {
                origin: transfer.origin.clone(),
                schedule: schedule.clone(),
                tree,
                feed,
                pacing,
                ahead: AHEAD_BYTES.min(ring / 2),
                pace: order.routes.pace(tree),
            };
            transfer.spawn_reader(reader);
        }
        transfer.spawn_end();
        transfer.spawn_copy(outlets);
        transfer
    }

    fn spawn_hop(&mut self, id: &str, tree: usize, child: v1::Peer, outlet: Outlet, pace: Option<f64>) {
        let hop = Hop {
            id: id.to_owned(),
            tree,
            from: self.node.name.clone(),
            child,
            identity: self.node.identity.clone(),
            pace,
        };
        self.tasks.spawn(async move { push(hop, outlet).await.map(|()| Done::Hop) });
    }

    fn spawn_reader(&mut self, reader: Reader) {
        let mut go = self.go.subscribe();
        let name = self.node.name.clone();
        self.tasks.spawn(async move {
            if go.wait_for(|go| *go).await.is_err() {
                return Err(Fault::new(&name, &Failure::Cancelled));
            }
            reader.run().await.map(|()| Done::Read).map_err(|failure| Fault::new(&name, &failure))
        });
    }

    /// Tells when all has been read: members are complete long before slower ones have it, too.
    fn spawn_end(&mut self) {
        let mut progress = self.origin.dataset.ledger.watch();
        let name = self.node.name.clone();
        self.tasks.spawn(async move {
            let complete = progress.wait_for(|progress| progress.complete).await.map(|_| Done::Complete);
            complete.map_err(|_| Fault::new(&name, &Failure::Cancelled))
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
    pub(crate) async fn watch(
        &mut self,
        order: &Order,
        news: &mut mpsc::Receiver<(usize, News)>,
        mut chronicle: Chronicle<'_>,
    ) -> Result<v1::Finished, Fault> {
        let members = &order.request.members;
        self.go.send_replace(members.is_empty());
        while !chronicle.is_complete() {
            tokio::select! {
                () = copy_cancelled(self.copy.as_deref()) => return Err(self.fault(&Failure::Released)),
                Some((index, news)) = news.recv() => match news {
                    News::Said(event) => {
                        let everybody = chronicle.said(index, &members[index].name, event).await?;
                        if everybody {
                            self.go.send_replace(true);
                        }
                    }
                    News::Lost(detail) => chronicle.lost(index, &members[index].name, detail)?,
                },
                Some(joined) = self.tasks.join_next() => {
                    let done = joined.map_err(|error| self.fault(&join_error(&error)))??;
                    self.done(&mut chronicle, done).await?;
                }
                else => {
                    let detail = "nothing is left to wait for".to_owned();
                    return Err(self.fault(&Failure::Internal { detail }));
                }
            }
        }
        self.finished(chronicle.seconds())
    }

    /// Stops everything. What is left of the source's copy goes off the async threads.
    pub(crate) async fn end(mut self) {
        self.tasks.shutdown().await;
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    async fn done(&mut self, chronicle: &mut Chronicle<'_>, done: Done) -> Result<(), Fault> {
        match done {
            Done::Call | Done::Hop | Done::Read => {}
            Done::Complete => {
                let sealed = seal(self.origin.clone(), &self.seal).await;
                sealed.map_err(|failure| self.fault(&failure))?;
                chronicle.sealed();
            }
            Done::Published { at, bytes } => {
                chronicle.published(&self.node.name, at, bytes).await;
                self.spawn_verify();
            }
            Done::Verified { difference } => {
                chronicle.copied(&self.node.name, difference).await?;
            }
        }
        Ok(())
    }

    fn finished(&self, seconds: f64) -> Result<v1::Finished, Fault> {
        let known = self.known();
        let sealed = digest(&known).map_err(|failure| self.fault(&failure))?;
        let digest = super::wire::hash(&sealed.digest).map_err(|failure| self.fault(&failure))?;
        Ok(v1::Finished {
            digest: digest.to_hex().to_string(),
            size_bytes: self.origin.distinct_bytes(),
            files: dataset::files(&known.entries),
            source_bytes_read: self.origin.read_bytes(),
            seconds,
        })
    }

    fn fault(&self, failure: &Failure) -> Fault {
        Fault::new(&self.node.name, failure)
    }
}
