//! The near side of a remote command: this process's streams and signals.

use std::io::{self, Read, Write};

use bytes::Bytes;
use gridcast_proto::v1::ExecRequest;
use gridcast_proto::v1::exec_request::Request;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::Bulk;
use crate::starter::streams::CHUNK_BYTES;

/// Signals that are passed on. The others keep their meaning for this process.
const FORWARDED: &[SignalKind] = &[
    SignalKind::hangup(),
    SignalKind::interrupt(),
    SignalKind::quit(),
    SignalKind::terminate(),
    SignalKind::user_defined1(),
    SignalKind::user_defined2(),
];
/// Signals that arrive faster than they are passed on are dropped, as the kernel merges them.
const SIGNALS_IN_FLIGHT: usize = 8;

/// The signals that are passed on.
#[derive(Debug)]
pub(super) struct Signals(mpsc::Receiver<i32>);

impl Signals {
    /// Takes them over.
    pub(super) fn new() -> io::Result<Self> {
        let (send, signals) = mpsc::channel(SIGNALS_IN_FLIGHT);
        // What nohup, or a shell for its background jobs, has set to be ignored stays ignored.
        for kind in FORWARDED.iter().filter(|kind| !is_ignored(kind.as_raw_value())) {
            let mut arrivals = signal(*kind)?;
            let send = send.clone();
            let number = kind.as_raw_value();
            tokio::spawn(async move {
                while arrivals.recv().await.is_some() {
                    let _ = send.try_send(number);
                }
            });
        }
        Ok(Self(signals))
    }

    /// The next signal to pass on.
    pub(super) async fn next(&mut self) -> i32 {
        match self.0.recv().await {
            Some(signal) => signal,
            // The senders live as long as the runtime.
            None => std::future::pending().await,
        }
    }
}

/// Starts to pass standard input on; if it is not to be read (`-n`), only its end.
pub(super) fn feed(read_stdin: bool, requests: Bulk) {
    let pass_on = move || {
        if read_stdin {
            copy(&mut io::stdin().lock(), &requests);
        }
        let _ = requests.blocking_send(ExecRequest { request: Some(Request::StdinClosed(true)) });
    };
    // A plain thread: a read from a terminal cannot be called off, and this process does not wait for it at the end.
    // If there is no thread to be had, the command's input ends at once.
    if let Err(error) = std::thread::Builder::new().name("stdin".to_owned()).spawn(pass_on) {
        eprintln!("gridcast-starter exec: standard input is not passed on: {error}");
    }
}

/// The exit code for this process if nobody reads its output any more: that of a SIGPIPE, as a local command would
/// end.
pub(super) async fn write_stdout(bytes: Bytes) -> io::Result<Option<u8>> {
    match write(io::stdout, bytes).await {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Some(super::killed_by(libc::SIGPIPE))),
        Err(error) => Err(error),
    }
}

/// A standard error that cannot be written has nowhere to say so.
pub(super) async fn write_stderr(bytes: Bytes) {
    let _ = write(io::stderr, bytes).await;
}

#[allow(unsafe_code)]
fn is_ignored(signal: i32) -> bool {
    // SAFETY: a structure of integers and a nullable pointer, for which all zeroes are a value; it outlives the call,
    // which changes nothing. nix can only ask by setting.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// On a thread that may block, so that signals get through while nobody reads the output.
async fn write<W: Write>(stream: impl FnOnce() -> W + Send + 'static, bytes: Bytes) -> io::Result<()> {
    let written = tokio::task::spawn_blocking(move || {
        let mut stream = stream();
        stream.write_all(&bytes)?;
        stream.flush()
    });
    written.await.map_err(io::Error::other)?
}

fn copy(input: &mut impl Read, requests: &Bulk) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                let bytes = Bytes::copy_from_slice(&buffer[..length]);
                if requests.blocking_send(ExecRequest { request: Some(Request::Stdin(bytes)) }).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // EIO from a terminal that is gone, EBADF: there is no input.
            Err(_) => return,
        }
    }
}
