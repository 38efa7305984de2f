//! What arrives is what was sent, along chains, flat trees and several trees at once.

use std::collections::BTreeMap;
use std::fs;

use gridcast_agent::broadcast::{INTAKE_MESSAGES, MAX_MESSAGE_BYTES, RING_BYTES};
use gridcast_proto::v1::broadcast_event::Event;

use super::cluster::Cluster;
use super::proxy::Proxy;
use super::tree::{describe, make_all, noise};

fn published(event: &Event, name: &str) -> Option<()> {
    matches!(event, Event::Published(published) if published.node == name).then_some(())
}

#[test]
fn a_chain_and_a_flat_tree_carry_everything_there_is() {
    for trees in [&["s>a>b>c"][..], &["s>a s>b s>c"], &["s>a>b>c", "s>a>b", "s>a"]] {
        let cluster = Cluster::new(&["s", "a", "b", "c"]);
        let source = cluster.path("s", "/source");
        make_all(&source);
        let mut request = cluster.request(trees);
        request.chunk_bytes = 256 << 10;
        let events = cluster.start(request).rest();
        let expected = describe(&source);
        for name in ["a", "b", "c"] {
            assert_eq!(describe(&cluster.path(name, "/data/ics")), expected, "{trees:?} {name}");
        }
        cluster.wait_clean();
        assert_history(
            &events,
            &["a", "b", "c"],
            expected.values().filter(|what| what.starts_with("file")).count(),
        );
    }
}

