//! Configure and Check: what comes before a launch.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gridcast_proto::v1::{CheckProblem, CheckReply, CheckRequest, ConfigureRequest, Host};
use tonic::Code;

use crate::support::{Authority, Cluster, DOMAIN, PROGRAM, outcome};

fn host(name: &str, address: &str) -> Host {
    Host { name: name.to_owned(), address: address.to_owned() }
}

async fn check(cluster: &Cluster, peers: Vec<Host>, program: &str) -> CheckReply {
    let request = CheckRequest {
        peers,
        port: cluster.port.into(),
        program: program.to_owned(),
        timeout_millis: 20_000,
    };
    cluster.client(1).await.check(request).await.unwrap().into_inner()
}

fn told(problems: &[CheckProblem]) -> Vec<(&str, &str)> {
    for problem in problems {
        assert!(problem.message.starts_with(&format!("{}: ", problem.host)), "{problem:?}");
    }
    problems.iter().map(|problem| (problem.host.as_str(), problem.reason.as_str())).collect()
}

#[tokio::test]
async fn a_node_learns_its_fellows_and_says_who_it_is() {
    let cluster = Cluster::members(2, 1);
    let before = cluster.hosts_text();
    let hosts = vec![host("h1", "127.0.0.1"), host("h2", "127.0.0.2"), host("late-3", "10.9.8.7")];
    let machinefile = "h1 slots=1 max_slots=1\nlate-3 slots=2 max_slots=2\n".to_owned();
    let mut client = cluster.client(1).await;
    let request = ConfigureRequest { hosts, machinefile: machinefile.clone() };
    let reply = client.configure(request).await.unwrap().into_inner();
    assert_eq!((reply.node.as_str(), reply.version.as_str()), ("h1", env!("CARGO_PKG_VERSION")));
    let after = cluster.hosts_text();
    assert!(after.starts_with(&before) && after.contains("\n10.9.8.7\tlate-3\n"), "{after}");
    assert_eq!(std::fs::read_to_string(cluster.machinefile()).unwrap(), machinefile);
    let wrong =
        ConfigureRequest { hosts: vec![host("h1\n1.2.3.4 x", "127.0.0.1")], ..ConfigureRequest::default() };
    let status = client.configure(wrong).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("MembersInvalid: host name"), "{}", status.message());
    client.configure(ConfigureRequest::default()).await.unwrap();
    assert_eq!(cluster.hosts_text(), after);
    std::fs::remove_file(cluster.hosts()).unwrap();
    let request = ConfigureRequest { hosts: vec![host("h1", "127.0.0.1")], ..ConfigureRequest::default() };
    let status = client.configure(request).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains(cluster.hosts().to_str().unwrap()), "{}", status.message());
}

#[tokio::test]
async fn a_cluster_that_is_ready_has_no_problems() {
    let cluster = Cluster::members(3, 3);
    let peers = (1..=3).map(|index| host(&format!("h{index}"), &format!("127.0.0.{index}"))).collect();
    assert_eq!(check(&cluster, peers, "sh").await, CheckReply::default());
}

