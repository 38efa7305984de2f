use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::broadcast::origin::Origin;
use crate::broadcast::scan::scan;
use crate::broadcast::verify;

/// A file or directory to make.
#[derive(Clone, Debug)]
enum Node {
    Directory(BTreeMap<Vec<u8>, (Node, u32, i64, u32)>),
    /// Pieces of data at offsets, then the size.
    File(Vec<(u32, u16)>, u32),
    Symlink(Vec<u8>),
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..20).prop_map(|mut name| {
        name.iter_mut().filter(|byte| matches!(**byte, 0 | b'/' | b'.')).for_each(|byte| *byte = b'_');
        name
    })
}

fn node() -> impl Strategy<Value = Node> {
    let pieces = prop::collection::vec((0u32..1_500_000, 1u16..), 0..4);
    let leaf = prop_oneof![
        (pieces, 0u32..2_000_000).prop_map(|(pieces, size)| Node::File(pieces, size)),
        (0u16..6000).prop_map(|size| Node::File(vec![(0, size.max(1))], 0)),
        name().prop_map(Node::Symlink),
    ];
    let meta = (0u32..0o10000, -9_000_000_000i64..9_000_000_000, 0u32..1_000_000_000);
    leaf.prop_recursive(4, 24, 6, move |inner| {
        let entry =
            (inner, meta.clone()).prop_map(|(node, (mode, seconds, nanos))| (node, mode, seconds, nanos));
        prop::collection::btree_map(name(), entry, 0..6).prop_map(Node::Directory)
    })
}

fn make(path: &Path, node: &Node, mode: u32, seconds: i64, nanos: u32) {
    match node {
        Node::Directory(inside) => {
            fs::create_dir(path).unwrap();
            for (name, (node, mode, seconds, nanos)) in inside {
                make(&path.join(std::ffi::OsStr::from_bytes(name)), node, *mode, *seconds, *nanos);
            }
        }
        Node::File(pieces, size) => {
            let file = File::create(path).unwrap();
            for (offset, length) in pieces {
                let data: Vec<u8> = (0..*length).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect();
                file.write_all_at(&data, u64::from(*offset)).unwrap();
            }
            let end = file.metadata().unwrap().len().max(u64::from(*size));
            file.set_len(end).unwrap();
        }
        Node::Symlink(target) => symlink(std::ffi::OsStr::from_bytes(target), path).unwrap(),
    }
    if !matches!(node, Node::Symlink(_)) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let time = TimeSpec::new(seconds, i64::from(nanos));
    let flag = UtimensatFlags::NoFollowSymlink;
    utimensat(nix::fcntl::AT_FDCWD, path, &TimeSpec::UTIME_OMIT, &time, flag).unwrap();
}

/// Reads `from` chunk by chunk and stores it at `to`.
fn carry(from: &Path, to: &Path) -> Arc<Dataset> {
    let origin = Origin::new(scan(from).unwrap(), 64 << 10);
    let dataset = Arc::new(origin.dataset.fresh());
    fs::create_dir(to).unwrap();
    let store = Store::prepare(File::open(to).unwrap().into(), to.to_owned(), dataset.clone()).unwrap();
    let mut open = OpenFile::default();
    for chunk in 0..dataset.layout.chunks() {
        let parts = origin.read(&mut open, chunk, 0, u32::MAX).unwrap();
        store.write(chunk, &parts).unwrap();
        let data = parts.concat();
        dataset.ledger.record(chunk, blake3::hash(&data), data.len() as u32);
        let again = store.read(&mut open, chunk, 0, u32::MAX).unwrap();
        assert_eq!(again.concat(), data, "what is stored can be served");
    }
    store.finish().unwrap();
    origin.check_unchanged().unwrap();
    dataset
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn whatever_tree_it_is_it_arrives_as_it_was(
        inside in prop::collection::btree_map(name(), (node(), 0u32..0o10000, -9_000_000_000i64..0, 0u32..1_000_000_000), 0..6)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        make(&from, &Node::Directory(inside), 0o1755, -1, 999_999_999);
        let dataset = carry(&from, &to);
        prop_assert_eq!(verify::difference(&to, &dataset, true), None);
        // The scan of the copy is the scan of the source, holes included.
        let (was, is) = (scan(&from).unwrap().entries, scan(&to).unwrap().entries);
        let without_mode = |entries: Vec<Entry>| -> Vec<Entry> {
            let is_link = |entry: &Entry| matches!(entry.kind, EntryKind::Symlink { .. });
            entries.into_iter().map(|entry| Entry { mode: if is_link(&entry) { 0 } else { entry.mode }, ..entry }).collect()
        };
        prop_assert_eq!(without_mode(is), without_mode(was));
    }
}

#[test]
fn the_comparison_finds_every_kind_of_difference() {
    type Spoil = fn(&Path);
    let spoil: [(Spoil, &str); 8] = [
        (|to| fs::write(to.join("file"), "DATA").unwrap(), "mtime"),
        (|to| fs::write(to.join("file"), "longer").unwrap(), "6 bytes, not 4"),
        (|to| fs::remove_file(to.join("file")).unwrap(), "`file` is missing"),
        (|to| fs::write(to.join("new"), "").unwrap(), "`.` has mtime"),
        (|to| fs::set_permissions(to.join("file"), fs::Permissions::from_mode(0o4600)).unwrap(), "mode 4600"),
        (
            |to| {
                fs::remove_file(to.join("link")).unwrap();
                symlink("elsewhere", to.join("link")).unwrap();
            },
            "target",
        ),
        (
            |to| {
                let time = TimeSpec::new(1000, 0);
                fs::write(to.join("file"), "DATA").unwrap();
                futimens(File::open(to.join("file")).unwrap(), &time, &time).unwrap();
            },
            "reads differently",
        ),
        (
            |to| {
                let time = TimeSpec::new(1000, 0);
                let file = File::options().write(true).open(to.join("sparse")).unwrap();
                file.write_all_at(&vec![0; 200_000], 0).unwrap();
                futimens(&file, &time, &time).unwrap();
            },
            "data where a hole at 0 was sent",
        ),
    ];
    for (spoil, expected) in spoil {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let file = Node::File(vec![], 1 << 20);
        let link = Node::Symlink(b"somewhere".to_vec());
        let inside = [(b"sparse".to_vec(), (file, 0o644, 1000, 0)), (b"link".to_vec(), (link, 0, 1000, 0))];
        make(&from, &Node::Directory(inside.into()), 0o755, 1000, 0);
        let time = TimeSpec::new(1000, 0);
        fs::write(from.join("file"), "data").unwrap();
        futimens(File::open(from.join("file")).unwrap(), &time, &time).unwrap();
        futimens(File::open(&from).unwrap(), &time, &time).unwrap();
        let dataset = carry(&from, &to);
        assert_eq!(verify::difference(&to, &dataset, true), None);
        spoil(&to);
        if !expected.contains("`.`") {
            futimens(File::open(&to).unwrap(), &time, &time).unwrap();
        }
        let found = verify::difference(&to, &dataset, true).unwrap();
        assert!(found.contains(expected), "{found}");
    }
}
