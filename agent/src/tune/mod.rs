//! Which kernel settings of this node does a run change, and how are they put back?
//!
//! The network namespace that the agent lives in, through /proc/sys, a closed list of keys. Rules, each a test:
//!
//! - Noted in the journal, fsynced, *before* the first write; so whatever ends the agent, its successor can undo.
//! - Read back after each write: a value that the kernel refused or changed is reported with the reason.
//! - Restored only where the value is still ours. Who changed it since has the last word.
//! - One value per key: the second owner that wants another is refused with the first one's name. Owners that agree
//!   share, and the last to leave restores.
//! - Stopping the agent restores nothing: a run outlives an upgrade of its agent.
//! - The machine's own namespace is never written.

pub mod allow;
mod journal;
mod kernel;

use std::io;
use std::path::Path;
use std::time::SystemTime;

use thiserror::Error;

pub use allow::{NotAllowed, normalize};
pub use journal::{Entry, Journal, JournalError};
pub use kernel::{Kernel, ProcSys};

/// More settings than there are keys is a slip.
const MAX_SETTINGS: usize = 32;
/// A name and a namespace of Kubernetes, and something to tell runs apart.
const MAX_OWNER_BYTES: usize = 512;

/// Why one setting was not applied as asked.
#[derive(Debug, Error)]
pub enum SettingError {
    /// Not on the list, or not of its form.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// Asked twice in one request.
    #[error("{key} is given twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// Another owner holds it with another value.
    #[error("{key} is held by {owner} at `{value}`: wait for its end, or ask for the same value")]
    Conflict {
        /// The key.
        key: String,
        /// Who came first.
        owner: String,
        /// What it wants.
        value: String,
    },
    /// Ours once, but somebody wrote it since.
    #[error("{key} was set to `{now}` by someone else since this run set it: it is left alone")]
    ChangedSince {
        /// The key.
        key: String,
        /// The value found.
        now: String,
    },
    /// The agent is not in a namespace of its own.
    #[error("the agent runs in the machine's own network namespace, whose settings it never writes")]
    MachineNamespace,
    /// The kernel does not have it or does not show it.
    #[error("the kernel does not show {key}")]
    Unreadable {
        /// The key.
        key: String,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel said no.
    #[error("the kernel refused `{value}` for {key}: {why}")]
    Refused {
        /// The key.
        key: String,
        /// The value asked for.
        value: String,
        /// In words.
        why: String,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel took it and made something else of it.
    #[error("the kernel made `{now}` of `{value}` for {key}")]
    Clamped {
        /// The key.
        key: String,
        /// The value asked for.
        value: String,
        /// The value read back.
        now: String,
    },
}

impl SettingError {
    /// One PascalCase word for conditions, events and reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotAllowed(_) | Self::Twice { .. } => "NotAllowed",
            Self::Conflict { .. } => "Conflict",
            Self::ChangedSince { .. } => "ChangedSince",
            Self::MachineNamespace => "MachineNamespace",
            Self::Unreadable { .. } => "Unreadable",
            Self::Refused { .. } => "Refused",
            Self::Clamped { .. } => "Clamped",
        }
    }
}

/// Why nothing could be done at all.
#[derive(Debug, Error)]
pub enum TuneError {
    /// The journal does not work; without it nothing is written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The namespace cannot be told.
    #[error("cannot tell the network namespace of the agent: is /proc mounted?")]
    Namespace(#[source] io::Error),
    /// An owner that could not be told from another, or be read in a message.
    #[error("owner must be 1 to 512 printable characters")]
    Owner,
    /// Too many settings.
    #[error("{given} settings are given, at most 32 can be")]
    TooMany {
        /// How many.
        given: usize,
    },
}

/// What became of one setting.
#[derive(Debug)]
pub struct Applied {
    /// The key, as given.
    pub key: String,
    /// The value found; empty where it was not looked at.
    pub before: String,
    /// The value read back, or in a dry run the value that would be written.
    pub applied: String,
    /// Why it is not what was asked for.
    pub error: Option<SettingError>,
}

/// What became of one setting at the end.
#[derive(Debug, PartialEq, Eq)]
pub struct Restored {
    /// The key.
    pub key: String,
    /// Whether the value is again what it was before the first owner came.
    pub restored: bool,
    /// The value now.
    pub now: String,
}

/// Writes and restores settings for any number of owners.
#[derive(Debug)]
pub struct Tuner<K = ProcSys> {
    kernel: K,
    namespace: String,
    journal: Journal,
}

impl Tuner<ProcSys> {
    /// For the calling thread's network namespace; `directory` holds the journal.
    pub fn open(directory: &Path) -> Result<Self, TuneError> {
        Self::with_kernel(ProcSys::default(), directory)
    }
}

/// A setting that may be written.
struct Intent {
    key: String,
    value: String,
    before: String,
    entry: Entry,
}

impl<K: Kernel> Tuner<K> {
    /// With another kernel. Entries of a namespace that is gone are struck out: their settings went with it.
    pub fn with_kernel(kernel: K, directory: &Path) -> Result<Self, TuneError> {
        let mut journal = Journal::open(directory)?;
        let namespace = kernel.namespace().map_err(TuneError::Namespace)?;
        let gone: Vec<Entry> =
            journal.entries().iter().filter(|entry| entry.namespace != namespace).cloned().collect();
        for entry in gone {
            journal.close(&entry.owner, &entry.key, "namespace gone", unix_seconds())?;
        }
        Ok(Self { kernel, namespace, journal })
    }

