//! What did this agent's broadcasts really do? Counters that tests assert and metrics may show.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one agent, all broadcasts together. Reading them never blocks.
#[derive(Debug, Default)]
pub struct Counters {
    buffered: AtomicU64,
    buffered_peak: AtomicU64,
    from_store: AtomicU64,
    repaired: AtomicU64,
    resent: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl Counters {
    /// Payload bytes held in rings and before the disk now.
    pub fn buffered_bytes(&self) -> u64 {
        self.buffered.load(Ordering::Relaxed)
    }

    /// The most that [`Self::buffered_bytes`] ever was.
    pub fn buffered_bytes_peak(&self) -> u64 {
        self.buffered_peak.load(Ordering::Relaxed)
    }

    /// Payload bytes sent to children that had fallen behind the ring: read again from a stored copy or the origin.
    pub fn bytes_from_store(&self) -> u64 {
        self.from_store.load(Ordering::Relaxed)
    }

    /// Chunks that arrived corrupted and were asked for again.
    pub fn chunks_repaired(&self) -> u64 {
        self.repaired.load(Ordering::Relaxed)
    }

    /// Chunks that a child asked for again.
    pub fn chunks_resent(&self) -> u64 {
        self.resent.load(Ordering::Relaxed)
    }

    /// Payload bytes that parents sent.
    pub fn bytes_received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Payload bytes that were sent to children.
    pub fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn count_received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn buffer(&self, bytes: u64) {
        let now = self.buffered.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.buffered_peak.fetch_max(now, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.buffered.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_from_store(&self, bytes: u64) {
        self.from_store.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_repaired(&self) {
        self.repaired.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_resent(&self) {
        self.resent.fetch_add(1, Ordering::Relaxed);
    }
}
