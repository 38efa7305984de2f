//! What did we change, and what was there before?
//!
//! JSON lines in the agent's state directory. A change is noted and fsynced *before* it is written to the kernel,
//! and struck out after it was undone, so that whatever happens to the agent, its successor knows what may have
//! changed. A last line that a crash cut off was never followed by a write to the kernel: it is dropped. Any other
//! damage is an error, since guessing here means leaving a machine changed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

const FILE: &str = "settings.journal";
const LOCK: &str = "settings.lock";
/// Lines after which what was struck out is thrown away.
const COMPACT_LINES: usize = 1_000;
/// A journal is a few KiB; anything larger is not one.
const MAX_BYTES: u64 = 16 << 20;

/// A setting that an owner holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The run.
    pub owner: String,
    /// Dotted key.
    pub key: String,
    /// Before the first owner came.
    pub old: String,
    /// Right before this change: also ours when the owner had changed it already, and still there when a crash came
    /// between note and write.
    pub previous: String,
    /// As the owner wants it; after a clamped write, as the kernel made it.
    pub new: String,
    /// Network namespace and boot.
    pub namespace: String,
    /// Seconds since 1970.
    pub time: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    /// Replaces an open entry of the same owner and key.
    Open(Entry),
    Close {
        owner: String,
        key: String,
        outcome: String,
        time: u64,
    },
}

/// Why the journal cannot be used.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The system refused.
    #[error("cannot {action} {path}: check the agent's state directory")]
    System {
        /// read, write, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another agent has it.
    #[error("{path} is locked by another agent: give each agent a state directory of its own")]
    Locked {
        /// The lock.
        path: PathBuf,
    },
    /// A line other than a torn last one is damaged.
    #[error(
        "{path} line {line} is damaged: restore the settings by hand from the lines around it, then remove the file"
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// Not a journal at all.
    #[error("{path} is larger than 16 MiB and so no journal of settings: move it away")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// The journal of one agent; its directory is locked as long as this lives.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    lines: usize,
    open: Vec<Entry>,
    _lock: File,
}

impl Journal {
    /// Opens or makes the journal of a state directory; keeps the entries that are still open.
    pub fn open(directory: &Path) -> Result<Self, JournalError> {
        let path = directory.join(FILE);
        fs::create_dir_all(directory).map_err(system("create", directory))?;
        let lock = lock(&directory.join(LOCK))?;
        let open = load(&path)?;
        let file = rewrite(&path, &open)?;
        Ok(Self { path, file, lines: open.len(), open, _lock: lock })
    }

