//! A member's front: speaks under its name, passes everything on, and does to pushed messages what the test wants.

use std::collections::HashMap;
use std::sync::Arc;

use gridcast_agent::broadcast::tune_server;
use gridcast_agent::tls::Identity;
use gridcast_proto::v1::relay_client::RelayClient;
use gridcast_proto::v1::relay_server::{Relay, RelayServer};
use gridcast_proto::v1::{
    FetchRequest, FollowEvent, FollowRequest, Peer, PushAck, PushMessage, push_message::Message,
};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use super::cluster::{Cluster, Node, runtime};

type Tamper = Arc<dyn Fn(&mut Message) + Send + Sync>;

/// Stands in front of one member; dropping it ends it.
pub(crate) struct Proxy {
    pub(crate) peer: Peer,
    pub(crate) gate: Gate,
    runtime: Option<Runtime>,
}

/// Lets payload through up to a limit.
#[derive(Clone)]
pub(crate) struct Gate {
    limit: watch::Sender<u64>,
    passed: watch::Sender<u64>,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.limit.send_replace(u64::MAX);
    }

    pub(crate) fn passed(&self) -> u64 {
        *self.passed.borrow()
    }

    async fn pass(&self, bytes: u64) {
        let passed = *self.passed.borrow() + bytes;
        let _ = self.limit.subscribe().wait_for(|limit| passed <= *limit).await;
        self.passed.send_replace(passed);
    }
}

#[derive(Clone)]
struct Front {
    upstream: Endpoint,
    /// As each node would reach the member: who pushes has to show that it is who it says.
    pushers: Arc<HashMap<String, Endpoint>>,
    gate: Gate,
    tamper: Tamper,
}

impl Proxy {
    /// A front of `name` that lets `limit` bytes of payload through until its gate is opened.
    pub(crate) fn new(
        cluster: &Cluster,
        name: &str,
        limit: u64,
        tamper: impl Fn(&mut Message) + Send + Sync + 'static,
    ) -> Self {
        let identity: Identity = cluster.identity(name);
        let upstream = identity.endpoint(&cluster.node(name).peer).unwrap();
        let gate = Gate { limit: watch::Sender::new(limit), passed: watch::Sender::new(0) };
        let pusher = |node: &Node| {
            let endpoint = cluster.identity(&node.peer.name).endpoint(&cluster.node(name).peer);
            (node.peer.name.clone(), endpoint.unwrap())
        };
        let pushers = Arc::new(cluster.nodes.iter().map(pusher).collect());
        let front = Front { upstream, pushers, gate: gate.clone(), tamper: Arc::new(tamper) };
        let runtime = runtime();
        let incoming = runtime.block_on(async { TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap() });
        let port = u32::from(incoming.local_addr().unwrap().port());
        runtime.spawn(
            tune_server(Server::builder())
                .tls_config(identity.server_config())
                .unwrap()
                .add_service(RelayServer::new(front))
                .serve_with_incoming(incoming),
        );
        let peer = Peer { name: name.to_owned(), address: "127.0.0.1".to_owned(), port, ..Peer::default() };
        Self { peer, gate, runtime: Some(runtime) }
    }

    /// Puts itself in place of the member.
    pub(crate) fn stand_in(&self, members: &mut [Peer]) {
        members.iter_mut().find(|peer| peer.name == self.peer.name).unwrap().port = self.peer.port;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

#[tonic::async_trait]
impl Relay for Front {
    type FollowStream = Streaming<FollowEvent>;
    type PushStream = Streaming<PushAck>;
    type FetchStream = Streaming<PushMessage>;

    async fn follow(&self, request: Request<FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        let channel = self.upstream.connect().await.unwrap();
        RelayClient::new(channel).follow(request.into_inner()).await
    }

    async fn push(
        &self,
        request: Request<Streaming<PushMessage>>,
    ) -> Result<Response<Self::PushStream>, Status> {
        let mut stream = request.into_inner();
        let first = stream.message().await?.unwrap();
        let Some(Message::Open(open)) = &first.message else { panic!("{first:?}") };
        let channel = self.pushers[&open.from].connect().await.unwrap();
        let (queue, messages) = mpsc::channel(1);
        queue.send(first).await.unwrap();
        let front = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(mut message)) = stream.message().await {
                if let Some(content) = &mut message.message {
                    if let Message::Data(data) = content {
                        front.gate.pass(data.payload.len() as u64).await;
                    }
                    (front.tamper)(content);
                }
                if queue.send(message).await.is_err() {
                    break;
                }
            }
        });
        RelayClient::new(channel).push(ReceiverStream::new(messages)).await
    }

    async fn fetch(&self, request: Request<FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        let channel = self.upstream.connect().await.unwrap();
        RelayClient::new(channel).fetch(request.into_inner()).await
    }
}

/// Stands in front of one member as a wire that can be cut without either side noticing: no FIN, no reset.
pub(crate) struct Wire {
    port: u32,
    cut: watch::Sender<bool>,
    runtime: Option<Runtime>,
}

impl Wire {
    pub(crate) fn new(cluster: &Cluster, name: &str) -> Self {
        let address = format!("127.0.0.1:{}", cluster.node(name).peer.port);
        let cut = watch::Sender::new(false);
        let runtime = runtime();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = u32::from(listener.local_addr().unwrap().port());
        let state = cut.subscribe();
        runtime.spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (address, mut state) = (address.clone(), state.clone());
                tokio::spawn(async move {
                    let mut far = tokio::net::TcpStream::connect(address).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = state.wait_for(|cut| *cut) => {}
                    }
                    if *state.borrow() {
                        // Both connections stay open until the test ends.
                        std::future::pending::<()>().await;
                    }
                });
            }
        });
        Self { port, cut, runtime: Some(runtime) }
    }

    pub(crate) fn stand_in(&self, members: &mut [Peer], name: &str) {
        members.iter_mut().find(|peer| peer.name == name).unwrap().port = self.port;
    }

    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}
