//! What is killed, and comes back.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::Signal;
use tokio::join;
use tonic::Code;

use crate::node::{Node, until};

#[tokio::test]
async fn an_agent_that_restarts_meanwhile_is_asked_again() {
    let mut node = Node::new(100).await;
    let dataset = node.write("team", "ics");
    let agent = node.agent.take();
    let restart = async {
        node.datasets.called(1).await;
        drop(agent);
        tokio::time::sleep(Duration::from_millis(300)).await;
        node.datasets.verify("team", "ics", &dataset);
        crate::agent::Agent::start(&node.path("agent.sock"), &node.datasets)
    };
    let (published, _agent) = join!(node.publish("team", "p1", "ics"), restart);
    assert!(published.unwrap().join("sub/file").exists());
    assert_eq!(node.datasets.calls(), ["acquire csi-p1", "acquire csi-p1"]);
}

#[tokio::test]
async fn an_agent_that_stays_away_is_named() {
    let mut node = Node::new(1).await;
    node.agent = None;
    let refused = node.publish("team", "p1", "ics").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    for part in ["Broadcast team/ics", "gridcast agent of node node-1", "agent.sock", "refused"] {
        assert!(refused.message().contains(part), "{}", refused.message());
    }
    assert!(!node.volume("p1", "v").exists());
}

#[tokio::test]
async fn an_unpublish_without_the_agent_unmounts_and_is_asked_for_again() {
    let mut node = Node::new(100).await;
    node.dataset("team", "ics");
    let target = node.publish("team", "p1", "ics").await.unwrap();
    node.agent = None;
    let refused = node.unpublish("p1").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{}", refused.message());
    assert!(!target.exists());
    node.start_agent();
    node.unpublish("p1").await.unwrap();
    assert!(node.datasets.volumes().is_empty());
}

#[tokio::test]
async fn a_plugin_that_is_killed_goes_on_where_it_was() {
    let mut node = Node::new(100).await;
    let dataset = node.write("team", "ics");
    // While it waits.
    let request = node.request("team", "p1", "ics");
    let socket = node.socket();
    let waiting = tokio::spawn(async move {
        let channel = crate::node::connect(&socket).await;
        gridcast_proto::csi::v1::node_client::NodeClient::new(channel).node_publish_volume(request).await
    });
    node.datasets.called(1).await;
    assert!(!node.stop_plugin(Signal::SIGKILL));
    assert!(waiting.await.unwrap().is_err());
    assert!(!node.volume("p1", "v").exists());
    assert!(node.socket().exists(), "the socket is left over");

    node.start_plugin().await;
    node.datasets.verify("team", "ics", &dataset);
    let target = node.publish("team", "p1", "ics").await.unwrap();

    // And while it is mounted: nobody notices.
    node.stop_plugin(Signal::SIGKILL);
    assert!(target.join("sub/file").exists());
    node.start_plugin().await;
    node.agent = None;
    node.publish("team", "p1", "ics").await.unwrap();
    assert_eq!(node.mounts(&target), (1, 1));
    node.start_agent();
    node.unpublish("p1").await.unwrap();
    assert_eq!(node.mounts(&target), (0, 0));
}

#[tokio::test]
async fn a_call_that_kubelet_gives_up_leaves_nothing_behind() {
    let node = Node::new(100).await;
    let dataset = node.write("team", "ics");
    let given_up = tokio::time::timeout(Duration::from_millis(500), node.publish("team", "p1", "ics")).await;
    assert!(given_up.is_err());
    node.datasets.called(1).await;
    node.datasets.verify("team", "ics", &dataset);
    // Whether that came before or after the plugin knew: the pod has gone meanwhile, and kubelet unpublishes what it is not
    // certain of.
    let unpublished = async {
        loop {
            match node.unpublish("p1").await {
                Err(busy) if busy.code() == Code::Aborted => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                other => break other,
            }
        }
    };
    unpublished.await.unwrap();
    assert!(!node.volume("p1", "v").exists());
    assert!(node.datasets.volumes().is_empty());
}

