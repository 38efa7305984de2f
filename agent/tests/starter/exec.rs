//! `Starter.Exec` as a controller calls it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gridcast_agent::starter::command::KILL_GRACE;
use gridcast_agent::tls::Identity;
use gridcast_proto::v1::exec_reply::Reply;
use gridcast_proto::v1::exec_request::Request;
use gridcast_proto::v1::starter_client::StarterClient;
use gridcast_proto::v1::{ExecRequest, ExecStart, RanksRequest};
use tonic::Code;

use crate::support::{Authority, Call, Cluster, alive, eventually, run, start, text, zombies_of};

/// Every byte value, no short period.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[tokio::test]
async fn binary_input_comes_back_unchanged() {
    let cluster = Cluster::new(1);
    let call = Call::new(cluster.client(1).await, start(&["cat"])).await;
    let input = Bytes::from(noise(5_000_001));
    let requests = call.requests.clone();
    let sent = input.clone();
    tokio::spawn(async move {
        for start in (0..sent.len()).step_by(60_000) {
            let piece = sent.slice(start..(start + 60_000).min(sent.len()));
            requests.send(ExecRequest { request: Some(Request::Stdin(piece)) }).await.unwrap();
        }
        requests.send(ExecRequest { request: Some(Request::StdinClosed(true)) }).await.unwrap();
    });
    let brought = call.finish().await;
    assert_eq!(blake3::hash(&brought.stdout), blake3::hash(&input));
    assert_eq!((brought.code, brought.signal), (0, 0));
}

#[tokio::test]
async fn codes_signals_and_both_streams_are_told() {
    let cluster = Cluster::new(1);
    let client = cluster.client(1).await;
    let brought = run(client.clone(), "printf out; printf err >&2; exit 7").await;
    assert_eq!((text(&brought.stdout), text(&brought.stderr), brought.code), ("out".into(), "err".into(), 7));
    for signal in [libc::SIGBUS, libc::SIGKILL, 34] {
        let brought = run(client.clone(), &format!("env kill -{signal} $$")).await;
        assert_eq!((brought.code, brought.signal), (0, signal));
    }
}

#[tokio::test]
async fn what_cannot_be_started_is_told_apart() {
    let cluster = Cluster::new(1);
    let file = cluster.path("file");
    std::fs::write(&file, "text").unwrap();
    let broken = cluster.path("broken");
    std::fs::write(&broken, "#!/nonexistent/interpreter\n").unwrap();
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(&broken, mode(0o755)).unwrap();
    let [file, broken] = [&file, &broken].map(|path| path.to_str().unwrap());
    let nul = ExecStart { environment: HashMap::from([("A=".into(), String::new())]), ..start(&["true"]) };
    for (request, reason, named) in [
        (start(&["no-such-program"]), "ProgramNotFound", "no-such-program"),
        (start(&["/no/such"]), "ProgramNotFound", "/no/such"),
        (start(&[file]), "NotExecutable", file),
        (start(&["/tmp"]), "NotExecutable", "/tmp"),
        (start(&[broken]), "NotExecutable", "interpreter"),
        (ExecStart { directory: "/no/dir".into(), ..start(&["true"]) }, "NoDirectory", "/no/dir"),
        (ExecStart { directory: file.into(), ..start(&["true"]) }, "NoDirectory", file),
        (start(&[]), "StartFailed", "argv"),
        (nul, "StartFailed", "A="),
    ] {
        let failed = Call::new(cluster.client(1).await, request).await.finish().await.failed.unwrap();
        assert_eq!(failed.0, reason, "{failed:?}");
        assert!(failed.1.contains(named), "{failed:?}");
    }
}

#[tokio::test]
async fn the_given_environment_and_directory_hold() {
    let cluster = Cluster::new(1);
    let tools = cluster.path("tools");
    std::fs::create_dir(&tools).unwrap();
    std::os::unix::fs::symlink("/bin/sh", tools.join("my-shell")).unwrap();
    let request = ExecStart {
        argv: ["my-shell", "-c", "echo $0 $GRIDCAST_NODE $GRIDCAST_LAUNCH $GRIDCAST_HOSTS $A; pwd"]
            .map(String::from)
            .into(),
        // Only here is the program found, and the starter's own variables are not.
        environment: HashMap::from([
            ("PATH".into(), tools.to_str().unwrap().into()),
            ("A".into(), "a  b".into()),
        ]),
        inherit_environment: false,
        directory: tools.to_str().unwrap().into(),
        launch: "launch-1".into(),
    };
    let brought = Call::new(cluster.client(1).await, request).await.finish().await;
    let expected = format!("my-shell h1 launch-1 a b\n{}\n", tools.display());
    assert_eq!((text(&brought.stdout), text(&brought.stderr)), (expected, String::new()));
}

