use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gridcast_proto::v1::{AcquireRequest, PrepareReply, PrepareRequest};
use tempfile::TempDir;

use super::record::Records;
use super::*;
use crate::broadcast::{Arrival, Arrived, Failure, Landing as _};

const UID: &str = "11111111-2222-3333-4444-555555555555";
const OTHER: &str = "99999999-2222-3333-4444-555555555555";

/// A state directory with its registry.
struct Node {
    state: TempDir,
    registry: Arc<Registry>,
}

impl Node {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let registry = Registry::open(state.path()).unwrap();
        Self { state, registry }
    }

    /// As after a kill.
    fn restart(&mut self) {
        self.registry = Registry::open(self.state.path()).unwrap();
    }

    fn prepare(&self, uid: &str, name: &str, path: &str) -> Result<PrepareReply, DatasetError> {
        self.registry.prepare(PrepareRequest {
            namespace: "science".into(),
            name: name.into(),
            uid: uid.into(),
            path: path.into(),
            source: "node-0".into(),
        })
    }

    fn target(&self) -> PathBuf {
        self.state.path().join("data/science/ics")
    }

    fn begin(&self, id: &str) -> Result<Arc<dyn Arrival>, Failure> {
        Door(self.registry.clone()).begin(id, "node-0", &self.target())
    }

    /// Announces and brings `science/ics`.
    fn bring(&self) {
        self.prepare(UID, "ics", "").unwrap();
        let arrival = self.begin(UID).unwrap();
        fill(&self.target());
        arrival.verified(&arrived()).unwrap();
    }

    async fn acquire(&self, volume: &str, millis: u32) -> Result<PathBuf, DatasetError> {
        self.acquire_in("science", volume, millis).await
    }

    async fn acquire_in(&self, namespace: &str, volume: &str, millis: u32) -> Result<PathBuf, DatasetError> {
        let ask = AcquireRequest {
            namespace: namespace.into(),
            name: "ics".into(),
            volume_id: volume.into(),
            pod_uid: format!("pod-of-{volume}"),
            timeout_millis: millis,
            target: format!("/pods/{volume}/mount"),
        };
        self.registry.acquire(ask).await
    }

    fn change_records(&self, change: impl Fn(&mut record::Record)) {
        let records = Records::open(self.state.path().join("records")).unwrap();
        for mut record in records.load().unwrap() {
            change(&mut record);
            records.save(&record).unwrap();
        }
    }
}

fn arrived() -> Arrived {
    Arrived { digest: "d1".into(), size_bytes: 10, files: 1 }
}

fn fill(target: &Path) {
    fs::create_dir_all(target).unwrap();
    fs::write(target.join("file"), "0123456789").unwrap();
}

fn wait_until_synced(node: &Node) {
    for _ in 0..500 {
        let text = fs::read_to_string(node.state.path().join(format!("records/{UID}.json"))).unwrap();
        if text.contains("\"synced\":true") {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("never synced");
}

#[test]
fn what_was_verified_is_known_after_a_restart_and_announcing_again_changes_nothing() {
    let mut node = Node::new();
    let first = node.prepare(UID, "ics", "").unwrap();
    assert_eq!((Path::new(&first.target), first.verified), (node.target().as_path(), false));
    node.bring();
    node.restart();
    for _ in 0..2 {
        let reply = node.prepare(UID, "ics", "").unwrap();
        assert!(reply.verified, "{reply:?}");
        assert_eq!((reply.digest.as_str(), reply.size_bytes, reply.files), ("d1", 10, 1));
    }
    let listed = node.registry.list();
    assert_eq!((listed.len(), listed[0].verified, listed[0].mounts), (1, true, 0));
    let again = node.begin(&format!("{UID}-2")).unwrap_err();
    assert!(again.to_string().contains("leave this node out"), "{again}");
}

#[test]
fn a_directory_that_has_gone_is_not_verified_any_more() {
    let mut node = Node::new();
    node.bring();
    fs::remove_dir_all(node.target()).unwrap();
    assert!(!node.prepare(UID, "ics", "").unwrap().verified);
    node.restart();
    assert!(!node.registry.list()[0].verified);
    node.begin(UID).unwrap();
}

#[test]
fn what_was_not_on_the_disk_when_the_machine_went_down_is_staged_again() {
    let mut node = Node::new();
    node.bring();
    wait_until_synced(&node);
    node.change_records(|record| record.boot = "another".into());
    node.restart();
    assert!(node.prepare(UID, "ics", "").unwrap().verified, "synced");
    node.change_records(|record| {
        record.boot = "another".into();
        record.verified.as_mut().unwrap().synced = false;
    });
    node.restart();
    assert!(!node.prepare(UID, "ics", "").unwrap().verified, "not synced");
    assert!(!node.target().exists());
}

#[test]
fn only_what_was_announced_comes_and_only_from_its_source_to_its_place() {
    let node = Node::new();
    let door = Door(node.registry.clone());
    let reason = |outcome: Result<Arc<dyn Arrival>, Failure>| outcome.unwrap_err().reason();
    assert_eq!(reason(node.begin(UID)), "NotPermitted", "not announced");
    node.prepare(UID, "ics", "").unwrap();
    let target = node.target();
    assert_eq!(reason(door.begin(UID, "node-1", &target)), "NotPermitted");
    assert_eq!(reason(door.begin(UID, "node-0", Path::new("/etc"))), "NotPermitted");
    assert_eq!(reason(door.begin(&UID[..35], "node-0", &target)), "NotPermitted", "a beginning of the UID");
    assert_eq!(reason(door.begin(&format!("{UID}0"), "node-0", &target)), "NotPermitted", "no separator");
    node.begin(&format!("{UID}-3")).unwrap();
}

#[test]
fn what_somebody_else_put_there_is_not_touched() {
    let node = Node::new();
    node.prepare(UID, "ics", "").unwrap();
    fill(&node.target());
    assert_eq!(node.begin(UID).unwrap_err().reason(), "TargetExists");
    assert!(node.registry.release(UID, false).unwrap().released);
    assert!(node.target().join("file").exists());
}

#[test]
fn a_later_transfer_takes_the_place_of_one_that_hangs() {
    let node = Node::new();
    node.prepare(UID, "ics", "").unwrap();
    let first = node.begin(UID).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| node.begin(&format!("{UID}-2")));
        runtime.block_on(first.cancelled());
        // What it had published, but not verified, goes with it.
        fill(&node.target());
        first.failed("Cancelled", "node-1: cancelled");
        drop(first);
        let second = second.join().unwrap().unwrap();
        assert!(!node.target().exists());
        fill(&node.target());
        second.verified(&arrived()).unwrap();
    });
    assert!(node.registry.list()[0].verified);
}

