//! Starts the program on all nodes, and checks where its ranks ran.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    time::Duration,
};

use gridcast_control::launch::{self, Ended, Observed};
use gridcast_core::{
    mpi::{HostSlots, Interface, Launcher, TagFilter, TagStyle},
    report::PlacedRanks,
};
use gridcast_lab::fabric::INTERFACE;
use gridcast_proto::v1 as wire;
use tokio::sync::mpsc;

use crate::failure::Failure;

use super::{
    cluster::Cluster,
    exec::{self, Stream},
    intake::{Intake, RunPlan},
    progress::Progress,
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
    let launcher = Launcher {
        interface: Interface::new(INTERFACE),
        shared_cores: true,
        tcp_only: true,
        ..Launcher::default()
    };
    match &intake.run {
        Some(run) => run.program.environment(&launcher),
        None => gridcast_core::mpi::launcher_environment(&launcher),
    }
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
    let program = &run.program;
    let command = exec::Command {
        argv: program.argv(None),
        environment: environment(intake).into_iter().collect::<HashMap<_, _>>(),
        directory: intake.directory.to_string_lossy().into_owned(),
        launch: id.to_owned(),
    };
    let first = &cluster.remotes[0];
    let launched = progress.now();
    progress.say("launch", &format!("{} processes of {}", program.processes, program.command[0]));
    // No input: the sender is dropped, so that the program reads the end of the file.
    let (requests, receive) = mpsc::channel(1);
    let _ = requests.try_send(wire::exec_request::Request::StdinClosed(true));
    drop(requests);
    let hosts = program.tag_hosts(&slots);
    let mut output = Output::new((!hosts.is_empty()).then_some(hosts));
    let exited =
        exec::run(first, command, receive, || (), |stream, bytes| output.take(stream, bytes)).await?;
    let stderr_tail = output
        .finish()
        .map_err(|e| Failure::failed("OutputClosed", format!("cannot write the program's output: {e}")))?;
    let observed = launch::observe(&cluster.remotes, id).await?;
    let ended = Ended { code: exited.code, signal: exited.signal, stderr_tail };
    let judgement = launch::judge(program, &slots, &first.name, &ended, &observed);
    Ok(Launched {
        exit_code: judgement.exit_code,
        ended: true,
        placement: judgement.placement,
        first_rank: first_rank(&observed, launched, progress),
        problem: judgement.problem.map(|problem| (problem.reason, problem.message)),
    })
}

/// What is known of a launch that ended before its program did: by a loss, the deadline or the user. None where no rank
/// was seen. `launched` in seconds from the start of the run.
pub(crate) async fn cut_short(
    cluster: &Cluster,
    id: &str,
    launched: f64,
    progress: &Progress,
) -> Option<Launched> {
    let seen = launch::observe_some(&cluster.remotes, id, CUT_SHORT_TIMEOUT).await;
    let first_rank = first_rank(&seen, launched, progress)?;
    let exit_code = 128 + libc::SIGTERM;
    Some(Launched {
        exit_code,
        ended: false,
        placement: launch::placed(&seen),
        first_rank: Some(first_rank),
        problem: None,
    })
}

/// When the first rank reported, in seconds from the start of the run; not before the launch, whatever ages are rounded to.
fn first_rank(observed: &Observed, launched: f64, progress: &Progress) -> Option<f64> {
    launch::first_rank(observed).map(|age| (progress.now() - age.as_secs_f64()).max(launched))
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
