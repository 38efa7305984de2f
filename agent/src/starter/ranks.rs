//! Which ranks were seen on this node, and how did they end?

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridcast_proto::v1::rank_reports_server::RankReports;
use gridcast_proto::v1::{ObservedRank, RankReport, RankReportReply};
use thiserror::Error;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status};

use super::children::Exit;
use super::pidfd::{Pidfd, State};

/// Launches remembered: enough for retries and for clusters kept between commands.
pub const MAX_LAUNCHES: usize = 32;
/// Ranks of one launch on one node: eight times the logical CPUs of the largest machines in use.
pub const MAX_RANKS: usize = 4096;
/// A launch id is a Kubernetes UID or shorter.
const MAX_LAUNCH_BYTES: usize = 128;
/// PATH_MAX.
const MAX_PROGRAM_BYTES: usize = 4096;
/// Handles open before the list is looked through for ranks that have ended.
const HANDLES_BEFORE_REFRESH: usize = 128;

/// Why a report is not taken. The rank runs on, unseen.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReportError {
    /// More than [`MAX_RANKS`].
    #[error("launch `{launch}` has {MAX_RANKS} ranks on this node already: no more are listed")]
    TooManyRanks {
        /// The launch.
        launch: String,
    },
    /// [`MAX_LAUNCHES`] launches all have ranks that still run.
    #[error("{MAX_LAUNCHES} launches run on this node already: end one of them")]
    TooManyLaunches,
    /// The launch's id is not one of gridcast's.
    #[error("the launch id of {bytes} bytes is longer than {MAX_LAUNCH_BYTES}: unset GRIDCAST_LAUNCH")]
    LaunchTooLong {
        /// Its length.
        bytes: usize,
    },
}

#[derive(Debug)]
struct Rank {
    rank: u32,
    world: u32,
    pid: i32,
    program: String,
    reported: Instant,
    /// Open until the end is known for good; `None` from the start where no handle could be had.
    handle: Option<Pidfd>,
    ended: bool,
    exit: Option<Exit>,
}

impl Rank {
    fn refresh(&mut self) {
        match self.handle.as_ref().map(Pidfd::state) {
            None | Some(State::Running) => {}
            Some(State::Uncollected) => self.ended = true,
            Some(State::Ended(exit)) => {
                self.ended = true;
                self.exit = exit;
                self.handle = None;
            }
        }
    }

    fn observed(&self, now: Instant) -> ObservedRank {
        let age = now.saturating_duration_since(self.reported).as_micros();
        ObservedRank {
            rank: self.rank,
            world: self.world,
            pid: self.pid.into(),
            age_micros: u64::try_from(age).unwrap_or(u64::MAX),
            program: self.program.clone(),
            ended: self.ended,
            signal: self.exit.map_or(0, |exit| exit.signal),
            code: self.exit.map_or(-1, |exit| exit.code),
        }
    }
}

#[derive(Debug)]
struct Launch {
    id: String,
    ranks: Vec<Rank>,
}

/// The ranks of this node, by launch; the oldest launch first.
#[derive(Debug, Default)]
pub struct Ranks {
    launches: Mutex<VecDeque<Launch>>,
}

impl Ranks {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Launch>> {
        // Every change is a single push or assignment.
        self.launches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a report of the process `pid`. `handle` is `None` where the process could not be held: it is then never
    /// said to have ended.
    pub fn report(
        &self,
        report: RankReport,
        pid: i32,
        handle: Option<Pidfd>,
        now: Instant,
    ) -> Result<(), ReportError> {
        if report.launch.len() > MAX_LAUNCH_BYTES {
            return Err(ReportError::LaunchTooLong { bytes: report.launch.len() });
        }
        let mut launches = self.lock();
        close_handles(&mut launches);
        let position = launches.iter().position(|launch| launch.id == report.launch);
        if position.is_none() {
            make_room(&mut launches)?;
            launches.push_back(Launch { id: report.launch.clone(), ranks: Vec::new() });
        }
        let index = position.unwrap_or(launches.len() - 1);
        let ranks = &mut launches[index].ranks;
        if ranks.len() >= MAX_RANKS {
            return Err(ReportError::TooManyRanks { launch: report.launch });
        }
        let RankReport { rank, world, program, .. } = report;
        let program = truncated(program);
        ranks.push(Rank { rank, world, pid, program, reported: now, handle, ended: false, exit: None });
        Ok(())
    }