    /// Removes the files of a journal in `directory` that holds nothing; one that does, or that somebody uses, stays.
    pub fn remove_if_empty(directory: &Path) -> Result<(), JournalError> {
        // Opening makes what is not there.
        if !directory.join(LOCK).exists() {
            return Ok(());
        }
        let journal = Self::open(directory)?;
        if journal.open.is_empty() {
            for path in [journal.path.clone(), directory.join(LOCK)] {
                fs::remove_file(&path).map_err(system("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Entries that are not struck out, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.open
    }

    /// Notes changes that are about to be made; on return they are on the disk.
    pub fn note(&mut self, entries: &[Entry]) -> Result<(), JournalError> {
        let lines: Vec<Line> = entries.iter().cloned().map(Line::Open).collect();
        self.append(&lines)?;
        for entry in entries {
            apply(&mut self.open, Line::Open(entry.clone()));
        }
        Ok(())
    }

    /// Strikes out one entry; `outcome` is for whoever reads the file.
    pub fn close(&mut self, owner: &str, key: &str, outcome: &str, time: u64) -> Result<(), JournalError> {
        let line =
            Line::Close { owner: owner.to_owned(), key: key.to_owned(), outcome: outcome.to_owned(), time };
        self.append(std::slice::from_ref(&line))?;
        apply(&mut self.open, line);
        if self.lines >= COMPACT_LINES.max(2 * self.open.len()) {
            self.file = rewrite(&self.path, &self.open)?;
            self.lines = self.open.len();
        }
        Ok(())
    }

    fn append(&mut self, lines: &[Line]) -> Result<(), JournalError> {
        let mut text = Vec::new();
        for line in lines {
            write_line(&mut text, line).map_err(system("write", &self.path))?;
        }
        let before = self.file.metadata().map_err(system("write", &self.path))?.len();
        let written = self.file.write_all(&text).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // Half a line in the middle would be damage; what cannot be cut off either is found at the next start.
            let _ = self.file.set_len(before);
            return Err(system("write", &self.path)(error));
        }
        self.lines += lines.len();
        Ok(())
    }
}

fn system(action: &'static str, path: &Path) -> impl Fn(io::Error) -> JournalError + use<> {
    let path = path.to_owned();
    move |source| JournalError::System { action, path: path.clone(), source }
}

fn lock(path: &Path) -> Result<File, JournalError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(system("open", path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(JournalError::Locked { path: path.to_owned() }),
        Err(fs::TryLockError::Error(source)) => Err(system("lock", path)(source)),
    }
}

fn load(path: &Path) -> Result<Vec<Entry>, JournalError> {
    let text = match fs::metadata(path) {
        Ok(data) if data.len() > MAX_BYTES => return Err(JournalError::TooLarge { path: path.to_owned() }),
        Ok(_) => fs::read(path).map_err(system("read", path))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(system("read", path)(error)),
    };
    // A line without its newline was not on the disk when the agent went on.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        tracing::warn!(path = %path.display(), "the journal's last line is cut off and dropped");
    }
    let mut open = Vec::new();
    for (index, line) in text[..whole].split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let damaged = |source| JournalError::Damaged { path: path.to_owned(), line: index + 1, source };
        apply(&mut open, serde_json::from_slice(line).map_err(damaged)?);
    }
    Ok(open)
}

fn apply(open: &mut Vec<Entry>, line: Line) {
    match line {
        Line::Open(entry) => {
            match open.iter_mut().find(|other| other.owner == entry.owner && other.key == entry.key) {
                Some(other) => *other = entry,
                None => open.push(entry),
            }
        }
        Line::Close { owner, key, .. } => open.retain(|entry| entry.owner != owner || entry.key != key),
    }
}

/// A new file with the open entries only, in place of the old one by rename.
fn rewrite(path: &Path, open: &[Entry]) -> Result<File, JournalError> {
    let fresh = path.with_extension("journal.new");
    let mut text = Vec::new();
    for entry in open {
        write_line(&mut text, &Line::Open(entry.clone())).map_err(system("write", &fresh))?;
    }
    let mut file = File::create(&fresh).map_err(system("create", &fresh))?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(system("write", &fresh))?;
    fs::rename(&fresh, path).map_err(system("replace", path))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory).and_then(|handle| handle.sync_all()).map_err(system("sync", directory))?;
    OpenOptions::new().append(true).open(path).map_err(system("open", path))
}

