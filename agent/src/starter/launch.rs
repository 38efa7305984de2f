//! What runs on this node for the cluster, whoever listens?
//!
//! A launch is the starter's own: it goes on when the controller that asked for it goes away, and the next one attaches to
//! it by its id. One runs at a time, since it is *the* program of the cluster; the last [`REMEMBERED`] can be asked how they
//! ended. What it prints goes three ways: to the starter's own output in whole lines (where `kubectl logs` finds it), into
//! tails that are kept, and from those to callers, each at its own speed. Nobody who listens can slow the program; only the
//! starter's own output can, as a container's always does.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridcast_proto::v1::launch_event::Event;
use gridcast_proto::v1::{ExecFailed, ExecStart, LaunchEvent, LaunchRequest};
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc};
use tonic::Status;

use super::children::Children;
use super::command::{self, Place};
use super::session::Pipes;

mod console;
mod record;
mod stream;
mod tail;

use console::Console;
use record::Record;

/// Launches whose end can still be asked for.
pub const REMEMBERED: usize = 16;
/// Callers that listen at once: a controller, its successor, and people.
const MAX_CALLERS: usize = 64;
/// A launch id is a Kubernetes UID or shorter, perhaps with a counter.
const MAX_ID_BYTES: usize = 128;
/// Events on their way to a caller; the rest waits in the tail, where it is overwritten.
const EVENTS_IN_FLIGHT: usize = 1;
/// After SIGKILL a process is gone at once, unless it hangs in the kernel; its output takes [`stream::DRAIN`] at most.
const AFTER_KILL: Duration = Duration::from_secs(10);
/// Longest grace of a stop.
const MAX_GRACE: Duration = Duration::from_mins(10);
/// What the starter's own output may take to accept the last lines when the starter ends.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Why a launch is not to be had.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The id is none.
    #[error("launch id {id:?} is not 1 to {MAX_ID_BYTES} of a-z, 0-9 and '-'")]
    Id {
        /// Its beginning.
        id: String,
    },
    /// Nothing to start.
    #[error("launch {id} is not known here, and the request says nothing to start")]
    NoStart {
        /// The id.
        id: String,
    },
    /// Attach only, and there is nothing to attach to.
    #[error("launch {id} is not known here: this starter never had it, or is another since")]
    Unknown {
        /// The id.
        id: String,
    },
    /// One at a time.
    #[error("launch {running} runs on this node: stop it (StopLaunch) before launch {id} is started")]
    Busy {
        /// As asked for.
        id: String,
        /// What runs.
        running: String,
    },
    /// The starter is going down.
    #[error("the node is ending")]
    Ending,
    /// Too many listen.
    #[error("{MAX_CALLERS} callers listen to launches of this node already")]
    TooManyCallers,
    /// SIGKILL did not end it.
    #[error(
        "launch {id} is still there after SIGKILL: process {pid} hangs in the kernel (a file system that is gone?)"
    )]
    Stuck {
        /// The id.
        id: String,
        /// The launcher.
        pid: i32,
    },
}

impl From<LaunchError> for Status {
    fn from(error: LaunchError) -> Self {
        let text = error.to_string();
        match error {
            LaunchError::Id { .. } | LaunchError::NoStart { .. } => Self::invalid_argument(text),
            LaunchError::Unknown { .. } => Self::not_found(text),
            LaunchError::Busy { .. } => Self::failed_precondition(text),
            LaunchError::Ending => Self::unavailable(text),
            LaunchError::TooManyCallers => Self::resource_exhausted(text),
            LaunchError::Stuck { .. } => Self::deadline_exceeded(text),
        }
    }
}

/// What a caller reads.
pub type Events = mpsc::Receiver<Result<LaunchEvent, Status>>;

/// The launches of one node, the oldest first.
#[derive(Debug)]
pub struct Launches {
    children: Arc<Children>,
    place: Arc<Place>,
    console: Console,
    callers: Arc<Semaphore>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    records: VecDeque<Arc<Record>>,
    ending: bool,
}

impl Known {
    fn find(&self, id: &str) -> Option<Arc<Record>> {
        self.records.iter().find(|record| record.id() == id).cloned()
    }

    fn running(&self) -> Option<&Arc<Record>> {
        self.records.iter().find(|record| !record.has_ended())
    }

    fn remember(&mut self, record: &Arc<Record>) {
        // Nothing runs when something is started, so that the oldest has ended.
        if self.records.len() >= REMEMBERED {
            self.records.pop_front();
        }
        self.records.push_back(Arc::clone(record));
    }
}

