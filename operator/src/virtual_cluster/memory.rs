//! What does this process remember of a cluster that neither its status nor a cache tells?
//!
//! All of it may be lost: what was applied is applied once more, what was refused is tried again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;

use super::{
    observed::{Refusal, Trouble},
    plan::ObjectKind,
};

/// Clusters that are remembered; beyond it the memory begins anew.
const MOST_CLUSTERS: usize = 10_000;

/// The memory, by the clusters' UIDs.
#[derive(Debug, Default)]
pub struct Memory {
    clusters: Mutex<HashMap<String, Remembered>>,
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    /// The generation for which each object was applied.
    applied: BTreeMap<ObjectKind, i64>,
    last_write: Option<Timestamp>,
    refused: Option<Refusal>,
    over_since: BTreeMap<String, Timestamp>,
    placed_since: Option<Timestamp>,
}

impl Memory {
    /// The objects that were applied for this generation.
    pub fn applied(&self, uid: &str, generation: i64) -> BTreeSet<ObjectKind> {
        self.read(uid, |cluster| {
            cluster.applied.iter().filter(|(_, of)| **of == generation).map(|(kind, _)| *kind).collect()
        })
    }

    /// Whether the object was applied for any generation, and not deleted since.
    pub fn exists(&self, uid: &str, kind: ObjectKind) -> bool {
        self.read(uid, |cluster| cluster.applied.contains_key(&kind))
    }

    /// When the status was last written.
    pub fn last_write(&self, uid: &str) -> Option<Timestamp> {
        self.read(uid, |cluster| cluster.last_write)
    }

    /// What the API server last refused.
    pub fn refused(&self, uid: &str) -> Option<Refusal> {
        self.read(uid, |cluster| cluster.refused.clone())
    }

    /// Since when it is known that each of these operations is over.
    pub fn over_since(&self, uid: &str, over: Vec<String>, now: Timestamp) -> BTreeMap<String, Timestamp> {
        if over.is_empty() && !self.lock().contains_key(uid) {
            return BTreeMap::new();
        }
        self.write(uid, |cluster| {
            let since = |name: String| (cluster.over_since.get(&name).copied().unwrap_or(now), name);
            cluster.over_since = over.into_iter().map(since).map(|(since, name)| (name, since)).collect();
            cluster.over_since.clone()
        })
    }

    /// Since when it is known that every node has a place, if every one has.
    pub fn placed_since(&self, uid: &str, placed: bool, now: Timestamp) -> Option<Timestamp> {
        let known = self.read(uid, |cluster| cluster.placed_since);
        let since = placed.then(|| known.unwrap_or(now));
        if since != known {
            self.write(uid, |cluster| cluster.placed_since = since);
        }
        since
    }

    pub(super) fn note_applied(&self, uid: &str, generation: i64, kind: ObjectKind) {
        self.write(uid, |cluster| {
            cluster.applied.insert(kind, generation);
        });
    }

    pub(super) fn note_deleted(&self, uid: &str, kind: ObjectKind) {
        self.write(uid, |cluster| {
            cluster.applied.remove(&kind);
        });
    }

    pub(super) fn note_write(&self, uid: &str, at: Timestamp) {
        self.write(uid, |cluster| cluster.last_write = Some(at));
    }

    pub(super) fn note_refused(&self, uid: &str, trouble: Trouble, at: Timestamp) {
        self.write(uid, |cluster| cluster.refused = Some(Refusal { trouble, at }));
    }

    pub(super) fn note_accepted(&self, uid: &str) {
        if self.read(uid, |cluster| cluster.refused.is_some()) {
            self.write(uid, |cluster| cluster.refused = None);
        }
    }

    /// Forgets a cluster that is gone.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn read<T>(&self, uid: &str, look: impl FnOnce(&Remembered) -> T) -> T {
        look(self.lock().get(uid).unwrap_or(&Remembered::default()))
    }

    fn write<T>(&self, uid: &str, change: impl FnOnce(&mut Remembered) -> T) -> T {
        let mut clusters = self.lock();
        if clusters.len() >= MOST_CLUSTERS && !clusters.contains_key(uid) {
            clusters.clear();
        }
        change(clusters.entry(uid.to_owned()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Remembered>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
