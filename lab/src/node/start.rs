//! The owner's side of a node.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::init::{Fault, Progress};
use super::{INIT_ARG, NodeSpec};
use crate::program::hidden;

/// Time for a node to begin; it takes some ten milliseconds unless a mount of the machine hangs.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the kernel to end all processes of a node.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a node did not begin. Nothing remains of it then.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The specification cannot be.
    #[error("node {name}: {message}")]
    Invalid {
        /// The node.
        name: String,
        /// Field and reason.
        message: String,
    },
    /// Its keeper could not be started or asked.
    #[error("node {name}: cannot {step}")]
    Keeper {
        /// The node.
        name: String,
        /// What was tried.
        step: &'static str,
        /// What the machine said.
        source: io::Error,
    },
    /// A step inside failed.
    #[error("node {name}: cannot {step}{}{path}: {message}", if path.is_empty() { "" } else { " at " })]
    Setup {
        /// The node.
        name: String,
        /// What was tried.
        step: String,
        /// On which path or name; empty where there is none.
        path: String,
        /// What the kernel said.
        message: String,
    },
    /// It ended before its PID 1 ran.
    #[error("node {name}: ended while it began ({status}); its log may say more")]
    Ended {
        /// The node.
        name: String,
        /// How.
        status: ExitStatus,
    },
}

impl NodeError {
    /// One word for a report.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "NodeInvalid",
            Self::Keeper { .. } | Self::Setup { .. } => "NodeSetupFailed",
            Self::Ended { .. } => "NodeEnded",
        }
    }
}

/// A node that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Node {
    name: String,
    pid: i32,
    keeper: Child,
    ended: Option<ExitStatus>,
}

impl Node {
    /// Starts a node and returns when its PID 1 executes its program. `lifetime` is the read end of a
    /// [`Lifetime`](crate::Lifetime); `log` takes what PID 1 writes to its standard output and error. Blocks.
    pub fn start(spec: &NodeSpec, lifetime: OwnedFd, log: File) -> Result<Self, NodeError> {
        let name = spec.name.clone();
        spec.validate().map_err(|message| NodeError::Invalid { name: name.clone(), message })?;
        let failed = |step| {
            let name = name.clone();
            move |source| NodeError::Keeper { name, step, source }
        };
        let (ours, theirs) = UnixStream::pair().map_err(failed("make a socket pair"))?;
        let mut command: Command = hidden(INIT_ARG);
        command.stdin(lifetime).stdout(OwnedFd::from(theirs)).stderr(Stdio::from(log)).env_clear();
        let keeper = command.spawn().map_err(failed("start its keeper"))?;
        // The command holds our copy of their end, without which the report would never end.
        drop(command);
        let mut node = Self { name: name.clone(), pid: 0, keeper, ended: None };
        let text =
            serde_json::to_vec(spec).map_err(io::Error::from).map_err(failed("write its specification"))?;
        ours.set_read_timeout(Some(START_TIMEOUT)).map_err(failed("limit the time of its keeper"))?;
        (&ours).write_all(&text).map_err(failed("send its specification"))?;
        ours.shutdown(Shutdown::Write).map_err(failed("send its specification"))?;
        let mut ready = false;
        for line in BufReader::new(ours).lines() {
            let line = line.map_err(failed("hear from its keeper"))?;
            match serde_json::from_str(&line).map_err(io::Error::from).map_err(failed("read its report"))? {
                Progress::Forked(pid) => node.pid = pid,
                Progress::Ready => ready = true,
                Progress::Fault(Fault { step, path, message }) => {
                    return Err(NodeError::Setup { name, step, path, message });
                }
            }
        }
        if !ready || node.pid == 0 {
            let status = node.stop().map_err(failed("stop its keeper"))?;
            return Err(NodeError::Ended { name, status });
        }
        Ok(node)
    }

    /// Its hostname.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// PID 1's number in the machine's PID namespace.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// How PID 1 ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.keeper.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Ends every process of the node at once and waits until they are gone, and with them its namespaces.
    pub fn stop(&mut self) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut asked = false;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if !asked {
                // Not yet waited for, so the number is still the keeper's.
                kill(Pid::from_raw(self.keeper.id().cast_signed()), Signal::SIGTERM)?;
                asked = true;
            }
            if Instant::now() > deadline {
                self.keeper.kill()?;
                let status = self.keeper.wait()?;
                self.ended = Some(status);
                return Ok(status);
            }
            sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!(node = self.name, %error, "the node could not be stopped");
        }
    }
}
