//! How does a process or a socket of the machine get into a node?

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns};
use nix::unistd::{ForkResult, Pid, getppid, pipe2};

use super::ENTER_ARG;
use super::init::die_with_parent;
use super::supervise::{OnSignal, Signals, end_like, until_ended};
use crate::os::process::{Unthreaded, fork_unthreaded, pidfd_open};
use crate::program::hidden;

/// Exit code of the helper where the node could not be entered.
const CANNOT_ENTER: i32 = 125;
/// Exit code where the program is there but cannot be executed.
const CANNOT_EXECUTE: i32 = 126;
/// Exit code where there is no such program.
const NOT_FOUND: i32 = 127;

/// A command that runs `program` inside the node whose PID 1 is `pid`, in the caller's directory if the node has
/// it, else in `/`. Arguments, environment and standard streams are set as on any command.
///
/// What is started is a helper outside the node. It passes on signals and ends as the program ended, by exit code
/// or by signal; killing it kills the program; and the program is killed when the *process* that called this ends
/// (not its thread, as `PR_SET_PDEATHSIG` would have it). Exit codes of its own, with a line on standard error:
/// 125 the node cannot be entered, 126 the program cannot be executed, 127 it is not there.
pub fn command(pid: i32, program: impl AsRef<OsStr>) -> Command {
    command_in(pid, Path::new(""), program)
}

/// As [`command`], but in `directory`, a path in the node. (`Command::current_dir` means one of the machine.)
pub fn command_in(pid: i32, directory: impl AsRef<Path>, program: impl AsRef<OsStr>) -> Command {
    let mut command = hidden(ENTER_ARG);
    command.arg(pid.to_string()).arg(std::process::id().to_string());
    command.arg(directory.as_ref()).arg(program);
    command
}

/// Runs `act` in a thread that is in the network namespace of the node whose PID 1 is `pid`. A socket that it
/// makes and returns stays in that namespace. Blocks.
pub fn in_network<T: Send>(pid: i32, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    in_thread(|| {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        act()
    })
}

/// Runs `act` in a thread of its own: no other code may ever run on one that is somewhere else.
fn in_thread<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| match thread::Builder::new().name("in-node".to_owned()).spawn_scoped(scope, act) {
        Ok(thread) => {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the node panicked")))
        }
        Err(error) => Err(error),
    })
}

/// A TCP connection from inside the node whose PID 1 is `pid`. Blocks for at most `timeout`.
pub fn connect(pid: i32, address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    in_network(pid, || TcpStream::connect_timeout(&address, timeout))
}

/// The helper's arguments.
struct Request<'a> {
    pid: Pid,
    owner: Pid,
    directory: &'a Path,
    program: &'a OsStr,
    arguments: &'a [OsString],
}

fn parse(arguments: &[OsString]) -> Option<Request<'_>> {
    let [pid, owner, directory, program, arguments @ ..] = arguments else { return None };
    let number = |text: &OsString| text.to_str()?.parse().ok().map(Pid::from_raw);
    let (pid, owner) = (number(pid)?, number(owner)?);
    Some(Request { pid, owner, directory: Path::new(directory), program, arguments })
}

/// The helper. Returns the code to exit with.
pub(crate) fn run(arguments: &[OsString]) -> i32 {
    let Some(request) = parse(arguments) else {
        eprintln!("gridcast: the lab's helper was called with wrong arguments");
        return CANNOT_ENTER;
    };
    match enter(&request) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("gridcast: cannot enter the node of process {}: {error}", request.pid);
            CANNOT_ENTER
        }
    }
}

fn enter(request: &Request<'_>) -> io::Result<i32> {
    // Before `/proc` is that of the node, in which this process has no number.
    let unthreaded = Unthreaded::check()?;
    let owner = pidfd_open(request.owner)?;
    // Had the owner ended before that, the descriptor might be of a stranger.
    if getppid() != request.owner {
        return Err(io::Error::other("its owner has ended"));
    }
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let signals = Signals::block()?;
    let node = pidfd_open(request.pid)?;
    let most = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    setns(node, most | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID)?;
    let (alive, helper) = pipe2(OFlag::O_CLOEXEC)?;
    match fork_unthreaded(unthreaded)? {
        ForkResult::Child => {
            drop((helper, signals));
            exit(execute(request, &here, &alive))
        }
        ForkResult::Parent { child } => {
            drop(alive);
            let status = until_ended(child, &signals, OnSignal::Pass, Some(owner.as_fd()), Duration::ZERO)?;
            drop(helper);
            Ok(end_like(status))
        }
    }
}

/// In the child, inside the node. Returns the code to exit with where it cannot execute the program.
fn execute(request: &Request<'_>, here: &Path, alive: &OwnedFd) -> i32 {
    let explicit = !request.directory.as_os_str().is_empty();
    let directory = if explicit { request.directory } else { here };
    let moved = die_with_parent(alive).and_then(|()| Signals::unblock()).and_then(|()| {
        let moved = std::env::set_current_dir(directory);
        if explicit { moved } else { moved.or_else(|_| std::env::set_current_dir("/")) }
    });
    if let Err(error) = moved {
        eprintln!("gridcast: cannot start in {} of the node: {error}", directory.display());
        return CANNOT_ENTER;
    }
    let error = Command::new(request.program).args(request.arguments).exec();
    eprintln!("gridcast: cannot execute {}: {error}", request.program.display());
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE }
}
