//! How does an agent stay small beside the program that it works for?

use std::time::Duration;

/// Connections and threads of a broadcast are gone by then.
const PAUSE: Duration = Duration::from_secs(1);

/// Heaps that threads share: the workers of the runtime have one each.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;

/// Keeps the allocator from making a heap for every thread; call it before the first. By default glibc makes up to
/// eight per core, and each keeps what its thread has used at most.
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    // SAFETY: mallopt takes no pointer, and there are no other threads yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}

/// Returns freed memory to the system a moment from now. The allocator would keep what rings, queues and HTTP/2 buffers
/// have used, tens of MiB, for as long as the agent lives.
pub(crate) async fn give_back() {
    tokio::time::sleep(PAUSE).await;
    let _ = tokio::task::spawn_blocking(trim).await;
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: malloc_trim takes no pointer and may be called at any time by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators give back by themselves, or cannot be told.
#[cfg(not(target_env = "gnu"))]
fn trim() {}
