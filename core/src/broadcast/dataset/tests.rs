use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry { path: path.into(), kind, mode: 0o644, mtime_seconds: -1, mtime_nanos: 999_999_999 }
}

fn directory(path: &str) -> Entry {
    entry(path, EntryKind::Directory)
}

fn file(path: &str, bytes: u64) -> Entry {
    let extents = if bytes == 0 { Vec::new() } else { vec![Extent { offset: 0, length: bytes }] };
    entry(path, EntryKind::File { size: bytes, extents })
}

fn symlink(path: &str, target: &str) -> Entry {
    entry(path, EntryKind::Symlink { target: target.into() })
}

fn admit(entries: &[Entry]) -> Result<Admission, AdmissionError> {
    let mut admission = Admission::new();
    entries.iter().try_for_each(|entry| admission.admit(entry))?;
    Ok(admission)
}

/// Why `entry` is refused behind a root.
fn refused(entry: Entry) -> String {
    admit(&[directory(""), entry]).unwrap_err().to_string()
}

#[test]
fn no_path_leads_out_of_the_root() {
    for (path, words) in [
        ("/etc/passwd", "is absolute"),
        ("..", "`..` component"),
        ("../etc/passwd", "`..` component"),
        ("a/../../b", "`..` component"),
        ("./a", "`.` or `..`"),
        ("a//b", "an empty"),
        ("a/", "an empty"),
        ("a\0b", "NUL"),
    ] {
        let message = refused(file(path, 1));
        assert!(message.contains(words), "{path:?}: {message}");
    }
    let long = "x".repeat(256);
    assert!(refused(file(&long, 1)).contains("too long"));
    let deep = vec!["x"; 2049].join("/");
    assert!(refused(file(&deep, 1)).contains("too long"));
}

#[test]
fn nothing_goes_through_a_symlink_or_a_file() {
    for below in [symlink("a", "/etc"), file("a", 1)] {
        let error = admit(&[directory(""), below, file("a/passwd", 1)]).unwrap_err().to_string();
        assert!(error.contains("`a/passwd` is in `a`, which was not sent before as a directory"), "{error}");
    }
    assert!(refused(file("a/b", 1)).contains("is in `a`"));
    // `a-b` sorts between `a` and `a/b` as bytes, but is not in `a`.
    let wrong = [directory(""), directory("a"), file("a-b", 1), file("a/b", 1)];
    assert!(matches!(admit(&wrong), Err(AdmissionError::Order { .. })));
    let right = [directory(""), directory("a"), file("a/b", 1), file("a-b", 1), file("ab", 1)];
    assert!(admit(&right).is_ok());
    let mut sorted = wrong.to_vec();
    sort(&mut sorted);
    assert!(admit(&sorted).is_ok());
    // Out of a deep directory, and below a directory that was left.
    let left =
        [directory(""), directory("a"), directory("a/b"), file("a/b/c", 1), file("b", 1), file("b/c", 1)];
    assert!(matches!(admit(&left), Err(AdmissionError::NoParent { .. })));
}

#[test]
fn a_path_comes_once_and_the_root_first() {
    let duplicate = [directory(""), file("a", 1), symlink("a", "/etc")];
    assert_eq!(admit(&duplicate).unwrap_err().to_string(), "`a` came twice; send every path once");
    assert!(matches!(admit(&[directory(""), directory("")]), Err(AdmissionError::Duplicate { .. })));
    assert!(matches!(admit(&[file("a", 1)]), Err(AdmissionError::RootMissing { .. })));
    assert!(matches!(admit(&[file("", 1)]), Err(AdmissionError::Entry(EntryError::RootNotDirectory))));
    assert!(matches!(admit(&[symlink("", "/")]), Err(AdmissionError::Entry(EntryError::RootNotDirectory))));
}

