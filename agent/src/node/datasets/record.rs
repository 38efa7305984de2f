//! What does a node remember of a dataset, and how does that outlive it?
//!
//! One file of JSON for each dataset, replaced as a whole and synced before anybody is told. What was verified is not
//! synced itself, which would hold everything up: until that has been done, too, the record counts for this boot only.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A record is a few KiB; anything larger is not one.
const MAX_BYTES: u64 = 4 << 20;
const EXTENSION: &str = "json";

/// A dataset of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Below the namespace's part of the data directory.
    pub(super) path: PathBuf,
    /// Name in the certificate of the agent that may bring it.
    pub(super) source: String,
    /// A transfer to its path was begun: what is there is this dataset's, whole or not.
    pub(super) begun: bool,
    pub(super) verified: Option<Verified>,
    pub(super) mounts: Vec<Mount>,
    /// The machine's boot that mounts, and what was not synced, are of.
    pub(super) boot: String,
    pub(super) end: End,
}

/// That a dataset arrived, and how much can be relied upon it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Verified {
    /// BLAKE3 of the manifest, hex.
    pub(super) digest: String,
    pub(super) size_bytes: u64,
    pub(super) files: u64,
    /// It was written to the disk. Until then it goes with the machine's memory.
    pub(super) synced: bool,
}

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mount {
    pub(super) volume: String,
    pub(super) pod: String,
    /// Where it is mounted.
    #[serde(default)]
    pub(super) target: String,
}

/// Whether a dataset is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum End {
    /// It is.
    #[default]
    Wanted,
    /// It goes when its last mount has gone.
    Remove,
    /// It is forgotten when its last mount has gone; its data stays.
    Keep,
    /// It is forgotten. Its data is there, to be replaced by nobody but a dataset of the same name.
    Kept,
}

/// The directory of records.
#[derive(Debug)]
pub(super) struct Records(PathBuf);

impl Records {
    /// Opens or makes it.
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    /// All records. One that cannot be read is left alone and told: its data stays, and so does its path.
    pub(super) fn load(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            match read(&path) {
                Ok(record) => records.push(record),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "a dataset's record cannot be read: remove it together with its data");
                }
            }
        }
        Ok(records)
    }

    /// Writes `record`; it is on the disk when this returns.
    pub(super) fn save(&self, record: &Record) -> io::Result<()> {
        let path = self.path(&record.uid);
        let fresh = path.with_extension("new");
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        File::open(&self.0)?.sync_all()
    }

    /// Forgets the record of `uid`.
    pub(super) fn remove(&self, uid: &str) -> io::Result<()> {
        match fs::remove_file(self.path(uid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::open(&self.0)?.sync_all(),
        }
    }

    fn path(&self, uid: &str) -> PathBuf {
        self.0.join(uid).with_extension(EXTENSION)
    }
}

fn read(path: &Path) -> io::Result<Record> {
    if fs::metadata(path)?.len() > MAX_BYTES {
        return Err(io::Error::other("it is larger than 4 MiB"));
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: &str) -> Record {
        Record {
            namespace: "science".into(),
            name: "ics".into(),
            uid: uid.into(),
            path: "ics".into(),
            source: "node-0".into(),
            begun: true,
            verified: None,
            mounts: vec![Mount { volume: "csi-1".into(), pod: "pod-1".into(), target: "/k/mount".into() }],
            boot: "boot".into(),
            end: End::Wanted,
        }
    }

    #[test]
    fn records_outlive_the_agent_and_damaged_ones_disturb_no_other() {
        let place = tempfile::tempdir().unwrap();
        let records = Records::open(place.path().join("records")).unwrap();
        records.save(&record("a")).unwrap();
        records.save(&record("b")).unwrap();
        let again = Record { begun: false, ..record("b") };
        records.save(&again).unwrap();
        fs::write(place.path().join("records/c.json"), "{").unwrap();
        fs::write(place.path().join("records/d.new"), "cut off").unwrap();
        let mut loaded = records.load().unwrap();
        loaded.sort_by(|a, b| a.uid.cmp(&b.uid));
        assert_eq!(loaded, [record("a"), again]);
        records.remove("a").unwrap();
        records.remove("a").unwrap();
        assert_eq!(records.load().unwrap().len(), 1);
    }
}
