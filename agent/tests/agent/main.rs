//! Real agents in network namespaces of their own. Needs root, `ip` and `tc`; leaves nothing.

// What fails here fails the test, also where it is not written in the test's own function.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fleet;
mod kubernetes;
mod nodes;
mod probes;
mod settings;

use std::io::{Read as _, Write as _};

use gridcast_proto::v1::agent_client::AgentClient;
use gridcast_proto::v1::{DescribeRequest, Peer, WatchRequest};
use nix::sys::signal::Signal;
use tonic::Code;

use nodes::{Keys, Pair, peer};

#[test]
fn a_controller_learns_who_answers() {
    let pair = Pair::new();
    let facts = pair
        .control(async |mut agent| agent.describe(DescribeRequest::default()).await.unwrap().into_inner());
    assert_eq!((facts.name.as_str(), facts.probe_port, facts.mtu), ("node-0", 7413, 1500));
    assert_eq!(facts.pid, i64::from(pair.agents[0].process.id()));
    assert!(facts.settings.contains_key("net.ipv4.tcp_rmem"), "{facts:?}");
    assert!(!facts.allowed_congestion_controls.is_empty());
}

#[test]
fn a_watcher_hears_of_a_killed_agent_by_the_broken_stream() {
    let pair = Pair::new();
    let ended = pair.control(async |mut agent| {
        let mut events = agent.watch(WatchRequest {}).await.unwrap().into_inner();
        assert!(events.message().await.unwrap().is_some());
        pair.agents[0].signal(Signal::SIGKILL);
        events.message().await
    });
    assert!(ended.is_err(), "{ended:?}");
}

#[test]
fn a_stopping_agent_says_so_and_exits_with_success() {
    let mut pair = Pair::new();
    let ended = pair.control(async |mut agent| {
        let mut events = agent.watch(WatchRequest {}).await.unwrap().into_inner();
        assert!(events.message().await.unwrap().is_some());
        pair.agents[0].signal(Signal::SIGTERM);
        events.message().await.unwrap_err()
    });
    assert_eq!((ended.code(), ended.message()), (Code::Unavailable, "agent node-0 is stopping"));
    assert!(pair.agents[0].process.wait().unwrap().success());
}

#[test]
fn only_members_of_the_run_are_heard_and_believed() {
    let pair = Pair::new();
    let strangers = Keys::new(&["controller"]);
    let call = |identity: gridcast_agent::tls::Identity, peer: Peer| {
        pair.namespaces[0].enter(async move || {
            let channel =
                identity.endpoint(&peer).unwrap().connect().await.map_err(|error| error.to_string())?;
            let reply = AgentClient::new(channel).describe(DescribeRequest::default()).await;
            reply.map(|reply| reply.into_inner().name).map_err(|status| status.to_string())
        })
    };
    let friend = || pair.keys.identity("controller");
    assert_eq!(call(friend(), peer(1)).as_deref(), Ok("node-1"));
    call(strangers.identity("controller"), peer(0)).unwrap_err();
    // The right address under a wrong name: somebody else answers there.
    call(friend(), Peer { name: "node-1".to_owned(), ..peer(0) }).unwrap_err();
}

#[test]
fn the_probe_port_takes_nothing_from_strangers() {
    let pair = Pair::new();
    pair.namespaces[0].enter(async || {
        let mut stream = std::net::TcpStream::connect("10.42.0.2:7413").unwrap();
        stream.write_all(b"GCPROBE1 a token that nobody was given, 32 bytes").unwrap();
        let mut answer = Vec::new();
        // Closed or reset, but no word.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty());
    });
}

#[test]
fn an_agent_that_cannot_start_says_what_to_do() {
    let pair = Pair::new();
    for (arguments, expected) in [
        (
            ["--keys", "/nonexistent", "--state", "/tmp"],
            "cannot read /nonexistent/ca.pem: give the directory",
        ),
        (
            [
                "--keys",
                pair.keys.path("node-0").to_str().unwrap(),
                "--state",
                pair.state.path().join("node-0").to_str().unwrap(),
            ],
            "is locked by another agent",
        ),
    ] {
        let output = pair.namespaces[0]
            .command(env!("CARGO_BIN_EXE_gridcast-agent"))
            .args(["--name", "node-0"])
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(expected), "{text}");
    }
}
