//! Results come home once, or under names that tell whose they are.

use std::fs;

use gridcast_proto::v1::broadcasts_client::BroadcastsClient;
use gridcast_proto::v1::{CollectReply, CollectRequest};
use tonic::Status;

use super::cluster::Cluster;
use super::tree::{describe, make_all, set_mode, set_mtime};

fn collect(cluster: &Cluster, path: &str, names: &[&str]) -> Result<CollectReply, Status> {
    let request = CollectRequest {
        path: path.to_owned(),
        members: names.iter().map(|name| cluster.node(name).peer.clone()).collect(),
        target: "/home/results".to_owned(),
    };
    let endpoint = cluster.identity("controller").endpoint(&cluster.nodes[0].peer).unwrap();
    cluster.block_on(async {
        let channel = endpoint.connect().await.unwrap();
        Ok(BroadcastsClient::new(channel).collect(request).await?.into_inner())
    })
}

#[test]
fn the_same_from_everybody_comes_once_and_exactly() {
    let cluster = Cluster::new(&["s", "a", "b"]);
    for name in ["s", "a"] {
        fs::create_dir(cluster.path(name, "/scratch")).unwrap();
        make_all(&cluster.path(name, "/scratch/out"));
    }
    let reply = collect(&cluster, "/scratch/out", &["s", "a", "b"]).unwrap();
    assert_eq!(reply.members, ["s", "a"], "b has nothing");
    assert!(reply.renamed.is_empty(), "{reply:?}");
    assert_eq!(
        describe(&cluster.path("s", "/home/results/out")),
        describe(&cluster.path("s", "/scratch/out"))
    );
    assert_eq!(fs::read_dir(cluster.path("s", "/home/results")).unwrap().count(), 1);
}

#[test]
fn what_differs_is_kept_under_the_member_s_name() {
    let cluster = Cluster::new(&["s", "a", "b"]);
    for name in ["a", "b", "s"] {
        let out = cluster.path(name, "/out");
        fs::create_dir_all(out.join("logs")).unwrap();
        fs::write(out.join("same"), "same").unwrap();
        fs::write(out.join("logs/rank"), name).unwrap();
        fs::write(out.join(format!("only-{name}")), name).unwrap();
        set_mtime(&out.join("logs"), -7, 7);
        set_mode(&out.join("logs"), 0o555);
    }
    // A directory where the first member has a file.
    fs::create_dir(cluster.path("b", "/out/only-a")).unwrap();
    fs::write(cluster.path("b", "/out/only-a/in"), "in").unwrap();
    let reply = collect(&cluster, "/out", &["a", "b", "s"]).unwrap();
    assert_eq!(reply.renamed, ["out/logs/rank.b", "out/only-a.b", "out/logs/rank.s"]);
    let home = cluster.path("s", "/home/results/out");
    for (path, content) in [
        ("same", "same"),
        ("logs/rank", "a"),
        ("logs/rank.b", "b"),
        ("logs/rank.s", "s"),
        ("only-a", "a"),
        ("only-b", "b"),
        ("only-s", "s"),
        ("only-a.b/in", "in"),
    ] {
        assert_eq!(fs::read_to_string(home.join(path)).unwrap(), content, "{path}");
    }
    assert_eq!((reply.files, reply.size_bytes), (8, 12));
    assert!(describe(&home)[&b"logs"[..]].starts_with("directory -7.000000007 555"));
}

#[test]
fn a_single_file_and_results_that_were_there_before() {
    let cluster = Cluster::new(&["s", "a"]);
    for round in ["first", "second"] {
        fs::write(cluster.path("a", "/out.txt"), round).unwrap();
        fs::write(cluster.path("s", "/out.txt"), "mine").unwrap();
        let reply = collect(&cluster, "/out.txt", &["a", "s"]).unwrap();
        assert_eq!(reply.renamed, ["out.txt.s"]);
        let home = cluster.path("s", "/home/results");
        assert_eq!(fs::read_to_string(home.join("out.txt")).unwrap(), round);
        assert_eq!(fs::read_to_string(home.join("out.txt.s")).unwrap(), "mine");
        assert_eq!(fs::read_dir(&home).unwrap().count(), 2, "and nothing else");
    }
}

#[test]
fn a_path_that_nobody_has_and_a_member_that_is_gone_are_named() {
    let mut cluster = Cluster::new(&["s", "a"]);
    let nobody = collect(&cluster, "/out", &["s", "a"]).unwrap_err();
    assert_eq!(nobody.code(), tonic::Code::NotFound);
    assert!(nobody.message().contains("/out"), "{nobody}");
    fs::write(cluster.path("s", "/out"), "x").unwrap();
    cluster.kill("a");
    let gone = collect(&cluster, "/out", &["s", "a"]).unwrap_err();
    assert_eq!(gone.metadata().get("gridcast-reason").unwrap(), "AgentLost");
    assert!(gone.message().starts_with("a:"), "{gone}");
    assert!(!cluster.path("s", "/home").exists(), "nothing is left of it");
}
