//! Which runs exist on this machine, and which of them are still alive?
//!
//! ```text
//! STATE/reports/NAME-ID.json      reports, kept
//! STATE/runs/ID/lock              held (flock) by the process that owns the run
//! STATE/runs/ID/run.json          what the run is: see `Record`
//! STATE/runs/ID/keep              the user asked to keep the files
//! STATE/runs/ID/{keys,nodes,origin,log}
//! ```
//!
//! A run whose lock is free has lost its owner: whoever finds it removes it. The kernel frees the lock when the owner
//! dies, however it dies, and everything that the owner started dies with it (nodes and fabric read a pipe that the
//! owner holds), so what is left of such a run is files, and processes only for the instant in which they notice.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::{
    failure::{Failure, OrFailed as _},
    whole,
};

/// Between the making of a run's directory and of its lock, at most.
const AGED: Duration = Duration::from_secs(10);

/// A process, told from a later one with the same number by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Field 22 of `/proc/PID/stat`, clock ticks since boot.
    pub(crate) start: u64,
}

impl Process {
    /// The process with this number, if there is one. One that has ended and is not waited for yet does not count:
    /// where nothing reaps orphans it stays for ever.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command name in parentheses may hold anything, so fields are counted from its end.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        let start = fields.nth(18)?.parse().ok()?;
        Some(Self { pid, start })
    }

    /// Whether it still exists.
    pub(crate) fn alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Sends a signal, unless the number belongs to somebody else by now.
    pub(crate) fn signal(self, signal: nix::sys::signal::Signal) {
        if self.alive() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid), signal);
        }
    }
}

/// How a run is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// `local run`: ends with its program.
    Run,
    /// `local up`: stays until `local down`.
    Up,
}

/// One node as other commands find it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    pub(crate) name: String,
    pub(crate) address: std::net::Ipv4Addr,
    /// PID 1 of the node.
    pub(crate) init: Process,
}

/// What a run is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    /// Name of the cluster.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) owner: Process,
    /// All steps asked for are done.
    pub(crate) ready: bool,
    pub(crate) nodes: Vec<NodeRecord>,
    /// What went away by itself while the cluster was up, one sentence each.
    #[serde(default)]
    pub(crate) lost: Vec<String>,
    /// Other processes outside the nodes: the fabric.
    pub(crate) processes: Vec<Process>,
    /// What `exec` gives to a program.
    pub(crate) environment: std::collections::BTreeMap<String, String>,
    /// Where programs start.
    pub(crate) directory: PathBuf,
}

/// The state directory.
#[derive(Clone, Debug)]
pub(crate) struct StateDir(PathBuf);

/// A run that this process owns.
#[derive(Debug)]
pub(crate) struct OwnedRun {
    pub(crate) id: String,
    pub(crate) path: PathBuf,
    _lock: Flock<File>,
}

/// A run that somebody owns, or nobody any more.
#[derive(Debug)]
pub(crate) struct FoundRun {
    pub(crate) path: PathBuf,
    pub(crate) record: Option<Record>,
    /// Whether its owner lives.
    pub(crate) alive: bool,
    pub(crate) kept: bool,
}