#[tokio::test]
async fn each_problem_is_told_with_its_host() {
    let mut cluster = Cluster::members(6, 2);
    // h3: a foreign starter. h4: nothing listens. h5: another member's address. h6: named otherwise.
    Authority::new().keys(&cluster.keys(3), &format!("h3.{DOMAIN}"));
    let mut foreign = cluster.serve(3, &[]);
    cluster.start(3, &mut foreign);
    let text = cluster.hosts_text().replace("127.0.0.5 h5", "127.0.0.2 h5");
    std::fs::write(cluster.hosts(), text).unwrap();
    let peers = vec![
        host("h1", "127.0.0.1"),
        host("h2", "127.0.0.2"),
        host("h3", "127.0.0.3"),
        host("h4", "127.0.0.4"),
        host("h5", "127.0.0.2"),
        host("h6", "127.0.0.7"),
        host("h7", "127.0.0.8"),
    ];
    let reply = check(&cluster, peers, "no-such-mpirun").await;
    let expected = [
        ("h1", "NoMpirun"),
        ("h3", "KeyRefused"),
        ("h4", "NoStarter"),
        ("h5", "NoStarter"),
        ("h6", "NameUnresolved"),
        ("h7", "NameUnresolved"),
    ];
    assert_eq!((told(&reply.problems), reply.problems_total), (expected.to_vec(), 6));
    for (index, word) in
        [(0, "`no-such-mpirun`"), (3, "the starter of h2"), (4, "names it 127.0.0.6"), (5, "no line")]
    {
        assert!(reply.problems[index].message.contains(word), "{:?}", reply.problems[index]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_do_not_answer_cost_one_time_limit_and_twenty_lines() {
    let cluster = Cluster::members(1, 1);
    // A listener that nobody serves: connections are made, and nothing ever comes.
    let deaf = std::net::TcpListener::bind(("127.0.0.200", cluster.port)).unwrap();
    let names: Vec<_> = (0..300).map(|n| format!("deaf-{n}")).collect();
    let lines: Vec<_> = names.iter().map(|name| format!("127.0.0.200 {name}\n")).collect();
    std::fs::write(cluster.hosts(), cluster.hosts_text() + &lines.concat()).unwrap();
    let peers = names.iter().map(|name| host(name, "127.0.0.200")).collect();
    let request =
        CheckRequest { peers, port: cluster.port.into(), program: String::new(), timeout_millis: 1000 };
    let begun = Instant::now();
    let reply = cluster.client(1).await.check(request).await.unwrap().into_inner();
    assert!(begun.elapsed() < Duration::from_secs(30), "not one limit after another");
    assert_eq!((reply.problems.len(), reply.problems_total), (20, 300));
    assert!(told(&reply.problems).iter().all(|(_, reason)| *reason == "NoStarter"));
    drop(deaf);
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let cluster = Cluster::members(1, 1);
    let mut client = cluster.client(1).await;
    for (port, address, word) in
        [(0, "127.0.0.1", "port 0"), (70_000, "127.0.0.1", "70000"), (7412, "h1", "\"h1\"")]
    {
        let request = CheckRequest { peers: vec![host("h1", address)], port, ..CheckRequest::default() };
        let status = client.check(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(word), "{}", status.message());
    }
}

/// Which name a member's certificate is shown for is completed by the domain, in the remote shell too.
#[test]
fn members_with_one_certificate_start_commands_on_each_other() {
    let cluster = Cluster::members(2, 2);
    let (code, out, err) = outcome(&cluster.exec(&["h2", "echo $GRIDCAST_NODE"]).output().unwrap());
    assert_eq!((code, out.as_str()), (Some(0), "h2\n"), "{err}");
    let (code, out, err) =
        outcome(&cluster.exec(&["h2.ring.default.svc", "echo $GRIDCAST_NODE"]).output().unwrap());
    assert_eq!((code, out.as_str()), (Some(0), "h2\n"), "{err}");
    // A member of another cluster of the same authority would not get that far, but if it did:
    std::fs::write(cluster.keys(1).join("domain"), "other.members.gridcast.io").unwrap();
    let (code, _, err) = outcome(&cluster.exec(&["h2", "true"]).output().unwrap());
    assert!(code == Some(255) && err.contains("h2: KeyRefused: "), "{err}");
}

/// All that `serve` is told may come from the environment.
#[tokio::test]
async fn a_starter_is_told_by_its_environment() {
    let mut cluster = Cluster::members(1, 0);
    let mut command = Command::new(PROGRAM);
    command.arg("serve").env_clear().env("PATH", "/usr/bin:/bin");
    command.env("GRIDCAST_NODE", "h1").env("GRIDCAST_LISTEN", cluster.address(1).to_string());
    command.env("GRIDCAST_KEYS", cluster.keys(1)).env("GRIDCAST_SOCKET", cluster.socket(1));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    cluster.start(1, &mut command);
    let reply = cluster.client(1).await.configure(ConfigureRequest::default()).await.unwrap();
    assert_eq!(reply.into_inner().node, "h1");
}
