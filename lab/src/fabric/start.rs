//! The owner's side of the fabric, and the process that it starts.

use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};

use super::{Counters, FABRIC_ARG, FabricError, FabricSpec, counters, run};
use crate::os::process::pidfd_open;
use crate::program::hidden;

/// Name of the specification in the fabric's directory.
const SPECIFICATION: &str = "fabric.json";
/// What the process says when all interfaces are up.
const READY: &str = "ready";
/// Time for the process to end when asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A fabric that runs in a process of its own. Dropping it ends it.
#[derive(Debug)]
pub struct Fabric {
    process: Child,
    directory: PathBuf,
}

impl Fabric {
    /// Starts a fabric and returns when the interfaces of all ports are up. `directory` gets its specification, its
    /// socket and its last counters; `lifetime` is the read end of a [`Lifetime`](crate::Lifetime); `log` takes its
    /// standard error. Blocks.
    pub fn start(
        spec: &FabricSpec,
        directory: &Path,
        lifetime: OwnedFd,
        log: File,
    ) -> Result<Self, FabricError> {
        spec.validate()?;
        let file = directory.join(SPECIFICATION);
        let text = serde_json::to_vec_pretty(spec).map_err(io::Error::from);
        text.and_then(|text| fs::write(&file, text))
            .map_err(FabricError::machine(format!("write {}", file.display())))?;
        let mut command = hidden(FABRIC_ARG);
        command.arg(&file).stdin(lifetime).stdout(Stdio::piped()).stderr(log);
        let process = command.spawn().map_err(FabricError::machine("start the fabric's process"))?;
        let mut fabric = Self { process, directory: directory.to_path_buf() };
        let mut line = String::new();
        if let Some(output) = fabric.process.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.map_err(FabricError::machine("hear from the fabric's process"))?;
        }
        match line.trim() {
            READY => Ok(fabric),
            "" => Err(FabricError::NotReady("its process ended; its log may say more".to_owned())),
            message => Err(FabricError::NotReady(message.to_owned())),
        }
    }

    /// Number of its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A descriptor that becomes readable when its process ends, however it ends.
    pub fn watch(&self) -> io::Result<OwnedFd> {
        pidfd_open(Pid::from_raw(self.process.id().cast_signed()))
    }

    /// What it has counted so far.
    pub fn counters(&self) -> io::Result<Counters> {
        counters(&self.directory)
    }

    /// Ends it, and with it the interfaces; returns what it counted.
    pub fn stop(&mut self) -> io::Result<Counters> {
        self.end()?;
        counters(&self.directory)
    }

    fn end(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + STOP_TIMEOUT;
        if self.process.try_wait()?.is_none() {
            // Not yet waited for, so the number is still its.
            kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGTERM)?;
        }
        while self.process.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.process.kill()?;
                self.process.wait()?;
                break;
            }
            sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "the fabric could not be stopped");
        }
    }
}

/// The process: standard input is the lifetime, standard output is told when it is ready or why it is not. Returns
/// the code to exit with.
pub(crate) fn run_hidden(arguments: &[OsString]) -> i32 {
    // Ctrl-C goes to the foreground process group of the terminal; the owner alone decides what it means.
    let _ = setsid();
    let _ = prctl::set_name(c"gridcast-fabric");
    let [file] = arguments else {
        say("the lab's fabric was called with wrong arguments");
        return 1;
    };
    let file = Path::new(file);
    let spec = File::open(file).and_then(|file| Ok(serde_json::from_reader(BufReader::new(file))?));
    let ran = spec
        .map_err(FabricError::machine(format!("read {}", file.display())))
        .and_then(|spec: FabricSpec| run(&spec, file.parent().unwrap_or(Path::new(".")), || say(READY)));
    match ran {
        Ok(_) => 0,
        Err(error) => {
            let message = match error.source() {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            };
            eprintln!("gridcast: {message}");
            say(&message);
            1
        }
    }
}

fn say(text: &str) {
    // Where the owner is gone, the lifetime ends the fabric.
    let _ = writeln!(io::stdout().lock(), "{text}");
}
