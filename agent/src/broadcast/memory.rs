//! What does an agent give back when a broadcast is over?

use std::time::Duration;

/// Connections and threads of the broadcast are gone by then.
const PAUSE: Duration = Duration::from_secs(1);

/// Returns freed memory to the system a moment from now. The allocator would keep what rings, queues and HTTP/2 buffers
/// have used, tens of MiB, for as long as the agent lives beside the program that the data is for.
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
