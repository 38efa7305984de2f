//! Starts the program on all nodes, and checks where its ranks ran.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    time::Duration,
};

use gridcast_core::{
    mpi::{self, HostSlots, Interface, Launch, Launcher, ObservedRank, TagFilter, TagStyle},
    report::PlacedRanks,
};
use gridcast_lab::fabric::INTERFACE;
use gridcast_proto::v1::{self as wire, RanksRequest};
use tokio::sync::mpsc;

use crate::failure::Failure;

use super::{
    cluster::Cluster,
    exec::{self, Stream},
    intake::{Intake, MPIRUN, RunPlan},
    progress::Progress,
    remote::Remote,
};

/// What is kept of the end of standard error, to find the rank that failed.
const TAIL_BYTES: usize = 64 << 10;

/// A node that does not answer does not hold up the end.
const CUT_SHORT_TIMEOUT: Duration = Duration::from_secs(1);

/// What a launch came to.
#[derive(Debug)]
pub(crate) struct Launched {
    /// 128 + signal where a signal ended it, be it ours.
    pub(crate) exit_code: i32,
    /// By itself, rather than stopped by this command.
    pub(crate) ended: bool,
    pub(crate) placement: Vec<PlacedRanks>,
    /// Seconds from the start of the run.
    pub(crate) first_rank: Option<f64>,
    /// Why it is not complete, if it is not.
    pub(crate) problem: Option<(String, String)>,
}

/// What a program on a node finds in its environment, so that `mpirun` needs no options.
pub(crate) fn environment(intake: &Intake) -> BTreeMap<String, String> {
    let run = intake.run.as_ref();
    let launcher = Launcher {
        interface: Interface::new(INTERFACE),
        shared_cores: true,
        allow_oversubscribe: run.is_some_and(|r| r.allow_oversubscribe),
        tcp_only: true,
        ..Launcher::default()
    };
    let mut environment = mpi::launcher_environment(&launcher);
    environment.extend(run.iter().flat_map(|r| r.environment.clone()));
    environment
}

/// Runs the program. Returns when `mpirun` has ended; dropped earlier, it ends the program.
pub(crate) async fn launch(
    intake: &Intake,
    run: &RunPlan,
    cluster: &Cluster,
    id: &str,
    progress: &Progress,
) -> Result<Launched, Failure> {
    let slots: Vec<HostSlots> =
        intake.nodes.iter().map(|n| HostSlots { name: n.name.clone(), slots: n.slots }).collect();
    let hosts = mpi::hosts_by_rank(&slots, run.processes);
    let launch = Launch {
        mpirun: MPIRUN.to_owned(),
        tag_output: run.tag_output,
        allow_oversubscribe: run.allow_oversubscribe,
        ..Launch::new(run.processes, run.command.clone())
    };
    let command = exec::Command {
        argv: mpi::launch_command(&launch),
        environment: environment(intake).into_iter().collect::<HashMap<_, _>>(),
        directory: intake.directory.to_string_lossy().into_owned(),
        launch: id.to_owned(),
    };
    let first = &cluster.remotes[0];
    let launched = progress.now();
    progress.say("launch", &format!("{} processes of {}", run.processes, run.command[0]));
    // No input: the sender is dropped, so that the program reads the end of the file.
    let (requests, receive) = mpsc::channel(1);
    let _ = requests.try_send(wire::exec_request::Request::StdinClosed(true));
    drop(requests);
    let mut output = Output::new(run.tag_output.then(|| hosts.clone()));
    let exited =
        exec::run(first, command, receive, || (), |stream, bytes| output.take(stream, bytes)).await?;
    let tail = output
        .finish()
        .map_err(|e| Failure::failed("OutputClosed", format!("cannot write the program's output: {e}")))?;
    let observed = observe(cluster, id).await?;
    let first_rank = first_rank(&observed, launched, progress);
    let exit_code = exited.shell_code();
    let ended = rank_end(&tail, &observed, &hosts);
    let observed: Vec<(String, Vec<ObservedRank>)> = observed
        .into_iter()
        .map(|(host, ranks)| {
            (host, ranks.iter().map(|r| ObservedRank { rank: r.rank, world: r.world }).collect())
        })
        .collect();
    let checked = mpi::check_placement(&slots, run.processes, &observed);
    let (placement, misplaced) = match checked {
        Ok(placement) => (placement, None),
        Err(error) => (error.seen.clone(), Some((error.reason().to_owned(), error.to_string()))),
    };
    let problem = match (exited.signal, exit_code) {
        (0, 0) => misplaced,
        (0, _) => Some(why(run, exit_code, ended)),
        (signal, _) => Some((
            "LauncherKilled".to_owned(),
            format!("{}: {MPIRUN} was killed by signal {signal}", first.name),
        )),
    };
    Ok(Launched { exit_code, ended: true, placement, first_rank, problem })
}

/// Why the program did not end well.
fn why(run: &RunPlan, exit_code: i32, ended: Option<mpi::RankEnd>) -> (String, String) {
    let program = &run.command[0];
    match ended {
        Some(end) if end.end == mpi::End::Code(127) => (
            "ProgramNotFound".to_owned(),
            format!("{program} was not found: {end}; give its path, or put it in PATH"),
        ),
        Some(end) if end.end == mpi::End::Code(126) => (
            "NotExecutable".to_owned(),
            format!("{program} cannot be executed: {end}; is it a program of this machine?"),
        ),
        Some(end) => (end.reason().to_owned(), format!("{program}: {end}")),
        None => (
            "ProgramFailed".to_owned(),
            format!("{program} ended with code {exit_code}; its output says more"),
        ),
    }
}

