//! Whose exit status is this?
//!
//! PID 1 of a node inherits every orphan and has to collect it, and is itself the parent of commands whose status
//! somebody waits for. One collector serves both: it takes every child that ended and hands the status to whoever
//! registered for that PID; nobody else ever waits. The lock is held from before a command is started until it is
//! registered, so that a command that ends at once is not taken for an orphan, and while children are collected, so
//! that a PID found registered has not been collected and therefore not been reused.

use std::collections::HashMap;
use std::io;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

/// How often a group that has been told to end is looked at.
const POLL: Duration = Duration::from_millis(20);

/// How a process ended: exactly one of the two is not zero, or it exited with 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; 0 if a signal ended it.
    pub code: i32,
    /// The signal that ended it; 0 if it exited.
    pub signal: i32,
}

impl Exit {
    /// From the word that wait(2) fills in. nix's type is not used: it knows no real-time signals.
    pub fn from_wait_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self { code: 0, signal: libc::WTERMSIG(status) }
        } else {
            Self { code: libc::WEXITSTATUS(status), signal: 0 }
        }
    }
}

/// A command that was started.
#[derive(Debug)]
pub struct Started {
    /// For its pipes. Never wait on it.
    pub child: Child,
    /// Its PID and process group.
    pub pid: i32,
    /// Comes when it has ended and was collected.
    pub exit: oneshot::Receiver<Exit>,
}

/// The commands that run, and the collector of all children.
#[derive(Debug, Default)]
pub struct Children {
    commands: Mutex<HashMap<i32, oneshot::Sender<Exit>>>,
}

impl Children {
    fn lock(&self) -> MutexGuard<'_, HashMap<i32, oneshot::Sender<Exit>>> {
        // The map is whole after every single operation.
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a command that leads a process group of its own.
    pub fn start(&self, command: &mut Command) -> io::Result<Started> {
        let mut commands = self.lock();
        // If exec fails, `spawn` itself waits for the child that it forked: under the lock that is safe.
        let child = command.spawn()?;
        let pid = child.id().cast_signed();
        let (told, exit) = oneshot::channel();
        commands.insert(pid, told);
        Ok(Started { child, pid, exit })
    }

    /// Collects every child that has ended. `false` if there are no children left at all.
    #[allow(unsafe_code)]
    pub fn collect(&self) -> bool {
        let mut commands = self.lock();
        loop {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            match pid {
                0 => return true,
                1.. => {
                    if let Some(told) = commands.remove(&pid) {
                        // Nobody listens any more when the caller of the command has gone.
                        let _ = told.send(Exit::from_wait_status(status));
                    }
                }
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
    }

    /// Collects on every SIGCHLD, for ever. Signals coalesce; `collect` takes all there are.
    pub async fn collect_on(self: Arc<Self>, mut signal: Signal) {
        loop {
            self.collect();
            if signal.recv().await.is_none() {
                return;
            }
        }
    }

    /// Sends a signal to the group of a command that has not ended; otherwise does nothing. Numbers that are no
    /// signal are passed over.
    pub fn signal(&self, pid: i32, signal: i32) {
        if self.lock().contains_key(&pid) {
            signal_group(pid, signal);
        }
    }

    /// SIGTERM to the group of a command, and SIGKILL to what is left of it after `grace`.
    pub async fn end(&self, pid: i32, grace: Duration) {
        let deadline = Instant::now() + grace;
        // As long as the group has a member, its number is taken. Once it has none, it is left alone.
        let mut present = signal_group(pid, libc::SIGTERM);
        // A stopped process would see the signal only when somebody lets it go on.
        signal_group(pid, libc::SIGCONT);
        while present && Instant::now() < deadline {
            sleep(POLL).await;
            present = signal_group(pid, 0);
        }
        if present {
            signal_group(pid, libc::SIGKILL);
        }
    }

    /// SIGTERM to everything, SIGKILL to what is left after `grace`; returns when all commands were collected, or
    /// shortly after SIGKILL. As PID 1, everything is every process of the node, else every command's group.
    pub async fn end_all(&self, grace: Duration) {
        self.signal_all(libc::SIGTERM);
        self.signal_all(libc::SIGCONT);
        if self.wait_empty(grace).await {
            return;
        }
        self.signal_all(libc::SIGKILL);
        self.wait_empty(Duration::from_secs(1)).await;
    }

    /// Sends a signal to everything, in the sense of [`Self::end_all`].
    pub fn signal_all(&self, signal: i32) {
        if std::process::id() == 1 {
            signal_process(-1, signal);
            return;
        }
        for pid in self.lock().keys() {
            signal_group(*pid, signal);
        }
    }

    async fn wait_empty(&self, grace: Duration) -> bool {
        let deadline = Instant::now() + grace;
        loop {
            let any_child = self.collect();
            // Elsewhere than as PID 1 an adopted daemon was not told to end, so it is not waited for.
            let busy = if std::process::id() == 1 { any_child } else { !self.lock().is_empty() };
            if !busy || Instant::now() >= deadline {
                return !busy;
            }
            sleep(POLL).await;
        }
    }
}

/// Whether the group exists (and we may signal it). Signal 0 only asks.
fn signal_group(pid: i32, signal: i32) -> bool {
    pid > 1 && signal_process(-pid, signal)
}

#[allow(unsafe_code)]
fn signal_process(target: i32, signal: i32) -> bool {
    // SAFETY: no pointers are passed. nix is not used: its type knows no real-time signals.
    unsafe { libc::kill(target, signal) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Collecting takes every child of the process, also those of other tests: it is tested in tests/starter*.rs,
    // where the starter is a process of its own.

    #[test]
    fn wait_words_are_read() {
        assert_eq!(Exit::from_wait_status(7 << 8), Exit { code: 7, signal: 0 });
        assert_eq!(Exit::from_wait_status(libc::SIGBUS | 0x80), Exit { code: 0, signal: libc::SIGBUS });
        assert_eq!(Exit::from_wait_status(34), Exit { code: 0, signal: 34 });
    }

    #[test]
    fn groups_that_would_mean_everybody_are_never_signalled() {
        for pid in [-1, 0, 1] {
            assert!(!signal_group(pid, 0));
        }
    }
}
