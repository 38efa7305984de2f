//! How does one node speak for its cluster?
//!
//! The gRPC services `Agent` (asked by a controller) and `Sink` (asked by fellow agents), and the server that holds
//! them together with the broadcast's. Nothing here ticks: an idle agent sleeps.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::{Stream, StreamExt as _, stream};
use gridcast_core::failure::chain;
use gridcast_proto::v1 as wire;
use gridcast_proto::v1::agent_server::{Agent, AgentServer};
use gridcast_proto::v1::broadcasts_server::BroadcastsServer;
use gridcast_proto::v1::relay_server::RelayServer;
use gridcast_proto::v1::sink_client::SinkClient;
use gridcast_proto::v1::sink_server::{Sink as SinkService, SinkServer};
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::broadcast;
use crate::facts;
use crate::probe::{BandwidthPlan, Expectation, LatencyPlan, ProbeError, Prober, Reflector, Sink, SinkOrder};
use crate::tls::{Identity, TlsError, peer_address};
use crate::tune::{Applied, TuneError, Tuner};

/// How long a peer's answer to a small call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Calls at once on one connection: a controller has a handful, a relay one.
const MAX_CALLS: u32 = 256;
/// How long running calls may take to end after the agent was told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// How an agent is started.
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

/// Serves until `stop` is ready, then lets running calls end for five seconds.
pub async fn serve(options: Options, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let identity = Arc::new(Identity::load(&options.keys)?);
    let tuner = Tuner::open(&options.state)?;
    if !tuner.entries().is_empty() {
        tracing::info!(settings = tuner.entries().len(), "settings of an earlier agent are still applied");
    }
    let probes = SocketAddr::new(options.listen.ip(), options.probe_port);
    let reflector = Reflector::start(probes)?;
    let sink = Sink::bind(probes).await?;
    let (stopping, watched) = watch::channel(false);
    let node = Node(Arc::new(Shared {
        name: options.name.clone(),
        probe_port: options.probe_port,
        identity: Arc::clone(&identity),
        prober: Prober::default(),
        sink,
        tuner: Mutex::new(tuner),
        stopping: watched,
    }));
    let broadcast = broadcast::Service::new(options.name.clone(), identity.as_ref().clone());

    let incoming = TcpIncoming::bind(options.listen)
        .with_context(|| {
            format!("cannot listen at {}: stop what listens there, or give --listen", options.listen)
        })?
        .with_nodelay(Some(true));
    let router = broadcast::tune_server(Server::builder())
        .max_concurrent_streams(MAX_CALLS)
        .tls_config(identity.server_config())
        .with_context(|| format!("the keys of {} cannot be used", options.keys.display()))?
        .add_service(AgentServer::new(node.clone()))
        .add_service(SinkServer::new(node))
        .add_service(BroadcastsServer::new(broadcast.clone()))
        .add_service(RelayServer::new(broadcast));
    tracing::info!(name = options.name, listen = %options.listen, probes = %reflector.address(), "ready");

    let mut told = stopping.subscribe();
    let serving = router.serve_with_incoming_shutdown(incoming, async move {
        let _ = told.wait_for(|stopping| *stopping).await;
    });
    let stopped = async {
        stop.await;
        tracing::info!("stopping");
        // Ends the watchers, too; without that the server would wait for them.
        let _ = stopping.send(true);
        tokio::time::sleep(STOP_GRACE).await;
    };
    tokio::select! {
        served = serving => served.context("the gRPC server failed"),
        () = stopped => Ok(()),
    }
}

struct Shared {
    name: String,
    probe_port: u16,
    identity: Arc<Identity>,
    prober: Prober,
    sink: Sink,
    tuner: Mutex<Tuner>,
    stopping: watch::Receiver<bool>,
}

/// The services of one node.
#[derive(Clone)]
struct Node(Arc<Shared>);

