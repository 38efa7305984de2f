//! Where is a dataset built, so that its published name appears in one step or never?
//!
//! A directory `.gridcast-ID.partial` beside the target, on the same file system, private to the agent and locked while
//! it is in use. Dropping it removes it; a later broadcast removes those beside it that nobody has locked.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, OFlag, RenameFlags, renameat2};
use nix::sys::stat::Mode;
use nix::sys::statvfs::statvfs;
use nix::unistd::Whence;

use super::failure::Failure;
use super::scan::SMALLEST_HOLE_BYTES;

const PREFIX: &str = ".gridcast-";
const SUFFIX: &str = ".partial";
/// Removing is tried this often.
const REMOVE_ATTEMPTS: u32 = 20;
const REMOVE_PAUSE: Duration = Duration::from_millis(20);

/// A private directory that will become `target`.
#[derive(Debug)]
pub(crate) struct Staging {
    target: PathBuf,
    path: PathBuf,
    directory: Flock<OwnedFd>,
    /// Parents of the target that were made for it, outermost first.
    made: Vec<PathBuf>,
    published: bool,
}

/// What a dataset needs on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

impl Staging {
    /// Prepares a directory that becomes `target`, which must not exist or be an empty directory.
    pub(crate) fn for_target(target: &Path, id: &str, need: Need) -> Result<Self, Failure> {
        check_target(target)?;
        Self::beside(target, id, need)
    }

    /// Prepares a directory beside `target`, whatever is there.
    pub(crate) fn beside(target: &Path, id: &str, need: Need) -> Result<Self, Failure> {
        let parent = match (target.parent(), target.file_name()) {
            (Some(parent), Some(_)) if is_plain(target) => parent,
            _ => {
                return Err(Failure::invalid(format!(
                    "the target `{}` must be an absolute path below `/` without `.` and `..`",
                    target.display()
                )));
            }
        };
        let made = make_parents(parent)?;
        let undo = |failure| {
            remove_made(&made);
            failure
        };
        preflight(parent, need).map_err(undo)?;
        sweep(parent);
        let path = parent.join(format!("{PREFIX}{id}{SUFFIX}"));
        let directory = create_locked(&path).map_err(|error| undo(Failure::writing(&path, &error)))?;
        Ok(Self { target: target.to_owned(), path, directory, made, published: false })
    }

    /// The directory, wherever it is now.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Its path while it is not published.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the directory its published name; what is there must be nothing, or an empty directory.
    pub(crate) fn publish(&mut self) -> Result<(), Failure> {
        let shown = self.target.display().to_string();
        fs::rename(&self.path, &self.target).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTEMPTY | libc::EEXIST | libc::ENOTDIR) => Failure::TargetExists { path: shown },
            Some(libc::EBUSY | libc::EXDEV) => Failure::TargetIsMount { path: shown },
            _ => Failure::writing(&self.target, &error),
        })?;
        self.published = true;
        Ok(())
    }

    /// Puts `name` of the directory at `target` beside it; what was there before is replaced in one step, or left as it is.
    pub(crate) fn replace(&self, name: &Path, target: &Path) -> Result<(), Failure> {
        let from = self.path.join(name);
        match renameat2(AT_FDCWD, &from, AT_FDCWD, target, RenameFlags::RENAME_NOREPLACE) {
            Ok(()) => return Ok(()),
            Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::EINVAL | Errno::ENOSYS) => {}
            Err(errno) => return Err(Failure::writing(target, &errno.into())),
        }
        // The old one is now where the new one was, and goes with the staging directory.
        match renameat2(AT_FDCWD, &from, AT_FDCWD, target, RenameFlags::RENAME_EXCHANGE) {
            Ok(()) => Ok(()),
            Err(Errno::EBUSY | Errno::EXDEV) => {
                Err(Failure::TargetIsMount { path: target.display().to_string() })
            }
            // NFS, for one, cannot exchange: the old one moves aside first.
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::ENOENT) => self.replace_in_two_steps(&from, target),
            Err(errno) => Err(Failure::writing(target, &errno.into())),
        }
    }

    fn replace_in_two_steps(&self, from: &Path, target: &Path) -> Result<(), Failure> {
        let aside = self.path.join("replaced");
        let failed = |error: io::Error| Failure::writing(target, &error);
        match fs::rename(target, &aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        fs::rename(from, target).map_err(|error| {
            // Puts the old one back; where that fails too, the first error is the one to tell.
            let _ = fs::rename(&aside, target);
            failed(error)
        })?;
        remove(&aside);
        Ok(())
    }

    /// Whether this file system reports holes of the size that datasets keep: on one that does not, or whose blocks are
    /// larger, there is nothing to compare.
    pub(crate) fn reports_holes(&self) -> bool {
        let probe = || -> nix::Result<bool> {
            let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
            let name = c".gridcast-holes";
            let file = nix::fcntl::openat(self.directory(), name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
            nix::unistd::unlinkat(self.directory(), name, nix::unistd::UnlinkatFlags::NoRemoveDir)?;
            nix::sys::uio::pwrite(&file, b"x", 0)?;
            nix::sys::uio::pwrite(&file, b"x", 2 * SMALLEST_HOLE_BYTES.cast_signed())?;
            Ok(nix::unistd::lseek(&file, 0, Whence::SeekHole)? <= SMALLEST_HOLE_BYTES.cast_signed())
        };
        probe().unwrap_or(false)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        remove(&self.path);
        remove_made(&self.made);
    }
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// Whether `target` can be published to, as far as can be told now.
fn check_target(target: &Path) -> Result<(), Failure> {
    let shown = target.display().to_string();
    let failed = |error: &io::Error| Failure::writing(target, error);
    match fs::symlink_metadata(target) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(())
        }
        Err(error) => Err(failed(&error)),
        Ok(_) if is_mount_point(target) => Err(Failure::TargetIsMount { path: shown }),
        Ok(metadata) if metadata.is_dir() => {
            match fs::read_dir(target).map_err(|error| failed(&error))?.next() {
                None => Ok(()),
                Some(_) => Err(Failure::TargetExists { path: shown }),
            }
        }
        Ok(_) => Err(Failure::TargetExists { path: shown }),
    }
}