#[test]
fn an_entry_that_no_file_system_can_store_is_refused() {
    let sparse = |size, extents: &[(u64, u64)]| {
        let extents = extents.iter().map(|&(offset, length)| Extent { offset, length }).collect();
        entry("f", EntryKind::File { size, extents })
    };
    for bad in [
        sparse(10, &[(0, 11)]),
        sparse(10, &[(5, u64::MAX)]),
        sparse(10, &[(0, 0)]),
        sparse(10, &[(0, 5), (5, 1)]),
        sparse(10, &[(0, 5), (3, 1)]),
        sparse(10, &[(5, 1), (0, 1)]),
    ] {
        assert!(refused(bad.clone()).contains("extents"), "{bad:?}");
    }
    assert!(refused(sparse(u64::MAX, &[])).contains("size"));
    assert!(refused(symlink("f", "")).contains("target"));
    assert!(refused(symlink("f", "a\0")).contains("target"));
    assert!(refused(Entry { mode: 0o100_644, ..file("f", 1) }).contains("mode 100644"));
    assert!(refused(Entry { mtime_nanos: 1_000_000_000, ..file("f", 1) }).contains("mtime"));
    assert!(admit(&[directory(""), Entry { mode: 0o6755, ..sparse(10, &[(1, 2), (4, 6)]) }]).is_ok());
    // A name that would damage a terminal is shown escaped.
    assert!(refused(symlink("f\u{1b}[2J", "")).contains("f\\x1b[2J"));
}

#[test]
fn an_admission_counts_and_never_overflows() {
    let admission =
        admit(&[directory(""), file("a", 7), directory("b"), file("b/c", 0), symlink("z", "a")]).unwrap();
    assert_eq!((admission.entries(), admission.files(), admission.size_bytes()), (5, 2, 7));
    let huge = i64::MAX as u64;
    let error = admit(&[directory(""), file("a", huge), file("b", huge), file("c", huge)]).unwrap_err();
    assert!(matches!(error, AdmissionError::TooLarge { .. }));
}

#[test]
fn a_single_file_has_a_root_that_tells_nothing_more() {
    let only = file("data.bin", 3);
    let root = Entry::root_for(&only);
    assert!(admit(&[root.clone(), only.clone()]).is_ok());
    assert_eq!((root.mtime_seconds, root.mtime_nanos, root.mode), (-1, 999_999_999, 0o755));
    assert_eq!((size_bytes(&[root.clone(), only.clone()]), files(&[root, only])), (3, 1));
}

#[test]
fn small_holes_travel_as_zeros() {
    let extent = |offset, length| Extent { offset, length };
    let extents = [extent(0, 10), extent(10, 5), extent(20, 0), extent(30, 10), extent(100, 1)];
    assert_eq!(merge_extents(extents, 1), [extent(0, 15), extent(30, 10), extent(100, 1)]);
    assert_eq!(merge_extents(extents, 16), [extent(0, 40), extent(100, 1)]);
    assert_eq!(merge_extents(extents, 64), [extent(0, 101)]);
}

#[test]
fn chunk_sizes_have_bounds() {
    assert_eq!(checked_chunk_bytes(0), Ok(1 << 20));
    assert_eq!(checked_chunk_bytes(64 << 10), Ok(64 << 10));
    assert!(checked_chunk_bytes(1).unwrap_err().to_string().contains("choose 65536 to 16777216"));
    assert!(checked_chunk_bytes(u32::MAX).is_err());
}

#[test]
fn large_files_have_chunks_of_their_own_and_small_ones_share() {
    let mib = 1 << 20;
    let entries = [
        directory(""),
        file("a", 1000),
        file("b", 0),
        file("c", 24),
        file("d", 2 * mib + 1),
        file("e", 5),
        file("f", mib - 5),
        file("g", mib - 1),
    ];
    let layout = layout(&entries, 0);
    let lengths: Vec<u32> = layout.iter().map(|chunk| chunk.length).collect();
    assert_eq!(lengths, [1024, 1 << 20, 1 << 20, 1, 1 << 20, (1 << 20) - 1]);
    let pieces: Vec<Vec<usize>> =
        layout.iter().map(|chunk| chunk.pieces.iter().map(|piece| piece.entry).collect()).collect();
    assert_eq!(pieces, [vec![1, 3], vec![4], vec![4], vec![4], vec![5, 6], vec![7]]);
    assert_eq!((layout.chunk(6), layout.chunk_length(6), layout.chunk_length(3)), (None, None, Some(1)));
}

