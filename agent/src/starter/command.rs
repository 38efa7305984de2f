//! Can this command be started here, and if not, why?

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gridcast_proto::v1::{ExecFailed, ExecStart};
use thiserror::Error;

use super::children::{Children, Started};
use super::environment::composed;
use super::program::{ProgramError, find_program};

/// Between SIGTERM and SIGKILL for the command of a caller that has gone. `mpirun` needs a second or two to take its
/// daemons and ranks down.
pub const KILL_GRACE: Duration = Duration::from_secs(5);

/// Why a command was not started.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The program is missing or not executable.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The directory is missing or is something else.
    #[error("directory {path} cannot be entered ({why}): create it on this node or give another")]
    NoDirectory {
        /// As asked for.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// The request cannot be a command on any node.
    #[error("{field} {problem}")]
    Malformed {
        /// `argv` or `environment`.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The system refused for another reason.
    #[error("`{program}` could not be started: {why}")]
    StartFailed {
        /// The file.
        program: PathBuf,
        /// What the system said.
        why: io::Error,
    },
}

impl CommandError {
    /// One PascalCase word; the contract lists them at `ExecFailed`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Program(error) => error.reason(),
            Self::NoDirectory { .. } => "NoDirectory",
            Self::Malformed { .. } | Self::StartFailed { .. } => "StartFailed",
        }
    }
}

impl From<CommandError> for ExecFailed {
    fn from(error: CommandError) -> Self {
        Self { reason: error.reason().to_owned(), message: error.to_string() }
    }
}

/// What every command of a node is told about where it runs.
#[derive(Debug, Clone)]
pub struct Place {
    /// The node's name.
    pub node: String,
    /// The socket that ranks report to.
    pub socket: String,
    /// What the node's nature demands of every command's environment, below what its caller says.
    pub variables: &'static [(&'static str, &'static str)],
}

/// Starts a command as the leader of a session and process group of its own, with pipes on all three streams.
pub fn start(children: &Children, place: &Place, start: ExecStart) -> Result<Started, CommandError> {
    let directory = directory(&start.directory)?;
    let [name, arguments @ ..] = start.argv.as_slice() else {
        return Err(CommandError::Malformed { field: "argv", problem: "is empty".to_owned() });
    };
    if start.argv.iter().any(|argument| argument.contains('\0')) {
        return Err(CommandError::Malformed { field: "argv", problem: "holds a NUL byte".to_owned() });
    }
    check_environment(&start.environment)?;
    let inherited = start.inherit_environment.then(std::env::vars_os).into_iter().flatten();
    let mut environment = composed(inherited, start.environment, &start.launch, &place.node, &place.socket);
    for (name, value) in place.variables {
        environment.entry(name.into()).or_insert_with(|| value.into());
    }
    let path = environment.get(&OsString::from("PATH")).map(|path| path.to_string_lossy());
    let program = find_program(name, path.as_deref(), &directory)?;
    let mut command = Command::new(&program);
    command.arg0(name).args(arguments).env_clear().envs(&environment).current_dir(&directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    own_session(&mut command);
    children.start(&mut command).map_err(|why| refused(program, why))
}

/// An absolute path; the starter's own directory if nothing is asked for.
fn directory(asked: &str) -> Result<PathBuf, CommandError> {
    let own = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let path = if asked.is_empty() { own() } else { own().join(asked) };
    let no_directory = |why| CommandError::NoDirectory { path: path.clone(), why };
    if asked.contains('\0') {
        return Err(no_directory(io::ErrorKind::InvalidInput.into()));
    }
    let metadata = std::fs::metadata(&path).map_err(no_directory)?;
    if !metadata.is_dir() {
        return Err(no_directory(io::ErrorKind::NotADirectory.into()));
    }
    may_enter(&path).map_err(no_directory)?;
    Ok(path)
}

fn may_enter(path: &Path) -> io::Result<()> {
    use nix::fcntl::{AT_FDCWD, AtFlags};
    use nix::unistd::{AccessFlags, faccessat};
    Ok(faccessat(AT_FDCWD, path, AccessFlags::X_OK, AtFlags::AT_EACCESS)?)
}

fn check_environment(environment: &HashMap<String, String>) -> Result<(), CommandError> {
    for (name, value) in environment {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let problem = format!("holds a variable that no program can be given: {name:?}");
            return Err(CommandError::Malformed { field: "environment", problem });
        }
    }
    Ok(())
}

#[allow(unsafe_code)]
fn own_session(command: &mut Command) {
    // SAFETY: setsid is async-signal-safe and the closure allocates nothing.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from));
    }
}

/// The program was there a moment ago, so these are about what is in it.
fn refused(program: PathBuf, why: io::Error) -> CommandError {
    let not_executable = |path, why| CommandError::Program(ProgramError::NotExecutable { path, why });
    match why.raw_os_error() {
        Some(libc::ENOEXEC) => {
            not_executable(program, "it is no program of this machine, nor a script that begins with #!")
        }
        Some(libc::ENOENT) => {
            not_executable(program, "the interpreter or loader that it names is missing on this node")
        }
        Some(libc::EACCES | libc::EPERM) => {
            not_executable(program, "the system forbids it (a noexec mount, or its interpreter)")
        }
        _ => CommandError::StartFailed { program, why },
    }
}