impl StateDir {
    /// The state directory at `path`, made when it is not there.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let make = |p: &Path, mode| fs::DirBuilder::new().recursive(true).mode(mode).create(p);
        make(path, 0o755)
            .and_then(|()| make(&path.join("runs"), 0o711))
            .and_then(|()| make(&path.join("reports"), 0o755))
            .inspect(|()| spread(&path.join("runs")))
            .and_then(|()| path.canonicalize())
            .map(Self)
            .map_err(|e| {
                Failure::input(format!(
                    "--state-dir {}: {e}; give a directory on a writable file system",
                    path.display()
                ))
            })
    }

    /// Where the report of a run goes by default.
    pub(crate) fn report(&self, name: &str, id: &str) -> PathBuf {
        self.0.join("reports").join(format!("{name}-{id}.json"))
    }

    /// Waits until nobody else holds this, and holds it: names are looked for and taken in one go.
    pub(crate) fn exclusive(&self) -> Result<Flock<File>, Failure> {
        let runs = self.0.join("runs");
        let wrong = |e: &dyn std::fmt::Display| {
            Failure::input(format!("--state-dir: cannot lock {}: {e}", runs.display()))
        };
        let directory = File::open(&runs).map_err(|e| wrong(&e))?;
        Flock::lock(directory, FlockArg::LockExclusive).map_err(|(_, e)| wrong(&e))
    }

    /// Whether a cluster of this name is up, or on its way.
    pub(crate) fn is_up(&self, name: &str) -> bool {
        let up = |record: &Record| record.name == name && record.kind == Kind::Up;
        self.runs().iter().any(|run| run.alive && run.record.as_ref().is_some_and(up))
    }

    /// Makes a run and takes its lock.
    pub(crate) fn create(&self) -> Result<OwnedRun, Failure> {
        // A cleaner that sees the new directory before its lock is held may remove it: then a new one is made.
        for _ in 0..16 {
            let id = random_id().or_failed("StateUnwritable", "read random bytes")?;
            let path = self.0.join("runs").join(&id);
            fs::DirBuilder::new()
                .mode(0o711)
                .create(&path)
                .or_failed("StateUnwritable", format!("make {}", path.display()))?;
            let Ok(file) = fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path.join("lock"))
            else {
                continue;
            };
            let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { continue };
            if lock.metadata().is_ok_and(|m| m.nlink() > 0) && path.join("lock").exists() {
                return Ok(OwnedRun { id, path, _lock: lock });
            }
        }
        Err(Failure::failed("StateUnwritable", format!("cannot make a run in {}", self.0.display())))
    }

    /// All runs, in order of their names.
    pub(crate) fn runs(&self) -> Vec<FoundRun> {
        let Ok(entries) = fs::read_dir(self.0.join("runs")) else { return Vec::new() };
        let mut runs: Vec<_> = entries
            .flatten()
            .map(|entry| entry.path())
            .map(|path| FoundRun {
                alive: matches!(Ownership::of(&path), Ownership::Owned),
                record: fs::read(path.join("run.json")).ok().and_then(|b| serde_json::from_slice(&b).ok()),
                kept: path.join("keep").exists(),
                path,
            })
            .collect();
        runs.sort_by(|a, b| a.path.cmp(&b.path));
        runs
    }

    /// Finishes the job of owners that died: removes their runs. With `kept`, also files that were kept by request.
    /// Returns the ids of what was removed.
    pub(crate) fn clean(&self, kept: bool) -> Result<Vec<String>, Failure> {
        let mut removed = Vec::new();
        for run in self.runs() {
            if run.alive || (run.kept && !kept) {
                continue;
            }
            // Held until the directory is gone, so that two cleaners do not meet in it.
            let Ownership::Free(_lock) = Ownership::of(&run.path) else { continue };
            if let Some(record) = &run.record {
                stop(record);
            }
            remove_tree(&run.path).or_failed("CleanFailed", format!("remove {}", run.path.display()))?;
            removed.push(run.path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        Ok(removed)
    }
}

impl OwnedRun {
    /// Writes what the run is, whole or not at all.
    pub(crate) fn record(&self, record: &Record) -> Result<(), Failure> {
        let path = self.path.join("run.json");
        let text = serde_json::to_vec_pretty(record).or_failed("StateUnwritable", "encode run.json")?;
        whole::write(&path, &text).or_failed("StateUnwritable", format!("write {}", path.display()))
    }

    /// Removes the run's files, or leaves them with the mark that says so.
    pub(crate) fn finish(&self, keep: bool) -> Result<(), Failure> {
        if keep {
            for entry in ["keys", "origin"] {
                let _ = remove_tree(&self.path.join(entry));
            }
            return File::create(self.path.join("keep"))
                .map(drop)
                .or_failed("CleanFailed", format!("mark {} as kept", self.path.display()));
        }
        remove_tree(&self.path).or_failed("CleanFailed", format!("remove {}", self.path.display()))
    }
}

/// Whether somebody owns a run.
enum Ownership {
    Owned,
    /// Nobody; with its lock, where there is one, so that nobody else takes it meanwhile.
    Free(Option<Flock<File>>),
}

impl Ownership {
    /// Looks. A directory without a lock file is one that is being removed or whose maker died between two calls; it
    /// counts as free when it has aged a little.
    fn of(path: &Path) -> Self {
        match File::open(path.join("lock")) {
            Ok(file) => {
                let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
                lock.map_or(Self::Owned, |lock| Self::Free(Some(lock)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let age = fs::metadata(path).and_then(|m| m.modified()).ok().and_then(|m| m.elapsed().ok());
                if age.is_some_and(|age| age > AGED) { Self::Free(None) } else { Self::Owned }
            }
            Err(_) => Self::Owned,
        }
    }
}

/// Asks the file system to put each run into a region of its own (`chattr +T`; ext4 and its kin, ignored elsewhere).
///
/// A run is several disks' worth of files that are made and removed together. Without this, ext4 looks for free inodes
/// where the run before had its own, and without a journal it will not take one that was freed in the last minutes: it
/// walks past them all, for every file (Linux, `fs/ext4/ialloc.c`, `recently_deleted`). Staging 2,000 small files to
/// four nodes took 1.5 s longer in each run that followed another.
fn spread(directory: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let Ok(directory) = File::open(directory) else { return };
    if let Ok(flags) = ioctl_getflags(&directory)
        && !flags.contains(IFlags::TOPDIR)
    {
        let _ = ioctl_setflags(&directory, flags | IFlags::TOPDIR);
    }
}

/// Ends what a dead owner left running.
fn stop(record: &Record) {
    let left: Vec<Process> =
        record.nodes.iter().map(|n| n.init).chain(record.processes.iter().copied()).collect();
    for process in &left {
        process.signal(nix::sys::signal::Signal::SIGKILL);
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while left.iter().any(|p| p.alive()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Removes a directory and what is below it. Nodes that are just dying may still write: tried again a few times.
fn remove_tree(path: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..50 {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => last = Err(error),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    last
}

/// Six hexadecimal digits.
fn random_id() -> io::Result<String> {
    let mut bytes = [0u8; 4];
    File::open("/dev/urandom")?.read_exact(&mut bytes[1..])?;
    Ok(format!("{:06x}", u32::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_removed_only_when_its_lock_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let mine = state.create().unwrap();
        let other = state.create().unwrap();
        let (mine_path, other_path) = (mine.path.clone(), other.path.clone());
        fs::create_dir_all(other_path.join("nodes/a/data")).unwrap();
        drop(other);
        assert_eq!(state.clean(false).unwrap().len(), 1);
        assert!(mine_path.exists());
        assert!(!other_path.exists());
        mine.finish(false).unwrap();
        assert!(!mine_path.exists());
    }

    #[test]
    fn kept_files_stay_until_they_are_asked_away() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let run = state.create().unwrap();
        let path = run.path.clone();
        run.finish(true).unwrap();
        drop(run);
        assert!(state.clean(false).unwrap().is_empty());
        assert!(path.exists());
        assert_eq!(state.clean(true).unwrap().len(), 1);
        assert!(!path.exists());
    }

    #[test]
    fn a_process_is_not_confused_with_a_later_one_of_the_same_number() {
        let me = Process::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.alive());
        assert!(!Process { start: me.start + 1, ..me }.alive());
    }
}