#[test]
fn the_table_of_a_petabyte_is_small() {
    let entries = [directory(""), file("a", 1 << 50), file("b", 1)];
    let layout = layout(&entries, 1 << 20);
    assert_eq!(layout.chunks(), (1 << 30) + 1);
    let last = layout.chunk((1 << 30) - 1).unwrap();
    assert_eq!(last.pieces, [Piece { entry: 1, offset: (1 << 50) - (1 << 20), length: 1 << 20 }]);
    assert_eq!(layout.chunk(1 << 30).unwrap().pieces, [Piece { entry: 2, offset: 0, length: 1 }]);
}

#[test]
fn after_a_small_file_grew_the_chunks_are_soon_the_same_again() {
    let entries = |grown: u64| {
        let files =
            (0..5000).map(|index| file(&format!("{index:05}"), if index == 100 { grown } else { 4000 }));
        std::iter::once(directory("")).chain(files).collect::<Vec<_>>()
    };
    let chunks = |grown| layout(&entries(grown), 0).iter().map(|chunk| chunk.pieces).collect::<HashSet<_>>();
    let (before, after) = (chunks(4000), chunks(400_000));
    let moved = after.difference(&before).count();
    assert!(before.len() > 20 && moved <= 4, "{moved} of {} chunks moved", before.len());
}

