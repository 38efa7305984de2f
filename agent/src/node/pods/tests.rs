//! Pods are network namespaces of processes that a made-up /proc puts into a pod's control group.

use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::*;

const UID: &str = "0d3f7c1e-8a5b-4b6c-9d2e-1f2a3b4c5d6e";
const IDLE: &str = "net.ipv4.tcp_slow_start_after_idle";

/// A process in a network namespace of its own, which ends with this one.
struct Process(Child);

impl Process {
    fn start() -> Self {
        Self::unshare(&["--net"])
    }

    /// Of a pod with `hostUsers: false`: the namespace belongs to users of its own, whose root is nobody on the node.
    fn start_with_own_users() -> Self {
        let process = Self::unshare(&["--user", "--net"]);
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", process.0.id()), "0 165536 65536").unwrap();
        }
        process
    }

    fn unshare(namespaces: &[&str]) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "network namespaces are made by root");
        let command = Command::new("unshare").args(namespaces).arg("cat").stdin(Stdio::piped()).spawn();
        let process = Self(command.unwrap());
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        for _ in 0..1_000 {
            let namespace = fs::read_link(format!("/proc/{}/ns/net", process.0.id()));
            if namespace.is_ok_and(|other| other != own) {
                return process;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("unshare made no namespace");
    }

    fn setting(&self, key: &str) -> String {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        let pid = self.0.id().to_string();
        let output =
            Command::new("nsenter").args(["--net", "--target", &pid, "cat", &path]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A node whose /proc is made up of links to the real one.
struct Node(TempDir);

impl Node {
    fn new() -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        fs::create_dir(node.proc()).unwrap();
        for name in ["sys", "thread-self", "self", "meminfo"] {
            symlink(Path::new("/proc").join(name), node.proc().join(name)).unwrap();
        }
        node
    }

    fn proc(&self) -> PathBuf {
        self.0.path().join("proc")
    }

    fn journals(&self) -> PathBuf {
        self.0.path().join("journal")
    }

    fn add(&self, pid: u32, uid: &str) {
        let place = self.proc().join(pid.to_string());
        fs::create_dir(&place).unwrap();
        fs::write(place.join("cgroup"), format!("0::/kubepods/burstable/pod{uid}/c1\n")).unwrap();
        for name in ["ns", "stat"] {
            symlink(format!("/proc/{pid}/{name}"), place.join(name)).unwrap();
        }
    }

    fn remove(&self, pid: u32) {
        fs::remove_dir_all(self.proc().join(pid.to_string())).unwrap();
    }

    async fn pods(&self) -> Pods {
        let probes = crate::bind::everywhere(7413);
        Pods::open(self.proc(), self.journals(), probes, Turns::default()).await.unwrap()
    }
}

#[tokio::test]
async fn a_pod_with_users_of_its_own_is_measured_and_tuned_as_any_other() {
    let (pod, node) = (Process::start_with_own_users(), Node::new());
    node.add(pod.0.id(), UID);
    let pods = node.pods().await;
    let space = pods.get(UID).await.unwrap();
    space.listen().await.unwrap();
    let before = pod.setting(IDLE);
    let settings = vec![(IDLE.to_owned(), "0".to_owned())];
    let applied = space.apply("run".to_owned(), settings, false).await.unwrap();
    assert!(applied[0].error.is_none(), "{applied:?}");
    assert_eq!(pod.setting(IDLE), "0");
    space.restore("run".to_owned()).await.unwrap();
    assert_eq!(pod.setting(IDLE), before);
}

#[tokio::test]
async fn settings_of_a_pod_are_the_pods_alone_and_outlive_the_agent() {
    let (pod, other) = (Process::start(), Process::start());
    let node = Node::new();
    node.add(pod.0.id(), UID);
    let pods = node.pods().await;
    let before = other.setting(IDLE);
    let space = pods.get(UID).await.unwrap();
    let applied =
        space.apply("run".to_owned(), vec![(IDLE.to_owned(), "0".to_owned())], false).await.unwrap();
    assert!(applied[0].error.is_none(), "{applied:?}");
    assert_eq!((pod.setting(IDLE), other.setting(IDLE)), ("0".to_owned(), before.clone()));
    assert_ne!(
        fs::read_link("/proc/self/ns/net").unwrap(),
        fs::read_link(format!("/proc/{}/ns/net", pod.0.id())).unwrap()
    );

    // It is told to stop: what is changed stays, and so does what is known of it.
    pods.close().await.unwrap();
    let late = space.restore("run".to_owned()).await.unwrap_err();
    assert_eq!(late.message(), "the agent is stopping");
    drop((space, pods));
    let pods = node.pods().await;
    let space = pods.tuned(UID).await.unwrap().expect("its journal is there");
    let restored = space.restore("run".to_owned()).await.unwrap();
    assert!(restored[0].restored, "{restored:?}");
    assert_eq!(pod.setting(IDLE), before);
    pods.close().await.unwrap();
    assert!(fs::read_dir(node.journals()).unwrap().next().is_none());
}

#[tokio::test]
async fn what_a_pod_is_like_is_said_from_inside_and_its_probes_are_answered_there() {
    let pod = Process::start();
    let node = Node::new();
    node.add(pod.0.id(), UID);
    let pods = node.pods().await;
    let facts = pods.get(UID).await.unwrap().describe("node-1").await.unwrap();
    assert_eq!((facts.name.as_str(), facts.probe_port), ("node-1", 7413));
    assert!(
        !facts.settings.contains_key("net.ipv4.tcp_mem"),
        "only the machine's own namespace has it: {facts:?}"
    );
    assert!(facts.memory_bytes > 16 << 20);
    let listening = |pid: &str| {
        let output =
            Command::new("nsenter").args(["--net", "--target", pid, "ss", "-Hlnut"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().matches(":7413").count()
    };
    assert_eq!(listening(&pod.0.id().to_string()), 2, "UDP and TCP");
    UdpSocket::bind("127.0.0.1:7413").expect("the port of the agent's own namespace is free");
}

#[tokio::test]
async fn a_pod_that_has_gone_is_let_go_of_with_its_journal() {
    let pod = Process::start();
    let node = Node::new();
    node.add(pod.0.id(), UID);
    let pods = node.pods().await;
    let settings = vec![(IDLE.to_owned(), "0".to_owned())];
    pods.get(UID).await.unwrap().apply("run".to_owned(), settings, false).await.unwrap();
    assert!(node.journals().join(UID).exists());
    node.remove(pod.0.id());
    let error = pods.get(UID).await.unwrap_err();
    assert_eq!(error.reason(), "PodNotFound");
    let status = Status::from(error);
    assert!(status.message().starts_with("PodNotFound: pod 0d3f7c1e"), "{status}");
    assert_eq!(pods.count().await, 0);
    assert!(!node.journals().join(UID).exists());
    assert!(pods.tuned(UID).await.unwrap().is_none(), "restoring it is no error");
}

#[tokio::test]
async fn journals_of_pods_that_went_while_no_agent_ran_are_dropped() {
    let pod = Process::start();
    let node = Node::new();
    node.add(pod.0.id(), UID);
    for uid in [UID, "11111111-8a5b-4b6c-9d2e-1f2a3b4c5d6e"] {
        fs::create_dir_all(node.journals().join(uid)).unwrap();
    }
    node.pods().await;
    let left: Vec<_> =
        fs::read_dir(node.journals()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [UID]);
}

#[tokio::test]
async fn a_sandbox_that_was_made_anew_is_found() {
    let (first, second) = (Process::start(), Process::start());
    let node = Node::new();
    node.add(first.0.id(), UID);
    let pods = node.pods().await;
    let settings = || vec![(IDLE.to_owned(), "0".to_owned())];
    pods.get(UID).await.unwrap().apply("run".to_owned(), settings(), false).await.unwrap();
    node.remove(first.0.id());
    node.add(second.0.id(), UID);
    pods.get(UID).await.unwrap().apply("run".to_owned(), settings(), false).await.unwrap();
    assert_eq!(second.setting(IDLE), "0");
    assert_eq!(pods.count().await, 1);
}

#[tokio::test]
async fn pods_that_are_none_or_use_the_nodes_network_are_refused() {
    let node = Node::new();
    node.add(std::process::id(), UID);
    let pods = node.pods().await;
    assert_eq!(pods.get(UID).await.unwrap_err().reason(), "HostNetwork");
    assert_eq!(pods.get("a-pod-of-another-node").await.unwrap_err().reason(), "PodNotFound");
    for wrong in ["../../etc", "", "a b"] {
        assert_eq!(pods.get(wrong).await.unwrap_err().reason(), "InvalidArgument");
    }
    assert!(fs::read_dir(node.journals()).unwrap().next().is_none());
}
