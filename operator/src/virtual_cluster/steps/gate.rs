//! May the program start?
//!
//! Each member is told who its fellows are as soon as its starter answers, and again and again until it does: this is on the
//! way of every run, so that a member that is ready 20 ms from now is not asked only in a second. When all have answered,
//! the first tries all others and all others try the first, by name and with the cluster's keys, as `mpirun` will.
//!
//! The gate tries for ever. Who is missing and why is in what it reports; how long that may go on is the plan's to say.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use gridcast_control::{Remote, StepFailure, gate};
use gridcast_proto::v1::Host;
use tokio::{
    sync::Semaphore,
    time::{Instant, MissedTickBehavior},
};

use crate::virtual_cluster::{Gate, Trouble};

/// Members that are asked at once.
const AT_ONCE: usize = 64;
/// From one attempt to the next, at first.
const SOON: Duration = Duration::from_millis(50);
/// A member that was not there for so long will not be there in 50 ms either.
const PATIENT_AFTER: Duration = Duration::from_secs(5);
/// From then on.
const LATER: Duration = Duration::from_millis(500);
/// For one attempt.
const ATTEMPT: Duration = Duration::from_secs(5);
/// A member is not missing before it has been tried for so long: containers start within a second.
const MISSING_AFTER: Duration = Duration::from_secs(2);
/// From one report to the next.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// From one check that found something to the next, doubled up to [`LONGEST_CHECK_WAIT`].
const CHECK_WAIT: Duration = Duration::from_millis(200);
/// See [`CHECK_WAIT`].
const LONGEST_CHECK_WAIT: Duration = Duration::from_secs(5);

/// What the members are told, and what is tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Order {
    /// All members with their addresses.
    pub hosts: Vec<Host>,
    /// The machinefile.
    pub machinefile: String,
    /// The launcher's program, which the first member must have; empty where nothing is to run.
    pub launcher: &'static str,
}

/// Opens the gate: ends when nothing is in the way.
pub async fn open(remotes: &[Remote], order: &Order, report: &(dyn Fn(Gate) + Send + Sync)) -> Gate {
    introduce_all(remotes, order, report).await;
    let mut gate = Gate { answering: names(remotes), trouble: None };
    report(gate.clone());
    let mut wait = CHECK_WAIT;
    loop {
        let findings = gate::check(remotes, &order.hosts, order.launcher, ATTEMPT).await;
        gate.trouble = findings.failure().map(trouble);
        if gate.trouble.is_none() {
            return gate;
        }
        report(gate.clone());
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_CHECK_WAIT);
    }
}

fn names(remotes: &[Remote]) -> BTreeSet<String> {
    remotes.iter().map(|remote| remote.name.clone()).collect()
}

/// Tells every member who its fellows are, each as soon as it answers.
async fn introduce_all(remotes: &[Remote], order: &Order, report: &(dyn Fn(Gate) + Send + Sync)) {
    let (permits, refusals) = (Semaphore::new(AT_ONCE), Refusals::default());
    let mut waiting: FuturesUnordered<_> = remotes
        .iter()
        .enumerate()
        .map(|(index, remote)| introduce(index, remote, order, &permits, &refusals))
        .collect();
    let mut answering = BTreeSet::new();
    let mut told = (0, None);
    let mut ticks = tokio::time::interval(REPORT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            next = waiting.next() => match next {
                Some(name) => { answering.insert(name); }
                None => return,
            },
            _ = ticks.tick() => {
                let news = (answering.len(), refusals.first());
                if news != told {
                    report(Gate { answering: answering.clone(), trouble: news.1.clone() });
                    told = news;
                }
            }
        }
    }
}

/// Tries until one member has been told; returns its name.
async fn introduce(
    index: usize,
    remote: &Remote,
    order: &Order,
    permits: &Semaphore,
    refusals: &Refusals,
) -> String {
    let begun = Instant::now();
    loop {
        let refused = {
            // It is never closed.
            let _permit = permits.acquire().await;
            let one = std::slice::from_ref(remote);
            gate::configure(one, &order.hosts, &order.machinefile, ATTEMPT).await.failure()
        };
        let Some(refused) = refused else {
            refusals.clear(index);
            return remote.name.clone();
        };
        if begun.elapsed() >= MISSING_AFTER {
            refusals.set(index, refused);
        }
        tokio::time::sleep(if begun.elapsed() < PATIENT_AFTER { SOON } else { LATER }).await;
    }
}

/// Why members have not been told yet, by their place in the machinefile.
#[derive(Default)]
struct Refusals(Mutex<BTreeMap<usize, StepFailure>>);

impl Refusals {
    fn set(&self, index: usize, failure: StepFailure) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(index, failure);
    }

    fn clear(&self, index: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&index);
    }

    /// The first, and how many more there are.
    fn first(&self) -> Option<Trouble> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = all.values().next()?;
        let message = match all.len() {
            0 | 1 => first.message.clone(),
            total => format!("{}; and {} more", first.message, total - 1),
        };
        Some(Trouble::new(first.reason.clone(), message))
    }
}

fn trouble(failure: StepFailure) -> Trouble {
    Trouble::new(failure.reason, failure.message)
}
