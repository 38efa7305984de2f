//! How does one node speak for its cluster?
//!
//! The gRPC services `Agent` (asked by a controller) and `Sink` (asked by fellow agents), and the server that holds
//! them together with the broadcast's. Nothing here ticks: an idle agent sleeps.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures::{Stream, StreamExt as _, stream};
use gridcast_core::failure::chain;
use gridcast_proto::v1 as wire;
use gridcast_proto::v1::agent_server::{Agent, AgentServer};
use gridcast_proto::v1::sink_client::SinkClient;
use gridcast_proto::v1::sink_server::{Sink as SinkService, SinkServer};
use tokio::sync::{Notify, watch};
use tonic::service::RoutesBuilder;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::access::{Call, caller};
use crate::broadcast;
use crate::listener::listen;
use crate::namespace::Namespace;
use crate::node::pods::Pods;
use crate::probe::{BandwidthPlan, Expectation, LatencyPlan, ProbeError, SinkOrder, Turns};
use crate::space::{Place, Space};
use crate::tls::{Identity, TlsError, peer_address};
use crate::tune::{Applied, TuneError};

/// How long a peer's answer to a small call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Calls at once on one connection: a controller has a handful, a relay one.
const MAX_CALLS: u32 = 256;
/// How long running calls may take to end after the agent was told to stop; the whole must fit into five seconds.
const STOP_GRACE: Duration = Duration::from_millis(4_500);

/// How an agent of a run is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The node's name.
    pub name: String,
    /// Where the gRPC server listens.
    pub listen: SocketAddr,
    /// UDP reflector and TCP sink, on the same address.
    pub probe_port: u16,
    /// Directory with `ca.pem`, `cert.pem`, `key.pem`.
    pub keys: PathBuf,
    /// Directory for the journal of settings.
    pub state: PathBuf,
}

/// Serves until `stop` is ready, then lets running calls end for a moment.
pub async fn serve(options: Options, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let Options { name, listen, probe_port, keys, state } = options;
    let identity = Identity::load(&keys)?;
    let space = Space::new(Place {
        namespace: Namespace::default(),
        proc: PathBuf::from("/proc"),
        group: Some(PathBuf::from("/proc/self/cgroup")),
        probes: SocketAddr::new(listen.ip(), probe_port),
        journal: state,
        turns: Turns::default(),
    });
    let (stopping, _) = watch::channel(false);
    let node = Node::open(name.clone(), identity.clone(), space, None, stopping).await?;
    let broadcast = broadcast::Service::new(name, identity);
    let mut services = RoutesBuilder::default();
    node.add_to(&mut services);
    services.add_service(broadcast.broadcasts()).add_service(broadcast.relay());
    node.serve(listen, services, None, || (), stop).await
}

/// What this agent has done, for metrics.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) latency_probes: AtomicU64,
    pub(crate) bandwidth_probes: AtomicU64,
    pub(crate) settings_applied: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    name: String,
    identity: Identity,
    /// The agent's own network namespace.
    space: Space,
    /// None where the agent is not that of a Kubernetes node.
    pods: Option<Pods>,
    meters: Arc<Meters>,
    stopping: watch::Sender<bool>,
}

/// The services of one node.
#[derive(Clone, Debug)]
pub(crate) struct Node(Arc<Shared>);

/// Where a call is to happen.
enum Where {
    Here(Arc<Shared>),
    Pod(Arc<Space>),
}

impl std::ops::Deref for Where {
    type Target = Space;

    fn deref(&self) -> &Space {
        match self {
            Self::Here(shared) => &shared.space,
            Self::Pod(space) => space,
        }
    }
}

impl Node {
    /// Opens the probe ports and the journal of `space`, the agent's own. `stopping` becomes true when it is told to stop.
    pub(crate) async fn open(
        name: String,
        identity: Identity,
        space: Space,
        pods: Option<Pods>,
        stopping: watch::Sender<bool>,
    ) -> anyhow::Result<Self> {
        let held = space.held().await.map_err(|status| anyhow::anyhow!(status.message().to_owned()))?;
        if held > 0 {
            tracing::info!(settings = held, "settings of an earlier agent are still applied");
        }
        space.listen().await?;
        let meters = Arc::default();
        Ok(Self(Arc::new(Shared { name, identity, space, pods, meters, stopping })))
    }

