//! Whatever goes wrong is named, and leaves nothing half done.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use gridcast_proto::v1::broadcast_event::Event;
use gridcast_proto::v1::push_message::Message;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::cluster::{Cluster, wait_until};
use super::proxy::{Proxy, Wire};
use super::tree::{describe, make_all, noise};

fn large(cluster: &Cluster, mebibytes: usize) {
    let source = cluster.path("s", "/source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("large"), noise(7, mebibytes << 20)).unwrap();
    fs::write(source.join("small"), "small").unwrap();
}

fn assert_nothing_published(cluster: &Cluster, names: &[&str]) {
    cluster.wait_clean();
    for name in names {
        // The directory that was made for it goes a moment after what was in it.
        wait_until(&format!("{name} keeps nothing"), || !cluster.path(name, "/data").exists());
    }
}

/// A tmpfs that is gone with the test.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    fn new(path: &'a Path, mebibytes: u32) -> Self {
        fs::create_dir_all(path).unwrap();
        let options = format!("size={mebibytes}m");
        mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).unwrap();
        Self(path)
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        umount2(self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

fn flip(payload: &mut Bytes) {
    let mut bytes = payload.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    *payload = bytes.into();
}

#[test]
fn a_corrupted_chunk_is_repaired_by_everybody_it_reached() {
    let cluster = Cluster::new(&["s", "a", "b", "c"]);
    let source = cluster.path("s", "/source");
    make_all(&source);
    let hits = Arc::new(AtomicU32::new(0));
    let counted = hits.clone();
    // Data of one chunk, the hash of another; each once.
    let proxy = Proxy::new(&cluster, "a", u64::MAX, move |message| {
        let hits = &counted;
        let is_first = |mask: u32| hits.fetch_or(mask, Ordering::Relaxed) & mask == 0;
        match message {
            Message::Data(data) if data.chunk == 2 && data.offset > 0 && is_first(1) => {
                flip(&mut data.payload);
            }
            Message::ChunkEnd(end) if end.chunk == 4 && is_first(2) => flip(&mut end.blake3),
            _ => {}
        }
    });
    let mut request = cluster.request(&["s>a>b>c"]);
    proxy.stand_in(&mut request.members);
    cluster.start(request).finished();
    assert_eq!(hits.load(Ordering::Relaxed), 3);
    for name in ["a", "b", "c"] {
        assert_eq!(describe(&cluster.path(name, "/data/ics")), describe(&source), "{name}");
        assert_eq!(cluster.node(name).counters.chunks_repaired(), 2, "{name}");
    }
    assert_eq!(cluster.node("s").counters.chunks_resent(), 2);
}

#[test]
fn a_chunk_that_stays_corrupted_ends_it() {
    let cluster = Cluster::new(&["s", "a", "b"]);
    large(&cluster, 4);
    let proxy = Proxy::new(&cluster, "a", u64::MAX, |message| {
        if let Message::Data(data) = message
            && data.chunk == 1
        {
            flip(&mut data.payload);
        }
    });
    let mut request = cluster.request(&["s>a>b"]);
    proxy.stand_in(&mut request.members);
    let failed = cluster.start(request).failed();
    assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("a", "CorruptData"), "{failed:?}");
    assert!(failed.message.contains("`large`"), "{failed:?}");
    assert_nothing_published(&cluster, &["a", "b"]);
}

#[test]
fn entries_that_were_changed_on_the_way_never_get_the_published_name() {
    type Change = fn(&mut gridcast_proto::v1::Entry);
    let changes: [(Change, &str); 3] = [
        (|entry| entry.mode ^= 1, "digest"),
        (|entry| entry.path = Bytes::from_static(b"../../escaped"), "escaped"),
        (|entry| entry.path = Bytes::from_static(b"/escaped"), "absolute"),
    ];
    for (change, expected) in changes {
        let cluster = Cluster::new(&["s", "a"]);
        large(&cluster, 1);
        let proxy = Proxy::new(&cluster, "a", u64::MAX, move |message| {
            if let Message::Entries(entries) = message {
                entries.entries.iter_mut().filter(|entry| entry.path.as_ref() == b"small").for_each(change);
            }
        });
        let mut request = cluster.request(&["s>a"]);
        proxy.stand_in(&mut request.members);
        let failed = cluster.start(request).failed();
        assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("a", "CorruptData"), "{failed:?}");
        assert!(failed.message.contains(expected), "{failed:?}");
        assert_nothing_published(&cluster, &["a"]);
        assert!(!cluster.path("a", "/../escaped").exists() && !cluster.path("a", "/escaped").exists());
    }
}

