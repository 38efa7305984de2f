//! What a pod gets.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;
use nix::sys::statvfs::{FsFlags, statvfs};
use tokio::join;
use tonic::Code;

use crate::node::{Node, until};

#[tokio::test]
async fn a_pod_waits_for_its_dataset_sees_it_read_only_and_leaves_nothing() {
    let node = Node::new(100).await;
    let dataset = node.write("team", "ics");
    let target = node.volume("p1", "v");
    // An empty directory that is there already does not stay there either.
    fs::create_dir(&target).unwrap();
    let release = async {
        node.datasets.called(1).await;
        assert!(!target.exists(), "an empty directory, before the data is here");
        node.datasets.verify("team", "ics", &dataset);
    };
    let (published, ()) = join!(node.publish("team", "p1", "ics"), release);
    published.unwrap();

    // As the host and so every pod sees it, not only the plugin's container.
    assert_eq!(fs::read_to_string(target.join("sub/file")).unwrap(), "team/ics");
    let refused = fs::write(target.join("sub/file"), "x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    let flags = statvfs(&target).unwrap().flags();
    assert!(flags.contains(FsFlags::ST_RDONLY | FsFlags::ST_NOSUID | FsFlags::ST_NODEV), "{flags:?}");
    assert_eq!(node.mounts(&target), (1, 1));
    // Where it comes from is as it was.
    assert_eq!(node.mounts(&dataset), (0, 0));
    fs::write(dataset.join("later"), "x").unwrap();

    // A subPath: kubelet binds a part of the volume elsewhere. One that is not there cannot be made.
    let sub = node.path("sub");
    fs::create_dir(&sub).unwrap();
    mount(Some(&target.join("sub")), &sub, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    assert_eq!(fs::write(sub.join("file"), "x").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::create_dir(target.join("other")).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);

    node.publish("team", "p1", "ics").await.unwrap();
    assert_eq!(node.mounts(&target), (1, 1));
    assert_eq!(node.datasets.calls(), ["acquire csi-p1"]);
    assert!(node.datasets.volumes().contains("csi-p1"));

    node.unpublish("p1").await.unwrap();
    assert!(!target.exists());
    assert_eq!(node.mounts(&target), (0, 0));
    assert!(node.datasets.volumes().is_empty());
    // The container that has the subPath keeps it until it ends.
    assert_eq!(fs::read_to_string(sub.join("file")).unwrap(), "team/ics");
    node.unpublish("p1").await.unwrap();
    assert!(dataset.join("sub/file").exists());
}

#[tokio::test]
async fn pods_of_one_node_share_a_dataset() {
    let node = Node::new(100).await;
    node.dataset("team", "ics");
    let (a, b) = join!(node.publish("team", "p1", "ics"), node.publish("team", "p2", "ics"));
    let (a, b) = (a.unwrap(), b.unwrap());
    node.unpublish("p1").await.unwrap();
    assert!(!a.exists());
    assert_eq!(fs::read_to_string(b.join("sub/file")).unwrap(), "team/ics");
}

#[tokio::test]
async fn a_pod_of_another_namespace_gets_nothing_and_is_told_what_is_missing() {
    let node = Node::new(1).await;
    node.dataset("team", "ics");
    let refused = node.publish("other", "p1", "ics").await.unwrap_err();
    // Final for kubelet: there is nothing to undo, so the pod can go even if the plugin has gone.
    assert_eq!(refused.code(), Code::FailedPrecondition);
    for part in ["Broadcast other/ics", "node-1", "4 of 10 MB", "kubectl describe broadcast ics -n other"] {
        assert!(refused.message().contains(part), "{}", refused.message());
    }
    assert!(!node.volume("p1", "v").exists());
    assert!(node.datasets.volumes().is_empty());
}

#[tokio::test]
async fn what_a_manifest_must_not_say_is_refused_at_once() {
    let node = Node::new(100).await;
    let cases: [(&str, Option<&str>, &str); 5] = [
        ("path", Some("/etc"), "unknown \"path\""),
        ("broadcast", None, "volumeAttributes.broadcast is missing"),
        ("broadcast", Some("../other/ics"), "not the name of an object"),
        ("csi.storage.k8s.io/ephemeral", Some("false"), "inline volumes only"),
        ("csi.storage.k8s.io/pod.uid", Some("guessed"), "podInfoOnMount"),
    ];
    for (key, value, told) in cases {
        let mut request = node.request("team", "p1", "ics");
        match value {
            Some(value) => request.volume_context.insert(key.into(), value.into()),
            None => request.volume_context.remove(key),
        };
        let refused = node.send(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{}", refused.message());
        assert!(refused.message().contains(told), "{}", refused.message());
    }
    let mut elsewhere = node.request("team", "p1", "ics");
    elsewhere.target_path = node.path("data").display().to_string();
    assert_eq!(node.send(elsewhere).await.unwrap_err().code(), Code::InvalidArgument);
    assert!(node.datasets.calls().is_empty());
}

#[tokio::test]
async fn nothing_outside_of_the_data_directory_is_mounted() {
    let node = Node::new(100).await;
    let outside = node.path("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, node.path("data/link")).unwrap();
    fs::write(node.path("data/file"), "x").unwrap();
    let wrong: [(&str, PathBuf, &str); 5] = [
        ("p1", outside.clone(), "is not below"),
        ("p2", node.path("data/link"), "is not below"),
        ("p3", node.path("data"), "is not below"),
        ("p4", node.path("data/missing"), "cannot be mounted as a dataset"),
        ("p5", node.path("data/file"), "cannot be mounted as a dataset"),
    ];
    for (pod, path, told) in wrong {
        node.datasets.verify("team", "ics", &path);
        let refused = node.publish("team", pod, "ics").await.unwrap_err();
        assert_eq!(refused.code(), Code::Internal);
        assert!(refused.message().contains(told), "{}", refused.message());
        assert!(refused.message().contains("Broadcast team/ics"), "{}", refused.message());
        assert!(!node.volume(pod, "v").exists(), "an empty directory is left");
    }
    assert!(node.datasets.volumes().is_empty(), "what was not mounted is not registered");
}

#[tokio::test]
async fn a_mount_that_is_not_as_it_should_be_is_made_anew() {
    let node = Node::new(100).await;
    let dataset = node.dataset("team", "ics");
    let target = node.volume("p1", "v");
    fs::create_dir(&target).unwrap();
    // Writable, twice: as from a publish that was cut in the middle.
    for _ in 0..2 {
        mount(Some(&dataset), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    }
    node.publish("team", "p1", "ics").await.unwrap();
    assert_eq!(node.mounts(&target), (1, 1));
    assert!(fs::write(target.join("x"), "x").is_err());

    // The dataset was replaced by a rename: the mount shows the old one for ever, so a new publish makes a new mount.
    fs::remove_dir_all(&dataset).unwrap();
    node.write("team", "ics");
    assert!(!target.join("sub/file").exists());
    node.publish("team", "p1", "ics").await.unwrap();
    assert_eq!(fs::read_to_string(target.join("sub/file")).unwrap(), "team/ics");
    assert_eq!(node.mounts(&target), (1, 1));

    // And all of several go.
    mount(Some(&dataset), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    node.unpublish("p1").await.unwrap();
    assert!(!target.exists());
}

#[tokio::test]
async fn what_somebody_put_into_the_target_is_not_removed() {
    let node = Node::new(100).await;
    node.dataset("team", "ics");
    let target = node.volume("p1", "v");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("precious"), "x").unwrap();
    for refused in [node.publish("team", "p1", "ics").await.map(drop), node.unpublish("p1").await] {
        let message = refused.unwrap_err().message().to_owned();
        assert!(message.contains("holds something although nothing is mounted"), "{message}");
    }
    assert!(target.join("precious").exists());
}

#[tokio::test]
async fn the_plugin_listens_on_no_network_and_has_one_thread() {
    let mut node = Node::new(100).await;
    let dataset = node.write("team", "ics");
    let look = async {
        node.datasets.called(1).await;
        let pid = node.plugin_pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.lines().any(|line| line.split_whitespace().eq(["Threads:", "1"])), "{status}");
        let network: String = ["tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet"]
            .map(|kind| fs::read_to_string(format!("/proc/{pid}/net/{kind}")).unwrap_or_default())
            .concat();
        let mut sockets = 0;
        for descriptor in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
            let Ok(link) = fs::read_link(descriptor.unwrap().path()) else { continue };
            let link = link.display().to_string();
            if let Some(inode) = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) {
                sockets += 1;
                assert!(!network.split_whitespace().any(|word| word == inode), "{link} is of a network");
            }
        }
        // The two listeners, kubelet's connection and the agent's.
        assert!(sockets >= 4, "{sockets}");
        for socket in [node.socket(), node.registration()] {
            let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(socket).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
        node.datasets.verify("team", "ics", &dataset);
    };
    let (published, ()) = join!(node.publish("team", "p1", "ics"), look);
    let target = published.unwrap();
    // It goes without its mounts, and takes its sockets with it.
    assert!(node.stop_plugin(Signal::SIGTERM));
    assert!(!node.socket().exists() && !node.registration().exists());
    until("the mount is still there", || target.join("sub/file").exists()).await;
}