#[tokio::test]
async fn a_mount_that_kubelet_has_no_record_of_is_removed_at_the_start() {
    let mut node = Node::new(100).await;
    node.dataset("team", "ics");
    let kept = node.publish("team", "p1", "ics").await.unwrap();
    let orphan = node.publish("team", "p2", "ics").await.unwrap();
    let record = orphan.with_file_name("vol_data.json");
    fs::remove_file(record).unwrap();
    node.stop_plugin(Signal::SIGKILL);
    node.start_plugin().await;
    assert!(!orphan.exists());
    assert!(kept.join("sub/file").exists());
    assert_eq!((node.mounts(&orphan), node.mounts(&kept)), ((0, 0), (1, 1)));
    // The agent hears of it: nobody else would ever tell, and the dataset would count as used for ever.
    until("the volume is dropped", || node.datasets.volumes() == BTreeSet::from(["csi-p1".to_owned()])).await;
}

#[tokio::test]
async fn what_the_agent_takes_to_be_mounted_and_is_not_is_dropped_once_it_answers() {
    let mut node = Node::new(100).await;
    node.dataset("team", "ics");
    for pod in ["p1", "p2", "p3"] {
        node.publish("team", pod, "ics").await.unwrap();
    }
    node.stop_plugin(Signal::SIGKILL);
    let volume = |pod: &str| node.path(&format!("kubelet/pods/{pod}/volumes/kubernetes.io~csi/v"));
    // Somebody removed the directory of one pod by hand; of another there is kubelet's record, so that it will ask.
    for pod in ["p2", "p3"] {
        umount2(&volume(pod).join("mount"), MntFlags::MNT_DETACH).unwrap();
    }
    fs::remove_dir_all(volume("p2")).unwrap();
    node.agent = None;
    node.start_plugin().await;
    node.start_agent();
    let left = BTreeSet::from(["csi-p1".to_owned(), "csi-p3".to_owned()]);
    until("the volume is dropped", || node.datasets.volumes() == left).await;
    node.unpublish("p3").await.unwrap();
    assert_eq!(node.datasets.calls().iter().filter(|call| call.starts_with("drop")).count(), 2);
}

#[tokio::test]
async fn data_of_another_broadcast_of_the_same_name_is_for_new_pods_only() {
    let mut node = Node::new(100).await;
    let old = node.dataset("team", "ics");
    let before = node.publish("team", "p1", "ics").await.unwrap();
    // The Broadcast was made anew: its data has the path, what the old pod sees lies aside.
    fs::rename(&old, node.path("data/.gridcast-old.discarded")).unwrap();
    let new = node.dataset("team", "ics");
    fs::write(new.join("sub/file"), "new").unwrap();
    let after = node.publish("team", "p2", "ics").await.unwrap();
    let seen = || [&before, &after].map(|target| fs::read_to_string(target.join("sub/file")).unwrap());
    assert_eq!(seen(), ["team/ics", "new"]);

    // kubelet restarts, and asks again for what it has a record of; so does the plugin.
    node.stop_plugin(Signal::SIGKILL);
    node.start_plugin().await;
    for pod in ["p1", "p2"] {
        node.publish("team", pod, "ics").await.unwrap();
    }
    assert_eq!(seen(), ["team/ics", "new"]);
    assert_eq!(node.datasets.calls(), ["acquire csi-p1", "acquire csi-p2"]);
    node.unpublish("p1").await.unwrap();
    assert!(!before.exists());
    assert_eq!(node.datasets.volumes(), BTreeSet::from(["csi-p2".to_owned()]));
    assert_eq!(fs::read_to_string(after.join("sub/file")).unwrap(), "new");
}

#[tokio::test]
async fn a_second_plugin_does_not_take_over() {
    let node = Node::new(100).await;
    let output = node.command().output().unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("cannot listen at") && told.contains("csi.sock"), "{told}");
    node.dataset("team", "ics");
    node.publish("team", "p1", "ics").await.unwrap();
}