/// Whether `path` is in this process's table of mounts. A bind mount of the same file system shows nowhere else.
fn is_mount_point(path: &Path) -> bool {
    let Ok(real) = fs::canonicalize(path) else { return false };
    let Ok(table) = fs::read("/proc/self/mountinfo") else { return false };
    table.split(|&byte| byte == b'\n').any(|line| {
        let point = line.split(|&byte| byte == b' ').nth(4);
        point.is_some_and(|point| unescape(point) == real.as_os_str().as_encoded_bytes())
    })
}

/// The kernel writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

fn make_parents(parent: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut missing: Vec<&Path> = parent.ancestors().take_while(|path| !path.exists()).collect();
    missing.reverse();
    let mut made = Vec::new();
    for path in missing {
        match fs::create_dir(path) {
            Ok(()) => made.push(path.to_owned()),
            // Somebody else was faster: it is theirs.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                remove_made(&made);
                return Err(Failure::writing(path, &error));
            }
        }
    }
    Ok(made)
}

/// Only empty ones go: somebody else may use them by now.
fn remove_made(made: &[PathBuf]) {
    for path in made.iter().rev() {
        if fs::remove_dir(path).is_err() {
            break;
        }
    }
}

fn preflight(parent: &Path, need: Need) -> Result<(), Failure> {
    let stat = statvfs(parent).map_err(|errno| Failure::writing(parent, &errno.into()))?;
    let free = (stat.blocks_available() as u64).saturating_mul(stat.fragment_size() as u64);
    let full = |needed: u64, free: u64, what| {
        let detail = format!("{needed} {what} needed under {}, {free} free", parent.display());
        Err(Failure::DiskFull { detail })
    };
    if free < need.bytes {
        return full(need.bytes, free, "bytes");
    }
    // File systems without a fixed number of inodes say that they have none.
    let inodes = stat.files_available() as u64;
    if stat.files() > 0 && inodes < need.entries {
        return full(need.entries, inodes, "inodes");
    }
    Ok(())
}

fn create_locked(path: &Path) -> io::Result<Flock<OwnedFd>> {
    // A sweep between the creation and the lock would remove it: once more, then.
    for _ in 0..3 {
        DirBuilder::new().mode(0o700).create(path)?;
        let Ok(directory) = File::open(path) else { continue };
        let Ok(locked) = Flock::lock(OwnedFd::from(directory), FlockArg::LockExclusiveNonblock) else {
            continue;
        };
        let ours = nix::sys::stat::fstat(&*locked)?;
        if fs::symlink_metadata(path).is_ok_and(|there| there.ino() == ours.st_ino) {
            return Ok(locked);
        }
    }
    Err(io::Error::other("another agent removes it while it is made"))
}