/// Each node is opened, published, verified, in this order, and times grow.
fn assert_history(events: &[Event], names: &[&str], files: usize) {
    let Event::Opened(opened) = &events[0] else { panic!("{events:?}") };
    assert_eq!(opened.files, files as u64);
    let mut states: BTreeMap<&str, u32> = names.iter().map(|name| (*name, 0)).collect();
    let mut latest: f64 = 0.0;
    for event in &events[1..events.len() - 1] {
        match event {
            Event::Progress(progress) => {
                assert!(progress.bytes <= opened.size_bytes);
                assert_eq!(states[progress.node.as_str()], 0, "{events:?}");
            }
            Event::Published(published) => {
                assert_eq!(std::mem::replace(states.get_mut(published.node.as_str()).unwrap(), 1), 0);
                assert!(published.seconds >= latest && published.bytes_received >= opened.size_bytes);
                latest = published.seconds;
            }
            Event::Verified(verified) => {
                assert!(verified.verified && verified.message.is_empty(), "{verified:?}");
                assert_eq!(std::mem::replace(states.get_mut(verified.node.as_str()).unwrap(), 2), 1);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(states.values().all(|state| *state == 2), "{events:?}");
    let Some(Event::Finished(finished)) = events.last() else { panic!("{events:?}") };
    assert_eq!((finished.files, finished.size_bytes), (opened.files, opened.size_bytes));
    assert!((finished.seconds - latest).abs() < f64::EPSILON);
    assert_eq!(finished.digest.len(), 64);
}

#[test]
fn the_source_keeps_a_copy_and_reads_its_origin_once() {
    let cluster = Cluster::new(&["s", "a", "b"]);
    let source = cluster.path("s", "/source");
    make_all(&source);
    let mut request = cluster.request(&["s>a>b"]);
    request.store_at_source = true;
    let finished = cluster.start(request).finished();
    assert_eq!(finished.source_bytes_read, finished.size_bytes);
    for name in ["s", "a", "b"] {
        assert_eq!(describe(&cluster.path(name, "/data/ics")), describe(&source), "{name}");
    }
}

#[test]
fn a_cluster_of_one_has_its_data_too() {
    let cluster = Cluster::new(&["s"]);
    let source = cluster.path("s", "/source");
    make_all(&source);
    let mut request = cluster.request(&[]);
    request.store_at_source = true;
    let finished = cluster.start(request.clone()).finished();
    assert_eq!(describe(&cluster.path("s", "/data/ics")), describe(&source));
    request.store_at_source = false;
    assert_eq!(cluster.start(request).finished().digest, finished.digest);
}

#[test]
fn a_single_file_arrives_in_a_directory_and_an_empty_directory_stays_empty() {
    let cluster = Cluster::new(&["s", "a"]);
    fs::write(cluster.path("s", "/one.dat"), "one").unwrap();
    fs::create_dir(cluster.path("s", "/nothing")).unwrap();
    fs::create_dir_all(cluster.path("a", "/data/ics")).unwrap();
    let request = |source: &str, target: &str| {
        let mut request = cluster.request(&["s>a"]);
        (request.source_path, request.target) = (source.to_owned(), target.to_owned());
        request
    };
    let finished = cluster.start(request("/one.dat", "/data/ics")).finished();
    assert_eq!((finished.files, finished.size_bytes), (1, 3));
    assert_eq!(fs::read(cluster.path("a", "/data/ics/one.dat")).unwrap(), b"one");
    let finished = cluster.start(request("/nothing", "/data/new/nothing")).finished();
    assert_eq!((finished.files, finished.size_bytes), (0, 0));
    assert_eq!(describe(&cluster.path("a", "/data/new/nothing")).len(), 1);
}

#[test]
fn a_hard_linked_file_counts_once_and_arrives_under_each_of_its_names() {
    let cluster = Cluster::new(&["s", "a"]);
    let source = cluster.path("s", "/source");
    fs::create_dir_all(source.join("below")).unwrap();
    fs::write(source.join("first"), noise(4, 100_000)).unwrap();
    fs::hard_link(source.join("first"), source.join("second")).unwrap();
    fs::hard_link(source.join("first"), source.join("below/third")).unwrap();
    // The same bytes, but not the same file; and one whose other name is not part of the dataset.
    fs::write(source.join("equal"), noise(4, 100_000)).unwrap();
    fs::write(cluster.path("s", "/outside"), "12345").unwrap();
    fs::hard_link(cluster.path("s", "/outside"), source.join("inside")).unwrap();
    let mut request = cluster.request(&["s>a"]);
    request.store_at_source = true;
    let events = cluster.start(request).rest();
    let Event::Opened(opened) = &events[0] else { panic!("{events:?}") };
    assert_eq!((opened.files, opened.size_bytes), (5, 200_005));
    let Some(Event::Finished(finished)) = events.last() else { panic!("{events:?}") };
    assert_eq!((finished.files, finished.size_bytes), (5, 200_005));
    // All that travels is read and received: each name.
    assert_eq!(finished.source_bytes_read, 400_005);
    for name in ["s", "a"] {
        let received = |event: &Event| match event {
            Event::Published(published) if published.node == name => Some(published.bytes_received),
            _ => None,
        };
        assert_eq!(events.iter().find_map(received), Some(400_005), "{name}");
        assert_eq!(describe(&cluster.path(name, "/data/ics")), describe(&source), "{name}");
    }
}

/// The last node of the chain stands still until those before it have everything: they can only have it if nobody waits.
#[test]
fn a_child_that_stands_still_holds_up_nobody_before_it() {
    let cluster = Cluster::new(&["s", "a", "b", "c"]);
    let source = cluster.path("s", "/source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("large"), noise(9, 64 << 20)).unwrap();
    let mut request = cluster.request(&["s>a>b>c"]);
    let proxy = Proxy::new(&cluster, "c", 1 << 20, |_| {});
    proxy.stand_in(&mut request.members);
    let mut events = cluster.start(request);
    // In whichever order: the last message reaches both at nearly the same time.
    for _ in ["a", "b"] {
        events.until(|event| published(event, "a").or(published(event, "b")));
    }
    assert!(proxy.gate.passed() <= 1 << 20, "c had nearly nothing when b had everything");
    proxy.gate.open();
    let finished = events.finished();
    assert_eq!(finished.source_bytes_read, finished.size_bytes, "b served c, not the source");
    assert!(cluster.node("b").counters.bytes_from_store() > 30 << 20, "from its disk, not from memory");
    assert_eq!(describe(&cluster.path("c", "/data/ics")), describe(&source));
    let bound = RING_BYTES + (INTAKE_MESSAGES * MAX_MESSAGE_BYTES) as u64 + (2 << 20);
    for name in ["a", "b", "c"] {
        let peak = cluster.node(name).counters.buffered_bytes_peak();
        assert!(peak <= bound, "{name} held {peak} bytes, not at most {bound}");
    }
    cluster.wait_clean();
}

#[test]
fn a_sibling_that_stands_still_holds_up_nobody_and_is_served_from_the_copy() {
    for store_at_source in [false, true] {
        let cluster = Cluster::new(&["s", "a", "b"]);
        let source = cluster.path("s", "/source");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("large"), noise(9, 64 << 20)).unwrap();
        let mut request = cluster.request(&["s>a s>b"]);
        request.store_at_source = store_at_source;
        let proxy = Proxy::new(&cluster, "b", 1 << 20, |_| {});
        proxy.stand_in(&mut request.members);
        let mut events = cluster.start(request);
        events.until(|event| published(event, "a"));
        proxy.gate.open();
        let finished = events.finished();
        // Without a copy the origin is read again, and that is told.
        assert_eq!(finished.source_bytes_read > finished.size_bytes, !store_at_source, "{finished:?}");
        assert_eq!(describe(&cluster.path("b", "/data/ics")), describe(&source));
    }
}

/// Trees of 120, 60 and 20 Mbit/s: a has 200 of them, b 80, c 20, and each at once, whatever comes after it.
#[test]
fn each_node_receives_at_the_rate_of_its_trees_and_nothing_twice() {
    for store_at_source in [false, true] {
        let cluster = Cluster::new(&["s", "a", "b", "c"]);
        let source = cluster.path("s", "/source");
        fs::create_dir(&source).unwrap();
        let bytes = 10 << 20;
        fs::write(source.join("large"), noise(3, bytes)).unwrap();
        let rates = [("a", 200.0), ("b", 80.0), ("c", 20.0)];
        let mut request = cluster.request(&["s>a>b>c", "s>a>b", "s>a"]);
        request.chunk_bytes = 256 << 10;
        request.store_at_source = store_at_source;
        let trees = &mut request.plan.as_mut().unwrap().trees;
        for (tree, rate) in trees.iter_mut().zip([20.0, 60.0, 120.0]) {
            tree.rate_mbps = rate;
        }
        let events = cluster.start(request).rest();
        let Some(Event::Finished(finished)) = events.last() else { panic!("{events:?}") };
        assert_eq!(finished.source_bytes_read, finished.size_bytes, "{finished:?}");
        let at = |name: &str| {
            let found = events.iter().find_map(|event| match event {
                Event::Published(published) if published.node == name => Some(published.clone()),
                _ => None,
            });
            found.unwrap()
        };
        for (name, mbps) in rates {
            assert_eq!(describe(&cluster.path(name, "/data/ics")), describe(&source), "{name}");
            let published = at(name);
            assert_eq!(published.bytes_received, bytes as u64, "{name}");
            let planned = bytes as f64 * 8.0 / 1e6 / mbps;
            // Not sooner than planned, and not by much later: far from twice the time, on a machine that does other things.
            assert!(published.seconds > 0.85 * planned, "{name}: {published:?} of {planned}");
            assert!(published.seconds < 1.3 * planned + 0.5, "{name}: {published:?} of {planned}");
        }
        cluster.wait_clean();
    }
}
