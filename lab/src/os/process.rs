//! Process calls: fork before any thread, a descriptor for a process, default signal dispositions.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{ForkResult, Pid, fork, getpid};

/// The proof that the process has one thread. It stays true, for the helpers that hold it start none.
#[derive(Debug)]
pub(crate) struct Unthreaded(());

impl Unthreaded {
    /// Looks. The child of a threaded process may find locks held by threads that do not exist in it, and could
    /// not even allocate.
    pub(crate) fn check() -> io::Result<Self> {
        if std::fs::read_dir("/proc/self/task")?.take(2).count() != 1 {
            return Err(io::Error::other("the process has threads already"));
        }
        Ok(Self(()))
    }
}

/// Forks.
#[allow(unsafe_code)]
pub(crate) fn fork_unthreaded(_proof: Unthreaded) -> io::Result<ForkResult> {
    // SAFETY: the calling thread is the only one, so the child is a full copy of the process.
    Ok(unsafe { fork() }?)
}

/// A descriptor that refers to process `pid`, becomes readable when it ends, and can be given to `setns`.
#[allow(unsafe_code)]
pub(crate) fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor (close-on-exec) for us, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Gives `signal` its default disposition.
#[allow(unsafe_code)]
pub(crate) fn default_disposition(signal: Signal) -> io::Result<()> {
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: SIG_DFL installs no handler, so no code of ours can run in signal context.
    unsafe { sigaction(signal, &action) }?;
    Ok(())
}

/// Asks for the first-in-first-out realtime class, lowest priority, for the calling thread, but not for threads
/// and processes that it starts.
#[allow(unsafe_code)]
pub(crate) fn realtime() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a live struct of the type that the call reads.
    if unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    } != 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Ends this process by `signal`, as its child was ended, so that whoever waits for it sees the same.
pub(crate) fn die_by(signal: Signal) -> io::Error {
    // A core file of the helper would be useless, and might replace the one of the program.
    let died = nix::sys::prctl::set_dumpable(false)
        .map_err(io::Error::from)
        .and_then(|()| if signal == Signal::SIGKILL { Ok(()) } else { default_disposition(signal) })
        .and_then(|()| Ok(SigSet::from(signal).thread_unblock()?))
        .and_then(|()| Ok(nix::sys::signal::kill(getpid(), signal)?));
    died.err().unwrap_or_else(|| io::Error::other("the signal did not end the process"))
}
