//! Which rank is this, and how does its node learn of it before the program runs?
//!
//! `mpirun` starts `gridcast-starter rank -- PROGRAM…` in place of the program. The report is answered before exec, so
//! that a rank of one millisecond is seen; the PID stays, so that the rank's end is seen too.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gridcast_proto::v1::RankReport;
use gridcast_proto::v1::rank_reports_client::RankReportsClient;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::UnixStream;
use tonic::transport::Endpoint;

use super::program::find_program;
use gridcast_core::failure::chain;

use super::{DEFAULT_SOCKET, ENV_LAUNCH, ENV_SOCKET, variable};

/// A starter answers within a millisecond; one that is starved for longer than this does not hold up the program.
const ANSWER: Duration = Duration::from_secs(10);

/// Rank and world size as the launchers say them: PMIx (Open MPI 4 and 5, PRRTE), Open MPI, PMI (MPICH, Intel MPI).
const RANK_VARIABLES: &[&str] = &["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];
const WORLD_VARIABLES: &[&str] = &["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"];

/// Why a rank is not reported.
#[derive(Debug, Error)]
enum ReportError {
    #[error("no rank in the environment ({}): start it with mpirun", RANK_VARIABLES.join(", "))]
    NoRank,
    #[error("no answer on {socket} within {} s", ANSWER.as_secs())]
    Timeout { socket: PathBuf },
    #[error("no starter on {socket}")]
    Connect { socket: PathBuf, source: tonic::transport::Error },
    #[error("the starter refused: {0}")]
    Refused(String),
    #[error("no runtime")]
    Runtime(#[source] io::Error),
}

/// Rank and world size (0 = not said), or `None` outside of an MPI launch.
fn rank_of(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    let first = |names: &[&str]| names.iter().find_map(|name| variable(name)?.trim().parse().ok());
    Some((first(RANK_VARIABLES)?, first(WORLD_VARIABLES).unwrap_or(0)))
}

/// Reports and becomes the program. Returns only if that fails, with the exit code: 127 if the program is missing, 126
/// if it cannot be executed. A rank that could not be reported runs all the same; what could not be seen is for
/// the placement check to judge.
pub fn run(command: &[OsString]) -> u8 {
    let [program, arguments @ ..] = command else {
        eprintln!("usage: gridcast-starter rank -- PROGRAM [ARGUMENT…]");
        return 2;
    };
    let name = program.to_string_lossy();
    let host = hostname();
    let rank = rank_of(variable);
    let who =
        rank.map_or_else(|| format!("a process on {host}"), |(rank, _)| format!("rank {rank} on {host}"));
    if let Err(error) = report(rank, &host, &name) {
        eprintln!(
            "gridcast-starter: {who} could not be reported and will count as unseen: {}",
            chain(&error)
        );
    }
    let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let path = std::env::var_os("PATH").map(|path| path.to_string_lossy().into_owned());
    let file = match find_program(&name, path.as_deref(), &directory) {
        // The bytes as given, where the name is a path: it need not be UTF-8.
        Ok(_) if name.contains('/') => PathBuf::from(program),
        Ok(file) => file,
        Err(error) => {
            eprintln!("gridcast-starter: {who}: {error}");
            return error.exit_code();
        }
    };
    let error = become_program(&file, program, arguments);
    eprintln!("gridcast-starter: {who}: `{}` cannot be executed: {error}", file.display());
    126
}

fn become_program(file: &Path, name: &OsString, arguments: &[OsString]) -> io::Error {
    Command::new(file).arg0(name).args(arguments).exec()
}

fn hostname() -> String {
    nix::unistd::gethostname()
        .map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn report(rank: Option<(u32, u32)>, host: &str, program: &str) -> Result<(), ReportError> {
    let (rank, world) = rank.ok_or(ReportError::NoRank)?;
    let report = RankReport {
        launch: variable(ENV_LAUNCH).unwrap_or_default(),
        rank,
        world,
        host: host.to_owned(),
        pid: std::process::id().into(),
        program: program.to_owned(),
    };
    let socket = PathBuf::from(variable(ENV_SOCKET).unwrap_or_else(|| DEFAULT_SOCKET.to_owned()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(ReportError::Runtime)?.block_on(async {
        let sent = tokio::time::timeout(ANSWER, send(&socket, report));
        sent.await.unwrap_or_else(|_| Err(ReportError::Timeout { socket: socket.clone() }))
    })
}

async fn send(socket: &Path, report: RankReport) -> Result<(), ReportError> {
    let path = socket.to_owned();
    let connect = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    // The address is not used: the connector goes to the socket.
    let endpoint = Endpoint::from_static("http://ranks.invalid");
    let channel = endpoint.connect_with_connector(connect).await;
    let channel = channel.map_err(|source| ReportError::Connect { socket: socket.to_owned(), source })?;
    let sent = RankReportsClient::new(channel).report(report).await;
    sent.map(drop).map_err(|status| ReportError::Refused(status.message().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Option<(u32, u32)> {
        rank_of(|name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn every_launcher_s_way_of_saying_it_is_understood() {
        let ompi4 = [("PMIX_RANK", "3"), ("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "16")];
        assert_eq!(from(&ompi4), Some((3, 16)));
        assert_eq!(from(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Some((0, 2)));
        assert_eq!(from(&[("PMIX_RANK", "1")]), Some((1, 0)));
        assert_eq!(from(&[("PMIX_RANK", "x"), ("PMI_RANK", "4")]), Some((4, 0)));
        assert_eq!(from(&[("PMI_SIZE", "2")]), None);
        assert_eq!(from(&[("PMI_RANK", "-1")]), None);
    }
}
