//! Trees of files for these tests, and a description of them that does not come from the code under test.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Whence, lseek};

/// Bytes that look random and differ everywhere.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut data);
    data
}

pub(crate) fn set_mtime(path: &Path, seconds: i64, nanos: i64) {
    let at = nix::fcntl::AT_FDCWD;
    let mtime = TimeSpec::new(seconds, nanos);
    utimensat(at, path, &TimeSpec::UTIME_OMIT, &mtime, UtimensatFlags::NoFollowSymlink).unwrap();
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// One of everything: a large file, many small ones, odd names and modes, holes, times before 1970.
pub(crate) fn make_all(root: &Path) {
    fs::create_dir_all(root.join("small/deep/er")).unwrap();
    fs::write(root.join("large.bin"), noise(1, (5 << 20) + 3)).unwrap();
    for number in 0..400 {
        let name = format!("small/f{number:04}.dat");
        fs::write(root.join(name), noise(number, (number as usize * 37) % 9000)).unwrap();
    }
    fs::write(root.join("small/deep/er/leaf"), "leaf").unwrap();
    fs::write(root.join("run.sh"), "#!/bin/sh\n").unwrap();
    set_mode(&root.join("run.sh"), 0o4751);
    fs::write(root.join("empty"), "").unwrap();
    set_mode(&root.join("empty"), 0o2000);
    fs::create_dir(root.join("none")).unwrap();
    set_mode(&root.join("none"), 0o1777);
    let odd = root.join(OsStr::from_bytes(b"odd \xff\n\\ name"));
    fs::write(&odd, "odd").unwrap();
    set_mtime(&odd, -1_234_567, 987_654_321);
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    sparse.write_all_at(&noise(2, 5000), 0).unwrap();
    sparse.write_all_at(&noise(3, 70_000), 1 << 20).unwrap();
    sparse.write_all_at(b"end", (2 << 20) + 77).unwrap();
    set_mtime(&root.join("sparse"), 0, 1);
    File::create(root.join("hole")).unwrap().set_len(1 << 20).unwrap();
    symlink("nowhere/at all", root.join("dangling")).unwrap();
    symlink("/etc/hostname", root.join("absolute")).unwrap();
    symlink("..", root.join("small/up")).unwrap();
    set_mtime(&root.join("dangling"), -5, 5);
    fs::create_dir(root.join("closed")).unwrap();
    fs::write(root.join("closed/inside"), "inside").unwrap();
    set_mode(&root.join("closed/inside"), 0o400);
    set_mtime(&root.join("closed"), -99, 1);
    set_mode(&root.join("closed"), 0o555);
    set_mtime(root, 1_000_000_000, 123_456_789);
    set_mode(root, 0o2750);
}

/// Everything that a copy must keep, by path.
pub(crate) fn describe(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let time = format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec());
        let what = if metadata.is_symlink() {
            format!("link {time} {}", fs::read_link(&path).unwrap().as_os_str().as_bytes().escape_ascii())
        } else if metadata.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            format!("directory {time} {:o}", metadata.mode() & 0o7777)
        } else {
            let data = fs::read(&path).unwrap();
            let hash = blake3::hash(&data).to_hex();
            format!("file {time} {:o} {} {hash} {:?}", metadata.mode() & 0o7777, data.len(), holes(&path))
        };
        let relative = path.strip_prefix(root).unwrap();
        found.insert(relative.as_os_str().as_bytes().to_vec(), what);
    }
    found
}

/// Holes of 64 KiB and more.
fn holes(path: &Path) -> Vec<(i64, i64)> {
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len().cast_signed();
    let mut holes = Vec::new();
    let mut at = 0;
    while at < size {
        let start = lseek(file.as_fd(), at, Whence::SeekHole).unwrap();
        let end = lseek(file.as_fd(), start, Whence::SeekData).unwrap_or(size);
        if end - start >= 64 << 10 {
            holes.push((start, end));
        }
        at = end.max(start + 1);
    }
    holes
}