/// Which rank ended the run: by what `mpirun` said, else by what the starters saw.
fn rank_end(
    tail: &[u8],
    observed: &[(String, Vec<wire::ObservedRank>)],
    hosts: &[String],
) -> Option<mpi::RankEnd> {
    let said = mpi::rank_end(&String::from_utf8_lossy(tail), hosts);
    let seen = || {
        let mut ended: Vec<(&String, &wire::ObservedRank)> = observed
            .iter()
            .flat_map(|(host, ranks)| ranks.iter().map(move |r| (host, r)))
            .filter(|(_, r)| r.ended && (r.signal != 0 || r.code > 0))
            .collect();
        // When one rank fails, the launcher ends the others with SIGTERM, and SIGKILL where that does not help.
        ended.sort_by_key(|(_, r)| (r.signal == 15, r.signal == 9, r.rank));
        ended.first().map(|(host, r)| mpi::RankEnd {
            rank: r.rank,
            host: Some((*host).clone()),
            end: if r.signal == 0 { mpi::End::Code(r.code) } else { mpi::End::Signal(r.signal) },
        })
    };
    said.or_else(seen)
}

/// The ranks that one node's starter saw.
async fn ranks(remote: &Remote, id: &str) -> Result<(String, Vec<wire::ObservedRank>), tonic::Status> {
    let reply = remote.starter().ranks(RanksRequest { launch: id.to_owned() }).await?;
    Ok((remote.name.clone(), reply.into_inner().ranks))
}

/// The ranks that each node's starter saw.
async fn observe(cluster: &Cluster, id: &str) -> Result<Vec<(String, Vec<wire::ObservedRank>)>, Failure> {
    let asks = cluster.remotes.iter().map(|remote: &Remote| async move {
        ranks(remote, id).await.map_err(|s| remote.failed("NodeLost", "asking for its ranks", &s))
    });
    futures::future::try_join_all(asks).await
}

/// What is known of a launch that ended before its program did: by a loss, the deadline or the user. None where no rank
/// was seen. `launched` in seconds from the start of the run.
pub(crate) async fn cut_short(
    cluster: &Cluster,
    id: &str,
    launched: f64,
    progress: &Progress,
) -> Option<Launched> {
    let asks =
        cluster.remotes.iter().map(|remote| tokio::time::timeout(CUT_SHORT_TIMEOUT, ranks(remote, id)));
    let seen: Vec<_> =
        futures::future::join_all(asks).await.into_iter().flatten().filter_map(Result::ok).collect();
    let first_rank = first_rank(&seen, launched, progress)?;
    let placed = seen.into_iter().filter(|(_, ranks)| !ranks.is_empty()).map(|(host, ranks)| {
        let mut ranks: Vec<u32> = ranks.iter().map(|r| r.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        PlacedRanks { host, ranks }
    });
    let exit_code = 128 + libc::SIGTERM;
    Some(Launched {
        exit_code,
        ended: false,
        placement: placed.collect(),
        first_rank: Some(first_rank),
        problem: None,
    })
}

/// When the first rank reported, in seconds from the start of the run; not before the launch, whatever ages are rounded to.
fn first_rank(
    observed: &[(String, Vec<wire::ObservedRank>)],
    launched: f64,
    progress: &Progress,
) -> Option<f64> {
    let now = progress.now();
    let ages = observed.iter().flat_map(|(_, ranks)| ranks).map(|r| r.age_micros as f64 / 1e6);
    ages.max_by(f64::total_cmp).map(|age| (now - age).max(launched))
}

/// Passes the program's output on, with the rank's host in front where that was asked for.
struct Output {
    filters: Option<(TagFilter, TagFilter)>,
    tail: Vec<u8>,
}

impl Output {
    fn new(hosts: Option<Vec<String>>) -> Self {
        let filter = |hosts: &Vec<String>| TagFilter::new(hosts.clone(), TagStyle::Unknown);
        Self { filters: hosts.map(|h| (filter(&h), filter(&h))), tail: Vec::new() }
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if stream == Stream::Err {
            self.tail.extend_from_slice(bytes);
            let surplus = self.tail.len().saturating_sub(2 * TAIL_BYTES);
            if surplus > 0 {
                self.tail.drain(..surplus + TAIL_BYTES);
            }
        }
        match (&mut self.filters, stream) {
            (None, _) => exec::to_standard(stream, bytes),
            (Some((out, _)), Stream::Out) => exec::to_standard(stream, &out.feed(bytes)),
            (Some((_, err)), Stream::Err) => exec::to_standard(stream, &err.feed(bytes)),
        }
    }

    /// What is left of unfinished lines; returns the end of standard error.
    fn finish(self) -> io::Result<Vec<u8>> {
        if let Some((out, err)) = self.filters {
            exec::to_standard(Stream::Out, &out.finish())?;
            exec::to_standard(Stream::Err, &err.finish())?;
        }
        Ok(self.tail)
    }
}
