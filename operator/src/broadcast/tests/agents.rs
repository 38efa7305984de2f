//! Agents in this process, on loopback: real calls, and everything that was asked is known.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use gridcast_control::Remote;
use gridcast_proto::v1::{
    self as wire,
    agent_server::{Agent, AgentServer},
    broadcast_event::Event,
    broadcasts_server::{Broadcasts, BroadcastsServer},
    datasets_server::{Datasets, DatasetsServer},
};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, transport::Endpoint};

/// What one agent does, and what it was asked.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) name: String,
    /// `Prepare` says that it is there.
    pub(crate) verified: bool,
    /// `Prepare` is refused.
    pub(crate) refuses: bool,
    /// Pods that have the dataset mounted.
    pub(crate) mounted: Vec<String>,
    /// Where it keeps data.
    pub(crate) target: String,
    pub(crate) size_bytes: u64,
    pub(crate) rtt_nanos: u64,
    /// Of a source: the node that fails, after the others have verified it.
    pub(crate) fails: Option<(String, &'static str)>,
    /// Of a source: not answering `Inspect` so many times.
    pub(crate) deaf: u32,
    pub(crate) asked: Vec<String>,
    pub(crate) started: Vec<wire::StartBroadcastRequest>,
    pub(crate) prepared: Vec<wire::PrepareRequest>,
}

#[derive(Clone)]
pub(crate) struct Fake(pub(crate) Arc<Mutex<Script>>);

impl Fake {
    fn act<T>(&self, call: &str, act: impl FnOnce(&mut Script) -> T) -> T {
        let mut script = self.0.lock().unwrap();
        script.asked.push(call.to_owned());
        act(&mut script)
    }
}

#[tonic::async_trait]
impl Datasets for Fake {
    async fn prepare(
        &self,
        request: Request<wire::PrepareRequest>,
    ) -> Result<Response<wire::PrepareReply>, Status> {
        self.act("prepare", |script| {
            script.prepared.push(request.into_inner());
            if script.refuses {
                return Err(Status::failed_precondition("the directory is somebody else's"));
            }
            Ok(Response::new(wire::PrepareReply {
                target: script.target.clone(),
                verified: script.verified,
                digest: if script.verified { "d".repeat(64) } else { String::new() },
                size_bytes: if script.verified { 7 } else { 0 },
                files: u64::from(script.verified),
            }))
        })
    }

    async fn release(
        &self,
        request: Request<wire::ReleaseRequest>,
    ) -> Result<Response<wire::ReleaseReply>, Status> {
        let keep = request.into_inner().keep_data;
        self.act(&format!("release keep={keep}"), |script| {
            let pods = script.mounted.clone();
            Ok(Response::new(wire::ReleaseReply { released: pods.is_empty(), pods }))
        })
    }

    async fn list(
        &self,
        _: Request<wire::ListDatasetsRequest>,
    ) -> Result<Response<wire::ListDatasetsReply>, Status> {
        Err(Status::unimplemented("list"))
    }
}

#[tonic::async_trait]
impl Broadcasts for Fake {
    type StartStream = ReceiverStream<Result<wire::BroadcastEvent, Status>>;