    /// The ranks of one launch, in the order they reported; none for a launch that is not known.
    pub fn list(&self, launch: &str, now: Instant) -> Vec<ObservedRank> {
        let mut launches = self.lock();
        let Some(launch) = launches.iter_mut().find(|other| other.id == launch) else { return Vec::new() };
        launch.ranks.iter_mut().for_each(Rank::refresh);
        launch.ranks.iter().map(|rank| rank.observed(now)).collect()
    }
}

/// Forgets the oldest launch of which nothing runs, if there are too many.
fn make_room(launches: &mut VecDeque<Launch>) -> Result<(), ReportError> {
    if launches.len() < MAX_LAUNCHES {
        return Ok(());
    }
    launches.iter_mut().flat_map(|launch| &mut launch.ranks).for_each(Rank::refresh);
    let idle = launches.iter().position(|launch| launch.ranks.iter().all(|rank| rank.handle.is_none()));
    let idle = idle.ok_or(ReportError::TooManyLaunches)?;
    launches.remove(idle);
    Ok(())
}

/// Lets go of the handles of ended ranks. Looks through them only when their number is a power of two above the
/// threshold, so that n reports cost n looks in all.
fn close_handles(launches: &mut VecDeque<Launch>) {
    let ranks = || launches.iter().flat_map(|launch| &launch.ranks);
    let open = ranks().filter(|rank| rank.handle.is_some()).count();
    if open >= HANDLES_BEFORE_REFRESH && open.is_power_of_two() {
        launches.iter_mut().flat_map(|launch| &mut launch.ranks).for_each(Rank::refresh);
    }
}

fn truncated(mut text: String) -> String {
    if text.len() > MAX_PROGRAM_BYTES {
        text.truncate(text.floor_char_boundary(MAX_PROGRAM_BYTES));
    }
    text
}

/// `RankReports` on the Unix socket.
#[derive(Debug, Clone)]
pub struct RankReportsService {
    ranks: Arc<Ranks>,
}

impl RankReportsService {
    /// Fills the given list.
    pub fn new(ranks: Arc<Ranks>) -> Self {
        Self { ranks }
    }
}

#[tonic::async_trait]
impl RankReports for RankReportsService {
    async fn report(&self, request: Request<RankReport>) -> Result<Response<RankReportReply>, Status> {
        // The kernel's word, not the report's: in our PID namespace, and beyond doubt. The reporter waits for the
        // answer, so the PID is still its own when the handle is opened.
        let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        let Some(pid) = peer.and_then(|peer| peer.pid()).filter(|pid| *pid > 0) else {
            return Err(Status::failed_precondition("the reporter is in no PID namespace of this node"));
        };
        let report = request.into_inner();
        tracing::debug!(launch = report.launch, rank = report.rank, host = report.host, pid, "rank");
        let handle = Pidfd::open(pid).inspect_err(|error| tracing::warn!(%error, pid, "no handle on a rank"));
        let taken = self.ranks.report(report, pid, handle.ok(), Instant::now());
        taken.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        Ok(Response::new(RankReportReply {}))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn report(launch: &str, rank: u32) -> RankReport {
        RankReport { launch: launch.into(), rank, world: 4, program: "ring".into(), ..RankReport::default() }
    }

    fn process() -> (Child, Pidfd) {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let handle = Pidfd::open(child.id().cast_signed()).unwrap();
        (child, handle)
    }

    #[test]
    fn a_rank_is_listed_with_its_age_and_its_end() {
        let ranks = Ranks::default();
        let (mut child, handle) = process();
        let pid = child.id().cast_signed();
        let start = Instant::now();
        ranks.report(report("a", 3), pid, Some(handle), start).unwrap();
        let later = start + std::time::Duration::from_millis(5);
        let seen = &ranks.list("a", later)[0];
        assert_eq!((seen.rank, seen.world, seen.pid, seen.age_micros), (3, 4, i64::from(pid), 5000));
        assert!(!seen.ended);
        child.kill().unwrap();
        child.wait().unwrap();
        let seen = &ranks.list("a", later)[0];
        assert!(seen.ended);
        assert!(matches!((seen.signal, seen.code), (libc::SIGKILL, 0) | (0, -1)), "{seen:?}");
        assert!(ranks.list("b", later).is_empty());
    }

    #[test]
    fn old_launches_make_room_but_not_those_that_run() {
        let ranks = Ranks::default();
        let now = Instant::now();
        let (mut child, handle) = process();
        ranks.report(report("running", 0), 9, Some(handle), now).unwrap();
        for launch in 0..2 * MAX_LAUNCHES {
            ranks.report(report(&launch.to_string(), 0), 9, None, now).unwrap();
        }
        assert_eq!(ranks.list("running", now).len(), 1);
        assert!(ranks.list("0", now).is_empty());
        assert_eq!(ranks.list(&(2 * MAX_LAUNCHES - 1).to_string(), now).len(), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        ranks.report(report("next", 0), 9, None, now).unwrap();
        assert!(ranks.list("running", now).is_empty(), "the oldest, and ended");
    }

    #[test]
    fn no_report_grows_the_list_without_bound() {
        let ranks = Ranks::default();
        let now = Instant::now();
        for rank in 0..MAX_RANKS {
            ranks.report(report("a", rank as u32), 9, None, now).unwrap();
        }
        let error = ranks.report(report("a", 0), 9, None, now).unwrap_err();
        assert_eq!(error, ReportError::TooManyRanks { launch: "a".into() });
        let error = ranks.report(report(&"x".repeat(200), 0), 9, None, now).unwrap_err();
        assert_eq!(error, ReportError::LaunchTooLong { bytes: 200 });
        let long = RankReport { program: "é".repeat(5000), ..report("b", 0) };
        ranks.report(long, 9, None, now).unwrap();
        assert!(ranks.list("b", now)[0].program.len() <= MAX_PROGRAM_BYTES);
    }
}
