//! What is known of one launch, and who is told?

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridcast_proto::v1::launch_event::Event;
use gridcast_proto::v1::{ExecFailed, LaunchEnded, LaunchEvent, LaunchOutput, LaunchStarted};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::Status;

use super::event;
use super::tail::{TAIL_BYTES, Tail};
use crate::starter::children::Exit;
use crate::starter::streams::Output;

/// A program that prints letter by letter does not make an event of each …
const PAUSE: Duration = Duration::from_millis(100);
/// … unless there is much of it: half of what can be kept for a caller before it misses something.
const PLENTY: u64 = TAIL_BYTES as u64 / 2;

/// One launch, from its start on.
#[derive(Debug)]
pub(super) struct Record {
    id: String,
    pid: i32,
    started: Instant,
    stopping: AtomicBool,
    text: Mutex<Text>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct Text {
    /// Standard output and standard error as they came.
    both: Tail,
    stderr: Tail,
    failed: Option<ExecFailed>,
}

/// What callers wait for.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    written: u64,
    end: Option<(Exit, Instant)>,
    failed: bool,
}

impl Record {
    /// Of a launch that has just been started.
    pub(super) fn running(id: String, pid: i32) -> Self {
        Self {
            id,
            pid,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            text: Mutex::default(),
            progress: watch::Sender::default(),
        }
    }

    /// Of a launch that could not be started.
    pub(super) fn failed(id: String, failed: ExecFailed) -> Self {
        let record = Self::running(id, 0);
        record.text().failed = Some(failed);
        record.progress.send_modify(|progress| progress.failed = true);
        record
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn has_ended(&self) -> bool {
        self.progress.borrow().is_last()
    }

    /// Whether nobody has asked before.
    pub(super) fn first_to_stop(&self) -> bool {
        !self.stopping.swap(true, Ordering::Relaxed)
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) {
        // The sender lives as long as this.
        let _ = self.progress.subscribe().wait_for(Progress::is_last).await;
    }

    fn text(&self) -> MutexGuard<'_, Text> {
        // A tail is whole after every push.
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the launch wrote.
    pub(super) fn write(&self, output: Output, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut text = self.text();
        text.both.push(bytes);
        if matches!(output, Output::Stderr) {
            text.stderr.push(bytes);
        }
        let written = text.both.written();
        drop(text);
        self.progress.send_modify(|progress| progress.written = written);
    }

    /// Nothing more comes; it ended `at`.
    pub(super) fn end(&self, exit: Exit, at: Instant) {
        self.progress.send_modify(|progress| progress.end = Some((exit, at)));
    }

    /// Tells one caller everything from now on, beginning with what is still kept, until the end or until it has gone.
    pub(super) async fn tell(&self, events: mpsc::Sender<Result<LaunchEvent, Status>>) {
        tokio::select! {
            () = events.closed() => {}
            _ = self.tell_all(&events) => {}
        }
    }

    async fn tell_all(
        &self,
        events: &mpsc::Sender<Result<LaunchEvent, Status>>,
    ) -> Result<(), mpsc::error::SendError<Result<LaunchEvent, Status>>> {
        let failed = self.text().failed.clone();
        if let Some(failed) = failed {
            return events.send(Ok(event(Event::Failed(failed)))).await;
        }
        let age_micros = micros(self.started);
        events.send(Ok(event(Event::Started(LaunchStarted { pid: self.pid.into(), age_micros })))).await?;
        let mut progress = self.progress.subscribe();
        let mut seen = 0;
        loop {
            // The end is looked at before the text: what it ends is then in the text.
            let end = progress.borrow_and_update().end;
            // Memory is taken for what can be sent, not for what waits.
            let room =
                events.reserve().await.map_err(|_| mpsc::error::SendError(Err(Status::cancelled(""))))?;
            let (data, written) = self.since(seen);
            if !data.is_empty() {
                seen = written;
                room.send(Ok(event(Event::Output(LaunchOutput { data: data.into() }))));
            } else if let Some((exit, at)) = end {
                room.send(Ok(event(Event::Ended(self.ended_event(exit, at)))));
                return Ok(());
            } else {
                drop(room);
                let _ = progress.changed().await;
                continue;
            }
            let plenty = |now: &Progress| now.end.is_some() || now.written >= seen + PLENTY;
            let _ = tokio::time::timeout(PAUSE, progress.wait_for(plenty)).await;
        }
    }

    fn since(&self, seen: u64) -> (Vec<u8>, u64) {
        let text = self.text();
        (text.both.since(seen), text.both.written())
    }

    fn ended_event(&self, Exit { code, signal }: Exit, at: Instant) -> LaunchEnded {
        let text = self.text();
        LaunchEnded {
            code,
            signal,
            output_tail: text.both.kept().into(),
            stderr_tail: text.stderr.kept().into(),
            age_micros: micros(at),
        }
    }
}

impl Progress {
    fn is_last(&self) -> bool {
        self.end.is_some() || self.failed
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