    /// What this agent has done.
    pub(crate) fn meters(&self) -> Arc<Meters> {
        self.0.meters.clone()
    }

    /// Becomes true when the agent was told to stop.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.0.stopping.subscribe()
    }

    pub(crate) fn add_to(&self, services: &mut RoutesBuilder) {
        services.add_service(AgentServer::new(self.clone())).add_service(SinkServer::new(self.clone()));
    }

    /// Serves `services` at `address` until `stop` is ready, then lets running calls end for a moment. `refused` is told of
    /// clients whose handshake failed, `ready` is called when all listens.
    pub(crate) async fn serve(
        &self,
        address: SocketAddr,
        services: RoutesBuilder,
        refused: Option<Arc<Notify>>,
        ready: impl FnOnce(),
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let identity = self.0.identity.clone();
        // Found out now rather than by the first client.
        identity.acceptor()?;
        let incoming = listen(address, identity, refused).await.with_context(|| {
            format!("cannot listen at {address}: stop what listens there, or give --listen")
        })?;
        let router = broadcast::tune_server(Server::builder())
            .max_concurrent_streams(MAX_CALLS)
            .add_routes(services.routes());
        let probes = self.0.space.listen().await?;
        tracing::info!(name = self.0.name, listen = %address, %probes, "ready");
        ready();
        let mut told = self.stopping();
        let serving = router.serve_with_incoming_shutdown(incoming, async move {
            let _ = told.wait_for(|stopping| *stopping).await;
        });
        let stopped = async {
            stop.await;
            tracing::info!("stopping");
            // Ends the watchers, too; without that the server would wait for them.
            self.0.stopping.send_replace(true);
            tokio::time::sleep(STOP_GRACE).await;
        };
        tokio::select! {
            served = serving => served.context("the gRPC server failed"),
            () = stopped => Ok(()),
        }
    }

    /// Changes no setting any more; journals that hold nothing are removed.
    pub(crate) async fn close(&self) -> Result<(), Status> {
        if let Some(pods) = &self.0.pods {
            pods.close().await?;
        }
        self.0.space.close().await
    }

    /// Where the pod with this UID is, or the agent itself where it is empty.
    async fn at(&self, pod: &str) -> Result<Where, Status> {
        if pod.is_empty() {
            return Ok(Where::Here(self.0.clone()));
        }
        Ok(Where::Pod(self.pods(pod)?.get(pod).await?))
    }

    fn pods(&self, pod: &str) -> Result<&Pods, Status> {
        self.0.pods.as_ref().ok_or_else(|| {
            let pod = pod.escape_debug();
            let text = format!(
                "pod is `{pod}`, but only the agent of a Kubernetes node (`gridcast-agent node`) knows pods"
            );
            Status::failed_precondition(text)
        })
    }

    /// Asks the peer's sink for a token, over the node's own network, whatever namespace the probe then takes place in.
    async fn announce(&self, peer: &wire::Peer, order: SinkOrder) -> Result<Expectation, Status> {
        let channel =
            self.0.identity.endpoint(peer)?.timeout(CALL_TIMEOUT).connect().await.map_err(|error| {
                Status::unavailable(format!("cannot reach agent {}: {}", peer.name, chain(&error)))
            })?;
        let mut sink = SinkClient::new(channel);
        let reply = sink.expect(order.announcement(&peer.pod)).await.map_err(|status| {
            let (agent, receiver) = (&peer.name, probe_name(peer));
            let text = format!("agent {agent} expects no probe of {receiver}: {}", status.message());
            Status::new(status.code(), text)
        })?;
        let wire::ExpectReply { token, port } = reply.into_inner();
        let bad = || Status::internal(format!("agent {} answered with no usable token", peer.name));
        let port = u16::try_from(port).map_err(|_| bad())?;
        let token = token.as_ref().try_into().map_err(|_| bad())?;
        Ok(Expectation { address: SocketAddr::new(probe_ip(peer)?, port), token })
    }
}

