//! What becomes of the program?
//!
//! The first member's starter starts it, or has started it: a launch has an id, and asking for one that runs attaches to it.
//! So it outlives this operator, and a break of the connection. While it runs its output's end is kept and its first rank
//! looked for; when it has ended, all starters are asked which ranks they saw, and that decides what its end means.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use gridcast_control::{
    Remote, StepFailure,
    launch::{self, Followed, LaunchUpdate, Observed, Program},
};
use gridcast_core::mpi::{HostSlots, Launcher};
use gridcast_crds::virtual_cluster::status::Placement;
use gridcast_proto::v1::LaunchRequest;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::log_tail::LogTail;
use crate::virtual_cluster::{Launch, LaunchEnd, Trouble};

/// The first rank is looked for this often, at first.
const LOOK_SOON: Duration = Duration::from_millis(50);
/// A launch that has no rank by now takes longer than usual.
const LOOK_LATER_AFTER: Duration = Duration::from_secs(5);
/// From then on, and for what was written since the last report.
const LOOK_LATER: Duration = Duration::from_millis(500);
/// A starter answers from memory.
const RANKS_LIMIT: Duration = Duration::from_secs(3);
/// Starters that are asked at once.
const AT_ONCE: usize = 64;
/// A connection that broke is tried again for so long. A starter that is gone is seen by its pod, which is sooner; a network
/// that is mended within this time has cost nothing.
const REATTACH_FOR: Duration = Duration::from_mins(2);
/// Nodes that do not tell their ranks are asked again for so long when all seems well: one lost answer is not a lost node.
const ASK_FOR: Duration = Duration::from_secs(15);
/// From one attempt to the next.
const REATTACH_WAIT: Duration = Duration::from_millis(500);
/// Hosts of a placement that a status has room for.
const PLACEMENT_HOSTS: usize = 64;
/// Ranks of one of them.
const PLACEMENT_RANKS: usize = 1024;

/// What is launched.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its id.
    pub id: String,
    /// The program.
    pub program: Program,
    /// What the launcher's environment depends on.
    pub launcher: Launcher,
    /// All members, in machinefile order.
    pub slots: Vec<HostSlots>,
    /// It was seen to run: where the starter does not know it, that is another starter, and it must not be started by
    /// mistake.
    pub was_running: bool,
    /// The clock.
    pub now: fn() -> Timestamp,
}

/// Starts the program, or attaches to it, and follows it to its end. `remotes` in machinefile order.
///
/// Fails only where the first member's starter is lost; a program that could not be started has an end too.
pub async fn follow(
    remotes: &[Remote],
    order: &Order,
    report: &(dyn Fn(Launch) + Send + Sync),
) -> Result<Launch, StepFailure> {
    let Some(first) = remotes.first() else {
        return Err(StepFailure::new("NodeLost", "there is no node to launch from"));
    };
    let watched = Watched { order, report, seen: Mutex::default() };
    let ended = tokio::select! {
        ended = attached(first, order, &watched) => ended,
        () = watched.look(first, remotes) => return Err(StepFailure::new("Panicked", "the watch ended")),
    };
    let mut launch = watched.now();
    launch.end = Some(match ended {
        Ok(followed) => {
            if !followed.output_tail.is_empty() {
                let mut tail = LogTail::default();
                tail.push(&followed.output_tail);
                launch.log_tail = tail.text();
            }
            let (end, first_rank) = judged(remotes, order, &followed).await;
            launch.first_rank = launch.first_rank.or(first_rank);
            end
        }
        Err(failure) => not_started(failure, (order.now)())?,
    });
    Ok(launch)
}

/// Follows the launch over breaks of the connection.
async fn attached(first: &Remote, order: &Order, watched: &Watched<'_>) -> Result<Followed, StepFailure> {
    let mut request = LaunchRequest {
        id: order.id.clone(),
        start: Some(order.program.start(&order.launcher, &order.id)),
        attach_only: order.was_running,
        tag_hosts: order.program.tag_hosts(&order.slots),
    };
    let mut broken: Option<(Instant, StepFailure)> = None;
    loop {
        let mut heard = false;
        let ended = launch::attach(first, request.clone(), &mut |update| {
            heard = true;
            watched.take(update);
        })
        .await;
        let failure = match ended {
            // A program of before may still be on its way out, and a starter takes one at a time.
            Err(failure) if matches!(failure.reason.as_str(), "NodeLost" | "StarterRefused") => failure,
            // A starter that does not know it any more is another one than before the break.
            Err(failure) if failure.reason == "LaunchUnknown" => {
                return Err(broken.map_or(failure, |(_, lost)| lost));
            }
            ended => return ended,
        };
        watched.flush();
        if heard {
            request.attach_only = true;
            broken = None;
        }
        let (since, _) = broken.get_or_insert((Instant::now(), failure.clone()));
        if since.elapsed() >= REATTACH_FOR {
            return Err(failure);
        }
        tokio::time::sleep(REATTACH_WAIT).await;
    }
}

/// What was seen of a launch so far.
struct Watched<'a> {
    order: &'a Order,
    report: &'a (dyn Fn(Launch) + Send + Sync),
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    launch: Launch,
    tail: LogTail,
    /// Something was written since the last report.
    news: bool,
}

