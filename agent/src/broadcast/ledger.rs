//! Which chunks are here, and what are their hashes?

use std::sync::{Mutex, MutexGuard, PoisonError};

use blake3::Hash;
use gridcast_core::broadcast::dataset::{Entry, Layout, Manifest};
use tokio::sync::watch;

/// The chunks that this node has (read at the source, verified and stored at a member).
#[derive(Debug)]
pub(crate) struct Ledger {
    inner: Mutex<Inner>,
    progress: watch::Sender<Progress>,
}

/// How far a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    pub(crate) complete: bool,
}

#[derive(Debug)]
struct Inner {
    have: Vec<bool>,
    hashes: Vec<[u8; 32]>,
    manifest: Manifest,
}

impl Ledger {
    pub(crate) fn new(entries: &[Entry], layout: &Layout) -> Self {
        let chunks = layout.chunks() as usize;
        let inner = Inner {
            have: vec![false; chunks],
            hashes: vec![[0; 32]; chunks],
            manifest: Manifest::new(entries, layout),
        };
        let progress = Progress { chunks: 0, bytes: 0, complete: chunks == 0 };
        Self { inner: Mutex::new(inner), progress: watch::Sender::new(progress) }
    }

    /// Records that `chunk` of `length` bytes is here; false when it was already.
    pub(crate) fn record(&self, chunk: u64, hash: Hash, length: u32) -> bool {
        let mut inner = self.lock();
        let index = chunk as usize;
        if inner.have.get(index).copied() != Some(false) {
            return false;
        }
        // The range was checked by the line above, and a chunk is recorded once.
        if inner.manifest.record(chunk, hash).is_err() {
            return false;
        }
        inner.have[index] = true;
        inner.hashes[index] = *hash.as_bytes();
        let complete = inner.manifest.first_missing().is_none();
        drop(inner);
        self.progress.send_modify(|progress| {
            progress.chunks += 1;
            progress.bytes += u64::from(length);
            progress.complete = complete;
        });
        true
    }

    /// The hash of `chunk`, if it is here.
    pub(crate) fn hash(&self, chunk: u64) -> Option<Hash> {
        let inner = self.lock();
        let index = chunk as usize;
        inner.have.get(index)?.then(|| Hash::from_bytes(inner.hashes[index]))
    }

    pub(crate) fn has(&self, chunk: u64) -> bool {
        self.lock().have.get(chunk as usize).copied().unwrap_or(false)
    }

    /// How many chunks of `log` are here from position `from` on without a gap.
    pub(crate) fn contiguous(&self, log: &[u64]) -> usize {
        let inner = self.lock();
        log.iter().take_while(|&&chunk| inner.have.get(chunk as usize).copied().unwrap_or(false)).count()
    }

    /// The digest of the manifest, when all chunks are here.
    pub(crate) fn digest(&self) -> Option<Hash> {
        self.lock().manifest.digest()
    }

    pub(crate) fn progress(&self) -> Progress {
        *self.progress.borrow()
    }

    /// Changes with each chunk.
    pub(crate) fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock; a poisoned one holds consistent data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
