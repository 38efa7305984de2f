//! How does a node's agent work inside the pods of its node?
//!
//! A pod is found by its UID when somebody asks for it; what is made for it there lives until its last process has gone,
//! which is looked at when it is asked for and, as long as there is any pod, by a slow sweep: the sockets inside would
//! keep its namespace alive. Nothing of it has to outlive the agent but the journal of settings, one for each pod.

mod find;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Mutex;
use tonic::{Code, Status};

pub(crate) use self::find::is_uid;
use self::find::{Found, find, look_at, namespace_path};
use crate::broadcast::with_reason;
use crate::namespace::Namespace;
use crate::probe::Turns;
use crate::space::{Place, Space};
use crate::tune::Journal;

/// Pods whose namespaces are worked in at once; the kubelet runs 110 on a node by default.
const MAX_PODS: usize = 512;
/// How long what was made in a pod may outlive it.
const SWEEP_INTERVAL: Duration = Duration::from_secs(15);

/// Why there is no working in a pod.
#[derive(Debug, Error)]
pub(crate) enum PodError {
    /// Not a UID.
    #[error("`{uid}` is no pod's UID")]
    NotUid {
        /// As given.
        uid: String,
    },
    /// It has no process here.
    #[error(
        "pod {uid} has no process on this node: it has ended, has not started yet, or is on another node"
    )]
    PodNotFound {
        /// Its UID.
        uid: String,
    },
    /// It has no network namespace of its own.
    #[error(
        "pod {uid} uses the node's own network, which is not measured or tuned as a pod's: remove hostNetwork from its \
         template"
    )]
    HostNetwork {
        /// Its UID.
        uid: String,
    },
    /// Too many.
    #[error("{MAX_PODS} pods of this node are worked in already")]
    TooMany,
    /// The system refused.
    #[error("cannot {action} of pod {uid}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The pod.
        uid: String,
        /// What the system said.
        source: io::Error,
    },
}

impl PodError {
    /// One PascalCase word.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NotUid { .. } => "InvalidArgument",
            Self::PodNotFound { .. } => "PodNotFound",
            Self::HostNetwork { .. } => "HostNetwork",
            Self::TooMany => "TooManyPods",
            Self::System { .. } => "PodUnreachable",
        }
    }
}

impl From<PodError> for Status {
    fn from(error: PodError) -> Self {
        let code = match error {
            PodError::NotUid { .. } => Code::InvalidArgument,
            PodError::PodNotFound { .. } => Code::NotFound,
            PodError::HostNetwork { .. } => Code::FailedPrecondition,
            PodError::TooMany => Code::ResourceExhausted,
            PodError::System { .. } => Code::Internal,
        };
        let text = format!("{}: {}", error.reason(), gridcast_core::failure::chain(&error));
        with_reason(Self::new(code, text), error.reason())
    }
}

/// The pods of a node. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Pods(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The node's /proc, writable.
    proc: PathBuf,
    /// One directory for each pod with settings.
    journals: PathBuf,
    /// Where probes are answered inside.
    probes: SocketAddr,
    turns: Turns,
    held: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    pods: HashMap<String, Held>,
    sweeping: bool,
}

/// A pod that is worked in.
#[derive(Debug)]
struct Held {
    process: Found,
    space: Arc<Space>,
}

