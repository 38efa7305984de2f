//! How do the two streams of a launch end up in tails and whole lines?

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gridcast_core::mpi::{TagFilter, TagStyle};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::console::Console;
use super::record::Record;
use crate::starter::children::Exit;
use crate::starter::streams::{CHUNK_BYTES, Output};

/// The launch has ended with its launcher; what is in the pipes then is read for so long at most. Whoever still holds them
/// is something that the program left behind.
pub(super) const DRAIN: Duration = Duration::from_secs(1);
/// The launcher's own last words are in the pipe already, so that silence is the end of them.
const QUIET: Duration = Duration::from_millis(50);
/// A line that gets longer is broken there: memory must not follow the program.
const LINE_BYTES: usize = 64 << 10;
/// Of a launcher whose end got lost, which the collector of children does not let happen.
const LOST: Exit = Exit { code: 255, signal: 0 };

/// What a launch writes to.
pub(super) struct Outputs {
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    /// By rank, where the launcher tags its output.
    pub(super) tag_hosts: Vec<String>,
}

/// Hears a launch to its end.
pub(super) async fn run(
    record: Arc<Record>,
    outputs: Outputs,
    exit: oneshot::Receiver<Exit>,
    console: Console,
) {
    let Outputs { stdout, stderr, tag_hosts } = outputs;
    let (end, until) = watch::channel(None);
    let sink = |output, tag_hosts| Sink {
        output,
        filter: Filter::new(tag_hosts),
        lines: Lines::default(),
        record: Arc::clone(&record),
        console: console.clone(),
        until: until.clone(),
    };
    let hearing = [
        tokio::spawn(carry(stdout, sink(Output::Stdout, tag_hosts.clone()))),
        tokio::spawn(carry(stderr, sink(Output::Stderr, tag_hosts))),
    ];
    let exit = exit.await.unwrap_or(LOST);
    let at = Instant::now();
    end.send_replace(Some(at + DRAIN));
    for task in hearing {
        let _ = task.await;
    }
    tracing::info!(launch = record.id(), code = exit.code, signal = exit.signal, "the launch has ended");
    record.end(exit, at);
}

/// Until the stream ends or, after the launcher's end, falls silent.
async fn carry(mut pipe: impl AsyncRead + Unpin, mut sink: Sink) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK_BYTES);
        let mut room = (&mut pipe).take(CHUNK_BYTES as u64);
        let until = *sink.until.borrow();
        let read = match until {
            None => tokio::select! {
                read = room.read_buf(&mut buffer) => read,
                _ = sink.until.wait_for(Option::is_some) => continue,
            },
            Some(until) => {
                let now = Instant::now();
                // A read that is always ready never meets its time limit.
                if now >= until {
                    break;
                }
                match timeout_at(until.min(now + QUIET), room.read_buf(&mut buffer)).await {
                    Ok(read) => read,
                    Err(_) => break,
                }
            }
        };
        let Ok(1..) = read else { break };
        sink.take(&buffer.split()).await;
    }
    sink.finish().await;
}

/// Where one stream goes.
struct Sink {
    output: Output,
    filter: Filter,
    lines: Lines,
    record: Arc<Record>,
    console: Console,
    /// When to give up, once the launcher has ended.
    until: watch::Receiver<Option<Instant>>,
}

impl Sink {
    async fn take(&mut self, read: &[u8]) {
        let text = self.filter.feed(read);
        self.record.write(self.output, &text);
        let lines = self.lines.take(&text);
        self.show(lines).await;
    }

    async fn finish(mut self) {
        let text = self.filter.finish();
        self.record.write(self.output, &text);
        let mut lines = self.lines.take(&text);
        lines.extend_from_slice(&self.lines.rest());
        self.show(lines).await;
    }

    /// The tails have it already; a console that takes nothing must not keep the launch from ending.
    async fn show(&mut self, lines: Vec<u8>) {
        if lines.is_empty() {
            return;
        }
        let until = &mut self.until;
        let given_up = async {
            let until = until.wait_for(Option::is_some).await.ok().and_then(|until| *until);
            sleep_until(until.unwrap_or_else(|| Instant::now() + DRAIN)).await;
        };
        tokio::select! {
            biased;
            () = self.console.write(self.output, Bytes::from(lines)) => {}
            () = given_up => {}
        }
    }
}

/// The launcher's tags made hosts, or nothing at all.
#[derive(Default)]
struct Filter(Option<TagFilter>);

impl Filter {
    fn new(hosts: Vec<String>) -> Self {
        Self((!hosts.is_empty()).then(|| TagFilter::new(hosts, TagStyle::Unknown)))
    }

    fn feed(&mut self, read: &[u8]) -> Vec<u8> {
        self.0.as_mut().map_or_else(|| read.to_vec(), |filter| filter.feed(read))
    }

    fn finish(&mut self) -> Vec<u8> {
        self.0.take().map(TagFilter::finish).unwrap_or_default()
    }
}

/// Keeps the beginning of a line until its end comes, since two streams and the starter's own log share one place.
#[derive(Default)]
struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// What can be written: whole lines, and what is too long to be kept.
    fn take(&mut self, text: &[u8]) -> Vec<u8> {
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| self.begun.len() + at + 1);
        self.begun.extend_from_slice(text);
        let end = if self.begun.len() - end > LINE_BYTES { self.begun.len() } else { end };
        let begun = self.begun.split_off(end);
        std::mem::replace(&mut self.begun, begun)
    }

    /// The stream has ended: a line without an end is given one.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.begun);
        if !rest.is_empty() {
            rest.push(b'\n');
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_kept_whole_and_endless_ones_are_not_kept() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(b"one\ntw"), b"one\n");
        assert_eq!(lines.take(b""), b"");
        assert_eq!(lines.take(b"o\nthree"), b"two\n");
        assert_eq!(lines.rest(), b"three\n");
        assert_eq!(lines.rest(), b"");
        assert_eq!(lines.take(&vec![b'x'; LINE_BYTES + 1]).len(), LINE_BYTES + 1);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_added_but_the_last_end(pieces in proptest::collection::vec("[a-z\n]{0,20}", 0..20)) {
            let mut lines = Lines::default();
            let mut written = Vec::new();
            for piece in &pieces {
                let whole = lines.take(piece.as_bytes());
                prop_assert!(whole.is_empty() || whole.ends_with(b"\n"));
                written.extend(whole);
            }
            written.extend(lines.rest());
            let mut expected = pieces.concat();
            if !expected.is_empty() && !expected.ends_with('\n') {
                expected.push('\n');
            }
            prop_assert_eq!(written, expected.into_bytes());
        }
    }
}
