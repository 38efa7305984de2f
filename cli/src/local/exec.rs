//! Runs one command on a node, through the node's starter.

use std::{
    collections::HashMap,
    io::{self, Read as _, Write as _},
};

use gridcast_control::{Remote, is_gone};
use gridcast_proto::v1::{ExecReply, ExecRequest, ExecStart, exec_reply::Reply, exec_request::Request};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::failure::Failure;

/// Requests on their way to the starter; each holds at most one block of standard input.
const QUEUE: usize = 16;

/// Where a block of output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// What a command did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exited {
    pub(crate) code: i32,
    /// 0 where it ended by itself.
    pub(crate) signal: i32,
}

impl Exited {
    /// As a shell reports it: 128 + signal.
    pub(crate) fn shell_code(self) -> i32 {
        if self.signal == 0 { self.code } else { 128 + self.signal }
    }
}

/// A command that was asked for.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) argv: Vec<String>,
    pub(crate) environment: HashMap<String, String>,
    pub(crate) directory: String,
    pub(crate) launch: String,
}

/// Runs `command` on `node` and hands its output on as it comes. Requests sent through `requests` (standard input,
/// signals) reach the command while it runs. When this future is dropped, the starter ends the command.
pub(crate) async fn run(
    node: &Remote,
    command: Command,
    mut requests: mpsc::Receiver<Request>,
    mut started: impl FnMut(),
    mut output: impl FnMut(Stream, &[u8]) -> io::Result<()>,
) -> Result<Exited, Failure> {
    let (send, receive) = mpsc::channel(QUEUE);
    let start = ExecStart {
        argv: command.argv,
        environment: command.environment,
        inherit_environment: true,
        directory: command.directory,
        launch: command.launch,
    };
    let wrap = |request| ExecRequest { request: Some(request) };
    // The channel is new and has room.
    let _ = send.try_send(wrap(Request::Start(start)));
    let refused = |s: tonic::Status| {
        if is_gone(&s) {
            lost(node, &s)
        } else {
            node.failed("StarterRefused", "starting the command", &s).into()
        }
    };
    let mut starter = node.starter().map_err(refused)?;
    let mut replies = starter.exec(ReceiverStream::new(receive)).await.map_err(refused)?.into_inner();
    let mut feeding = true;
    loop {
        tokio::select! {
            request = requests.recv(), if feeding => match request {
                Some(request) => feeding = send.send(wrap(request)).await.is_ok(),
                None => feeding = false,
            },
            reply = replies.message() => {
                let reply = reply.map_err(|s| lost(node, &s))?;
                match reply.and_then(|ExecReply { reply }| reply) {
                    Some(Reply::Started(_)) => started(),
                    Some(Reply::Stdout(bytes)) => pass(&mut output, Stream::Out, &bytes)?,
                    Some(Reply::Stderr(bytes)) => pass(&mut output, Stream::Err, &bytes)?,
                    Some(Reply::Exited(e)) => return Ok(Exited { code: e.code, signal: e.signal }),
                    Some(Reply::Failed(f)) => {
                        return Err(Failure::failed(f.reason, format!("{}: {}", node.name, f.message)));
                    }
                    None => return Err(Failure::failed("NodeLost", format!("{}: the starter ended the call", node.name))),
                }
            }
        }
    }
}

fn lost(node: &Remote, status: &tonic::Status) -> Failure {
    let text = format!("{}: the node's starter is gone: {}", node.name, crate::failure::chain(status));
    Failure::failed("NodeLost", text)
}

fn pass(
    output: &mut impl FnMut(Stream, &[u8]) -> io::Result<()>,
    stream: Stream,
    bytes: &[u8],
) -> Result<(), Failure> {
    output(stream, bytes)
        .map_err(|e| Failure::failed("OutputClosed", format!("cannot write the program's output: {e}")))
}

/// Writes output where the program would have written it.
pub(crate) fn to_standard(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        Stream::Err => io::stderr().lock().write_all(bytes),
    }
}

/// Standard input of this command as requests, from a thread of its own: a read of a terminal cannot be given up, so
/// the thread ends with the process.
pub(crate) fn forward_stdin(requests: mpsc::Sender<Request>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            match io::stdin().read(&mut buffer) {
                Ok(0) | Err(_) => {
                    let _ = requests.blocking_send(Request::StdinClosed(true));
                    return;
                }
                Ok(n) => {
                    let block = Request::Stdin(bytes::Bytes::copy_from_slice(&buffer[..n]));
                    if requests.blocking_send(block).is_err() {
                        return;
                    }
                }
            }
        }
    });
}
