//! How does a fresh process become a node?

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{ForkResult, dup2_stdout, pipe2, sethostname, setsid};
use serde::{Deserialize, Serialize};

use super::NodeSpec;
use super::root;
use super::supervise::{OnSignal, Signals, end_like, until_ended};
use crate::os::{
    netdev,
    process::{Unthreaded, fork_unthreaded},
};

/// How long PID 1 may go on after the lifetime has ended.
const GRACE: Duration = Duration::from_secs(2);

/// What the keeper and PID 1 tell the owner, a JSON value a line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Progress {
    /// PID 1 exists.
    Forked(i32),
    /// It is about to execute its program: no fault after this but a failed execution.
    Ready,
    /// What went wrong; the end.
    Fault(Fault),
}

/// A step that failed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Fault {
    /// What was tried.
    pub(super) step: String,
    /// On which path, or empty.
    pub(super) path: String,
    /// What the kernel said.
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(step: &str, path: &Path, error: impl Into<io::Error>) -> Self {
        Self { step: step.to_owned(), path: path.display().to_string(), message: error.into().to_string() }
    }
}

/// Attaches step and path to an error.
pub(super) trait At<T> {
    fn at(self, step: &str, path: impl AsRef<Path>) -> Result<T, Fault>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, step: &str, path: impl AsRef<Path>) -> Result<T, Fault> {
        self.map_err(|error| Fault::new(step, path.as_ref(), error))
    }
}

fn tell(report: &mut File, progress: &Progress) {
    // Where the owner is gone, the lifetime ends the node in a moment.
    if let Ok(mut line) = serde_json::to_vec(progress) {
        line.push(b'\n');
        let _ = report.write_all(&line);
    }
}

/// The keeper: standard input is the lifetime, standard output the socket to the owner, standard error the log.
/// Returns the code to exit with.
pub(crate) fn run() -> i32 {
    let report = io::stdout().as_fd().try_clone_to_owned().and_then(|report| {
        dup2_stdout(io::stderr())?;
        Ok(File::from(report))
    });
    let Ok(mut report) = report else { return 1 };
    match keep(&mut report) {
        Ok(code) => code,
        Err(fault) => {
            tell(&mut report, &Progress::Fault(fault));
            1
        }
    }
}

fn keep(report: &mut File) -> Result<i32, Fault> {
    let mut text = Vec::new();
    report.read_to_end(&mut text).at("read the node's specification", "")?;
    let spec: NodeSpec = serde_json::from_slice(&text).at("parse the node's specification", "")?;
    let unthreaded = Unthreaded::check().at("begin", "")?;
    // Ctrl-C goes to the foreground process group of the terminal; the owner alone decides what it means.
    let _ = setsid();
    let _ = prctl::set_name(c"gridcast-node");
    let signals = Signals::block().at("block signals", "")?;
    unshare(CloneFlags::CLONE_NEWPID).at("make a PID namespace", "")?;
    let (alive, keeper) = pipe2(OFlag::O_CLOEXEC).at("make a pipe", "")?;
    match fork_unthreaded(unthreaded).at("fork PID 1", "")? {
        ForkResult::Child => {
            drop((keeper, signals));
            let fault = match become_node(&spec, &alive, report) {
                Ok(never) => match never {},
                Err(fault) => fault,
            };
            tell(report, &Progress::Fault(fault));
            exit(1)
        }
        ForkResult::Parent { child } => {
            drop(alive);
            tell(report, &Progress::Forked(child.as_raw()));
            close(report).at("close the report", "")?;
            let lifetime = io::stdin();
            let ended = until_ended(child, &signals, OnSignal::Kill, Some(lifetime.as_fd()), GRACE);
            drop(keeper);
            Ok(end_like(ended.at("wait for PID 1", "")?))
        }
    }
}

/// Replaces the descriptor by one that goes nowhere, so that the owner sees the end of the report when PID 1 has
/// executed its program.
fn close(report: &mut File) -> io::Result<()> {
    *report = File::options().write(true).open("/dev/null")?;
    Ok(())
}

/// Dies with the keeper, which holds the write end of `alive`.
pub(super) fn die_with_parent(alive: &OwnedFd) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The keeper may have died before that; its end of the pipe is closed then.
    let mut watched = [PollFd::new(alive.as_fd(), PollFlags::empty())];
    if poll(&mut watched, PollTimeout::ZERO)? > 0 {
        exit(1);
    }
    Ok(())
}

enum Never {}

/// In the child: builds the node around itself and executes PID 1's program.
fn become_node(spec: &NodeSpec, alive: &OwnedFd, report: &mut File) -> Result<Never, Fault> {
    die_with_parent(alive).at("tie PID 1 to its keeper", "")?;
    umask(Mode::from_bits_truncate(0o022));
    let flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS;
    unshare(flags | CloneFlags::CLONE_NEWIPC).at("make namespaces", "")?;
    sethostname(&spec.name).at("set the hostname", &spec.name)?;
    netdev::set_up("lo").at("set the loopback interface up", "lo")?;
    root::enter(spec)?;
    Signals::unblock().at("unblock signals", "")?;
    let Some((program, arguments)) = spec.init.split_first() else {
        return Err(Fault::new("execute PID 1", Path::new(""), io::Error::from(io::ErrorKind::InvalidInput)));
    };
    tell(report, &Progress::Ready);
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&spec.environment);
    Err(Fault::new("execute PID 1", Path::new(program), command.exec()))
}
