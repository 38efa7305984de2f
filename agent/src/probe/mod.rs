//! How fast and how steady is the way to a peer?
//!
//! Participants: the *sender* (an agent asked by a controller), the *reflector* of the peer (UDP) and the *sink* of
//! the peer (TCP), both on the peer's probe port, which is the same number on every node of a cluster.
//!
//! Goals, and what follows from each:
//!
//! - *The network is measured, not the scheduler*: kernel timestamps at both ends, the reflector's residence time
//!   removed, and the sink counts what arrived rather than what was sent.
//! - *A measurement disturbs no other*: one at a time per agent, bounded in packets, bytes in flight and time.
//! - *An idle agent costs nothing*: the reflector sleeps in `poll`, the sink's thread exists only while it counts.
//! - *Nobody can use a node against another*: the reflector never answers an answer and never with more bytes than
//!   it got; the sink reads only from connections that a fellow agent announced over mutual TLS.
//!
//! Not a goal: one-way delay (the clocks of two hosts are not comparable); statistics (they are core's).

mod bandwidth;
mod latency;
mod reflector;
mod sink;
mod socket;
pub mod stamp;
mod tcp_info;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Semaphore, oneshot};

use crate::namespace::Namespace;

pub use bandwidth::{BandwidthPlan, BandwidthResult};
pub use latency::{LatencyPlan, LatencyResult};
pub use reflector::Reflector;
pub use sink::{Expectation, Sink, SinkOrder};

/// How often a running measurement looks whether its caller is still there.
const CANCEL_CHECK: Duration = Duration::from_millis(200);
/// Callers that may wait for the running measurement; more are refused, they would wait for minutes.
const MAX_WAITING: usize = 64;

/// Why a measurement did not take place.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// A request asks for something outside the bounds.
    #[error("{field} is {value}: give {bound}")]
    Argument {
        /// The request's field.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// What it may hold.
        bound: &'static str,
    },
    /// The system refused a socket, thread or transfer.
    #[error("cannot {action}")]
    System {
        /// What was tried, with the address.
        action: String,
        /// What the system said.
        source: io::Error,
    },
    /// The peer's host is up, but nothing listens on its probe port.
    #[error(
        "nothing answers on probe port {peer}: check that its agent runs and was started with this --probe-port"
    )]
    NoReflector {
        /// Address and probe port.
        peer: SocketAddr,
    },
    /// The peer closed a bandwidth connection before its result.
    #[error("{peer} ended the bandwidth probe early: check that its agent still runs, then measure again")]
    PeerClosed {
        /// Address and probe port.
        peer: SocketAddr,
    },
    /// No result came in time.
    #[error(
        "no result from {peer} within {seconds:.1} s: the way to it loses nearly everything, or its agent hangs"
    )]
    NoResult {
        /// Address and probe port.
        peer: SocketAddr,
        /// How long it was waited for, all in all.
        seconds: f64,
    },
    /// Too many measurements wait for this agent.
    #[error("{waiting} measurements wait for this node already: measure one pair of nodes at a time")]
    Busy {
        /// How many.
        waiting: usize,
    },
    /// The caller went away.
    #[error("the caller of the measurement went away")]
    Cancelled,
}

impl ProbeError {
    /// One PascalCase word for conditions, events and reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Argument { .. } => "InvalidArgument",
            Self::System { .. } => "ProbeFailed",
            Self::NoReflector { .. } => "NoReflector",
            Self::PeerClosed { .. } => "PeerClosed",
            Self::NoResult { .. } => "NoResult",
            Self::Busy { .. } => "Busy",
            Self::Cancelled => "Cancelled",
        }
    }

    fn system(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { action: action.into(), source: source.into() }
    }
}

/// Set when the caller of a measurement is gone.
#[derive(Debug, Clone, Default)]
pub struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    fn check(&self) -> Result<(), ProbeError> {
        if self.0.load(Ordering::Relaxed) { Err(ProbeError::Cancelled) } else { Ok(()) }
    }
}

