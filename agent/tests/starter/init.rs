//! The starter as PID 1 of a PID namespace. Needs root.

use std::process::{Command, Stdio};
use std::time::Duration;

use gridcast_proto::v1::exec_request::Request;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Call, Cluster, PROGRAM, eventually, outcome, run, start, text};

const AS_INIT: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

fn cluster(extra: &[&str], stdin: Stdio) -> Cluster {
    let mut cluster = Cluster::empty(1);
    let mut command = cluster.serve(1, AS_INIT);
    cluster.start(1, command.args(extra).stdin(stdin));
    cluster
}

/// PID of the namespace's PID 1 in our namespace.
fn init_of(cluster: &Cluster) -> Pid {
    let unshare = cluster.pid(1);
    let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    Pid::from_raw(children.trim().parse().unwrap())
}

fn somebody_runs(marker: &str) -> bool {
    Command::new("pgrep").args(["-f", marker]).output().unwrap().status.success()
}

#[tokio::test]
async fn orphans_of_the_whole_namespace_are_collected() {
    let cluster = cluster(&[], Stdio::null());
    let client = cluster.client(1).await;
    // A daemon that leaves session and parent: its parent becomes PID 1.
    let script = "for i in 1 2 3 4 5 6 7 8; do setsid sh -c '(sleep 0.05; echo $PPID >/dev/null) &' & done; wait; \
                  (sleep 0.02; cut -d' ' -f4 /proc/self/stat) & wait; echo $PPID; exit 4";
    let brought = run(client.clone(), script).await;
    assert_eq!(brought.code, 4, "{brought:?}");
    assert!(text(&brought.stdout).ends_with("\n1\n"), "{brought:?}");
    let mut left = String::new();
    for _ in 0..200 {
        let script = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ' Z '; sleep 0.05";
        left = text(&run(client.clone(), script).await.stdout);
        if left == "0\n" {
            break;
        }
    }
    assert_eq!(left, "0\n", "zombies");
}

#[tokio::test]
async fn the_node_ends_with_its_owner() {
    let mut cluster = cluster(&["--exit-on-eof"], Stdio::piped());
    let mut call =
        Call::new(cluster.client(1).await, start(&["sh", "-c", "setsid sleep 31415.1 & sleep 31415.2"]))
            .await;
    call.started().await;
    eventually("both run", || somebody_runs("sleep 31415.1") && somebody_runs("sleep 31415.2"));
    let mut node = cluster.take(1);
    // Anything but the end is of no interest.
    std::io::Write::write_all(node.process.stdin.as_mut().unwrap(), b"hello").unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(node.process.try_wait().unwrap().is_none());
    drop(node.process.stdin.take());
    assert_eq!(node.process.wait().unwrap().code(), Some(0));
    assert!(!somebody_runs("sleep 31415"));
}

#[tokio::test]
async fn sigterm_ends_the_node_in_good_order() {
    let mut cluster = cluster(&[], Stdio::null());
    let init = init_of(&cluster);
    let script = "trap 'echo bye; exit 6' TERM; setsid sleep 27182.8 & echo up; while :; do sleep 0.05; done";
    let mut call = Call::new(cluster.client(1).await, start(&["sh", "-c", script])).await;
    call.started().await;
    call.next().await;
    // A Ctrl-C at the terminal is for the owner.
    kill(init, Signal::SIGINT).unwrap();
    call.send(Request::Signal(0)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    kill(init, Signal::SIGTERM).unwrap();
    let brought = call.finish().await;
    assert_eq!((text(&brought.stdout), brought.code), ("bye\n".into(), 6), "the caller learns how it ended");
    assert_eq!(cluster.take(1).process.wait().unwrap().code(), Some(0));
    assert!(!somebody_runs("sleep 27182.8"));
    assert!(!cluster.socket(1).exists());
}

#[test]
fn a_starter_that_cannot_serve_says_why() {
    let cluster = Cluster::new(1);
    let fails = |command: &mut Command| {
        let (code, _, err) = outcome(&command.stderr(Stdio::piped()).output().unwrap());
        assert_eq!(code, Some(1), "{err}");
        err
    };
    let taken = fails(&mut cluster.serve(1, &[]));
    assert!(taken.contains("h1: PortBusy") && taken.contains(&cluster.address(1).to_string()), "{taken}");
    let socket = cluster.socket(1);
    let mut elsewhere = Command::new(PROGRAM);
    elsewhere.args(["serve", "--name", "h1", "--listen", "127.0.0.1:0", "--keys"]).arg(cluster.keys(1));
    elsewhere.arg("--socket").arg(&socket);
    let taken = fails(&mut elsewhere);
    assert!(taken.contains("SocketFailed") && taken.contains(socket.to_str().unwrap()), "{taken}");
    assert!(socket.exists(), "the first one's socket is left alone");
    let keys = fails(&mut cluster.serve(2, &[]));
    assert!(keys.contains("keys-h2/ca.pem") && keys.contains("KeysUnreadable"), "{keys}");
}
