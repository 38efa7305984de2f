use super::*;

fn feed(limit: u64) -> Feed {
    Feed::new(limit, Arc::default())
}

fn data(chunk: u64, offset: u32, bytes: &'static [u8]) -> Item {
    Item::Data { chunk, offset, payload: Bytes::from_static(bytes) }
}

fn push(feed: &Feed, item: &Item, length: u32) -> Place {
    match item {
        Item::Data { chunk, offset, payload } => feed.push_data(*chunk, *offset, payload, length).unwrap(),
        Item::End { chunk, hash } => feed.push_end(*chunk, *hash, length).unwrap(),
        Item::Carried { .. } => unreachable!(),
    }
}

#[test]
fn a_reader_gets_messages_before_their_chunk_is_complete() {
    let feed = feed(100);
    let mut cursor = feed.subscribe(Vec::new());
    assert_eq!(feed.step(&mut cursor), Step::Wait);
    push(&feed, &data(7, 0, b"ab"), 4);
    assert_eq!(feed.step(&mut cursor), Step::Item(data(7, 0, b"ab")));
    assert_eq!(feed.step(&mut cursor), Step::Wait);
    push(&feed, &data(7, 2, b"cd"), 4);
    let end = Item::End { chunk: 7, hash: blake3::hash(b"abcd") };
    push(&feed, &end, 4);
    assert_eq!(feed.step(&mut cursor), Step::Item(data(7, 2, b"cd")));
    assert_eq!(feed.step(&mut cursor), Step::Item(end));
    assert_eq!(feed.step(&mut cursor), Step::Wait);
    feed.close();
    assert_eq!(feed.step(&mut cursor), Step::Closed);
}

#[test]
fn a_slow_reader_is_sent_to_the_store_and_comes_back() {
    let feed = feed(4);
    let mut slow = feed.subscribe(Vec::new());
    for chunk in 0..3 {
        push(&feed, &data(chunk, 0, b"abcd"), 4);
        push(&feed, &Item::End { chunk, hash: blake3::hash(b"abcd") }, 4);
    }
    for chunk in 0..2 {
        assert_eq!(feed.step(&mut slow), Step::Behind { chunk, offset: 0 });
        feed.advance(&mut slow, 2);
        assert_eq!(feed.step(&mut slow), Step::Behind { chunk, offset: 2 });
        feed.advance(&mut slow, 2);
        feed.advance_chunk(&mut slow);
    }
    assert_eq!(feed.step(&mut slow), Step::Item(data(2, 0, b"abcd")));
}

#[test]
fn the_ring_is_bounded_and_gives_back_what_it_counted() {
    let counters = Arc::new(Counters::default());
    let feed = Feed::new(10, counters.clone());
    for chunk in 0..100 {
        push(&feed, &data(chunk, 0, b"abcd"), 4);
        push(&feed, &Item::End { chunk, hash: blake3::hash(b"") }, 4);
    }
    assert_eq!(counters.buffered_bytes(), 8);
    assert_eq!(counters.buffered_bytes_peak(), 12);
    drop(feed);
    assert_eq!(counters.buffered_bytes(), 0);
}

#[test]
fn only_a_chunk_that_was_here_is_a_repair() {
    let feed = feed(100);
    push(&feed, &data(0, 0, b"abcd"), 4);
    push(&feed, &Item::End { chunk: 0, hash: blake3::hash(b"") }, 4);
    assert_eq!(push(&feed, &data(0, 0, b"abcd"), 4), Place::Repair);
    assert_eq!(push(&feed, &Item::End { chunk: 0, hash: blake3::hash(b"") }, 4), Place::Repair);
    assert_eq!(push(&feed, &data(1, 0, b"ab"), 4), Place::Log);
    let bytes = Bytes::from_static(b"ab");
    for (chunk, offset, length) in [(1, 0, 4), (1, 3, 4), (1, 2, 3), (2, 0, 4)] {
        assert!(feed.push_data(chunk, offset, &bytes, length).is_err(), "{chunk} {offset} {length}");
    }
    assert!(feed.push_end(1, blake3::hash(b""), 4).is_err());
    assert!(feed.push_end(5, blake3::hash(b""), 4).is_err());
}

#[test]
fn what_another_tree_has_brought_is_not_sent_to_its_members() {
    let here = feed(100);
    let (mut member, mut other) = (here.subscribe(vec![true, true]), here.subscribe(vec![true, false]));
    here.carried(5, 1, 4, true).unwrap();
    push(&here, &data(6, 0, b"abcd"), 4);
    let told = Step::Item(Item::Carried { chunk: 5, tree: 1 });
    assert_eq!(here.step(&mut member), told);
    assert_eq!(here.step(&mut member), Step::Item(data(6, 0, b"abcd")));
    assert_eq!(here.step(&mut other), told);
    assert_eq!(here.step(&mut other), Step::Behind { chunk: 5, offset: 0 });
    here.advance(&mut other, 4);
    here.advance_chunk(&mut other);
    assert_eq!(here.step(&mut other), Step::Item(data(6, 0, b"abcd")));
    assert!(here.carried(7, 1, 4, true).is_err());
    assert!(here.carried(5, 1, 4, true).is_err());
    // Where it is not here, its data follows.
    let away = feed(100);
    let (mut member, mut other) = (away.subscribe(vec![true, true]), away.subscribe(vec![true, false]));
    away.carried(5, 1, 4, false).unwrap();
    assert_eq!(away.step(&mut member), Step::Wait);
    push(&away, &data(5, 0, b"abcd"), 4);
    assert_eq!(away.step(&mut member), told);
    assert_eq!(away.step(&mut member), Step::Wait);
    assert_eq!(away.step(&mut other), told);
    assert_eq!(away.step(&mut other), Step::Item(data(5, 0, b"abcd")));
}

#[tokio::test]
async fn a_writer_that_wants_to_waits_for_the_fastest_reader_only() {
    let feed = Arc::new(feed(100));
    let mut fast = feed.subscribe(Vec::new());
    let _slow = feed.subscribe(Vec::new());
    push(&feed, &data(0, 0, b"abcd"), 8);
    let waiting = tokio::spawn({
        let feed = feed.clone();
        async move { feed.room(2, 4).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    feed.step(&mut fast);
    waiting.await.unwrap();
}
