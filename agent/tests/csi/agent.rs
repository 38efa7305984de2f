//! An agent that says what the test wants: its Mounts service, in a thread that can be ended as a process would be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use gridcast_proto::v1::mounts_server::{Mounts, MountsServer};
use gridcast_proto::v1::{
    AcquireReply, AcquireRequest, DropReply, DropRequest, Volume, VolumesReply, VolumesRequest,
};
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What the agent knows. It outlives the agent, as records on a disk do.
#[derive(Debug)]
pub(crate) struct Datasets {
    verified: watch::Sender<BTreeMap<(String, String), PathBuf>>,
    calls: Mutex<Vec<String>>,
    /// Targets, by id.
    volumes: Mutex<BTreeMap<String, String>>,
}

impl Datasets {
    pub(crate) fn new() -> Arc<Self> {
        let (verified, _) = watch::channel(BTreeMap::new());
        Arc::new(Self { verified, calls: Mutex::default(), volumes: Mutex::default() })
    }

    /// The dataset of this name is here from now on.
    pub(crate) fn verify(&self, namespace: &str, name: &str, path: &Path) {
        self.verified.send_modify(|datasets| {
            datasets.insert((namespace.into(), name.into()), path.to_owned());
        });
    }

    /// Every call so far, as `acquire VOLUME` and `drop VOLUME`.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    /// Volumes that the agent takes to be mounted.
    pub(crate) fn volumes(&self) -> BTreeSet<String> {
        self.volumes.lock().unwrap().keys().cloned().collect()
    }

    /// Returns when so many calls have come.
    pub(crate) async fn called(&self, count: usize) {
        super::node::until("the agent is called", || self.calls.lock().unwrap().len() >= count).await;
    }
}

/// A running agent. Dropped, it ends in the middle of whatever it does.
#[derive(Debug)]
pub(crate) struct Agent {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    pub(crate) fn start(socket: &Path, datasets: &Arc<Datasets>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let _ = std::fs::remove_file(socket);
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let service = MountsServer::new(Service(Arc::clone(datasets)));
        let thread = std::thread::spawn(move || {
            // Connections die with the runtime, without a word.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let incoming = UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
                let serving = Server::builder().add_service(service).serve_with_incoming(incoming);
                tokio::select! {
                    served = serving => served.unwrap(),
                    _ = stopped => (),
                }
            });
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

struct Service(Arc<Datasets>);

#[tonic::async_trait]
impl Mounts for Service {
    async fn acquire(&self, request: Request<AcquireRequest>) -> Result<Response<AcquireReply>, Status> {
        let AcquireRequest { namespace, name, volume_id, pod_uid, timeout_millis, target } =
            request.into_inner();
        assert!(!pod_uid.is_empty());
        self.0.calls.lock().unwrap().push(format!("acquire {volume_id}"));
        let mut verified = self.0.verified.subscribe();
        let key = (namespace, name);
        let wait = verified.wait_for(|datasets| datasets.contains_key(&key));
        match tokio::time::timeout(Duration::from_millis(timeout_millis.into()), wait).await {
            Ok(datasets) => {
                let path = datasets.unwrap()[&key].display().to_string();
                self.0.volumes.lock().unwrap().insert(volume_id, target);
                Ok(Response::new(AcquireReply { path }))
            }
            Err(_) => Err(Status::deadline_exceeded("4 of 10 MB are here")),
        }
    }

    async fn drop(&self, request: Request<DropRequest>) -> Result<Response<DropReply>, Status> {
        let DropRequest { volume_id } = request.into_inner();
        self.0.calls.lock().unwrap().push(format!("drop {volume_id}"));
        self.0.volumes.lock().unwrap().remove(&volume_id);
        Ok(Response::new(DropReply {}))
    }

    async fn volumes(&self, _: Request<VolumesRequest>) -> Result<Response<VolumesReply>, Status> {
        let volumes = self.0.volumes.lock().unwrap().clone();
        let volumes = volumes.into_iter().map(|(volume_id, target)| Volume { volume_id, target });
        Ok(Response::new(VolumesReply { volumes: volumes.collect() }))
    }
}
