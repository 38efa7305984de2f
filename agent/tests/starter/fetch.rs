//! Relay on the starter's port: results leave the container.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use gridcast_proto::v1::push_message::Message;
use gridcast_proto::v1::{FetchRequest, FollowRequest, PushMessage};
use tonic::{Code, Status};

use crate::support::{Cluster, PROGRAM};

/// The bytes of all files, in order.
async fn fetch(cluster: &Cluster, path: &std::path::Path) -> Result<Vec<u8>, Status> {
    let request = FetchRequest { path: path.to_str().unwrap().to_owned() };
    let mut messages = cluster.relay(1).await.fetch(request).await?.into_inner();
    let mut bytes = Vec::new();
    let mut sealed = false;
    while let Some(PushMessage { message }) = messages.message().await? {
        match message.unwrap() {
            Message::Data(data) => bytes.extend_from_slice(&data.payload),
            Message::Seal(_) => sealed = true,
            _ => {}
        }
    }
    assert!(sealed);
    Ok(bytes)
}

#[tokio::test]
async fn a_path_of_the_container_is_fetched() {
    let cluster = Cluster::new(1);
    let results = cluster.path("results");
    std::fs::create_dir_all(results.join("deep")).unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(results.join("deep/out"), &content).unwrap();
    assert!(fetch(&cluster, &results).await.unwrap() == content);
    assert!(fetch(&cluster, &results.join("deep/out")).await.unwrap() == content);
    let status = fetch(&cluster, &cluster.path("none")).await.unwrap_err();
    assert!(status.code() == Code::NotFound && status.message().contains("none"), "{status:?}");
}

#[tokio::test]
async fn a_member_may_fetch() {
    let cluster = Cluster::members(1, 1);
    let results = cluster.path("results");
    std::fs::write(&results, "42").unwrap();
    assert_eq!(fetch(&cluster, &results).await.unwrap(), b"42");
}

#[tokio::test]
async fn it_reads_as_the_container_s_user_and_names_what_that_may_not_read() {
    let mut cluster = Cluster::empty(1);
    let results = cluster.path("results");
    std::fs::create_dir(&results).unwrap();
    std::fs::write(results.join("open"), "yes").unwrap();
    std::fs::write(results.join("secret"), "no").unwrap();
    std::fs::set_permissions(results.join("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    let copy = cluster.path("starter");
    std::fs::copy(PROGRAM, &copy).unwrap();
    std::fs::set_permissions(cluster.root.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let as_root = cluster.serve(1, &[]);
    let mut command = Command::new(&copy);
    command.args(as_root.get_args()).uid(12345).gid(12345);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Keys in a Secret are readable for the container's user.
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        std::fs::set_permissions(cluster.keys(1).join(name), PermissionsExt::from_mode(0o644)).unwrap();
    }
    cluster.start(1, &mut command);
    assert_eq!(fetch(&cluster, &results.join("open")).await.unwrap(), b"yes");
    let status = fetch(&cluster, &results).await.unwrap_err();
    assert!(status.message().contains("secret") && status.message().contains("ermission"), "{status:?}");
}

#[tokio::test]
async fn a_starter_takes_part_in_no_broadcast() {
    let cluster = Cluster::new(1);
    let mut relay = cluster.relay(1).await;
    let followed = relay.follow(FollowRequest::default()).await.map(drop).unwrap_err();
    let pushed = relay.push(tokio_stream::empty::<PushMessage>()).await.map(drop).unwrap_err();
    for status in [followed, pushed] {
        assert!(status.code() == Code::PermissionDenied && status.message().contains("agent"), "{status:?}");
    }
}