#[test]
fn releasing_removes_the_data_and_its_empty_parents_or_keeps_it() {
    let mut node = Node::new();
    node.bring();
    assert!(node.registry.release(UID, false).unwrap().released);
    assert!(node.registry.release(UID, false).unwrap().released, "again is no error");
    assert_eq!(fs::read_dir(node.state.path().join("data")).unwrap().count(), 0);
    assert_eq!(node.registry.list(), []);

    node.bring();
    assert!(node.registry.release(UID, true).unwrap().released);
    node.restart();
    assert_eq!(node.registry.list(), []);
    assert!(node.target().join("file").exists());
    // A Broadcast of the same name takes its place, one of another name does not.
    let taken = node.prepare(OTHER, "other", "ics").unwrap_err();
    assert_eq!(taken.reason(), "PathTaken");
    assert!(!node.prepare(OTHER, "ics", "").unwrap().verified);
    assert!(!node.target().exists());
}

#[test]
fn kept_data_that_somebody_removed_is_forgotten() {
    let node = Node::new();
    node.bring();
    assert!(node.registry.release(UID, true).unwrap().released);
    fs::remove_dir_all(node.target()).unwrap();
    node.prepare(OTHER, "other", "ics").unwrap();
    let records: Vec<_> = fs::read_dir(node.state.path().join("records")).unwrap().collect();
    assert_eq!(records.len(), 1, "{records:?}");
}

#[test]
fn a_transfer_of_what_is_released_ends_and_leaves_nothing() {
    let node = Node::new();
    node.prepare(UID, "ics", "").unwrap();
    let arrival = node.begin(UID).unwrap();
    fill(&node.target());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| {
        let release = scope.spawn(|| node.registry.release(UID, false));
        runtime.block_on(arrival.cancelled());
        assert_eq!(arrival.verified(&arrived()).unwrap_err().reason(), "Released");
        drop(arrival);
        assert!(release.join().unwrap().unwrap().released);
    });
    assert!(!node.target().exists());
    assert_eq!(node.registry.list(), []);
}

#[tokio::test]
async fn a_mounted_dataset_stays_until_its_last_volume_has_gone() {
    let mut node = Node::new();
    node.bring();
    assert_eq!(node.acquire("v1", 0).await.unwrap(), node.target());
    assert_eq!(node.acquire("v2", 0).await.unwrap(), node.target());
    let reply = node.registry.release(UID, false).unwrap();
    assert_eq!((reply.released, reply.pods), (false, vec!["pod-of-v1".to_owned(), "pod-of-v2".to_owned()]));
    assert_eq!(node.acquire("v1", 0).await.unwrap(), node.target(), "kubelet asks again");
    node.acquire("v3", 0).await.unwrap_err();
    let replaced = node.prepare(OTHER, "ics", "").unwrap_err();
    assert!(replaced.to_string().contains("still mounted by pods pod-of-v1, pod-of-v2"), "{replaced}");
    node.restart();
    let targets: Vec<String> =
        node.registry.volumes().into_iter().map(|volume| volume.volume_id + volume.target.as_str()).collect();
    assert_eq!(targets, ["v1/pods/v1/mount", "v2/pods/v2/mount"]);
    node.registry.drop_volume("v1").unwrap();
    node.registry.drop_volume("v1").unwrap();
    assert!(node.target().exists());
    node.registry.drop_volume("v2").unwrap();
    assert!(!node.target().exists());
    assert!(node.registry.release(UID, false).unwrap().released);
    // Another Broadcast of the same name has data of its own.
    node.prepare(OTHER, "ics", "").unwrap();
    node.acquire("v3", 0).await.unwrap_err();
    let arrival = node.begin(OTHER).unwrap();
    fs::create_dir_all(node.target()).unwrap();
    fs::write(node.target().join("file"), "new").unwrap();
    arrival.verified(&arrived()).unwrap();
    let path = node.acquire("v3", 0).await.unwrap();
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "new");
}

