//! What happens between `Start` and `Exited`?

use std::sync::Arc;

use gridcast_proto::v1::exec_reply::Reply;
use gridcast_proto::v1::exec_request::Request;
use gridcast_proto::v1::{ExecExited, ExecFailed, ExecReply, ExecRequest, ExecStart, ExecStarted};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, watch};
use tonic::{Status, Streaming};

use super::children::{Children, Exit, Started};
use super::command::{self, CommandError, KILL_GRACE, Place};
use super::streams::{INPUT_IN_FLIGHT, Output, Replies, carry, feed};

/// Runs one command for one caller, to the end of either.
pub async fn run(
    children: Arc<Children>,
    place: Arc<Place>,
    start: ExecStart,
    requests: Streaming<ExecRequest>,
    replies: Replies,
) {
    let started = match command::start(&children, &place, start) {
        Ok(started) => started,
        Err(error) => return fail(&replies, error.into()).await,
    };
    let pid = started.pid;
    let pipes = match Pipes::of(started) {
        Ok(pipes) => pipes,
        Err(error) => {
            children.end(pid, KILL_GRACE).await;
            return fail(&replies, error.into()).await;
        }
    };
    // A send that fails means that the caller has gone, which the conversation finds out as well.
    let _ = reply(&replies, Reply::Started(ExecStarted { pid: pid.into() })).await;
    match converse(&children, pid, pipes, requests, &replies).await {
        Some(Exit { code, signal }) => {
            let _ = reply(&replies, Reply::Exited(ExecExited { code, signal })).await;
        }
        None => children.end(pid, KILL_GRACE).await,
    }
}

/// The command's end, or `None` if the caller went first.
async fn converse(
    children: &Children,
    pid: i32,
    pipes: Pipes,
    requests: Streaming<ExecRequest>,
    replies: &Replies,
) -> Option<Exit> {
    let Pipes { stdin, stdout, stderr, mut exit } = pipes;
    let (end, ended) = watch::channel(false);
    let (input, inputs) = mpsc::channel(INPUT_IN_FLIGHT);
    let outputs = [
        tokio::spawn(carry(stdout, Output::Stdout, replies.clone(), ended.clone())),
        tokio::spawn(carry(stderr, Output::Stderr, replies.clone(), ended)),
    ];
    let feeding = tokio::spawn(feed(stdin, inputs));
    let asked = obey(children, pid, requests, input);
    tokio::pin!(asked);
    let mut listening = true;
    let exit = loop {
        tokio::select! {
            // The collector answers for every registered command before it forgets it.
            exit = &mut exit => break exit.ok()?,
            () = replies.closed() => return None,
            caller = &mut asked, if listening => match caller {
                Caller::Gone => return None,
                Caller::SaidAll => listening = false,
            },
        }
    };
    feeding.abort();
    let _ = end.send(true);
    for output in outputs {
        let _ = output.await;
    }
    Some(exit)
}

/// Why nothing more comes from the caller.
enum Caller {
    /// It closed its side in good order: no more input, no more signals.
    SaidAll,
    /// Its stream broke.
    Gone,
}

/// Does what the caller asks of a running command.
async fn obey(
    children: &Children,
    pid: i32,
    mut requests: Streaming<ExecRequest>,
    input: mpsc::Sender<bytes::Bytes>,
) -> Caller {
    let mut input = Some(input);
    loop {
        match requests.message().await {
            Ok(Some(ExecRequest { request: Some(Request::Stdin(bytes)) })) => {
                if let Some(input) = &input {
                    // The receiver goes when the command closes its standard input: the rest is dropped.
                    let _ = input.send(bytes).await;
                }
            }
            Ok(Some(ExecRequest { request: Some(Request::StdinClosed(true)) })) => input = None,
            Ok(Some(ExecRequest { request: Some(Request::Signal(signal)) })) => children.signal(pid, signal),
            // A second start, and requests of a later version.
            Ok(Some(_)) => {}
            Ok(None) => return Caller::SaidAll,
            Err(_) => return Caller::Gone,
        }
    }
}

/// What a command is connected by.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) exit: tokio::sync::oneshot::Receiver<Exit>,
}

impl Pipes {
    pub(super) fn of(mut started: Started) -> Result<Self, CommandError> {
        let failed = |why| CommandError::StartFailed { program: "its pipes".into(), why };
        let missing = || failed(std::io::ErrorKind::BrokenPipe.into());
        let child = &mut started.child;
        Ok(Self {
            stdin: ChildStdin::from_std(child.stdin.take().ok_or_else(missing)?).map_err(failed)?,
            stdout: ChildStdout::from_std(child.stdout.take().ok_or_else(missing)?).map_err(failed)?,
            stderr: ChildStderr::from_std(child.stderr.take().ok_or_else(missing)?).map_err(failed)?,
            exit: started.exit,
        })
    }
}

async fn fail(replies: &Replies, failed: ExecFailed) {
    let _ = reply(replies, Reply::Failed(failed)).await;
}

async fn reply(
    replies: &Replies,
    reply: Reply,
) -> Result<(), mpsc::error::SendError<Result<ExecReply, Status>>> {
    replies.send(Ok(ExecReply { reply: Some(reply) })).await
}
