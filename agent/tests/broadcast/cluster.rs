//! Nodes for these tests: services with keys, a root directory and a runtime each.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridcast_agent::broadcast::{Counters, Service, tune_server};
use gridcast_agent::tls::Identity;
use gridcast_proto::v1::broadcast_event::Event;
use gridcast_proto::v1::broadcasts_client::BroadcastsClient;
use gridcast_proto::v1::{
    BroadcastEvent, Finished, Hop, NodeFailed, Peer, Plan, StartBroadcastRequest, Tree,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tonic::Streaming;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// No test waits longer for anything.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Cluster {
    directory: TempDir,
    pub(crate) nodes: Vec<Node>,
    controller: Runtime,
}

pub(crate) struct Node {
    pub(crate) peer: Peer,
    pub(crate) root: PathBuf,
    pub(crate) counters: Arc<Counters>,
    runtime: Option<Runtime>,
}

impl Cluster {
    /// Nodes with these names; the first one is the source.
    pub(crate) fn new(names: &[&str]) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        // RUST_LOG shows what agents say.
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
        let directory = tempfile::tempdir().unwrap();
        write_keys(directory.path(), names);
        let controller = runtime();
        let nodes = names.iter().map(|name| Node::start(directory.path(), name)).collect();
        Self { directory, nodes, controller }
    }

    pub(crate) fn identity(&self, name: &str) -> Identity {
        identity(self.directory.path(), name)
    }

    pub(crate) fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.peer.name == name).unwrap()
    }

    pub(crate) fn kill(&mut self, name: &str) {
        self.nodes.iter_mut().find(|node| node.peer.name == name).unwrap().kill();
    }

    /// Where members see `path`.
    pub(crate) fn path(&self, name: &str, path: &str) -> PathBuf {
        self.node(name).root.join(path.trim_start_matches('/'))
    }

    /// A request for /source to /data/ics along trees of hops such as "s>a>b s>c".
    pub(crate) fn request(&self, trees: &[&str]) -> StartBroadcastRequest {
        StartBroadcastRequest {
            id: "run-ics".to_owned(),
            source: Some(self.nodes[0].peer.clone()),
            source_path: "/source".to_owned(),
            members: self.nodes[1..].iter().map(|node| node.peer.clone()).collect(),
            target: "/data/ics".to_owned(),
            store_at_source: false,
            plan: Some(plan(trees)),
            chunk_bytes: 0,
        }
    }

    pub(crate) fn start(&self, request: StartBroadcastRequest) -> Events<'_> {
        let endpoint = self.identity("controller").endpoint(&self.nodes[0].peer).unwrap();
        let stream = self.controller.block_on(async {
            let channel = endpoint.connect().await.unwrap();
            BroadcastsClient::new(channel).start(request).await.unwrap().into_inner()
        });
        Events { cluster: self, stream }
    }

    /// Goes on with events that were detached.
    pub(crate) fn attach(&self, stream: Streaming<BroadcastEvent>) -> Events<'_> {
        Events { cluster: self, stream }
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.controller.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("in time") })
    }

    /// Waits until no node but dead ones has anything of a broadcast in progress.
    pub(crate) fn wait_clean(&self) {
        wait_until("staging directories and buffers are gone", || {
            self.nodes.iter().filter(|node| node.runtime.is_some()).all(|node| {
                let data = node.root.join("data");
                let left = fs::read_dir(data).map_or(0, |found| {
                    found
                        .flatten()
                        .filter(|entry| entry.file_name().to_string_lossy().starts_with(".gridcast"))
                        .count()
                });
                left == 0 && node.counters.buffered_bytes() == 0
            })
        });
    }
}

/// The events of one broadcast.
pub(crate) struct Events<'a> {
    cluster: &'a Cluster,
    stream: Streaming<BroadcastEvent>,
}

impl Events<'_> {
    pub(crate) fn next(&mut self) -> Option<Event> {
        self.cluster.block_on(self.stream.message()).unwrap().map(|event| event.event.unwrap())
    }

    /// Skips events until `wanted` takes one.
    pub(crate) fn until<T>(&mut self, wanted: impl Fn(&Event) -> Option<T>) -> T {
        loop {
            let event = self.next().expect("an event that the test waits for");
            if let Some(found) = wanted(&event) {
                return found;
            }
            if let Event::Failed(failed) = event {
                panic!("failed early: {failed:?}");
            }
        }
    }

    /// Lets go of the cluster, which may then be changed.
    pub(crate) fn detach(self) -> Streaming<BroadcastEvent> {
        self.stream
    }

    /// All events to the end.
    pub(crate) fn rest(mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.next()).collect()
    }

    pub(crate) fn finished(self) -> Finished {
        match self.rest().pop() {
            Some(Event::Finished(finished)) => finished,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn failed(self) -> NodeFailed {
        match self.rest().pop() {
            Some(Event::Failed(failed)) => failed,
            other => panic!("{other:?}"),
        }
    }
}

impl Node {
    fn start(directory: &Path, name: &str) -> Self {
        let root = directory.join(format!("root-{name}"));
        fs::create_dir(&root).unwrap();
        let runtime = runtime();
        let identity = identity(directory, name);
        let service = Service::with_root(name, identity.clone(), &root);
        let counters = service.counters();
        let incoming = runtime.block_on(async { TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap() });
        let port = incoming.local_addr().unwrap().port();
        runtime.spawn(
            tune_server(Server::builder())
                .tls_config(identity.server_config())
                .unwrap()
                .add_service(service.broadcasts())
                .add_service(service.relay())
                .serve_with_incoming(incoming),
        );
        let peer = Peer {
            name: name.to_owned(),
            address: "127.0.0.1".to_owned(),
            port: u32::from(port),
            ..Peer::default()
        };
        Self { peer, root, counters, runtime: Some(runtime) }
    }

    /// Ends it as SIGKILL would: every connection breaks, nothing is said.
    fn kill(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn plan(trees: &[&str]) -> Plan {
    let hops = |tree: &&str| {
        let ways = tree.split(' ').map(|way| way.split('>').collect::<Vec<_>>());
        let hop = |pair: &[&str]| Hop { from: pair[0].to_owned(), to: pair[1].to_owned() };
        ways.flat_map(|way| way.windows(2).map(hop).collect::<Vec<_>>()).collect()
    };
    Plan {
        strategy: "test".to_owned(),
        trees: trees.iter().map(|tree| Tree { rate_mbps: 1000.0, hops: hops(tree) }).collect(),
    }
}

pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn identity(directory: &Path, name: &str) -> Identity {
    Identity::load(&directory.join(format!("keys-{name}"))).unwrap()
}

fn write_keys(directory: &Path, names: &[&str]) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    for name in names.iter().chain(&["controller"]) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![(*name).to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        let keys = directory.join(format!("keys-{name}"));
        fs::create_dir(&keys).unwrap();
        fs::write(keys.join("ca.pem"), authority.pem()).unwrap();
        fs::write(keys.join("cert.pem"), certificate.pem()).unwrap();
        fs::write(keys.join("key.pem"), key.serialize_pem()).unwrap();
    }
}