struct CancelOnDrop(Cancelled);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Whose turn it is to measure on a node: one at a time, in whatever namespace, since two at once would share the node's
/// link. Clones are the same.
#[derive(Clone, Debug)]
pub struct Turns {
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(1)), waiting: Arc::new(Semaphore::new(MAX_WAITING)) }
    }
}

/// Runs this agent's own measurements in one namespace.
#[derive(Debug, Default)]
pub struct Prober {
    namespace: Namespace,
    turns: Turns,
}

impl Prober {
    /// Measures from inside `namespace` when `turns` say so.
    pub fn within(namespace: Namespace, turns: Turns) -> Self {
        Self { namespace, turns }
    }

    /// UDP ping-pong as `plan` says; waits for its turn.
    pub async fn latency(&self, plan: LatencyPlan) -> Result<LatencyResult, ProbeError> {
        self.run("probe-latency", move |cancelled| latency::run(&plan, cancelled)).await
    }

    /// TCP streams to a sink that expects them; waits for its turn. `announce` asks the peer for a token, and does
    /// so once it is this measurement's turn: a token would grow old in the queue.
    pub async fn bandwidth<A, E>(&self, plan: BandwidthPlan, announce: A) -> Result<BandwidthResult, E>
    where
        A: Future<Output = Result<Expectation, E>>,
        E: From<ProbeError>,
    {
        let _waiting = self.queue()?;
        let turn = self.turn().await?;
        let expectation = announce.await?;
        let work = move |cancelled: &Cancelled| bandwidth::run(&plan, &expectation, cancelled);
        Ok(self.on_thread("probe-bandwidth", turn, work).await?)
    }

    async fn run<T, W>(&self, name: &str, work: W) -> Result<T, ProbeError>
    where
        T: Send + 'static,
        W: FnOnce(&Cancelled) -> Result<T, ProbeError> + Send + 'static,
    {
        let _waiting = self.queue()?;
        let turn = self.turn().await?;
        self.on_thread(name, turn, work).await
    }

    fn queue(&self) -> Result<tokio::sync::SemaphorePermit<'_>, ProbeError> {
        self.turns.waiting.try_acquire().map_err(|_| ProbeError::Busy { waiting: MAX_WAITING })
    }

    async fn turn(&self) -> Result<tokio::sync::OwnedSemaphorePermit, ProbeError> {
        Arc::clone(&self.turns.running).acquire_owned().await.map_err(|_| ProbeError::Cancelled)
    }

    /// A thread of its own, because a worker of the runtime that sleeps in `poll` would stop everything else. The turn
    /// ends with the thread, not with the caller: a measurement that still sends is still running.
    async fn on_thread<T, W>(
        &self,
        name: &str,
        turn: tokio::sync::OwnedSemaphorePermit,
        work: W,
    ) -> Result<T, ProbeError>
    where
        T: Send + 'static,
        W: FnOnce(&Cancelled) -> Result<T, ProbeError> + Send + 'static,
    {
        let cancelled = Cancelled::default();
        let _guard = CancelOnDrop(cancelled.clone());
        let namespace = self.namespace.clone();
        let (give, take) = oneshot::channel();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let entered = namespace
                    .enter()
                    .map_err(|source| ProbeError::system("enter the network namespace", source));
                let outcome = entered.and_then(|()| work(&cancelled));
                drop(turn);
                // A caller that went away wants no result.
                let _ = give.send(outcome);
            })
            .map_err(|source| ProbeError::system("start a thread for the measurement", source))?;
        take.await.unwrap_or(Err(ProbeError::Cancelled))
    }
}

/// `value` as a duration if it lies within the bounds.
fn bounded_millis(
    field: &'static str,
    value: u32,
    max: u32,
    bound: &'static str,
) -> Result<Duration, ProbeError> {
    if value > max {
        return Err(ProbeError::Argument { field, value: value.into(), bound });
    }
    Ok(Duration::from_millis(value.into()))
}