#[test]
fn the_agent_that_died_is_named_and_the_others_clean_up() {
    let mut cluster = Cluster::new(&["s", "a", "b", "c"]);
    large(&cluster, 64);
    let mut request = cluster.request(&["s>a>b>c"]);
    let proxy = Proxy::new(&cluster, "b", 1 << 20, |_| {});
    proxy.stand_in(&mut request.members);
    let mut kept = request.clone();
    let failed = {
        let mut events = cluster.start(request);
        events.until(|event| matches!(event, Event::Progress(_)).then_some(()));
        wait_until("b has begun", || proxy.gate.passed() > 0);
        let stream = events.detach();
        cluster.kill("a");
        cluster.attach(stream).failed()
    };
    assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("a", "AgentLost"), "{failed:?}");
    proxy.gate.open();
    assert_nothing_published(&cluster, &["b", "c"]);
    // The others go on without it, under the same id.
    kept.members.retain(|peer| peer.name != "a");
    kept.plan = Some(super::cluster::plan(&["s>b>c"]));
    cluster.start(kept).finished();
    assert_eq!(describe(&cluster.path("c", "/data/ics")), describe(&cluster.path("s", "/source")));
}

/// Nothing tells of it but silence: ten seconds until the coordinator asks in vain, twenty-five until the member does.
#[test]
fn a_member_that_falls_silent_is_named_and_not_those_that_hang_on_it() {
    let cluster = Cluster::new(&["s", "a", "b"]);
    large(&cluster, 64);
    let mut request = cluster.request(&["s>a>b"]);
    let wire = Wire::new(&cluster, "a");
    wire.stand_in(&mut request.members, "a");
    let proxy = Proxy::new(&cluster, "b", 1 << 20, |_| {});
    proxy.stand_in(&mut request.members);
    let mut events = cluster.start(request);
    events.until(|event| matches!(event, Event::Progress(_)).then_some(()));
    wait_until("b has begun", || proxy.gate.passed() > 0);
    wire.cut();
    let failed = events.failed();
    assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("a", "AgentLost"), "{failed:?}");
    assert!(!failed.message.contains("lost it"), "the coordinator itself noticed: {failed:?}");
    assert_nothing_published(&cluster, &["a", "b"]);
}

#[test]
fn a_member_that_is_not_there_is_named() {
    let mut cluster = Cluster::new(&["s", "a", "b"]);
    large(&cluster, 1);
    cluster.kill("b");
    let failed = cluster.start(cluster.request(&["s>a>b"])).failed();
    assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("b", "AgentLost"), "{failed:?}");
    assert_nothing_published(&cluster, &["a"]);
}

#[test]
fn a_disk_that_is_too_small_is_named_before_the_first_byte() {
    let cluster = Cluster::new(&["s", "a", "b"]);
    large(&cluster, 16);
    let data = cluster.path("b", "/data");
    let _tmpfs = Tmpfs::new(&data, 8);
    let failed = cluster.start(cluster.request(&["s>a>b"])).failed();
    assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("b", "DiskFull"), "{failed:?}");
    assert!(failed.message.contains(data.to_str().unwrap()), "{failed:?}");
    assert_nothing_published(&cluster, &["a"]);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
}

#[test]
fn a_disk_that_fills_up_meanwhile_is_named() {
    let cluster = Cluster::new(&["s", "a", "b"]);
    large(&cluster, 16);
    let data = cluster.path("b", "/data");
    let _tmpfs = Tmpfs::new(&data, 24);
    let filler = data.join("somebody else's");
    let proxy = Proxy::new(&cluster, "b", u64::MAX, move |message| {
        if matches!(message, Message::Data(data) if data.offset == 0 && data.chunk == 1) {
            // Fails half-way where blocks are reserved already: full it is in any case.
            let _ = fs::write(&filler, vec![1; 24 << 20]);
        }
    });
    let mut request = cluster.request(&["s>a>b"]);
    proxy.stand_in(&mut request.members);
    let failed = cluster.start(request).failed();
    assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("b", "DiskFull"), "{failed:?}");
    cluster.wait_clean();
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "only the filler is left");
}