impl Watched<'_> {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, update: LaunchUpdate) {
        match update {
            LaunchUpdate::Started { age } => {
                self.seen().launch.started.get_or_insert(before((self.order.now)(), age));
                self.tell();
            }
            LaunchUpdate::Output(output) => {
                let mut seen = self.seen();
                seen.tail.push(&output);
                seen.news = true;
            }
        }
    }

    /// Looks for the first rank, and tells what was written, for ever.
    async fn look(&self, first: &Remote, remotes: &[Remote]) {
        let begun = Instant::now();
        let mut tick = 0_u32;
        loop {
            let found = self.seen().launch.first_rank.is_some();
            tokio::time::sleep(if found || begun.elapsed() >= LOOK_LATER_AFTER {
                LOOK_LATER
            } else {
                LOOK_SOON
            })
            .await;
            if !found && self.seen().launch.started.is_some() {
                // Rank 0 is on the first; where that has none, for whatever reason, the others are asked now and then.
                tick += 1;
                let some = if tick.is_multiple_of(10) { remotes } else { std::slice::from_ref(first) };
                let ranks = observe(some, &self.order.id).await;
                if let Some(age) = launch::first_rank(&ranks) {
                    self.seen().launch.first_rank = Some(before((self.order.now)(), age));
                    self.tell();
                }
            }
            if found || begun.elapsed() >= LOOK_LATER_AFTER || tick.is_multiple_of(10) {
                self.flush();
            }
        }
    }

    /// Reports what was written since the last report.
    fn flush(&self) {
        if self.seen().news {
            self.tell();
        }
    }

    fn tell(&self) {
        let launch = self.now();
        (self.report)(launch);
    }

    fn now(&self) -> Launch {
        let mut seen = self.seen();
        if std::mem::take(&mut seen.news) {
            seen.launch.log_tail = seen.tail.text();
        }
        seen.launch.clone()
    }
}

/// The ranks that those starters saw which answer.
async fn observe(remotes: &[Remote], id: &str) -> Observed {
    let asks: Vec<_> = remotes
        .iter()
        .map(|remote| launch::observe_some(std::slice::from_ref(remote), id, RANKS_LIMIT))
        .collect();
    stream::iter(asks).buffered(AT_ONCE).concat().await
}

/// Those that did not answer.
fn silent<'a>(remotes: &'a [Remote], ranks: &'a Observed) -> impl Iterator<Item = &'a Remote> {
    remotes.iter().filter(|remote| ranks.iter().all(|(host, _)| *host != remote.name))
}

/// What the end of the launcher means.
async fn judged(remotes: &[Remote], order: &Order, followed: &Followed) -> (LaunchEnd, Option<Timestamp>) {
    let now = (order.now)();
    let mut ranks = observe(remotes, &order.id).await;
    let asked = Instant::now();
    while followed.ended.shell_code() == 0 && asked.elapsed() < ASK_FOR {
        let silent: Vec<Remote> = silent(remotes, &ranks).cloned().collect();
        if silent.is_empty() {
            break;
        }
        tokio::time::sleep(REATTACH_WAIT).await;
        ranks.extend(observe(&silent, &order.id).await);
    }
    let answered = (order.now)();
    let lost: Vec<String> = silent(remotes, &ranks).map(|remote| remote.name.clone()).collect();
    let launcher = remotes.first().map_or("", |remote| remote.name.as_str());
    let judgement = launch::judge(&order.program, &order.slots, launcher, &followed.ended, &ranks);
    let gone = lost.split_first().map(|(first, others)| {
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        Trouble::new("NodeLost", format!("{first}{more} no longer answered when the program had ended"))
    });
    let end = LaunchEnd {
        at: Some(before(now, followed.age)),
        exit_code: judgement.exit_code,
        // What a node that is gone saw nobody can say; that it is gone is the better reason.
        trouble: gone
            .or_else(|| judgement.problem.map(|problem| Trouble::new(problem.reason, problem.message))),
        placement: judgement
            .placement
            .into_iter()
            .take(PLACEMENT_HOSTS)
            .map(|placed| Placement {
                host: placed.host,
                ranks: placed.ranks.into_iter().take(PLACEMENT_RANKS).map(u32::cast_signed).collect(),
            })
            .collect(),
        lost,
    };
    (end, launch::first_rank(&ranks).map(|age| before(answered, age)))
}

/// The end of a program that its starter refused; a starter that is lost stays a failure.
fn not_started(failure: StepFailure, now: Timestamp) -> Result<LaunchEnd, StepFailure> {
    let exit_code = match failure.reason.as_str() {
        "NodeLost" | "AgentLost" | "LaunchUnknown" => return Err(failure),
        // As a shell has it.
        "ProgramNotFound" => 127,
        _ => 126,
    };
    Ok(LaunchEnd {
        at: Some(now),
        exit_code,
        trouble: Some(Trouble::new(failure.reason, failure.message)),
        ..LaunchEnd::default()
    })
}

fn before(now: Timestamp, age: Duration) -> Timestamp {
    SignedDuration::try_from(age).ok().and_then(|age| now.checked_sub(age).ok()).unwrap_or(now)
}
