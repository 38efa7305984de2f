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
    plan::{ObjectKind, Part},
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
    /// The version that was applied of each object.
    applied: BTreeMap<ObjectKind, Applied>,
    /// What the spec asked for when the pods that it has were last known to be made from it.
    asked: Option<String>,
    last_write: Option<Timestamp>,
    refused: BTreeMap<Part, Refusal>,
    over_since: BTreeMap<String, Timestamp>,
    placed_since: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Applied {
    version: String,
    /// Of the object in the cluster.
    uid: Option<String>,
    at: Timestamp,
}

impl Memory {
    /// The objects that were applied in these versions, and when the first of them was.
    pub fn applied(
        &self,
        uid: &str,
        version: impl Fn(ObjectKind) -> String,
    ) -> (BTreeSet<ObjectKind>, Option<Timestamp>) {
        self.read(uid, |cluster| {
            let current =
                || cluster.applied.iter().filter(|(kind, applied)| applied.version == version(**kind));
            // The budget comes and goes with launches: it says nothing of the others.
            let lasting = current().filter(|(kind, _)| **kind != ObjectKind::DisruptionBudget);
            (current().map(|(kind, _)| *kind).collect(), lasting.map(|(_, applied)| applied.at).min())
        })
    }

    /// The UID of an object that is known to be the cluster's.
    pub(super) fn object(&self, uid: &str, kind: ObjectKind) -> Option<String> {
        self.read(uid, |cluster| cluster.applied.get(&kind).and_then(|applied| applied.uid.clone()))
    }

    /// Whether the spec asks for the same pods as when those that there are were last known to be made from it. `known` says
    /// that they are now, and `asked` stands for what is asked for.
    pub fn asks_the_same(&self, uid: &str, asked: &str, known: bool) -> bool {
        let same = self.read(uid, |cluster| cluster.asked.as_deref() == Some(asked));
        if known && !same {
            self.write(uid, |cluster| cluster.asked = Some(asked.to_owned()));
        }
        known || same
    }

    /// Whether the object was applied in any version, and not deleted since.
    pub fn exists(&self, uid: &str, kind: ObjectKind) -> bool {
        self.read(uid, |cluster| cluster.applied.contains_key(&kind))
    }

    /// When the status was last written.
    pub fn last_write(&self, uid: &str) -> Option<Timestamp> {
        self.read(uid, |cluster| cluster.last_write)
    }

    /// What the API server refused and has not taken since.
    pub fn refused(&self, uid: &str) -> BTreeMap<Part, Refusal> {
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

    /// `object` is its UID in the cluster, where that is known.
    pub(super) fn note_applied(
        &self,
        uid: &str,
        kind: ObjectKind,
        version: String,
        object: Option<String>,
        at: Timestamp,
    ) {
        self.write(uid, |cluster| {
            cluster.applied.insert(kind, Applied { version, uid: object, at });
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

    pub(super) fn note_refused(&self, uid: &str, part: Part, trouble: Trouble, at: Timestamp) {
        self.write(uid, |cluster| {
            let since = cluster.refused.get(&part).map_or(at, |before| before.since);
            cluster.refused.insert(part, Refusal { trouble, since, at });
        });
    }

    /// Whether it had been refused before.
    pub(super) fn note_accepted(&self, uid: &str, part: &Part) -> bool {
        self.read(uid, |cluster| cluster.refused.contains_key(part))
            && self.write(uid, |cluster| cluster.refused.remove(part)).is_some()
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
