//! How does a command get to another node, as ssh would bring it there?
//!
//! The semantics are ssh's, because launchers rely on them: arguments joined by spaces and run by `sh -c`, the three
//! streams, the exit code of the command (128 + signal), 255 for trouble with the connection. Beyond ssh, the
//! environment and the working directory come along.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridcast_proto::v1::exec_reply::Reply;
use gridcast_proto::v1::exec_request::Request;
use gridcast_proto::v1::starter_client::StarterClient;
use gridcast_proto::v1::{ExecExited, ExecFailed, ExecReply, ExecRequest, ExecStart};
use tokio::sync::{mpsc, watch};
use tonic::Streaming;
use tonic::transport::Channel;

use super::hosts::Hosts;
use super::ssh::{self, RemoteCommand};
use super::{
    DEFAULT_HOSTS, DEFAULT_KEYS, ENV_HOSTS, ENV_KEYS, ENV_LAUNCH, ENV_PORT, STARTER_PORT, environment,
    variable,
};
use crate::tls::Identity;

mod connection;
mod local;

pub use connection::RemoteError;
pub(super) use connection::ask_name;
use local::Signals;

/// ssh's code for its own failures.
const TROUBLE: u8 = 255;
/// Messages to the remote side that are made but not yet sent.
const REQUESTS_IN_FLIGHT: usize = 4;
/// A signal that HTTP/2's window does not let through in this time (the command does not read its input) is
/// delivered by dropping the call: the starter then ends the command.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(2);

/// Where keys, names and the port come from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of `ca.pem`, `cert.pem`, `key.pem`.
    pub keys: PathBuf,
    /// The hosts file.
    pub hosts: PathBuf,
    /// Of every starter.
    pub port: u16,
}

impl Settings {
    /// From the environment, with the node's usual places as defaults.
    pub fn from_environment() -> Result<Self, RemoteError> {
        let path =
            |name: &str, default: &str| variable(name).map_or_else(|| PathBuf::from(default), PathBuf::from);
        let port = match variable(ENV_PORT) {
            None => STARTER_PORT,
            Some(text) => text.parse().map_err(|_| RemoteError::Port { text })?,
        };
        Ok(Self { keys: path(ENV_KEYS, DEFAULT_KEYS), hosts: path(ENV_HOSTS, DEFAULT_HOSTS), port })
    }
}

/// `gridcast-starter exec …`: runs a command on another node and returns the exit code for this process. Says on
/// standard error what went wrong, with the host, one word for the reason, and what to do.
pub async fn run(arguments: &[String]) -> u8 {
    let command = match ssh::parse(arguments) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("gridcast-starter exec: {error}");
            return TROUBLE;
        }
    };
    let outcome = match Settings::from_environment() {
        Ok(settings) => execute(&settings, &command).await,
        Err(error) => Err(error),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("gridcast-starter exec: {}: {}: {}", command.host, error.reason(), error.explained());
        TROUBLE
    })
}

async fn execute(settings: &Settings, command: &RemoteCommand) -> Result<u8, RemoteError> {
    let location = Hosts::locate_in(&settings.hosts, &command.host)?;
    let identity = Identity::load(&settings.keys)?;
    let mut signals = Signals::new().map_err(RemoteError::Local)?;
    let address = SocketAddr::new(location.address, settings.port);
    let connected = connection::connect(&identity, &location, settings.port);
    let client = tokio::select! {
        client = connected => client?,
        signal = signals.next() => return Ok(killed_by(signal)),
    };
    let call = Call { client, signals, read_stdin: !command.no_stdin, address };
    attempts(call, command).await
}

/// Tries the directories in which the command may run: one that exists there as here, else as after a login, else
/// what always exists.
async fn attempts(mut call: Call, command: &RemoteCommand) -> Result<u8, RemoteError> {
    let environment = environment::forwarded(std::env::vars_os());
    let own = std::env::current_dir().ok().and_then(|path| path.into_os_string().into_string().ok());
    let home = environment.get("HOME").cloned();
    let mut failure = None;
    for directory in own.into_iter().chain(home).chain(["/".to_owned()]) {
        let start = start(&command.script, &environment, directory);
        match call.attempt(start).await? {
            Outcome::Code(code) => return Ok(code),
            Outcome::Failed(failed) if failed.reason == "NoDirectory" => failure = Some(failed),
            Outcome::Failed(failed) => return Ok(not_started(&command.host, &failed)),
        }
    }
    Ok(failure.map_or(TROUBLE, |failed| not_started(&command.host, &failed)))
}