/// Where probes of a peer are sent to: into its pod, or to its agent.
fn probe_ip(peer: &wire::Peer) -> Result<IpAddr, Status> {
    if peer.probe_address.is_empty() {
        return Ok(peer_address(peer)?.ip());
    }
    let name = probe_name(peer).to_owned();
    let refused = |_| TlsError::Address { name, address: peer.probe_address.clone() };
    Ok(peer.probe_address.parse().map_err(refused)?)
}

fn probe_name(peer: &wire::Peer) -> &str {
    if peer.probe_name.is_empty() { &peer.name } else { &peer.probe_name }
}

fn count(meter: &AtomicU64, more: usize) {
    meter.fetch_add(more as u64, Ordering::Relaxed);
}

#[tonic::async_trait]
impl Agent for Node {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<wire::WatchEvent, Status>> + Send>>;

    async fn describe(
        &self,
        request: Request<wire::DescribeRequest>,
    ) -> Result<Response<wire::DescribeReply>, Status> {
        caller(&self.0.identity, &request, Call::Agent)?;
        let place = self.at(&request.into_inner().pod).await?;
        Ok(Response::new(place.describe(&self.0.name).await?))
    }

    /// One event at once, so that a watcher knows that it watches; then silence until the agent stops.
    async fn watch(
        &self,
        request: Request<wire::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        caller(&self.0.identity, &request, Call::Agent)?;
        let mut stopping = self.stopping();
        let name = self.0.name.clone();
        let here = stream::once(async { Ok(wire::WatchEvent {}) });
        let gone = stream::once(async move {
            let _ = stopping.wait_for(|stopping| *stopping).await;
            Err(Status::unavailable(format!("agent {name} is stopping")))
        });
        Ok(Response::new(here.chain(gone).boxed()))
    }

    async fn probe_latency(
        &self,
        request: Request<wire::ProbeLatencyRequest>,
    ) -> Result<Response<wire::ProbeLatencyReply>, Status> {
        caller(&self.0.identity, &request, Call::Agent)?;
        let ask = request.into_inner();
        let peer = ask.peer.ok_or_else(no_peer)?;
        let place = self.at(&ask.pod).await?;
        let plan = LatencyPlan::new(
            // One probe port in the whole cluster: no call to the peer before a packet can be sent.
            SocketAddr::new(probe_ip(&peer)?, place.probe_port()),
            ask.payload_bytes,
            ask.count,
            ask.interval_micros,
            ask.timeout_millis,
        )?;
        let result = place.latency(plan).await?;
        count(&self.0.meters.latency_probes, 1);
        Ok(Response::new(wire::ProbeLatencyReply {
            sent: result.sent,
            rtt_nanos: result.rtt_nanos,
            duplicates: result.duplicates,
            reordered: result.reordered,
            timestamps: if result.kernel_timestamps { "kernel" } else { "user" }.to_owned(),
        }))
    }

    async fn probe_bandwidth(
        &self,
        request: Request<wire::ProbeBandwidthRequest>,
    ) -> Result<Response<wire::ProbeBandwidthReply>, Status> {
        caller(&self.0.identity, &request, Call::Agent)?;
        let wire::ProbeBandwidthRequest { peer, duration_millis, omit_millis, streams, pod } =
            request.into_inner();
        let peer = peer.ok_or_else(no_peer)?;
        let order = SinkOrder::new(streams, omit_millis, duration_millis)?;
        let place = self.at(&pod).await?;
        let announce = self.announce(&peer, order);
        let result = place.bandwidth(BandwidthPlan::new(order), announce).await?;
        count(&self.0.meters.bandwidth_probes, 1);
        Ok(Response::new(wire::ProbeBandwidthReply {
            mbps: result.mbps(),
            bytes: result.bytes,
            retransmits: result.retransmits,
            min_rtt_nanos: result.min_rtt.as_nanos() as u64,
        }))
    }

