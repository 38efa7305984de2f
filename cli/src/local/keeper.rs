//! `local up`: a process of its own keeps the cluster between commands.
//!
//! It is this program again (`local keep`), in a session of its own, with the same arguments. It does the steps, says
//! `ready` on a pipe, and stays. This command passes its progress on and returns when it is ready or has failed.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    process::{Command, ExitCode, Stdio},
};

use nix::{
    sys::signal::{self, SigHandler, Signal},
    unistd::Pid,
};

use crate::failure::{Failure, OrFailed as _};

use super::state::Process;

/// What the keeper says when all steps are done.
pub(crate) const READY: &str = "ready";

/// Between looks at a keeper that is about to end.
const POLL: std::time::Duration = std::time::Duration::from_millis(5);

static KEEPER: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);

/// Starts a cluster and returns when it is ready.
pub(crate) fn up() -> Result<ExitCode, Failure> {
    super::needs_root("local up")?;
    let mut keeper = Command::new("/proc/self/exe");
    keeper.args(["local", "keep"]).args(std::env::args_os().skip(3));
    // Nothing is written to its standard input: its end tells the keeper that this command died.
    keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = keeper.spawn().or_failed("KeeperFailed", "start the cluster's keeper")?;
    KEEPER.store(i32::try_from(child.id()).unwrap_or(0), std::sync::atomic::Ordering::SeqCst);
    pass_signals_on()?;
    let errors = child.stderr.take();
    let copy = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        let Some(mut errors) = errors else { return };
        while let Ok(n @ 1..) = errors.read(&mut buffer) {
            let _ = std::io::stderr().write_all(&buffer[..n]);
        }
    });
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        let _ = BufReader::new(out).read_line(&mut said);
    }
    if said.trim() == READY {
        let _ = copy.join();
        return Ok(ExitCode::SUCCESS);
    }
    // Not `Child::wait`, which closes standard input.
    let status = loop {
        match child.try_wait().or_failed("KeeperFailed", "wait for the cluster's keeper")? {
            Some(status) => break status,
            None => std::thread::sleep(POLL),
        }
    };
    let _ = copy.join();
    let code = match status.signal() {
        // It had made nothing yet, and nothing of it listened.
        Some(libc::SIGTERM) => 130,
        _ => status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1),
    };
    Ok(ExitCode::from(code))
}

/// Ctrl-C and the like end the keeper, which undoes what it has done; this command waits for it.
fn pass_signals_on() -> Result<(), Failure> {
    extern "C" fn to_keeper(_: i32) {
        let pid = KEEPER.load(std::sync::atomic::Ordering::SeqCst);
        let _ = signal::kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set_handler(signal, SigHandler::Handler(to_keeper))
            .or_failed("SignalsFailed", "listen for signals")?;
    }
    Ok(())
}

#[allow(unsafe_code)]
fn set_handler(signal: Signal, handler: SigHandler) -> nix::Result<()> {
    // SAFETY: the handler calls kill(2) and reads an atomic, both of which a signal handler may do.
    unsafe { signal::signal(signal, handler).map(drop) }
}

/// In the keeper: a session of its own, so that Ctrl-C reaches only the command, which asks the keeper to undo what it
/// has done, and so that the cluster survives the terminal.
pub(crate) fn leave_session() {
    // Fails only for a leader of a group, which a child that was just started is not.
    let _ = nix::unistd::setsid();
}

/// In the keeper: returns when the command that started it has died.
pub(crate) async fn starter_gone() {
    use tokio::io::AsyncReadExt as _;
    let input = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned();
    let input = input.and_then(|fd: OwnedFd| tokio::net::unix::pipe::Receiver::from_owned_fd(fd));
    match input {
        Ok(mut pipe) => while let Ok(1..) = pipe.read(&mut [0; 16]).await {},
        // Not started by `up` but by hand: nobody to watch.
        Err(_) => std::future::pending().await,
    }
}

/// In the keeper: leaves the standard streams of the command that started it, and says that all is ready.
pub(crate) fn detach(log: &std::path::Path) -> Result<(), Failure> {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .or_failed("StateUnwritable", format!("make {}", log.display()))?;
    // The command that started it may be gone.
    let _ = writeln!(std::io::stdout(), "{READY}");
    nix::unistd::dup2_stderr(&file).or_failed("KeeperFailed", "redirect standard error")?;
    nix::unistd::dup2_stdout(&file).or_failed("KeeperFailed", "redirect standard output")?;
    Ok(())
}

/// This process.
pub(crate) fn me() -> Process {
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    Process::of(pid).unwrap_or(Process { pid, start: 0 })
}
