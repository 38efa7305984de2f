//! May a pod have its volume now, and what does it wait for?

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gridcast_core::failure::chain;
use gridcast_proto::v1::{AcquireRequest, Volume};

use super::DatasetError;
use super::record::{End, Mount};
use super::registry::{Dataset, Registry};

/// Volumes of one dataset: many pods, each a few times.
const MAX_MOUNTS: usize = 4_000;
/// Longest wait for one dataset; the kubelet gives up after two minutes.
const MAX_WAIT: Duration = Duration::from_secs(115);
/// Longest wait for what nobody has announced, or has released again: the name may be mistyped, and while a call is held
/// its pod cannot go. The kubelet asks again by itself.
const UNANNOUNCED: Duration = Duration::from_secs(30);
const MAX_ID_BYTES: usize = 256;
const MAX_TARGET_BYTES: usize = 4_096;

/// What a pod gets.
enum Answer {
    Path(PathBuf),
    /// Not yet: what is waited for.
    Wait(String),
    /// Not known here.
    Unknown(String),
}

impl Registry {
    /// Waits until the dataset is here and registers the volume.
    pub(super) async fn acquire(self: &Arc<Self>, request: AcquireRequest) -> Result<PathBuf, DatasetError> {
        for (field, value) in [("volume_id", &request.volume_id), ("pod_uid", &request.pod_uid)] {
            if value.is_empty() || value.len() > MAX_ID_BYTES {
                let value = value.escape_debug().take(80).collect();
                return Err(DatasetError::Argument { field, value, bound: "1 to 256 bytes" });
            }
        }
        if request.target.len() > MAX_TARGET_BYTES {
            let value = request.target.escape_debug().take(80).collect();
            return Err(DatasetError::Argument { field: "target", value, bound: "at most 4096 bytes" });
        }
        let patience = Duration::from_millis(request.timeout_millis.into()).min(MAX_WAIT);
        let begun = tokio::time::Instant::now();
        let deadline = begun + patience;
        let request = Arc::new(request);
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let (registry, ask) = (self.clone(), request.clone());
            let answer = tokio::task::spawn_blocking(move || registry.try_acquire(&ask)).await;
            let (what, until) = match answer.map_err(std::io::Error::other) {
                Ok(answer) => match answer? {
                    Answer::Path(path) => return Ok(path),
                    Answer::Wait(what) => (what, deadline),
                    Answer::Unknown(what) => (what, deadline.min(begun + UNANNOUNCED)),
                },
                Err(source) => return Err(DatasetError::system("register", &request.volume_id)(source)),
            };
            // The registry outlives its callers, so that the sender is there.
            let next = tokio::time::timeout_at(until, changed.changed()).await;
            if next.is_err() {
                // Progress is no change that is told.
                let what = self.waits_for(&request.namespace, &request.name).unwrap_or(what);
                return Err(DatasetError::Waiting { what });
            }
        }
    }

    fn try_acquire(&self, ask: &AcquireRequest) -> Result<Answer, DatasetError> {
        let mut state = self.lock();
        let has = |dataset: &Dataset| {
            let same = dataset.record.namespace == ask.namespace && dataset.record.name == ask.name;
            same && dataset.record.mounts.iter().any(|mount| mount.volume == ask.volume_id)
        };
        // The kubelet asks again for a volume that it has, if it was restarted, say.
        let known =
            state.datasets.values().find(|dataset| has(dataset)).map(|dataset| dataset.record.uid.clone());
        let known = known.or_else(|| wanted(&state, &ask.namespace, &ask.name));
        let Some(dataset) = known.and_then(|uid| state.datasets.get_mut(&uid)) else {
            return Ok(Answer::Unknown(not_announced(&ask.namespace, &ask.name)));
        };
        self.forget_what_vanished(dataset);
        if dataset.record.verified.is_none() {
            return Ok(Answer::Wait(waits_for(dataset)));
        }
        if !has(dataset) {
            if dataset.record.mounts.len() >= MAX_MOUNTS {
                let what = format!("dataset {} has {MAX_MOUNTS} volumes already", dataset.name());
                return Err(DatasetError::TooMany { what });
            }
            let mut record = dataset.record.clone();
            let (volume, pod, target) = (ask.volume_id.clone(), ask.pod_uid.clone(), ask.target.clone());
            record.mounts.push(Mount { volume, pod, target });
            self.save(&record)?;
            dataset.record = record;
        }
        Ok(Answer::Path(self.target(&dataset.record)))
    }

    fn waits_for(&self, namespace: &str, name: &str) -> Option<String> {
        let state = self.lock();
        let uid = wanted(&state, namespace, name)?;
        state.datasets.get(&uid).map(waits_for)
    }

    /// All volumes.
    pub(super) fn volumes(&self) -> Vec<Volume> {
        let state = self.lock();
        let mounts = state.datasets.values().flat_map(|dataset| &dataset.record.mounts);
        mounts.map(|mount| Volume { volume_id: mount.volume.clone(), target: mount.target.clone() }).collect()
    }

    /// Forgets a volume. What was to go with it goes.
    pub(super) fn drop_volume(&self, volume: &str) -> Result<(), DatasetError> {
        let mut state = self.lock();
        let of = |dataset: &&mut Dataset| dataset.record.mounts.iter().any(|mount| mount.volume == volume);
        let Some(dataset) = state.datasets.values_mut().find(of) else { return Ok(()) };
        let mut record = dataset.record.clone();
        record.mounts.retain(|mount| mount.volume != volume);
        self.save(&record)?;
        let (uid, end, used) = (record.uid.clone(), record.end, !record.mounts.is_empty());
        dataset.record = record;
        if used || !matches!(end, End::Keep | End::Remove) {
            return Ok(());
        }
        if let Err(error) = self.finish(state, &uid, end) {
            // The volume is gone all the same; the operator asks for the rest again.
            tracing::warn!(dataset = uid, error = chain(&error), "a released dataset could not be removed");
        }
        Ok(())
    }
}

/// The dataset of that name that pods may have.
fn wanted(state: &super::registry::State, namespace: &str, name: &str) -> Option<String> {
    let is_it = |dataset: &&Dataset| {
        let record = &dataset.record;
        record.end == End::Wanted && record.namespace == namespace && record.name == name
    };
    state.datasets.values().find(is_it).map(|dataset| dataset.record.uid.clone())
}

fn not_announced(namespace: &str, name: &str) -> String {
    format!(
        "dataset {}/{} is not announced to this node: there is no Broadcast of that name in the pod's namespace, it does \
         not include this node, or the operator has not seen to it yet",
        namespace.escape_debug(),
        name.escape_debug()
    )
}

fn waits_for(dataset: &Dataset) -> String {
    let name = dataset.name();
    match (&dataset.transfer, &dataset.failed) {
        (Some(transfer), _) => {
            let (bytes, of) = transfer.progress;
            let percent = (bytes.saturating_mul(100)).checked_div(of).unwrap_or(0).min(100);
            format!("dataset {name} is being staged, {percent} %")
        }
        (None, Some(reason)) => format!("dataset {name} has not arrived: {reason}"),
        (None, None) => format!("dataset {name} is announced, its transfer has not begun"),
    }
}