fn start(script: &str, environment: &HashMap<String, String>, directory: String) -> ExecStart {
    ExecStart {
        argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
        environment: environment.clone(),
        // What is true of that host only (and was not forwarded) is its own starter's.
        inherit_environment: true,
        directory,
        launch: variable(ENV_LAUNCH).unwrap_or_default(),
    }
}

fn not_started(host: &str, failed: &ExecFailed) -> u8 {
    eprintln!("gridcast-starter exec: {host}: {}: {}", failed.reason, failed.message);
    match failed.reason.as_str() {
        "ProgramNotFound" => 127,
        "NotExecutable" => 126,
        _ => TROUBLE,
    }
}

fn killed_by(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(TROUBLE)
}

enum Outcome {
    Code(u8),
    Failed(ExecFailed),
}

/// What one or more attempts need.
struct Call {
    client: StarterClient<Channel>,
    signals: Signals,
    read_stdin: bool,
    address: SocketAddr,
}

impl Call {
    /// One attempt. Standard input is touched only once the command has started, so that a second attempt finds it
    /// whole.
    async fn attempt(&mut self, start: ExecStart) -> Result<Outcome, RemoteError> {
        let (started, has_started) = watch::channel(false);
        let (requests, outgoing) = connection::requests(REQUESTS_IN_FLIGHT);
        let first = ExecRequest { request: Some(Request::Start(start)) };
        requests.bulk.try_send(first).map_err(|_| RemoteError::Lost { started: false })?;
        let (mut client, read_stdin, address) = (self.client.clone(), self.read_stdin, self.address);
        let answers = async {
            let replies =
                client.exec(outgoing).await.map_err(|status| RemoteError::refused(&status, address))?;
            show(replies.into_inner(), requests.bulk, read_stdin, &started).await
        };
        // Both at once: output that nobody reads must not keep signals away.
        tokio::select! {
            outcome = answers => outcome,
            code = pass_signals(&mut self.signals, &requests.urgent, has_started) => Ok(Outcome::Code(code)),
        }
    }
}

/// Carries the replies to this process's streams.
async fn show(
    mut replies: Streaming<ExecReply>,
    bulk: Bulk,
    read_stdin: bool,
    started: &watch::Sender<bool>,
) -> Result<Outcome, RemoteError> {
    let mut bulk = Some(bulk);
    loop {
        let reply = replies.message().await.map_err(|_| RemoteError::Lost { started: *started.borrow() })?;
        match reply.and_then(|reply| reply.reply) {
            Some(Reply::Started(_)) => {
                started.send_replace(true);
                if let Some(bulk) = bulk.take() {
                    local::feed(read_stdin, bulk);
                }
            }
            Some(Reply::Stdout(bytes)) => {
                if let Some(code) = local::write_stdout(bytes).await.map_err(RemoteError::Local)? {
                    return Ok(Outcome::Code(code));
                }
            }
            Some(Reply::Stderr(bytes)) => local::write_stderr(bytes).await,
            Some(Reply::Exited(ExecExited { code, signal: 0 })) => {
                return Ok(Outcome::Code(u8::try_from(code).unwrap_or(TROUBLE)));
            }
            Some(Reply::Exited(ExecExited { signal, .. })) => return Ok(Outcome::Code(killed_by(signal))),
            Some(Reply::Failed(failed)) => return Ok(Outcome::Failed(failed)),
            None => return Err(RemoteError::Lost { started: *started.borrow() }),
        }
    }
}

/// Passes signals on, and returns the exit code for this process once one cannot be passed on: the call is then
/// dropped, which ends the command, and this process ends as the signal would have it.
async fn pass_signals(
    signals: &mut Signals,
    urgent: &mpsc::Sender<ExecRequest>,
    mut started: watch::Receiver<bool>,
) -> u8 {
    let mut signal = signals.next().await;
    loop {
        // The command may be running already, with its start on the way to us.
        if !matches!(
            tokio::time::timeout(SIGNAL_PATIENCE, started.wait_for(|&started| started)).await,
            Ok(Ok(_))
        ) {
            return killed_by(signal);
        }
        // A full queue means that the one before it has not gone either.
        let _ = urgent.try_send(ExecRequest { request: Some(Request::Signal(signal)) });
        match tokio::time::timeout(SIGNAL_PATIENCE, signals.next()).await {
            Ok(next) => signal = next,
            Err(_) if urgent.capacity() < urgent.max_capacity() => return killed_by(signal),
            Err(_) => signal = signals.next().await,
        }
    }
}

/// What standard input becomes.
type Bulk = mpsc::Sender<ExecRequest>;

/// For messages: a path as text.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