    async fn apply_settings(
        &self,
        request: Request<wire::ApplySettingsRequest>,
    ) -> Result<Response<wire::ApplySettingsReply>, Status> {
        caller(&self.0.identity, &request, Call::Agent)?;
        let wire::ApplySettingsRequest { owner, settings, dry_run, pod } = request.into_inner();
        let settings: Vec<_> = settings.into_iter().map(|setting| (setting.key, setting.value)).collect();
        let applied = self.at(&pod).await?.apply(owner, settings, dry_run).await?;
        if !dry_run {
            let done = applied.iter().filter(|setting| setting.error.is_none()).count();
            count(&self.0.meters.settings_applied, done);
        }
        let settings = applied.into_iter().map(applied_setting).collect();
        Ok(Response::new(wire::ApplySettingsReply { settings }))
    }

    async fn restore_settings(
        &self,
        request: Request<wire::RestoreSettingsRequest>,
    ) -> Result<Response<wire::RestoreSettingsReply>, Status> {
        caller(&self.0.identity, &request, Call::Agent)?;
        let wire::RestoreSettingsRequest { owner, pod } = request.into_inner();
        let restored = if pod.is_empty() {
            self.0.space.restore(owner).await?
        } else {
            match self.pods(&pod)?.tuned(&pod).await? {
                Some(space) => space.restore(owner).await?,
                None => Vec::new(),
            }
        };
        let settings = restored
            .into_iter()
            .map(|setting| wire::RestoredSetting {
                key: setting.key,
                restored: setting.restored,
                now: setting.now,
            })
            .collect();
        Ok(Response::new(wire::RestoreSettingsReply { settings }))
    }
}

#[tonic::async_trait]
impl SinkService for Node {
    async fn expect(
        &self,
        request: Request<wire::ExpectRequest>,
    ) -> Result<Response<wire::ExpectReply>, Status> {
        caller(&self.0.identity, &request, Call::Expect)?;
        let wire::ExpectRequest { streams, omit_millis, duration_millis, pod } = request.into_inner();
        let order = SinkOrder::new(streams, omit_millis, duration_millis)?;
        let (token, port) = self.at(&pod).await?.expect(order).await?;
        Ok(Response::new(wire::ExpectReply { token: token.into(), port: port.into() }))
    }
}

/// The error begins with its one word: `Conflict: net.ipv4.tcp_rmem is held by …`.
fn applied_setting(setting: Applied) -> wire::AppliedSetting {
    let error = setting.error.map(|error| format!("{}: {}", error.reason(), chain(&error)));
    wire::AppliedSetting {
        key: setting.key,
        before: setting.before,
        applied: setting.applied,
        error: error.unwrap_or_default(),
    }
}

fn no_peer() -> Status {
    Status::invalid_argument("peer is missing: give its name, address and port")
}

impl From<ProbeError> for Status {
    fn from(error: ProbeError) -> Self {
        let text = chain(&error);
        match error {
            ProbeError::Argument { .. } => Self::invalid_argument(text),
            ProbeError::Busy { .. } => Self::resource_exhausted(text),
            ProbeError::NoReflector { .. } | ProbeError::PeerClosed { .. } | ProbeError::System { .. } => {
                Self::unavailable(text)
            }
            ProbeError::NoResult { .. } => Self::deadline_exceeded(text),
            ProbeError::Cancelled => Self::cancelled(text),
        }
    }
}

impl From<TlsError> for Status {
    fn from(error: TlsError) -> Self {
        let text = chain(&error);
        match error {
            TlsError::Address { .. } | TlsError::Port { .. } => Self::invalid_argument(text),
            _ => Self::failed_precondition(text),
        }
    }
}

impl From<TuneError> for Status {
    fn from(error: TuneError) -> Self {
        let text = chain(&error);
        match error {
            TuneError::Owner | TuneError::TooMany { .. } => Self::invalid_argument(text),
            TuneError::Journal(_) | TuneError::Namespace(_) => Self::failed_precondition(text),
        }
    }
}