impl Pods {
    /// Pods whose processes are shown in `proc`. Journals of pods that have gone are dropped: their settings went, too.
    pub(crate) async fn open(
        proc: PathBuf,
        journals: PathBuf,
        probes: SocketAddr,
        turns: Turns,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { proc, journals, probes, turns, held: Mutex::default() });
        let swept = shared.clone();
        tokio::task::spawn_blocking(move || swept.drop_journals_of_the_gone()).await??;
        Ok(Self(shared))
    }

    /// How many are worked in now.
    pub(crate) async fn count(&self) -> usize {
        self.0.held.lock().await.pods.len()
    }

    /// The pod's namespace, as it is now.
    pub(crate) async fn get(&self, uid: &str) -> Result<Arc<Space>, PodError> {
        if !is_uid(uid) {
            return Err(PodError::NotUid { uid: uid.escape_debug().take(80).collect() });
        }
        let mut table = self.0.held.lock().await;
        let Table { pods: held, sweeping } = &mut *table;
        let known = held.get(uid).map(|held| held.process.clone());
        let process = self.process(uid, known.clone()).await?;
        let Some(process) = process else {
            if let Some(gone) = held.remove(uid) {
                self.0.clone().release(uid, gone).await;
            }
            return Err(PodError::PodNotFound { uid: uid.to_owned() });
        };
        if let Some(held) = held.get_mut(uid).filter(|held| held.process.namespace == process.namespace) {
            held.process = process;
            return Ok(held.space.clone());
        }
        // Its sandbox was made anew: the old namespace is kept by nobody but this agent.
        drop(held.remove(uid));
        if held.len() >= MAX_PODS {
            return Err(PodError::TooMany);
        }
        let space = Arc::new(self.enter(uid, &process)?);
        held.insert(uid.to_owned(), Held { process, space: space.clone() });
        if !std::mem::replace(sweeping, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
        Ok(space)
    }

    /// The pod's namespace if settings may have been changed there. Those of a pod that has gone went with it.
    pub(crate) async fn tuned(&self, uid: &str) -> Result<Option<Arc<Space>>, PodError> {
        match self.get(uid).await {
            Ok(space) if self.0.journals.join(uid).exists() => Ok(Some(space)),
            Ok(_) => Ok(None),
            Err(PodError::PodNotFound { .. }) => {
                self.0.drop_journal(uid);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Changes no setting any more; journals that hold nothing are removed.
    pub(crate) async fn close(&self) -> Result<(), Status> {
        let spaces: Vec<_> = self.0.held.lock().await.pods.values().map(|held| held.space.clone()).collect();
        for space in spaces {
            space.close().await?;
        }
        let shared = self.0.clone();
        let removed = tokio::task::spawn_blocking(move || shared.remove_empty_journals()).await;
        removed.map_err(io::Error::other).flatten().map_err(|error| Status::internal(error.to_string()))
    }

    /// The pod's process: the known one, if it still is, or another.
    async fn process(&self, uid: &str, known: Option<Found>) -> Result<Option<Found>, PodError> {
        let (shared, owned) = (self.0.clone(), uid.to_owned());
        let look = tokio::task::spawn_blocking(move || shared.process(&owned, known.as_ref()));
        let found = look.await.map_err(io::Error::other).flatten();
        found.map_err(|source| PodError::System { action: "find the processes", uid: uid.to_owned(), source })
    }

    fn enter(&self, uid: &str, process: &Found) -> Result<Space, PodError> {
        let shared = &self.0;
        let own = [Path::new("/proc/self/ns/net").to_owned(), namespace_path(&shared.proc, 1)];
        if own.iter().any(|path| fs::read_link(path).is_ok_and(|own| own == process.namespace)) {
            return Err(PodError::HostNetwork { uid: uid.to_owned() });
        }
        let namespace = Namespace::open(&namespace_path(&shared.proc, process.pid)).map_err(|source| {
            PodError::System { action: "open the network namespace", uid: uid.to_owned(), source }
        })?;
        tracing::info!(pod = uid, pid = process.pid, "working in a pod's network namespace");
        Ok(Space::new(Place {
            namespace,
            proc: shared.proc.clone(),
            group: Some(shared.proc.join(process.pid.to_string()).join("cgroup")),
            probes: shared.probes,
            journal: shared.journals.join(uid),
            turns: shared.turns.clone(),
        }))
    }
}

/// Runs as long as there is any pod.
async fn sweep(pods: Weak<Shared>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        match pods.upgrade() {
            Some(pods) if pods.sweep().await => {}
            _ => return,
        }
    }
}

impl Shared {
    fn process(&self, uid: &str, known: Option<&Found>) -> io::Result<Option<Found>> {
        if let Some(known) = known {
            let now = look_at(&self.proc, known.pid, uid)?;
            if now.as_ref() == Some(known) {
                return Ok(now);
            }
        }
        find(&self.proc, uid)
    }

    /// Lets go of pods that have gone. False when there are none left.
    async fn sweep(self: &Arc<Self>) -> bool {
        let mut table = self.held.lock().await;
        let Table { pods: held, sweeping } = &mut *table;
        let known: Vec<_> = held.iter().map(|(uid, held)| (uid.clone(), held.process.clone())).collect();
        let this = self.clone();
        let look = move || {
            // Whatever cannot be told is kept.
            let gone =
                |(uid, process): &(String, Found)| matches!(this.process(uid, Some(process)), Ok(None));
            known.into_iter().filter(gone).collect::<Vec<_>>()
        };
        for (uid, _) in tokio::task::spawn_blocking(look).await.unwrap_or_default() {
            if let Some(gone) = held.remove(&uid) {
                self.clone().release(&uid, gone).await;
            }
        }
        *sweeping = !held.is_empty();
        *sweeping
    }

    /// Off the runtime's workers: the reflector's thread is waited for.
    async fn release(self: Arc<Self>, uid: &str, gone: Held) {
        tracing::info!(pod = uid, "a pod has gone");
        let uid = uid.to_owned();
        let _ = tokio::task::spawn_blocking(move || {
            drop(gone);
            self.drop_journal(&uid);
        })
        .await;
    }

    fn drop_journal(&self, uid: &str) {
        match fs::remove_dir_all(self.journals.join(uid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(pod = uid, %error, "cannot remove the journal of a pod that has gone");
            }
            _ => {}
        }
    }

    fn remove_empty_journals(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.journals)? {
            let path = entry?.path();
            Journal::remove_if_empty(&path).map_err(io::Error::other)?;
            // One that holds something is not empty.
            let _ = fs::remove_dir(&path);
        }
        Ok(())
    }

    fn drop_journals_of_the_gone(&self) -> io::Result<()> {
        fs::create_dir_all(&self.journals)?;
        for entry in fs::read_dir(&self.journals)? {
            let Ok(uid) = entry?.file_name().into_string() else { continue };
            if is_uid(&uid) && find(&self.proc, &uid)?.is_none() {
                self.drop_journal(&uid);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