    /// Entries that are not restored yet.
    pub fn entries(&self) -> &[Entry] {
        self.journal.entries()
    }

    /// Applies settings in the order given; one that fails does not stop the others. A dry run looks and writes
    /// nothing, neither to the kernel nor to the journal.
    pub fn apply(
        &mut self,
        owner: &str,
        settings: &[(String, String)],
        dry_run: bool,
    ) -> Result<Vec<Applied>, TuneError> {
        check_owner(owner)?;
        if settings.len() > MAX_SETTINGS {
            return Err(TuneError::TooMany { given: settings.len() });
        }
        let mut results: Vec<Applied> = Vec::with_capacity(settings.len());
        let mut intents: Vec<(usize, Intent)> = Vec::new();
        for (index, (key, value)) in settings.iter().enumerate() {
            let mut result =
                Applied { key: key.clone(), before: String::new(), applied: String::new(), error: None };
            let twice = results.iter().any(|earlier| earlier.key == *key);
            let intent = if twice {
                Err(SettingError::Twice { key: key.clone() })
            } else {
                self.intend(owner, key, value, &mut result, dry_run)
            };
            match intent {
                Ok(intent) => {
                    result.applied.clone_from(&intent.value);
                    intents.push((index, intent));
                }
                Err(error) => {
                    result.applied.clone_from(&result.before);
                    result.error = Some(error);
                }
            }
            results.push(result);
        }
        if dry_run || intents.is_empty() {
            return Ok(results);
        }
        let entries: Vec<Entry> = intents.iter().map(|(_, intent)| intent.entry.clone()).collect();
        self.journal.note(&entries)?;
        for (index, intent) in intents {
            let (applied, error) = self.write(intent)?;
            results[index].applied = applied;
            results[index].error = error;
        }
        Ok(results)
    }

    /// Puts back what `owner` changed, last change first. An owner that holds nothing gets an empty answer, so that
    /// restoring twice is harmless.
    pub fn restore(&mut self, owner: &str) -> Result<Vec<Restored>, TuneError> {
        check_owner(owner)?;
        let held: Vec<Entry> =
            self.journal.entries().iter().rev().filter(|entry| entry.owner == owner).cloned().collect();
        held.iter().map(|entry| self.put_back(entry)).collect()
    }

    fn intend(
        &self,
        owner: &str,
        key: &str,
        value: &str,
        result: &mut Applied,
        dry_run: bool,
    ) -> Result<Intent, SettingError> {
        let value = allow::validate(key, value)?;
        let before = self.read(key)?;
        result.before.clone_from(&before);
        // A dry run may look anywhere: it is how a user learns what would be done.
        if !dry_run && self.kernel.is_machine() {
            return Err(SettingError::MachineNamespace);
        }
        let key = key.to_owned();
        let holder = |entry: &&Entry| entry.key == key && entry.owner != owner;
        let other = self.journal.entries().iter().find(holder);
        if let Some(other) = other.filter(|other| other.new != value) {
            let (owner, value) = (other.owner.clone(), other.new.clone());
            return Err(SettingError::Conflict { key, owner, value });
        }
        let own = self.journal.entries().iter().find(|entry| entry.key == key && entry.owner == owner);
        // Not only `new`: a crash between note and write leaves what was there before.
        let ours = |held: &Entry| [&held.new, &held.previous, &held.old].contains(&&before);
        if let Some(held) = own.or(other).filter(|held| !ours(held)) {
            tracing::warn!(key, now = before, ours = held.new, "a setting was changed by someone else");
            return Err(SettingError::ChangedSince { key, now: before });
        }
        let old = own.or(other).map_or_else(|| before.clone(), |held| held.old.clone());
        let entry = Entry {
            owner: owner.to_owned(),
            key: key.clone(),
            old,
            previous: before.clone(),
            new: value.clone(),
            namespace: self.namespace.clone(),
            time: unix_seconds(),
        };
        Ok(Intent { key, value, before, entry })
    }

