//! Which replica reconciles?
//!
//! The one that holds a Lease. Taking and keeping it is a compare-and-swap on the resource version: of two racers one is
//! refused. Whether another's lease has run out is judged by our own clock, from when we first saw its present state, so
//! that clocks need not agree. The holder that could not renew in time ends before anybody may take over.
//!
//! No crate: those that exist follow other versions of `kube`, and this is a compare-and-swap.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use tokio::time::Instant;

use crate::failure::chain;

/// Name of the Lease.
pub const LEASE: &str = "gridcast-operator";
/// Nobody else may take it so long after a renewal.
const LASTS: Duration = Duration::from_secs(15);
/// The holder that did not renew for so long gives up: before [`LASTS`], so that there are never two.
const GIVES_UP: Duration = Duration::from_secs(10);
/// From one renewal to the next.
const RENEWS: Duration = Duration::from_secs(4);
/// From one try to the next, to take it or after one that failed.
const RETRIES: Duration = Duration::from_secs(2);
/// One request to the API server.
const REQUEST: Duration = Duration::from_secs(3);

/// Why the lease was lost.
#[derive(Debug, thiserror::Error)]
#[error("lost Lease {LEASE}: {0}")]
pub struct Lost(String);

/// A replica that wants to lead.
pub struct Candidate {
    leases: Api<Lease>,
    me: String,
    now: fn() -> Timestamp,
    /// The state of another's lease, and since when it has not changed.
    seen: Option<(String, Instant)>,
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate").field("me", &self.me).finish_non_exhaustive()
    }
}

/// How a look at the lease ended.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Ours,
    Held(String),
    /// Somebody else was faster.
    Raced,
}

impl Candidate {
    /// `me` must be the same after a restart of this replica, and no other's: the name of its pod.
    pub fn new(client: Client, namespace: &str, me: String, now: fn() -> Timestamp) -> Self {
        Self { leases: Api::namespaced(client, namespace), me, now, seen: None }
    }

    /// Waits until this replica leads.
    pub async fn win(&mut self) {
        let mut told = String::new();
        loop {
            let state = match self.turn().await {
                Ok(Turn::Ours) => {
                    tracing::info!(me = self.me, "leading");
                    return;
                }
                Ok(Turn::Held(holder)) => format!("held by {holder}"),
                Ok(Turn::Raced) => continue,
                Err(error) => failure(&error),
            };
            if state != told {
                tracing::info!(me = self.me, lease = LEASE, state, "waiting to lead");
                told = state;
            }
            tokio::time::sleep(RETRIES).await;
        }
    }

    /// Keeps leading; ends when that is lost.
    pub async fn keep(&mut self) -> Lost {
        let mut renewed = Instant::now();
        let mut wait = RENEWS;
        loop {
            tokio::time::sleep(wait).await;
            let why = match self.turn().await {
                Ok(Turn::Ours) => {
                    renewed = Instant::now();
                    wait = RENEWS;
                    continue;
                }
                Ok(Turn::Held(holder)) => return Lost(format!("{holder} holds it")),
                Ok(Turn::Raced) => "somebody else wrote it".to_owned(),
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    return Lost("it was deleted".to_owned());
                }
                Err(error) => failure(&error),
            };
            tracing::warn!(lease = LEASE, error = why, "cannot renew");
            if renewed.elapsed() + RETRIES + REQUEST > GIVES_UP {
                return Lost(format!("could not renew it for {} s: {why}", renewed.elapsed().as_secs()));
            }
            wait = RETRIES;
        }
    }

    /// Lets others lead at once. What fails here mends itself when the lease runs out.
    pub async fn release(&self) {
        let release = async {
            let mut lease = self.leases.get(LEASE).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(&self.me) {
                spec.holder_identity = None;
                spec.lease_duration_seconds = Some(1);
                self.leases.replace(LEASE, &PostParams::default(), &lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(REQUEST, release).await {
            tracing::debug!(error = chain(&error), "cannot release the lease");
        }
    }

    /// Takes or renews the lease, if nobody else has it.
    async fn turn(&mut self) -> Result<Turn, kube::Error> {
        let attempt = async {
            let mut lease = self.leases.get(LEASE).await?;
            let spec = lease.spec.clone().unwrap_or_default();
            if let Some(holder) = self.holder(&lease, &spec) {
                return Ok(Turn::Held(holder));
            }
            lease.spec = Some(claim(&spec, &self.me, (self.now)()));
            match self.leases.replace(LEASE, &PostParams::default(), &lease).await {
                Ok(_) => Ok(Turn::Ours),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(Turn::Raced),
                Err(error) => Err(error),
            }
        };
        match tokio::time::timeout(REQUEST, attempt).await {
            Ok(result) => result,
            Err(_) => Err(kube::Error::Service("no answer".into())),
        }
    }

    /// Who holds it, if that is another and its time has not run out.
    fn holder(&mut self, lease: &Lease, spec: &LeaseSpec) -> Option<String> {
        let holder =
            spec.holder_identity.clone().filter(|holder| !holder.is_empty() && *holder != self.me)?;
        let version = lease.resource_version().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            _ => Instant::now(),
        };
        self.seen = Some((version, since));
        let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        (since.elapsed() < lasts.map_or(LASTS, Duration::from_secs)).then_some(holder)
    }
}

fn claim(old: &LeaseSpec, me: &str, now: Timestamp) -> LeaseSpec {
    let renewal = old.holder_identity.as_deref() == Some(me);
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(LASTS.as_secs()).ok(),
        acquire_time: if renewal { old.acquire_time.clone() } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(old.lease_transitions.unwrap_or(0) + i32::from(!renewal)),
        ..LeaseSpec::default()
    }
}

fn failure(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            "there is none; the chart makes it, empty".to_owned()
        }
        error => chain(error),
    }
}
