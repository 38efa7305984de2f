//! What is removed, and when?
//!
//! What is to go is first moved aside, so that its path is free at once and an agent that is killed meanwhile finds it at
//! its next start.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use gridcast_core::failure::chain;

use super::DatasetError;
use super::record::{End, Record};
use super::registry::{Dataset, Registry, next};
use crate::broadcast::{remove, sweep};

/// What of a node's data directory is no dataset.
pub(super) const OURS: &str = ".gridcast-";
const DISCARDED: &str = ".discarded";

impl Registry {
    /// Kept data may be removed by hand: nothing is known of it any more then.
    pub(crate) fn forget_kept_data_that_vanished(&self) {
        let mut state = self.lock();
        let vanished =
            |dataset: &&Dataset| dataset.record.end == End::Kept && !self.target(&dataset.record).is_dir();
        let gone: Vec<String> =
            state.datasets.values().filter(vanished).map(|dataset| dataset.record.uid.clone()).collect();
        for uid in gone {
            match self.records.remove(&uid) {
                Ok(()) => drop(state.datasets.remove(&uid)),
                Err(error) => tracing::warn!(dataset = uid, %error, "a record could not be removed"),
            }
        }
    }

    /// Moves the data of `record` out of the way, if it is the record's; returns where it is to be removed.
    pub(super) fn discard(&self, record: &Record, number: u64) -> Result<Option<PathBuf>, DatasetError> {
        if !record.begun {
            return Ok(None);
        }
        let target = self.target(record);
        // A directory that its owner may not write to cannot get another parent.
        if fs::symlink_metadata(&target).is_ok_and(|found| found.is_dir()) {
            let _ = fs::set_permissions(&target, fs::Permissions::from_mode(0o700));
        }
        let aside = self.data.join(format!("{OURS}{}-{number}{DISCARDED}", record.uid));
        match fs::rename(&target, &aside) {
            Ok(()) => {
                self.remove_empty_parents(&target);
                Ok(Some(aside))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // Another file system is mounted on the way.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                remove(&target);
                self.remove_empty_parents(&target);
                Ok(None)
            }
            Err(source) => Err(DatasetError::System { action: "remove", path: target, source }),
        }
    }

    fn remove_empty_parents(&self, target: &Path) {
        let below = |parent: &&Path| parent.starts_with(&self.data) && *parent != self.data;
        for parent in target.ancestors().skip(1).take_while(below) {
            if fs::remove_dir(parent).is_err() {
                break;
            }
        }
    }

    /// A dataset whose directory has gone is not verified any more.
    pub(super) fn forget_what_vanished(&self, dataset: &mut Dataset) {
        let record = &mut dataset.record;
        if record.verified.is_none() || self.target(record).is_dir() {
            return;
        }
        tracing::warn!(dataset = record.uid, path = %self.target(record).display(), "a dataset's directory has gone");
        record.verified = None;
        // Where this fails it is found out again after the next start.
        let _ = self.records.save(record);
    }

    /// Compares records with what is there, at the start.
    pub(super) fn look_again(&self) {
        self.forget_kept_data_that_vanished();
        let uids: Vec<String> = self.lock().datasets.keys().cloned().collect();
        for uid in uids {
            if let Err(error) = self.look_again_at(&uid) {
                // One that is stuck must not keep all others away.
                tracing::error!(dataset = uid, error = chain(&error), "a dataset could not be looked after");
            }
        }
    }

    fn look_again_at(&self, uid: &str) -> Result<(), DatasetError> {
        let mut state = self.lock();
        let number = next(&mut state);
        let Some(dataset) = state.datasets.get_mut(uid) else { return Ok(()) };
        let mut record = dataset.record.clone();
        if record.boot != self.boot {
            // No mount outlives the kernel.
            record.mounts.clear();
            record.boot.clone_from(&self.boot);
            if record.verified.as_ref().is_some_and(|verified| !verified.synced) {
                tracing::warn!(
                    dataset = uid,
                    "the node was restarted before the dataset was safe on its disk"
                );
                record.verified = None;
            }
        }
        if dataset.record != record {
            self.save(&record)?;
            dataset.record = record;
        }
        self.forget_what_vanished(dataset);
        if dataset.record.verified.is_none()
            && let Some(discarded) = self.discard(&dataset.record, number)?
        {
            remove(&discarded);
        }
        let end = dataset.record.end;
        if matches!(end, End::Keep | End::Remove) && dataset.record.mounts.is_empty() {
            drop(self.finish(state, uid, end)?);
        }
        Ok(())
    }

    /// Removes what transfers and removals left that were interrupted.
    pub(super) fn sweep(&self, records: &[Record]) {
        let mut parents: Vec<PathBuf> =
            records.iter().filter_map(|record| Some(self.target(record).parent()?.to_owned())).collect();
        let Ok(found) = fs::read_dir(&self.data) else { return };
        for entry in found.flatten() {
            let name = entry.file_name();
            match name.to_str() {
                Some(name) if name.starts_with(OURS) && name.ends_with(DISCARDED) => remove(&entry.path()),
                _ => parents.push(entry.path()),
            }
        }
        parents.sort();
        parents.dedup();
        for parent in parents {
            sweep(&parent);
        }
    }
}