#[test]
fn a_source_that_changes_is_named_and_nothing_of_it_published() {
    let changes: [fn(&Path); 3] = [
        |path| fs::write(path.join("large"), "short").unwrap(),
        |path| {
            fs::write(path.join("new"), noise(8, 64 << 20)).unwrap();
            fs::rename(path.join("new"), path.join("large")).unwrap();
        },
        |path| fs::remove_file(path.join("large")).unwrap(),
    ];
    for change in changes {
        let cluster = Cluster::new(&["s", "a"]);
        large(&cluster, 64);
        let proxy = Proxy::new(&cluster, "a", 1 << 20, |_| {});
        let mut request = cluster.request(&["s>a"]);
        proxy.stand_in(&mut request.members);
        let events = cluster.start(request);
        wait_until("a has begun", || proxy.gate.passed() > 0);
        change(&cluster.path("s", "/source"));
        proxy.gate.open();
        let failed = events.failed();
        assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("s", "SourceChanged"), "{failed:?}");
        assert!(failed.message.contains("/source/large"), "{failed:?}");
        assert_nothing_published(&cluster, &["a"]);
    }
}

#[test]
fn a_cancelled_broadcast_leaves_nothing() {
    let cluster = Cluster::new(&["s", "a", "b"]);
    large(&cluster, 64);
    let mut request = cluster.request(&["s>a>b"]);
    request.store_at_source = true;
    let proxy = Proxy::new(&cluster, "a", 4 << 20, |_| {});
    proxy.stand_in(&mut request.members);
    let mut events = cluster.start(request.clone());
    events.until(|event| matches!(event, Event::Progress(_)).then_some(()));
    drop(events);
    assert_nothing_published(&cluster, &["s", "a", "b"]);
    // The id is free again.
    proxy.gate.open();
    cluster.start(request).finished();
}

#[test]
fn a_source_that_cannot_be_sent_is_named() {
    let cluster = Cluster::new(&["s", "a"]);
    let source = cluster.path("s", "/source");
    let refused = |reason: &str, path: &str| {
        let failed = cluster.start(cluster.request(&["s>a"])).failed();
        assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("s", reason), "{failed:?}");
        assert!(failed.message.contains(path), "{failed:?}");
        assert_nothing_published(&cluster, &["a"]);
    };
    refused("SourceMissing", "/source");
    fs::create_dir_all(source.join("in")).unwrap();
    nix::unistd::mkfifo(&source.join("in/queue"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    refused("UnsupportedFile", "in/queue");
    fs::remove_file(source.join("in/queue")).unwrap();
    let _socket = UnixListener::bind(source.join("in/socket")).unwrap();
    refused("UnsupportedFile", "in/socket");
    fs::remove_file(source.join("in/socket")).unwrap();
    cluster.start(cluster.request(&["s>a"])).finished();
}

#[test]
fn a_target_that_cannot_be_published_to_is_named() {
    let cluster = Cluster::new(&["s", "a"]);
    large(&cluster, 1);
    let target = cluster.path("a", "/data/ics");
    let refused = |reason: &str| {
        let failed = cluster.start(cluster.request(&["s>a"])).failed();
        assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("a", reason), "{failed:?}");
        assert!(failed.message.contains(target.to_str().unwrap()), "{failed:?}");
        cluster.wait_clean();
    };
    fs::create_dir_all(target.join("theirs")).unwrap();
    refused("TargetExists");
    assert!(target.join("theirs").exists());
    fs::remove_dir(target.join("theirs")).unwrap();
    let tmpfs = Tmpfs::new(&target, 8);
    refused("TargetIsMount");
    drop(tmpfs);
    cluster.start(cluster.request(&["s>a"])).finished();
}

#[test]
fn a_request_that_makes_no_sense_is_refused_with_the_next_step() {
    type Change = fn(&mut gridcast_proto::v1::StartBroadcastRequest);
    let cluster = Cluster::new(&["s", "a"]);
    large(&cluster, 1);
    let changes: [(Change, &str); 6] = [
        (|request| request.id = "../x".to_owned(), "id"),
        (|request| request.target = "data".to_owned(), "absolute"),
        (|request| request.target = "/data/../etc".to_owned(), "`..`"),
        (|request| request.chunk_bytes = 1, "chunk size"),
        (|request| request.plan = None, "no tree"),
        (|request| request.source.as_mut().unwrap().name = "a".to_owned(), "call the source's agent"),
    ];
    for (change, expected) in changes {
        let mut request = cluster.request(&["s>a"]);
        change(&mut request);
        let failed = cluster.start(request).failed();
        assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("s", "InvalidRequest"), "{failed:?}");
        assert!(failed.message.contains(expected), "{failed:?}");
    }
}