#[tokio::test]
async fn volumes_of_an_earlier_boot_are_forgotten() {
    let mut node = Node::new();
    node.bring();
    node.acquire("v1", 0).await.unwrap();
    wait_until_synced(&node);
    node.change_records(|record| record.boot = "another".into());
    node.restart();
    assert!(node.registry.release(UID, false).unwrap().released);
}

#[tokio::test]
async fn a_pod_that_waits_is_woken_when_its_data_is_there() {
    let node = Arc::new(Node::new());
    let waiting = node.clone();
    let pod = tokio::spawn(async move { waiting.acquire("v1", 60_000).await });
    tokio::task::yield_now().await;
    let bringing = node.clone();
    tokio::task::spawn_blocking(move || bringing.bring()).await.unwrap();
    let path = tokio::time::timeout(Duration::from_secs(30), pod).await.unwrap().unwrap().unwrap();
    assert_eq!(path, node.target());
    assert_eq!(node.registry.list()[0].mounts, 1);
}

#[tokio::test]
async fn a_pod_that_waited_in_vain_is_told_for_what() {
    let node = Node::new();
    let told = async || node.acquire("v1", 1).await.unwrap_err().to_string();
    assert!(told().await.contains("science/ics is not announced to this node"));
    node.prepare(UID, "ics", "").unwrap();
    assert!(told().await.contains("its transfer has not begun"));
    let arrival = node.begin(UID).unwrap();
    arrival.progress(37, 100);
    assert_eq!(told().await, "dataset science/ics is being staged, 37 %");
    arrival.failed("DiskFull", "node-1: disk full");
    drop(arrival);
    assert_eq!(told().await, "dataset science/ics has not arrived: DiskFull: node-1: disk full");
    // A pod of another namespace does not even learn that there is one.
    node.bring();
    let foreign = node.acquire_in("other", "v1", 1).await.unwrap_err();
    assert!(foreign.to_string().contains("other/ics is not announced"), "{foreign}");
}

#[test]
fn paths_of_datasets_do_not_touch() {
    let node = Node::new();
    node.prepare(UID, "ics", "a/b").unwrap();
    for path in ["a/b", "a", "a/b/c", "a//b/"] {
        assert_eq!(node.prepare(OTHER, "other", path).unwrap_err().reason(), "PathTaken", "{path}");
    }
    assert_eq!(node.prepare(UID, "ics", "c").unwrap_err().reason(), "DatasetChanged");
    assert_eq!(node.prepare(UID, "other", "a/b").unwrap_err().reason(), "DatasetChanged");
    node.prepare(OTHER, "other", "a/bc").unwrap();
}

#[test]
fn what_could_leave_the_data_directory_is_refused_by_name() {
    let node = Node::new();
    let long = "a".repeat(300);
    for path in ["/etc", "..", "a/../../b", "./a", ".gridcast-x", &long] {
        let error = node.prepare(UID, "ics", path).unwrap_err();
        assert!(error.to_string().starts_with("path is "), "{path}: {error}");
    }
    let request = PrepareRequest {
        namespace: "science".into(),
        name: "ics".into(),
        uid: UID.into(),
        path: String::new(),
        source: "node-0".into(),
    };
    for (field, request) in [
        ("namespace", PrepareRequest { namespace: "..".into(), ..request.clone() }),
        ("namespace", PrepareRequest { namespace: "a.b".into(), ..request.clone() }),
        ("name", PrepareRequest { name: "a/b".into(), ..request.clone() }),
        ("uid", PrepareRequest { uid: "../x".into(), ..request.clone() }),
        ("source", PrepareRequest { source: String::new(), ..request.clone() }),
    ] {
        let error = node.registry.prepare(request).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{field} is ")), "{error}");
    }
}

#[test]
fn what_a_killed_agent_left_goes_at_the_next_start() {
    let mut node = Node::new();
    node.prepare(UID, "ics", "deep/ics").unwrap();
    let target = node.state.path().join("data/science/deep/ics");
    let arrival = Door(node.registry.clone()).begin(UID, "node-0", &target).unwrap();
    fill(&target);
    fs::create_dir(node.state.path().join("data/science/deep/.gridcast-x.partial")).unwrap();
    fs::create_dir_all(node.state.path().join("data/.gridcast-old-1.discarded/data")).unwrap();
    // It was killed: nothing of this is told to anybody.
    std::mem::forget(arrival);
    node.restart();
    assert!(!target.exists(), "published, but not verified");
    let left: Vec<_> = fs::read_dir(node.state.path().join("data")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(node.registry.list().len(), 1);
}
