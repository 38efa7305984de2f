//! How does the agent of the source carry one broadcast from `Start` to its last event?

use std::collections::BTreeMap;
use std::sync::Arc;

use gridcast_core::broadcast::dataset;
use gridcast_proto::v1;
use gridcast_proto::v1::broadcast_event::Event;
use gridcast_proto::v1::relay_client::RelayClient;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::transport::Channel;

use super::chronicle::{Chronicle, Events, emit};
use super::copy::Copy;
use super::failure::{Failure, Fault, blocking, join_error};
use super::hop::{connect, control_endpoint, explain};
use super::landing;
use super::order::Order;
use super::origin::Origin;
use super::service::Node;
use super::transfer::{News, Transfer};

/// Events of all members that wait for the coordinator.
const QUEUE_EVENTS: usize = 256;

/// Runs one broadcast; its last event is `Finished` or `NodeFailed`.
pub(crate) async fn run(node: Arc<Node>, request: v1::StartBroadcastRequest, events: Events) {
    let started = Instant::now();
    let id = request.id.clone();
    let event = match broadcast(&node, request, started, &events).await {
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

async fn broadcast(
    node: &Arc<Node>,
    request: v1::StartBroadcastRequest,
    started: Instant,
    events: &Events,
) -> Result<v1::Finished, Fault> {
    let order = Order::check(node, request).map_err(|failure| Fault::new(&node.name, &failure))?;
    let _claim = node.claim(&order.request.id).map_err(|failure| Fault::new(&node.name, &failure))?;
    let cancelled = || Err(Fault::new(&node.name, &Failure::Cancelled));
    let Prepared { origin, channels, copy } = tokio::select! {
        prepared = prepare(node, &order, started, events) => prepared?,
        () = events.closed() => return cancelled(),
    };
    let mut transfer = Transfer::start(node, &order, origin, copy);
    let mut news = follow_all(&order, channels, &mut transfer);
    let chronicle =
        Chronicle::new(events, started, order.request.members.len(), order.request.store_at_source);
    let outcome = tokio::select! {
        outcome = transfer.watch(&order, &mut news, chronicle) => outcome,
        () = events.closed() => cancelled(),
    };
    // Members see their calls end and clean up, too.
    transfer.end().await;
    outcome
}

/// What a transfer begins with.
#[derive(Debug)]
struct Prepared {
    origin: Arc<Origin>,
    channels: Vec<Channel>,
    copy: Option<Copy>,
}

async fn prepare(
    node: &Arc<Node>,
    order: &Order,
    started: Instant,
    events: &Events,
) -> Result<Prepared, Fault> {
    let here = |failure: Failure| Fault::new(&node.name, &failure);
    // Handshakes and the scan take their time together.
    let path = order.source_path.clone();
    let chunk_bytes = order.chunk_bytes;
    let reader = node.clone();
    let scanned = async {
        blocking(move || Ok(Arc::new(Origin::new(reader.scan(&path)?, chunk_bytes)))).await.map_err(here)
    };
    let (origin, channels) = tokio::try_join!(scanned, connect_all(node, order))?;
    let known = &origin.dataset;
    tracing::debug!(id = order.request.id, elapsed = ?started.elapsed(), "scanned and connected");
    let opened = v1::Opened {
        size_bytes: origin.distinct_bytes(),
        files: dataset::files(&known.entries),
        entries: known.entries.len() as u64,
    };
    emit(events, Event::Opened(opened)).await;
    let mut copy = None;
    if order.request.store_at_source {
        let id = order.request.id.clone();
        let (target, known) = (order.target.clone(), known.clone());
        let arrival = landing::begin(node, &id, &node.name, target.clone()).await.map_err(here)?;
        copy = Some(blocking(move || Copy::prepare(target, &id, &known, arrival)).await.map_err(here)?);
    }
    Ok(Prepared { origin, channels, copy })
}

/// Connects to every member at once.
async fn connect_all(node: &Node, order: &Order) -> Result<Vec<Channel>, Fault> {
    let mut connecting = JoinSet::new();
    for (index, peer) in order.request.members.iter().enumerate() {
        let endpoint =
            control_endpoint(&node.identity, peer).map_err(|failure| Fault::new(&peer.name, &failure))?;
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
    channels: Vec<Channel>,
    transfer: &mut Transfer,
) -> mpsc::Receiver<(usize, News)> {
    let known = transfer.known();
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
        transfer.spawn_call(async move {
            let lost = follow(channel, request, index, &queue).await;
            // A member that ends its call after it has verified is done; the chronicle knows.
            let _ = queue.send((index, News::Lost(lost))).await;
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