impl Launches {
    /// None yet.
    pub fn new(children: Arc<Children>, place: Arc<Place>) -> Self {
        let callers = Arc::new(Semaphore::new(MAX_CALLERS));
        Self { children, place, console: Console::default(), callers, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Every change is a single push or assignment.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches to the launch of this id, which is started if it is not known.
    pub fn launch(&self, request: LaunchRequest) -> Result<Events, LaunchError> {
        check_id(&request.id)?;
        let permit =
            Arc::clone(&self.callers).try_acquire_owned().map_err(|_| LaunchError::TooManyCallers)?;
        let record = self.known_or_started(request)?;
        let (events, stream) = mpsc::channel(EVENTS_IN_FLIGHT);
        tokio::spawn(async move {
            record.tell(events).await;
            drop(permit);
        });
        Ok(stream)
    }

    /// Under the lock from the question to the answer, so that of two callers one starts and the other attaches.
    fn known_or_started(&self, request: LaunchRequest) -> Result<Arc<Record>, LaunchError> {
        let LaunchRequest { id, start, attach_only, tag_hosts } = request;
        let mut known = self.known();
        if let Some(record) = known.find(&id) {
            return Ok(record);
        }
        if attach_only {
            return Err(LaunchError::Unknown { id });
        }
        let Some(start) = start else { return Err(LaunchError::NoStart { id }) };
        if let Some(running) = known.running() {
            return Err(LaunchError::Busy { id, running: running.id().to_owned() });
        }
        if known.ending {
            return Err(LaunchError::Ending);
        }
        let record = match self.start(&id, start, tag_hosts) {
            Ok(record) => record,
            Err(failed) => Arc::new(Record::failed(id, failed)),
        };
        known.remember(&record);
        Ok(record)
    }

    fn start(&self, id: &str, start: ExecStart, tag_hosts: Vec<String>) -> Result<Arc<Record>, ExecFailed> {
        let start = ExecStart { launch: id.to_owned(), ..start };
        let started = command::start(&self.children, &self.place, start)?;
        let pid = started.pid;
        let pipes = match Pipes::of(started) {
            Ok(pipes) => pipes,
            Err(error) => {
                let children = Arc::clone(&self.children);
                tokio::spawn(async move { children.end(pid, command::KILL_GRACE).await });
                return Err(error.into());
            }
        };
        tracing::info!(launch = id, pid, "the launch has started");
        let record = Arc::new(Record::running(id.to_owned(), pid));
        // The program reads the end of the file: nobody is there to type.
        drop(pipes.stdin);
        let outputs = stream::Outputs { stdout: pipes.stdout, stderr: pipes.stderr, tag_hosts };
        tokio::spawn(stream::run(Arc::clone(&record), outputs, pipes.exit, self.console.clone()));
        Ok(record)
    }

    /// Ends a launch; whether it ran. Returns when it has ended.
    pub async fn stop(&self, id: &str, grace: Duration) -> Result<bool, LaunchError> {
        check_id(id)?;
        let Some(record) = self.known().find(id).filter(|record| !record.has_ended()) else {
            return Ok(false);
        };
        let (children, grace, pid) = (Arc::clone(&self.children), grace.min(MAX_GRACE), record.pid());
        tracing::info!(launch = id, pid, ?grace, "the launch is stopped");
        let stopped = Arc::clone(&record);
        // A task of its own: a caller that goes away meanwhile has asked for it all the same.
        let stopping = tokio::spawn(async move {
            if stopped.first_to_stop() {
                children.end(pid, grace).await;
            } else if tokio::time::timeout(grace, stopped.ended()).await.is_err() {
                // Not a second SIGTERM: mpirun would take it for impatience and leave its daemons behind.
                children.signal(pid, libc::SIGKILL);
            }
            tokio::time::timeout(AFTER_KILL, stopped.ended()).await.is_ok()
        });
        if stopping.await.unwrap_or(false) {
            Ok(true)
        } else {
            Err(LaunchError::Stuck { id: id.to_owned(), pid })
        }
    }

    /// No other launch is started from now on.
    pub fn close(&self) {
        self.known().ending = true;
    }

    /// Waits until what was told to end has been heard to its end, and its last lines are written.
    pub async fn settle(&self) {
        let running = self.known().running().cloned();
        if let Some(record) = running {
            let _ = tokio::time::timeout(stream::DRAIN, record.ended()).await;
        }
        let _ = tokio::time::timeout(LAST_LINES, self.console.flush()).await;
    }
}

fn check_id(id: &str) -> Result<(), LaunchError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(is_plain) {
        Ok(())
    } else {
        Err(LaunchError::Id { id: id.chars().take(80).collect() })
    }
}

fn event(event: Event) -> LaunchEvent {
    LaunchEvent { event: Some(event) }
}