    async fn start(
        &self,
        request: Request<wire::StartBroadcastRequest>,
    ) -> Result<Response<Self::StartStream>, Status> {
        let request = request.into_inner();
        let (size, fails, own) = self.act("start", |script| {
            script.started.push(request.clone());
            (script.size_bytes, script.fails.clone(), script.name.clone())
        });
        let (events, stream) = tokio::sync::mpsc::channel(64);
        tokio::spawn(async move {
            let mut nodes: Vec<String> = request.members.into_iter().map(|member| member.name).collect();
            nodes.extend(request.store_at_source.then_some(own));
            let mut say = vec![Event::Opened(wire::Opened { size_bytes: size, files: 2, entries: 3 })];
            for node in nodes.iter().filter(|node| fails.as_ref().is_none_or(|(failing, _)| failing != *node))
            {
                let node = node.clone();
                say.push(Event::Progress(wire::NodeProgress { node: node.clone(), bytes: size / 2 }));
                say.push(Event::Published(wire::NodePublished {
                    node: node.clone(),
                    seconds: 0.5,
                    bytes_received: size,
                }));
                say.push(Event::Verified(wire::NodeVerified {
                    node,
                    verified: true,
                    message: String::new(),
                }));
            }
            say.push(match fails {
                Some((node, reason)) => {
                    let message = format!("{node}: it went wrong");
                    Event::Failed(wire::NodeFailed { node, reason: reason.into(), message })
                }
                None => Event::Finished(wire::Finished {
                    digest: "e".repeat(64),
                    size_bytes: size,
                    files: 2,
                    source_bytes_read: size,
                    seconds: 0.5,
                }),
            });
            for event in say {
                let _ = events.send(Ok(wire::BroadcastEvent { event: Some(event) })).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn inspect(&self, _: Request<wire::InspectRequest>) -> Result<Response<wire::Opened>, Status> {
        self.act("inspect", |script| {
            if script.deaf > 0 {
                script.deaf -= 1;
                return Err(Status::unavailable("not yet"));
            }
            Ok(Response::new(wire::Opened { size_bytes: script.size_bytes, files: 2, entries: 3 }))
        })
    }

    async fn collect(
        &self,
        _: Request<wire::CollectRequest>,
    ) -> Result<Response<wire::CollectReply>, Status> {
        Err(Status::unimplemented("collect"))
    }
}

#[tonic::async_trait]
impl Agent for Fake {
    type WatchStream = ReceiverStream<Result<wire::WatchEvent, Status>>;

    async fn describe(
        &self,
        _: Request<wire::DescribeRequest>,
    ) -> Result<Response<wire::DescribeReply>, Status> {
        self.act("describe", |script| {
            Ok(Response::new(wire::DescribeReply {
                name: script.name.clone(),
                ..wire::DescribeReply::default()
            }))
        })
    }

    async fn watch(&self, _: Request<wire::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("watch"))
    }

    async fn probe_latency(
        &self,
        request: Request<wire::ProbeLatencyRequest>,
    ) -> Result<Response<wire::ProbeLatencyReply>, Status> {
        let ask = request.into_inner();
        let to = ask.peer.unwrap_or_default();
        let call = format!(
            "{} pings of {} to {} every {}",
            ask.count, ask.payload_bytes, to.name, ask.interval_micros
        );
        self.act(&call, |script| {
            Ok(Response::new(wire::ProbeLatencyReply {
                sent: ask.count,
                rtt_nanos: vec![script.rtt_nanos; ask.count as usize],
                timestamps: "kernel".into(),
                ..wire::ProbeLatencyReply::default()
            }))
        })
    }

    async fn probe_bandwidth(
        &self,
        request: Request<wire::ProbeBandwidthRequest>,
    ) -> Result<Response<wire::ProbeBandwidthReply>, Status> {
        let to = request.into_inner().peer.unwrap_or_default().name;
        self.act(&format!("bandwidth to {to}"), |_| {
            let mbps = match to.as_str() {
                "b" => 100.0,
                "starved" => 1.0,
                _ => 900.0,
            };
            Ok(Response::new(wire::ProbeBandwidthReply { mbps, ..wire::ProbeBandwidthReply::default() }))
        })
    }

    async fn apply_settings(
        &self,
        _: Request<wire::ApplySettingsRequest>,
    ) -> Result<Response<wire::ApplySettingsReply>, Status> {
        Err(Status::unimplemented("settings"))
    }

    async fn restore_settings(
        &self,
        _: Request<wire::RestoreSettingsRequest>,
    ) -> Result<Response<wire::RestoreSettingsReply>, Status> {
        Err(Status::unimplemented("settings"))
    }
}

/// Agents by name.
pub(crate) struct Agents(pub(crate) BTreeMap<String, (Fake, Remote)>);

impl Agents {
    pub(crate) async fn start(names: &[&str]) -> Self {
        let mut agents = BTreeMap::new();
        for &name in names {
            let script = Script {
                name: name.into(),
                target: "/var/lib/gridcast/data/lab/ics".into(),
                size_bytes: 1 << 20,
                rtt_nanos: 100_000,
                ..Script::default()
            };
            let fake = Fake(Arc::new(Mutex::new(script)));
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = tonic::transport::Server::builder()
                .add_service(DatasetsServer::new(fake.clone()))
                .add_service(BroadcastsServer::new(fake.clone()))
                .add_service(AgentServer::new(fake.clone()))
                .serve_with_incoming(TcpListenerStream::new(listener));
            tokio::spawn(server);
            let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
            let peer = wire::Peer {
                name: name.into(),
                address: "127.0.0.1".into(),
                port: address.port().into(),
                ..wire::Peer::default()
            };
            agents.insert(name.to_owned(), (fake, Remote::new(name, peer, channel, None)));
        }
        Self(agents)
    }

    pub(crate) fn remote(&self, name: &str) -> Remote {
        self.0[name].1.clone()
    }

    pub(crate) fn with(&self, name: &str, change: impl FnOnce(&mut Script)) {
        change(&mut self.0[name].0.0.lock().unwrap());
    }

    pub(crate) fn asked(&self, name: &str) -> Vec<String> {
        self.0[name].0.0.lock().unwrap().asked.clone()
    }

    pub(crate) fn started(&self, name: &str) -> wire::StartBroadcastRequest {
        self.0[name].0.0.lock().unwrap().started.last().expect("a transfer").clone()
    }
}
