//! A node for one test: kubelet's directory, shared as a host's is; datasets; the plugin in a mount namespace of its own, as
//! in a container; and a client that does what kubelet does.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridcast_proto::csi::v1::node_client::NodeClient;
use gridcast_proto::csi::v1::volume_capability::{AccessType, MountVolume};
use gridcast_proto::csi::v1::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability};
use hyper_util::rt::TokioIo;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::agent::{Agent, Datasets};

/// Longer than anything here takes on a machine that is busy otherwise.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const NODE: &str = "node-1";

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) struct Node {
    /// Its mounts are removed by `drop`, before it goes.
    directory: TempDir,
    pub(crate) datasets: Arc<Datasets>,
    pub(crate) agent: Option<Agent>,
    plugin: Option<Child>,
    wait_seconds: u32,
}

impl Node {
    /// A node whose plugin waits for so many seconds; agent and plugin run.
    pub(crate) async fn new(wait_seconds: u32) -> Self {
        assert!(geteuid().is_root(), "mounts need root");
        // Of this thread and its children; it goes with them.
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        let directory = tempfile::Builder::new().prefix("gc-csi-").tempdir().unwrap();
        let mut node = Self { directory, datasets: Datasets::new(), agent: None, plugin: None, wait_seconds };
        for (name, shared) in [("kubelet", true), ("data", false)] {
            let path = node.path(name);
            fs::create_dir(&path).unwrap();
            mount(Some("gridcast"), &path, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
            if shared {
                mount(None::<&str>, &path, None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
            }
        }
        fs::create_dir(node.path("kubelet/plugins_registry")).unwrap();
        node.start_agent();
        node.start_plugin().await;
        node
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("kubelet/plugins/csi.gridcast.io/csi.sock")
    }

    pub(crate) fn registration(&self) -> PathBuf {
        self.path("kubelet/plugins_registry/csi.gridcast.io-reg.sock")
    }

    pub(crate) fn start_agent(&mut self) {
        self.agent = Some(Agent::start(&self.path("agent.sock"), &self.datasets));
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "unchanged", env!("CARGO_BIN_EXE_gridcast-csi")])
            .args(["--node-name", NODE, "--wait-seconds", &self.wait_seconds.to_string()])
            .arg("--socket")
            .arg(self.socket())
            .arg("--registration")
            .arg(self.registration())
            .arg("--mounts-socket")
            .arg(self.path("agent.sock"))
            .arg("--data")
            .arg(self.path("data"))
            .stdin(Stdio::null());
        command
    }

    pub(crate) async fn start_plugin(&mut self) {
        self.plugin = Some(self.command().spawn().unwrap());
        // Files of a plugin that was killed may be there: what counts is that somebody answers.
        for path in [self.socket(), self.registration()] {
            until("the plugin listens", || std::os::unix::net::UnixStream::connect(&path).is_ok()).await;
        }
    }

    pub(crate) fn plugin_pid(&self) -> u32 {
        self.plugin.as_ref().unwrap().id()
    }

    /// Ends the plugin by a signal; true if it says that all was well.
    pub(crate) fn stop_plugin(&mut self, signal: Signal) -> bool {
        let mut plugin = self.plugin.take().unwrap();
        kill(Pid::from_raw(plugin.id().cast_signed()), signal).unwrap();
        plugin.wait().unwrap().success()
    }

    /// A dataset that the agent has verified.
    pub(crate) fn dataset(&self, namespace: &str, name: &str) -> PathBuf {
        let path = self.write(namespace, name);
        self.datasets.verify(namespace, name, &path);
        path
    }

    /// A dataset of one file, which the agent does not know of yet.
    pub(crate) fn write(&self, namespace: &str, name: &str) -> PathBuf {
        let path = self.path(&format!("data/{namespace}/{name}"));
        fs::create_dir_all(path.join("sub")).unwrap();
        fs::write(path.join("sub/file"), format!("{namespace}/{name}")).unwrap();
        path
    }

    /// What kubelet does before it asks for a volume: the directory around the target, and its record.
    pub(crate) fn volume(&self, pod_uid: &str, name: &str) -> PathBuf {
        let volume = self.path(&format!("kubelet/pods/{pod_uid}/volumes/kubernetes.io~csi/{name}"));
        fs::create_dir_all(&volume).unwrap();
        fs::write(volume.join("vol_data.json"), "{}").unwrap();
        volume.join("mount")
    }

    pub(crate) fn request(
        &self,
        namespace: &str,
        pod_uid: &str,
        broadcast: &str,
    ) -> NodePublishVolumeRequest {
        let context = [
            ("broadcast", broadcast),
            ("csi.storage.k8s.io/ephemeral", "true"),
            ("csi.storage.k8s.io/pod.name", "a"),
            ("csi.storage.k8s.io/pod.namespace", namespace),
            ("csi.storage.k8s.io/pod.uid", pod_uid),
            ("csi.storage.k8s.io/serviceAccount.name", "default"),
        ];
        let mount = AccessType::Mount(MountVolume::default());
        NodePublishVolumeRequest {
            volume_id: format!("csi-{pod_uid}"),
            target_path: self.volume(pod_uid, "v").display().to_string(),
            volume_capability: Some(VolumeCapability { access_type: Some(mount) }),
            volume_context: HashMap::from(context.map(|(key, value)| (key.to_owned(), value.to_owned()))),
            ..Default::default()
        }
    }

    /// One connection for a call, as kubelet does it.
    pub(crate) async fn send(&self, request: NodePublishVolumeRequest) -> Result<(), Status> {
        let mut client = NodeClient::new(connect(&self.socket()).await);
        client.node_publish_volume(request).await.map(drop)
    }

    /// Publishes a Broadcast as volume `v` of a pod; where it is then.
    pub(crate) async fn publish(
        &self,
        namespace: &str,
        pod_uid: &str,
        broadcast: &str,
    ) -> Result<PathBuf, Status> {
        let request = self.request(namespace, pod_uid, broadcast);
        let target = PathBuf::from(&request.target_path);
        self.send(request).await.map(|()| target)
    }

    pub(crate) async fn unpublish(&self, pod_uid: &str) -> Result<(), Status> {
        let target = self.path(&format!("kubelet/pods/{pod_uid}/volumes/kubernetes.io~csi/v/mount"));
        let request = NodeUnpublishVolumeRequest {
            volume_id: format!("csi-{pod_uid}"),
            target_path: target.display().to_string(),
        };
        let mut client = NodeClient::new(connect(&self.socket()).await);
        client.node_unpublish_volume(request).await.map(drop)
    }

    /// How many mounts the kernel has at a path: on the host and in the plugin's container.
    pub(crate) fn mounts(&self, path: &Path) -> (usize, usize) {
        let count = |table: &str| {
            let table = fs::read_to_string(table).unwrap();
            let points = table.lines().filter_map(|line| line.split(' ').nth(4));
            points.filter(|point| Path::new(point) == path).count()
        };
        (count("/proc/thread-self/mountinfo"), count(&format!("/proc/{}/mountinfo", self.plugin_pid())))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut plugin) = self.plugin.take() {
            let _ = plugin.kill();
            let _ = plugin.wait();
        }
        // The last first: what a test has mounted itself lies upon these.
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
        for point in table.lines().rev().filter_map(|line| line.split(' ').nth(4)) {
            if Path::new(point).starts_with(self.directory.path()) {
                let _ = umount2(point, MntFlags::MNT_DETACH);
            }
        }
    }
}

pub(crate) async fn connect(socket: &Path) -> Channel {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap()
}