impl Node {
    /// Runs `work` on the tuner, off the runtime's workers: it syncs files.
    async fn tune<T, W>(&self, work: W) -> Result<T, Status>
    where
        T: Send + 'static,
        W: FnOnce(&mut Tuner) -> Result<T, TuneError> + Send + 'static,
    {
        let shared = Arc::clone(&self.0);
        let task = tokio::task::spawn_blocking(move || {
            // Whatever a panic left half done is in the journal.
            work(&mut shared.tuner.lock().unwrap_or_else(PoisonError::into_inner))
        });
        Ok(task.await.map_err(|_| Status::internal("the change of settings was interrupted"))??)
    }

    /// Asks the peer's sink for a token.
    async fn announce(&self, peer: &wire::Peer, ask: wire::ExpectRequest) -> Result<Expectation, Status> {
        let channel =
            self.0.identity.endpoint(peer)?.timeout(CALL_TIMEOUT).connect().await.map_err(|error| {
                Status::unavailable(format!("cannot reach agent {}: {}", peer.name, chain(&error)))
            })?;
        let mut sink = SinkClient::new(channel);
        let reply = sink.expect(ask).await.map_err(|status| {
            Status::new(status.code(), format!("agent {} expects no probe: {}", peer.name, status.message()))
        })?;
        let wire::ExpectReply { token, port } = reply.into_inner();
        let bad = || Status::internal(format!("agent {} answered with no usable token", peer.name));
        let port = u16::try_from(port).map_err(|_| bad())?;
        let token = token.as_ref().try_into().map_err(|_| bad())?;
        Ok(Expectation { address: SocketAddr::new(peer_address(peer)?.ip(), port), token })
    }
}

#[tonic::async_trait]
impl Agent for Node {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<wire::WatchEvent, Status>> + Send>>;

    async fn describe(
        &self,
        _: Request<wire::DescribeRequest>,
    ) -> Result<Response<wire::DescribeReply>, Status> {
        Ok(Response::new(facts::describe(&self.0.name, self.0.probe_port)))
    }

    /// One event at once, so that a watcher knows that it watches; then silence until the agent stops.
    async fn watch(&self, _: Request<wire::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let mut stopping = self.0.stopping.clone();
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
        let ask = request.into_inner();
        let peer = ask.peer.ok_or_else(no_peer)?;
        let plan = LatencyPlan::new(
            // One probe port in the whole cluster: no call to the peer before a packet can be sent.
            SocketAddr::new(peer_address(&peer)?.ip(), self.0.probe_port),
            ask.payload_bytes,
            ask.count,
            ask.interval_micros,
            ask.timeout_millis,
        )?;
        let result = self.0.prober.latency(plan).await?;
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
        let wire::ProbeBandwidthRequest { peer, duration_millis, omit_millis, streams, .. } =
            request.into_inner();
        let peer = peer.ok_or_else(no_peer)?;
        let order = SinkOrder::new(streams, omit_millis, duration_millis)?;
        let ask = wire::ExpectRequest {
            streams: streams.max(1),
            omit_millis,
            duration_millis,
            ..Default::default()
        };
        let announce = self.announce(&peer, ask);
        let result = self.0.prober.bandwidth(BandwidthPlan::new(order), announce).await?;
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
        let wire::ApplySettingsRequest { owner, settings, dry_run, .. } = request.into_inner();
        let settings: Vec<_> = settings.into_iter().map(|setting| (setting.key, setting.value)).collect();
        let applied = self.tune(move |tuner| tuner.apply(&owner, &settings, dry_run)).await?;
        let settings = applied.into_iter().map(applied_setting).collect();
        Ok(Response::new(wire::ApplySettingsReply { settings }))
    }

    async fn restore_settings(
        &self,
        request: Request<wire::RestoreSettingsRequest>,
    ) -> Result<Response<wire::RestoreSettingsReply>, Status> {
        let owner = request.into_inner().owner;
        let restored = self.tune(move |tuner| tuner.restore(&owner)).await?;
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
        let ask = request.into_inner();
        let order = SinkOrder::new(ask.streams, ask.omit_millis, ask.duration_millis)?;
        let token = self.0.sink.expect(order)?.to_vec().into();
        Ok(Response::new(wire::ExpectReply { token, port: self.0.sink.port().into() }))
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
