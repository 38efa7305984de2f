//! What must a helper process do while its child runs in the node?
//!
//! Pass signals on, notice the end of the child, and notice when nobody wants the child any more.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::os::process::die_by;

/// Signals that a helper takes notice of.
const WATCHED: [Signal; 7] = [
    Signal::SIGCHLD,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// What a helper does with a signal that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnSignal {
    /// The child gets it too. A signal of the terminal went to the whole foreground group, child included, and is
    /// not sent again: `mpirun` takes a second Ctrl-C for an order to abandon its ranks.
    Pass,
    /// SIGTERM, SIGINT, SIGQUIT and SIGHUP end the child at once, the others are ignored.
    Kill,
}

/// The signals of a helper as a descriptor.
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Blocks the watched signals, from here on and for children.
    pub(crate) fn block() -> io::Result<Self> {
        let set: SigSet = WATCHED.into_iter().collect();
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// Undoes the blocking, in the child before it executes its program.
    pub(crate) fn unblock() -> io::Result<()> {
        Ok(WATCHED.into_iter().collect::<SigSet>().thread_unblock()?)
    }
}

/// Waits until `child` has ended. When `wanted` hangs up (a pipe) or becomes readable (a process that ended), the
/// child is killed after `grace`.
pub(crate) fn until_ended(
    child: Pid,
    signals: &Signals,
    on_signal: OnSignal,
    wanted: Option<BorrowedFd<'_>>,
    grace: Duration,
) -> io::Result<WaitStatus> {
    let mut unwanted_since: Option<Instant> = None;
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
            Ok(status) => return Ok(status),
            Err(error) => return Err(error.into()),
        }
        let timeout = match unwanted_since.map(|since| grace.saturating_sub(since.elapsed())) {
            None => PollTimeout::NONE,
            Some(Duration::ZERO) => {
                let _ = kill(child, Signal::SIGKILL);
                PollTimeout::NONE
            }
            Some(left) => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
        };
        let mut watched = vec![PollFd::new(signals.0.as_fd(), PollFlags::POLLIN)];
        if let (Some(wanted), None) = (wanted, unwanted_since) {
            watched.push(PollFd::new(wanted, PollFlags::POLLIN));
        }
        match poll(&mut watched, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if watched.get(1).is_some_and(|fd| fd.any() == Some(true)) {
            unwanted_since = Some(Instant::now());
        }
        while let Some(signal) = signals.0.read_signal()? {
            hand_on(child, on_signal, signal.ssi_signo, signal.ssi_code);
        }
    }
}

fn hand_on(child: Pid, on_signal: OnSignal, number: u32, code: i32) {
    let Ok(signal) = Signal::try_from(number.cast_signed()) else { return };
    let from_terminal = code == libc::SI_KERNEL;
    // The child may have ended already, and is then a zombie until the next `waitpid`: nobody else has its number.
    match (on_signal, signal) {
        (_, Signal::SIGCHLD) | (OnSignal::Kill, Signal::SIGUSR1 | Signal::SIGUSR2) => {}
        (OnSignal::Kill, _) => {
            let _ = kill(child, Signal::SIGKILL);
        }
        (OnSignal::Pass, _) if from_terminal => {}
        (OnSignal::Pass, signal) => {
            let _ = kill(child, signal);
        }
    }
}

/// Ends as the child has ended: the code to exit with, or death by the same signal.
pub(crate) fn end_like(status: WaitStatus) -> i32 {
    match status {
        WaitStatus::Exited(_, code) => code,
        WaitStatus::Signaled(_, signal, _) => {
            let _ = die_by(signal);
            128 + signal as i32
        }
        _ => 1,
    }
}