fn write_line(text: &mut Vec<u8>, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(owner: &str, key: &str, new: &str) -> Entry {
        Entry {
            owner: owner.to_owned(),
            key: key.to_owned(),
            old: "0".to_owned(),
            previous: "0".to_owned(),
            new: new.to_owned(),
            namespace: "net:[1]@boot".to_owned(),
            time: 1,
        }
    }

    fn lines(directory: &Path) -> Vec<String> {
        fs::read_to_string(directory.join(FILE)).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_successor_finds_what_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path()).unwrap();
        journal.note(&[entry("one", "a", "1"), entry("one", "b", "1")]).unwrap();
        journal.close("one", "a", "restored", 2).unwrap();
        journal.note(&[entry("one", "b", "2")]).unwrap();
        drop(journal);
        let journal = Journal::open(directory.path()).unwrap();
        assert_eq!(journal.entries(), [entry("one", "b", "2")]);
        assert_eq!(lines(directory.path()).len(), 1, "what was struck out is gone");
    }

    #[test]
    fn each_line_can_be_read_by_a_human() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path()).unwrap();
        journal.note(&[entry("run-1", "net.ipv4.tcp_rmem", "1 2 3")]).unwrap();
        assert_eq!(
            lines(directory.path()),
            [concat!(
                r#"{"event":"open","owner":"run-1","key":"net.ipv4.tcp_rmem","old":"0","previous":"0","#,
                r#""new":"1 2 3","namespace":"net:[1]@boot","time":1}"#
            )]
        );
    }

    #[test]
    fn a_torn_last_line_is_dropped_at_whatever_byte_it_was_torn() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path()).unwrap();
        journal.note(&[entry("one", "a", "1")]).unwrap();
        let whole = fs::read(directory.path().join(FILE)).unwrap();
        journal.note(&[entry("one", "b", "1")]).unwrap();
        drop(journal);
        let text = fs::read(directory.path().join(FILE)).unwrap();
        for end in whole.len()..text.len() {
            fs::write(directory.path().join(FILE), &text[..end]).unwrap();
            let mut journal = Journal::open(directory.path()).unwrap();
            assert_eq!(journal.entries(), [entry("one", "a", "1")]);
            journal.note(&[entry("two", "c", "1")]).unwrap();
            drop(journal);
            assert_eq!(Journal::open(directory.path()).unwrap().entries().len(), 2, "torn at {end}");
        }
    }

    #[test]
    fn other_damage_is_named_by_line() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path()).unwrap();
        journal.note(&[entry("one", "a", "1"), entry("one", "b", "1")]).unwrap();
        drop(journal);
        let path = directory.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("open", "opne", 1)).unwrap();
        let error = Journal::open(directory.path()).unwrap_err();
        assert!(error.to_string().contains("line 1 is damaged"), "{error}");
    }

    #[test]
    fn an_empty_journal_can_be_removed_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let left = || fs::read_dir(directory.path()).unwrap().count();
        Journal::remove_if_empty(directory.path()).unwrap();
        assert_eq!(left(), 0);
        let mut journal = Journal::open(directory.path()).unwrap();
        assert!(matches!(Journal::remove_if_empty(directory.path()), Err(JournalError::Locked { .. })));
        journal.note(&[entry("one", "a", "1")]).unwrap();
        drop(journal);
        Journal::remove_if_empty(directory.path()).unwrap();
        assert_eq!(left(), 2);
        Journal::open(directory.path()).unwrap().close("one", "a", "restored", 2).unwrap();
        Journal::remove_if_empty(directory.path()).unwrap();
        assert_eq!(left(), 0);
    }

    #[test]
    fn two_agents_cannot_share_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let _first = Journal::open(directory.path()).unwrap();
        assert!(matches!(Journal::open(directory.path()), Err(JournalError::Locked { .. })));
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path()).unwrap();
        journal.note(&[entry("stays", "a", "1")]).unwrap();
        for _ in 0..COMPACT_LINES {
            journal.note(&[entry("goes", "a", "1")]).unwrap();
            journal.close("goes", "a", "restored", 2).unwrap();
        }
        assert!(lines(directory.path()).len() <= COMPACT_LINES);
        assert_eq!(journal.entries(), [entry("stays", "a", "1")]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_restart_at_any_moment_changes_nothing(
            steps in proptest::collection::vec((any::<bool>(), 0..3_u8, 0..3_u8, any::<bool>()), 0..30)
        ) {
            let directory = tempfile::tempdir().unwrap();
            let mut journal = Journal::open(directory.path()).unwrap();
            for (index, (opens, owner, key, restarts)) in steps.into_iter().enumerate() {
                let (owner, key) = (owner.to_string(), key.to_string());
                if opens {
                    journal.note(&[entry(&owner, &key, &index.to_string())]).unwrap();
                } else {
                    journal.close(&owner, &key, "restored", 2).unwrap();
                }
                if restarts {
                    let before = journal.entries().to_vec();
                    drop(journal);
                    journal = Journal::open(directory.path()).unwrap();
                    prop_assert_eq!(journal.entries(), before);
                }
            }
        }
    }
}
