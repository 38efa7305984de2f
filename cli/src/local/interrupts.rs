//! Does the user want to stop?

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, OrFailed as _};

/// Ctrl-C and the like.
pub(crate) struct Interrupts([Signal; 3]);

impl Interrupts {
    /// From here on they no longer end this process.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).or_failed("SignalsFailed", "listen for signals");
        Ok(Self([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        let [a, b, c] = &mut self.0;
        tokio::select! { _ = a.recv() => (), _ = b.recv() => (), _ = c.recv() => () }
    }
}