    /// Writes one noted setting and reads it back.
    fn write(&mut self, intent: Intent) -> Result<(String, Option<SettingError>), TuneError> {
        let Intent { key, value, before, entry } = intent;
        if before == value {
            return Ok((value, None));
        }
        let outcome = self.kernel.write(&key, &value);
        let now = self.read(&key).unwrap_or_else(|_| before.clone());
        if let Err(source) = outcome {
            let why = self.explain(&key, &source);
            if now == entry.old {
                self.journal.close(&entry.owner, &key, "refused", unix_seconds())?;
            } else {
                self.journal.note(&[Entry { new: now.clone(), ..entry }])?;
            }
            return Ok((now, Some(SettingError::Refused { key, value, why, source })));
        }
        if now == value {
            return Ok((now, None));
        }
        // What the kernel made of it is what has to be recognized as ours later.
        self.journal.note(&[Entry { new: now.clone(), ..entry }])?;
        Ok((now.clone(), Some(SettingError::Clamped { key, value, now })))
    }

    fn put_back(&mut self, entry: &Entry) -> Result<Restored, TuneError> {
        let Entry { owner, key, old, previous, new, .. } = entry;
        let shared = self.journal.entries().iter().any(|other| other.key == *key && other.owner != *owner);
        let mut now = self.read(key).unwrap_or_default();
        let outcome = if now == *old {
            "restored"
        } else if shared {
            "still held by another owner"
        } else if now != *new && now != *previous {
            "changed by someone else"
        } else {
            let written = self.kernel.write(key, old);
            now = self.read(key).unwrap_or_default();
            if let Err(error) = written {
                // Stays open: the next attempt may succeed.
                tracing::error!(key, old, now, %error, "a setting could not be restored");
                return Ok(Restored { key: key.clone(), restored: false, now });
            }
            if now == *old { "restored" } else { "clamped" }
        };
        self.journal.close(owner, key, outcome, unix_seconds())?;
        Ok(Restored { key: key.clone(), restored: now == *old, now })
    }

    fn read(&self, key: &str) -> Result<String, SettingError> {
        match self.kernel.read(key) {
            Ok(value) => Ok(normalize(&value)),
            Err(source) => Err(SettingError::Unreadable { key: key.to_owned(), source }),
        }
    }

    /// The kernel's error number in words, with the way around where there is one.
    fn explain(&self, key: &str, error: &io::Error) -> String {
        let list =
            |key| self.kernel.read(key).map_or_else(|_| "unknown".to_owned(), |value| normalize(&value));
        match (key, error.raw_os_error()) {
            ("net.ipv4.tcp_congestion_control", Some(libc::ENOENT)) => {
                let available = list("net.ipv4.tcp_available_congestion_control");
                format!("it has no such congestion control (available: {available})")
            }
            ("net.ipv4.tcp_congestion_control", Some(libc::EPERM)) => {
                let allowed = list("net.ipv4.tcp_allowed_congestion_control");
                format!(
                    "a network namespace may use only what the machine allows ({allowed}): add it to \
                     net.ipv4.tcp_allowed_congestion_control of the machine, or set it per route (congctl)"
                )
            }
            (_, Some(libc::EPERM | libc::EACCES | libc::EROFS)) => {
                "/proc/sys is not writable here: the agent needs root and a writable /proc/sys".to_owned()
            }
            (_, Some(libc::EINVAL)) => "the value is out of this kernel's range".to_owned(),
            _ => error.to_string(),
        }
    }
}

fn check_owner(owner: &str) -> Result<(), TuneError> {
    let fits = (1..=MAX_OWNER_BYTES).contains(&owner.len()) && !owner.chars().any(char::is_control);
    if fits { Ok(()) } else { Err(TuneError::Owner) }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests;