/// Removes staging directories in `parent` that an agent left which was killed: nobody has them locked.
pub(crate) fn sweep(parent: &Path) {
    let Ok(found) = fs::read_dir(parent) else { return };
    for entry in found.flatten() {
        let name = entry.file_name();
        let is_staging = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        if !is_staging {
            continue;
        }
        let Ok(directory) = File::open(entry.path()) else { continue };
        if let Ok(_locked) = Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            tracing::info!(path = %entry.path().display(), "removing what a killed broadcast left");
            remove(&entry.path());
        }
    }
}

/// Removes a tree whose directories may have lost their permissions already, and in which a thread that was not stopped may
/// finish its last file.
pub(crate) fn remove(path: &Path) {
    for attempt in 0..REMOVE_ATTEMPTS {
        match fs::remove_dir_all(path) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) if attempt + 1 == REMOVE_ATTEMPTS => {
                tracing::warn!(path = %path.display(), %error, "cannot remove a staging directory; remove it by hand");
            }
            Err(_) => open_up(path),
        }
        std::thread::sleep(REMOVE_PAUSE);
    }
}

fn open_up(path: &Path) {
    let mut directories = vec![path.to_owned()];
    while let Some(path) = directories.pop() {
        if fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).is_err() {
            continue;
        }
        let Ok(found) = fs::read_dir(&path) else { continue };
        let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        directories.extend(found.flatten().filter(is_directory).map(|entry| entry.path()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEED: Need = Need { bytes: 1, entries: 1 };

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn publishing_replaces_an_empty_directory_only() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("data");
        fs::create_dir(&target).unwrap();
        let mut staging = Staging::for_target(&target, "x", NEED).unwrap();
        fs::write(staging.path().join("f"), "1").unwrap();
        staging.publish().unwrap();
        drop(staging);
        assert_eq!(names(dir.path()), ["data"]);
        assert_eq!(names(&target), ["f"]);
        let refused = Staging::for_target(&target, "x", NEED).unwrap_err();
        assert_eq!(refused.reason(), "TargetExists");
        fs::write(dir.path().join("file"), "").unwrap();
        let refused = Staging::for_target(&dir.path().join("file"), "x", NEED).unwrap_err();
        assert_eq!(refused.reason(), "TargetExists");
    }

    #[test]
    fn a_target_that_was_filled_meanwhile_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("data");
        let mut staging = Staging::for_target(&target, "x", NEED).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(target.join("theirs"), "").unwrap();
        assert_eq!(staging.publish().unwrap_err().reason(), "TargetExists");
        drop(staging);
        assert_eq!(names(dir.path()), ["data"]);
        assert_eq!(names(&target), ["theirs"]);
    }

    #[test]
    fn a_failure_leaves_nothing_not_even_the_parents() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a/b/data");
        let staging = Staging::for_target(&target, "x", NEED).unwrap();
        let closed = staging.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("f"), "1").unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
        drop(staging);
        assert!(names(dir.path()).is_empty());
        let need = Need { bytes: u64::MAX, entries: 1 };
        assert_eq!(Staging::for_target(&target, "x", need).unwrap_err().reason(), "DiskFull");
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn what_a_killed_agent_left_goes_what_is_in_use_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".gridcast-old.partial")).unwrap();
        let used = Staging::for_target(&dir.path().join("one"), "used", NEED).unwrap();
        let staging = Staging::for_target(&dir.path().join("two"), "x", NEED).unwrap();
        assert_eq!(names(dir.path()), [".gridcast-used.partial", ".gridcast-x.partial"]);
        drop((used, staging));
    }

    #[test]
    fn a_mount_point_is_refused() {
        let refused = Staging::for_target(Path::new("/proc"), "x", NEED).unwrap_err();
        assert_eq!(refused.reason(), "TargetIsMount");
        assert_eq!(unescape(br"/a\040b\134c"), br"/a b\c");
    }

    #[test]
    fn replacing_keeps_no_trace_of_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("out");
        for round in ["1", "2"] {
            let staging = Staging::beside(&target, "c", NEED).unwrap();
            fs::create_dir(staging.path().join("new")).unwrap();
            fs::write(staging.path().join("new").join(round), "").unwrap();
            staging.replace(Path::new("new"), &target).unwrap();
        }
        assert_eq!(names(dir.path()), ["out"]);
        assert_eq!(names(&target), ["2"]);
    }
}
