//! How do bytes get in and out of a command without piling up or hanging?

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gridcast_proto::v1::{ExecReply, exec_reply::Reply};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tonic::Status;

/// Largest piece of output in one message.
pub const CHUNK_BYTES: usize = 32 * 1024;
/// Messages between a command and the caller's connection.
pub const REPLIES_IN_FLIGHT: usize = 8;
/// Messages of standard input that wait for the command; a signal overtakes these.
pub const INPUT_IN_FLIGHT: usize = 8;
/// After a command has ended, output of what it left behind is awaited this long at a time …
pub const QUIET: Duration = Duration::from_millis(500);
/// … and this long in all.
pub const LINGER: Duration = Duration::from_secs(5);
/// The most that an unprivileged pipe holds (/proc/sys/fs/pipe-max-size): the command's own last output may be this
/// much, and is read however long the caller takes.
const PIPE_BYTES: usize = 1 << 20;

/// The way to the caller. Fails when the caller has gone.
pub type Replies = mpsc::Sender<Result<ExecReply, Status>>;

/// Which of the two output streams.
#[derive(Debug, Clone, Copy)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Output {
    fn reply(self, bytes: Bytes) -> ExecReply {
        let reply = match self {
            Self::Stdout => Reply::Stdout(bytes),
            Self::Stderr => Reply::Stderr(bytes),
        };
        ExecReply { reply: Some(reply) }
    }
}

/// Carries one output stream to the caller, until it ends, the caller has gone, or (`ended` having become true)
/// only a daemon that the command left behind holds it.
pub async fn carry(
    mut pipe: impl AsyncRead + Unpin,
    output: Output,
    replies: Replies,
    mut ended: watch::Receiver<bool>,
) {
    let mut buffer = BytesMut::new();
    let mut ended_at: Option<Instant> = None;
    let mut since_end = 0;
    loop {
        buffer.reserve(CHUNK_BYTES);
        let mut room = (&mut pipe).take(CHUNK_BYTES as u64);
        let read = if ended_at.is_some() {
            // Only waiting for output counts, not waiting for the caller: that comes after.
            match timeout(QUIET, room.read_buf(&mut buffer)).await {
                Ok(read) => read,
                Err(_) => return,
            }
        } else {
            tokio::select! {
                read = room.read_buf(&mut buffer) => read,
                _ = ended.wait_for(|ended| *ended) => {
                    ended_at = Some(Instant::now());
                    continue;
                }
            }
        };
        let Ok(1..) = read else { return };
        let bytes = buffer.split().freeze();
        since_end += if ended_at.is_some() { bytes.len() } else { 0 };
        if replies.send(Ok(output.reply(bytes))).await.is_err() {
            return;
        }
        if ended_at.is_some_and(|at| at.elapsed() > LINGER) && since_end > PIPE_BYTES {
            return;
        }
    }
}

/// Feeds standard input until the sender closes it or the command does.
pub async fn feed(mut stdin: ChildStdin, mut input: mpsc::Receiver<Bytes>) {
    while let Some(bytes) = input.recv().await {
        if stdin.write_all(&bytes).await.is_err() {
            // The command closed its end. What still comes is dropped, as a shell's pipe would.
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    fn text(reply: Result<ExecReply, Status>) -> Bytes {
        match reply.unwrap().reply.unwrap() {
            Reply::Stdout(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_pipe_that_stays_open_ends_after_silence_and_loses_nothing() {
        let (mut writer, pipe) = duplex(1 << 20);
        let (replies, mut received) = mpsc::channel(REPLIES_IN_FLIGHT);
        let (end, ended) = watch::channel(false);
        let task = tokio::spawn(carry(pipe, Output::Stdout, replies, ended));
        writer.write_all(&vec![7; 300_000]).await.unwrap();
        end.send(true).unwrap();
        let mut total = 0;
        while let Some(reply) = received.recv().await {
            let bytes = text(reply);
            assert!(bytes.len() <= CHUNK_BYTES);
            total += bytes.len();
            // A slow reader is not taken for silence.
            if total < 3 * CHUNK_BYTES {
                tokio::time::sleep(QUIET * 2).await;
            }
        }
        task.await.unwrap();
        assert_eq!(total, 300_000);
        drop(writer);
    }

    #[tokio::test]
    async fn a_daemon_that_never_stops_writing_is_left_behind() {
        let (mut writer, pipe) = duplex(1 << 16);
        let (replies, mut received) = mpsc::channel(REPLIES_IN_FLIGHT);
        let (end, ended) = watch::channel(false);
        end.send(true).unwrap();
        let daemon = tokio::spawn(async move {
            while writer.write_all(&vec![0; 40_000]).await.is_ok() {
                tokio::time::sleep(QUIET / 5).await;
            }
        });
        let task = tokio::spawn(carry(pipe, Output::Stdout, replies, ended));
        while received.recv().await.is_some() {}
        task.await.unwrap();
        daemon.await.unwrap();
    }

    proptest! {
        #[test]
        fn bytes_arrive_as_written(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50_000), 0..8)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (mut writer, pipe) = duplex(4096);
                let (replies, mut received) = mpsc::channel(REPLIES_IN_FLIGHT);
                let (_end, ended) = watch::channel(false);
                let expected = pieces.concat();
                tokio::spawn(carry(pipe, Output::Stdout, replies, ended));
                tokio::spawn(async move {
                    for piece in pieces {
                        writer.write_all(&piece).await.unwrap();
                    }
                });
                let mut got = Vec::new();
                while let Some(reply) = received.recv().await {
                    got.extend_from_slice(&text(reply));
                }
                assert_eq!(got, expected);
            });
        }
    }
}
