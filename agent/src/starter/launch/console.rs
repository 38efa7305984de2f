//! How does a launch's output become the container's, without holding up the starter?
//!
//! By a thread of its own: the container's output is a pipe to the runtime, and a runtime that does not read (its disk is
//! full, it restarts) must stop the program that writes, not the starter that answers for the node.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::starter::streams::Output;

/// Pieces of some 100 KiB at most between a launch and the container's output.
const PIECES_IN_FLIGHT: usize = 16;
/// It copies and writes.
const STACK_BYTES: usize = 64 * 1024;

enum Piece {
    Text(Output, Bytes),
    Flush(oneshot::Sender<()>),
}

/// The starter's own standard output and standard error. The thread starts with the first piece: most nodes of a cluster
/// never launch.
#[derive(Clone, Default)]
pub(super) struct Console(Arc<OnceLock<Option<mpsc::Sender<Piece>>>>);

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("in_use", &self.0.get().is_some()).finish_non_exhaustive()
    }
}

impl Console {
    /// Returns when there is room for the next. Output that can be written nowhere is dropped, as the container's owner
    /// has it.
    pub(super) async fn write(&self, output: Output, text: Bytes) {
        if let Some(pieces) = self.0.get_or_init(start) {
            let _ = pieces.send(Piece::Text(output, text)).await;
        }
    }

    /// Returns when everything before it is written.
    pub(super) async fn flush(&self) {
        if let Some(Some(pieces)) = self.0.get() {
            let (done, written) = oneshot::channel();
            let _ = pieces.send(Piece::Flush(done)).await;
            let _ = written.await;
        }
    }
}

fn start() -> Option<mpsc::Sender<Piece>> {
    let (pieces, queue) = mpsc::channel(PIECES_IN_FLIGHT);
    let thread = std::thread::Builder::new().name("console".to_owned()).stack_size(STACK_BYTES);
    match thread.spawn(move || write_all(queue)) {
        Ok(_) => Some(pieces),
        Err(error) => {
            tracing::warn!(%error, "no thread for the launch's output: it is in its tails only");
            None
        }
    }
}

fn write_all(mut queue: mpsc::Receiver<Piece>) {
    while let Some(piece) = queue.blocking_recv() {
        match piece {
            // Each piece under one lock, so that the starter's own lines do not come between.
            Piece::Text(Output::Stdout, text) => {
                let mut stdout = io::stdout().lock();
                let _ = stdout.write_all(&text).and_then(|()| stdout.flush());
            }
            Piece::Text(Output::Stderr, text) => {
                let _ = io::stderr().lock().write_all(&text);
            }
            Piece::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}