/// Published, so that another program can compute it.
#[test]
fn the_digest_is_that_of_the_documented_bytes() {
    let entries = [
        Entry { mode: 0o755, mtime_seconds: 1, mtime_nanos: 2, ..directory("") },
        file("f", 3),
        symlink("l", "to"),
    ];
    let layout = layout(&entries, 1 << 20);
    let mut manifest = Manifest::new(&entries, &layout);
    assert_eq!((manifest.digest(), manifest.first_missing()), (None, Some(0)));
    manifest.record(0, blake3::hash(b"abc")).unwrap();
    let mut bytes = b"gridcast dataset 1\n".to_vec();
    let mtime = |bytes: &mut Vec<u8>, mode: u32, seconds: i64, nanos: u32| {
        bytes.extend(mode.to_le_bytes());
        bytes.extend(seconds.to_le_bytes());
        bytes.extend(nanos.to_le_bytes());
    };
    bytes.extend((1_u32 << 20).to_le_bytes());
    bytes.extend(3_u64.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    mtime(&mut bytes, 0o755, 1, 2);
    bytes.push(1);
    bytes.extend([1, 0, 0, 0, b'f']);
    mtime(&mut bytes, 0o644, -1, 999_999_999);
    bytes.push(2);
    for number in [3_u64, 1, 0, 3] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([1, 0, 0, 0, b'l']);
    mtime(&mut bytes, 0o644, -1, 999_999_999);
    bytes.push(3);
    bytes.extend([2, 0, 0, 0, b't', b'o']);
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(blake3::hash(b"abc").as_bytes());
    assert_eq!(manifest.digest(), Some(blake3::hash(&bytes)));
    assert!(manifest.record(1, blake3::hash(b"")).is_err());
}

/// A tree of directories, files with holes and symlinks, in canonical order.
fn datasets() -> impl Strategy<Value = Vec<Entry>> {
    let extents = prop::collection::vec((1_u64..5000, 1_u64..400_000), 0..6);
    let kind = prop_oneof![
        1 => Just(EntryKind::Directory),
        1 => "[a-z./]{1,20}".prop_map(|target| EntryKind::Symlink { target: target.into_bytes() }),
        6 => (extents, 0_u64..5000).prop_map(|(parts, tail)| {
            let mut end = 0;
            let mut extents = Vec::new();
            for (hole, length) in parts {
                extents.push(Extent { offset: end + hole, length });
                end += hole + length;
            }
            EntryKind::File { size: end + tail, extents }
        }),
    ];
    let name = "[a-c.-]{1,3}".prop_filter("a name", |name| name != "." && name != "..");
    prop::collection::vec((any::<prop::sample::Index>(), name, kind), 0..40).prop_map(|drafts| {
        let mut directories = vec![String::new()];
        let mut paths = HashSet::new();
        let mut entries = vec![directory("")];
        for (parent, name, kind) in drafts {
            let parent = parent.get(&directories);
            let path = if parent.is_empty() { name } else { format!("{parent}/{name}") };
            if paths.insert(path.clone()) {
                if kind == EntryKind::Directory {
                    directories.push(path.clone());
                }
                entries.push(entry(&path, kind));
            }
        }
        sort(&mut entries);
        entries
    })
}

/// Path, offset and length of each piece of a chunk.
type Parts = Vec<(Vec<u8>, u64, u32)>;

/// What the chunks hold, by the path of their first file, so that layouts of two datasets can be compared.
fn content(entries: &[Entry], layout: &Layout) -> HashMap<Vec<u8>, Vec<Parts>> {
    let mut chunks: HashMap<_, Vec<_>> = HashMap::new();
    for chunk in layout.iter() {
        let parts: Parts = chunk
            .pieces
            .iter()
            .map(|piece| (entries[piece.entry].path.clone(), piece.offset, piece.length))
            .collect();
        chunks.entry(parts[0].0.clone()).or_default().push(parts);
    }
    chunks
}

proptest! {
    #[test]
    fn a_tree_in_canonical_order_is_admitted(entries in datasets()) {
        let admission = admit(&entries).unwrap();
        prop_assert_eq!(admission.size_bytes(), size_bytes(&entries));
        prop_assert_eq!(admission.files(), files(&entries));
    }

    #[test]
    fn what_is_admitted_stays_inside_and_has_a_directory_above(
        drafts in prop::collection::vec(("[ab./]{0,5}", 0..3), 0..12)
    ) {
        let entries: Vec<Entry> = drafts.iter().map(|(path, kind)| match kind {
            0 => file(path, 1),
            1 => symlink(path, "/etc"),
            _ => directory(path),
        }).collect();
        let mut admission = Admission::new();
        let mut kinds: HashMap<Vec<u8>, bool> = HashMap::new();
        for entry in std::iter::once(directory("")).chain(entries) {
            if admission.admit(&entry).is_err() {
                break;
            }
            let path = String::from_utf8(entry.path.clone()).unwrap();
            let inside = std::path::Path::new(&path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
            prop_assert!(inside, "{}", path);
            if let Some(parent) = entry.parent() {
                prop_assert_eq!(kinds.get(parent), Some(&true), "{}", path);
            }
            prop_assert!(kinds.insert(entry.path.clone(), entry.is_directory()).is_none(), "{}", path);
        }
    }

    #[test]
    fn every_byte_is_in_one_chunk_in_order(entries in datasets(), chunk_bytes in 1000_u32..2_000_000) {
        let layout = layout(&entries, chunk_bytes);
        let mut covered: Vec<(usize, u64, u64)> = Vec::new();
        let mut total = 0;
        for (index, chunk) in layout.iter().enumerate() {
            prop_assert!(chunk.length <= chunk_bytes && chunk.length > 0);
            prop_assert_eq!(layout.chunk_length(index as u64), Some(chunk.length));
            let pieces: u64 = chunk.pieces.iter().map(|piece| u64::from(piece.length)).sum();
            prop_assert_eq!(pieces, u64::from(chunk.length));
            total += pieces;
            for piece in chunk.pieces {
                prop_assert!(piece.length > 0);
                match covered.last_mut() {
                    Some((entry, _, end)) if *entry == piece.entry && *end == piece.offset => {
                        *end += u64::from(piece.length);
                    }
                    _ => covered.push((piece.entry, piece.offset, piece.offset + u64::from(piece.length))),
                }
            }
        }
        let extents: Vec<_> = entries.iter().enumerate().flat_map(|(index, entry)| {
            entry.extents().iter().map(move |extent| (index, extent.offset, extent.end()))
        }).collect();
        prop_assert_eq!(covered, extents);
        prop_assert_eq!((total, layout.iter().count() as u64), (layout.size_bytes(), layout.chunks()));
    }

    #[test]
    fn a_change_in_a_large_file_moves_its_own_chunks_only(
        entries in datasets(),
        at in any::<prop::sample::Index>(),
        sizes in (LARGE_FILE_BYTES..5 << 20, LARGE_FILE_BYTES..5 << 20),
        chunk_bytes in 65_536_u32..2_000_000,
    ) {
        // `z…` is a name that no draft has.
        let parents: Vec<&Entry> = entries.iter().filter(|entry| entry.is_directory()).collect();
        let parent = String::from_utf8(at.get(&parents).path.clone()).unwrap();
        let path = if parent.is_empty() { "bz".to_owned() } else { format!("{parent}/bz") };
        let chunks = |size: u64| {
            let mut entries = entries.clone();
            entries.push(file(&path, size));
            sort(&mut entries);
            let mut chunks = content(&entries, &layout(&entries, chunk_bytes));
            let own = chunks.remove(path.as_bytes()).unwrap();
            (own, chunks)
        };
        let (before, after) = (chunks(sizes.0), chunks(sizes.1));
        prop_assert_eq!(before.1, after.1);
        for (own, size) in [(before.0, sizes.0), (after.0, sizes.1)] {
            prop_assert_eq!(own.len() as u64, size.div_ceil(u64::from(chunk_bytes)));
            prop_assert!(own.iter().flatten().all(|part| part.0 == path.as_bytes()));
        }
    }

    #[test]
    fn the_digest_depends_on_the_content_not_on_the_arrival(
        (entries, order) in datasets().prop_flat_map(|entries| {
            let chunks: Vec<u64> = (0..layout(&entries, 65_536).chunks()).collect();
            (Just(entries), Just(chunks).prop_shuffle())
        }),
        changed in any::<prop::sample::Index>(),
    ) {
        let layout = layout(&entries, 65_536);
        let hash = |index: u64| blake3::hash(&index.to_le_bytes());
        let digest = |order: &[u64], hash: &dyn Fn(u64) -> blake3::Hash| {
            let mut manifest = Manifest::new(&entries, &layout);
            for (count, &index) in order.iter().enumerate() {
                assert!(manifest.digest().is_none());
                assert_eq!(manifest.recorded(), count as u64);
                assert_eq!(manifest.record(index, hash(index)), Ok(true));
                assert_eq!(manifest.record(index, hash(index)), Ok(false));
            }
            manifest.digest().unwrap()
        };
        let ascending: Vec<u64> = (0..layout.chunks()).collect();
        let expected = digest(&ascending, &hash);
        prop_assert_eq!(digest(&order, &hash), expected);
        if !order.is_empty() {
            let changed = *changed.get(&order);
            let other = |index| if index == changed { blake3::hash(b"other") } else { hash(index) };
            prop_assert_ne!(digest(&order, &other), expected);
        }
        let mut touched = entries.clone();
        touched[0].mtime_nanos = 1;
        let manifest = Manifest::new(&touched, &layout);
        let digest = order.iter().fold(manifest, |mut manifest, &index| {
            manifest.record(index, hash(index)).unwrap();
            manifest
        });
        prop_assert_ne!(digest.digest(), Some(expected));
    }
}
