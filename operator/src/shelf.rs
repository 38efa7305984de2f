//! What does one watch know, and what belongs to what in it?

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt::Debug,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kube::{Resource, ResourceExt as _, runtime::watcher::Event};

use crate::queue::Key;

/// UIDs of deleted objects that are remembered, so that an answer that arrives late brings none back.
const MOST_GONE: usize = 10_000;

type Keys<K> = fn(&K) -> Vec<String>;

/// The objects of one watch.
pub struct Shelf<K> {
    objects: RwLock<Objects<K>>,
    keys: Keys<K>,
}

struct Objects<K> {
    by_key: HashMap<Key, Arc<K>>,
    index: HashMap<String, HashSet<Key>>,
    /// What a list that is under way has seen.
    listed: Option<HashSet<Key>>,
    synced: bool,
    gone: VecDeque<String>,
}

/// What an event did to a shelf.
#[derive(Debug)]
pub struct Change<K> {
    /// What was there before.
    pub old: Option<Arc<K>>,
    /// What is there now.
    pub new: Option<Arc<K>>,
}

impl<K> Debug for Shelf<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Shelf")
            .field("objects", &objects.by_key.len())
            .field("synced", &objects.synced)
            .finish_non_exhaustive()
    }
}

impl<K: Resource> Shelf<K> {
    /// An empty shelf; `keys` are what [`Self::find`] finds an object by.
    pub fn new(keys: Keys<K>) -> Self {
        let objects = Objects {
            by_key: HashMap::new(),
            index: HashMap::new(),
            listed: None,
            synced: false,
            gone: VecDeque::new(),
        };
        Self { objects: RwLock::new(objects), keys }
    }

    /// The object of this name. Cluster-scoped objects have the namespace "".
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read().by_key.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// The objects under a key, in no order.
    pub fn find(&self, key: &str) -> Vec<Arc<K>> {
        let objects = self.read();
        let keys = objects.index.get(key).into_iter().flatten();
        keys.filter_map(|key| objects.by_key.get(key)).cloned().collect()
    }

    /// All of them, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().by_key.values().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.read().by_key.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the watch has delivered what there was when it began.
    pub fn synced(&self) -> bool {
        self.read().synced
    }

    /// Takes what a watch delivers and says what changed by it.
    pub fn take(&self, event: Event<K>) -> Vec<Change<K>> {
        let mut objects = self.write();
        match event {
            Event::Apply(object) => objects.put(object, self.keys).into_iter().collect(),
            Event::InitApply(object) => {
                let key = key_of(&object);
                if let Some(listed) = &mut objects.listed {
                    listed.insert(key);
                }
                objects.put(object, self.keys).into_iter().collect()
            }
            Event::Delete(object) => {
                objects.bury(object.meta().uid.as_deref());
                objects.remove(&key_of(&object), self.keys).into_iter().collect()
            }
            Event::Init => {
                objects.listed = Some(HashSet::new());
                Vec::new()
            }
            Event::InitDone => {
                objects.synced = true;
                let Some(listed) = objects.listed.take() else { return Vec::new() };
                let missing: Vec<Key> =
                    objects.by_key.keys().filter(|key| !listed.contains(*key)).cloned().collect();
                missing.iter().filter_map(|key| objects.remove(key, self.keys)).collect()
            }
        }
    }

    /// Puts what a write of ours brought about, unless the watch knows better: something newer, or that it is gone.
    pub fn written(&self, object: K) {
        let mut objects = self.write();
        let gone = object.meta().uid.as_ref().is_some_and(|uid| objects.gone.contains(uid));
        if !gone {
            if let Some(listed) = &mut objects.listed {
                // A list that began before the write does not have it.
                listed.insert(key_of(&object));
            }
            objects.put(object, self.keys);
        }
    }

    /// Takes away what a delete of ours removed at once.
    pub fn removed(&self, namespace: &str, name: &str, uid: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut objects = self.write();
        objects.bury(Some(uid));
        if objects.by_key.get(&key).is_some_and(|object| object.meta().uid.as_deref() == Some(uid)) {
            objects.remove(&key, self.keys);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Resource> Objects<K> {
    fn put(&mut self, object: K, keys: Keys<K>) -> Option<Change<K>> {
        let key = key_of(&object);
        if self.by_key.get(&key).is_some_and(|old| is_newer(&**old, &object)) {
            return None;
        }
        let old = self.remove(&key, keys).and_then(|change| change.old);
        for name in keys(&object) {
            self.index.entry(name).or_default().insert(key.clone());
        }
        let new = Arc::new(object);
        self.by_key.insert(key, new.clone());
        Some(Change { old, new: Some(new) })
    }

    fn remove(&mut self, key: &Key, keys: Keys<K>) -> Option<Change<K>> {
        let old = self.by_key.remove(key)?;
        for name in keys(&old) {
            if let Some(of) = self.index.get_mut(&name) {
                of.remove(key);
                if of.is_empty() {
                    self.index.remove(&name);
                }
            }
        }
        Some(Change { old: Some(old), new: None })
    }

    fn bury(&mut self, uid: Option<&str>) {
        let Some(uid) = uid else { return };
        if self.gone.len() >= MOST_GONE {
            self.gone.pop_front();
        }
        self.gone.push_back(uid.to_owned());
    }
}

fn key_of<K: Resource>(object: &K) -> Key {
    (object.meta().namespace.clone().unwrap_or_default(), object.name_any())
}

/// Whether `old` is a later state than `new` of the same object. Resource versions of one kind are numbers that grow
/// (promised from Kubernetes 1.35 on, and so before); where they are not, what comes last is believed.
fn is_newer<K: Resource>(old: &K, new: &K) -> bool {
    let version = |object: &K| object.meta().resource_version.as_ref()?.parse::<u64>().ok();
    match (version(old), version(new)) {
        (Some(a), Some(b)) => a > b && old.meta().uid == new.meta().uid,
        _ => false,
    }
}