#[tokio::test]
async fn a_signal_reaches_the_whole_group() {
    let cluster = Cluster::new(1);
    let script = "sleep 1000 & echo $!; wait $!";
    let mut call = Call::new(cluster.client(1).await, start(&["sh", "-c", script])).await;
    let shell = call.started().await;
    let Some(Reply::Stdout(sleeper)) = call.next().await else { panic!("no output") };
    let sleeper: i64 = text(&sleeper).trim().parse().unwrap();
    assert!(alive(shell) && alive(sleeper));
    // Not a signal: passed over.
    call.send(Request::Signal(9999)).await;
    call.send(Request::Signal(libc::SIGTERM)).await;
    let brought = call.finish().await;
    assert_eq!((brought.code, brought.signal), (0, libc::SIGTERM));
    eventually("the grandchild ends", || !alive(sleeper));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_takes_its_command_along() {
    let cluster = Cluster::new(1);
    let started = Instant::now();
    let mut polite = Call::new(cluster.client(1).await, start(&["sleep", "1000"])).await;
    let stubborn = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let mut stubborn = Call::new(cluster.client(1).await, start(&["sh", "-c", stubborn])).await;
    let pids = [polite.started().await, stubborn.started().await];
    assert!(matches!(stubborn.next().await, Some(Reply::Stdout(_))));
    drop(polite);
    eventually("SIGTERM", || !alive(pids[0]));
    drop(stubborn);
    eventually("SIGKILL", || !alive(pids[1]));
    assert!(started.elapsed() >= KILL_GRACE);
}

#[tokio::test]
async fn a_daemon_left_behind_does_not_hold_the_reply() {
    let cluster = Cluster::new(1);
    let brought = run(cluster.client(1).await, "sleep 1000 & echo $!; head -c 50000 /dev/zero").await;
    let (pid, zeros) =
        brought.stdout.split_at(brought.stdout.iter().position(|byte| *byte == b'\n').unwrap());
    assert_eq!(zeros.len(), 50_001, "the command's own output is whole");
    let pid: i32 = text(pid).parse().unwrap();
    assert!(alive(pid.into()), "as after an ssh session, what was left behind runs on");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    eventually("it is collected", || zombies_of(cluster.pid(1)) == 0 && !alive(pid.into()));
}

#[tokio::test]
async fn output_that_nobody_reads_does_not_pile_up() {
    let cluster = Cluster::new(1);
    let rss = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid(1))).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned();
        line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = rss();
    let mut call = Call::new(cluster.client(1).await, start(&["head", "-c", "200000000", "/dev/zero"])).await;
    let pid = call.started().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let grown = rss() - before;
    assert!(alive(pid), "it waits for its reader");
    assert!(grown < 32 * 1024, "the starter grew by {grown} KiB");
    assert_eq!(call.finish().await.stdout.len(), 200_000_000);
}

#[tokio::test]
async fn every_exit_status_finds_its_caller_and_no_zombie_stays() {
    let cluster = Cluster::new(1);
    let client = cluster.client(1).await;
    let calls = (0..64).map(|code| {
        let client = client.clone();
        // Each leaves an orphan that ends at about the same time.
        tokio::spawn(async move {
            run(client, &format!("(sleep 0.05 &) ; sleep 0.0{}; exit {code}", code % 10)).await
        })
    });
    let calls: Vec<_> = calls.collect();
    for (code, call) in (0..64).zip(calls) {
        let brought = call.await.unwrap();
        assert_eq!((brought.code, brought.signal), (code, 0), "{brought:?}");
    }
    eventually("all orphans are collected", || zombies_of(cluster.pid(1)) == 0);
}

#[tokio::test]
async fn only_holders_of_keys_of_the_run_are_served() {
    let cluster = Cluster::new(1);
    let foreign = cluster.path("foreign");
    Authority::new().keys(&foreign, "controller");
    // The worst case: one that has learned our authority, so that it does not stop at our certificate.
    std::fs::copy(cluster.keys(1).join("ca.pem"), foreign.join("ca.pem")).unwrap();
    let endpoint = Identity::load(&foreign).unwrap().endpoint_at("h1", cluster.address(1)).unwrap();
    if let Ok(channel) = endpoint.connect().await {
        let request = RanksRequest::default();
        StarterClient::new(channel).ranks(request).await.unwrap_err();
    }
    assert!(cluster.ranks(1, "x").await.is_empty(), "members are served all the same");
}

#[tokio::test]
async fn a_call_has_to_begin_with_a_start() {
    let cluster = Cluster::new(1);
    let wrong = ExecRequest { request: Some(Request::Signal(9)) };
    let status = cluster.client(1).await.exec(tokio_stream::iter([wrong])).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}
