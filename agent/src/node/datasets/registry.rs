//! Which datasets does the operator want on this node?

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridcast_proto::v1::{DatasetRecord, PrepareReply, PrepareRequest, ReleaseReply};
use tokio::sync::watch;

use super::DatasetError;
use super::record::{End, Record, Records};
use super::request::{new_record, touch};
use crate::broadcast::remove;

/// Datasets of one node.
const MAX_DATASETS: usize = 10_000;
/// Pods that a reply names.
const MAX_NAMED: usize = 20;
/// A cancelled transfer ends within this; what it wrote is removed by then.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

/// The datasets of a node. All that is not `async` may block.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(super) data: PathBuf,
    pub(super) records: Records,
    pub(super) boot: String,
    state: Mutex<State>,
    /// A transfer has ended.
    pub(super) ended: Condvar,
    /// Something has changed that a pod may wait for.
    pub(super) changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) datasets: BTreeMap<String, Dataset>,
    /// For names that were never used.
    pub(super) counter: u64,
}

/// A dataset and what is going on with it now.
#[derive(Debug)]
pub(super) struct Dataset {
    pub(super) record: Record,
    pub(super) transfer: Option<Transfer>,
    /// Why the last transfer failed.
    pub(super) failed: Option<String>,
}

/// A transfer that brings it.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) number: u64,
    /// Bytes that are here, and all.
    pub(super) progress: (u64, u64),
    pub(super) cancel: watch::Sender<bool>,
}

/// How many datasets are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) verified: u64,
    pub(crate) staging: u64,
    pub(crate) waiting: u64,
    pub(crate) failed: u64,
    pub(crate) mounts: u64,
}

impl Dataset {
    fn new(record: Record) -> Self {
        Self { record, transfer: None, failed: None }
    }

    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.record.namespace, self.record.name)
    }

    fn is_called(&self, namespace: &str, name: &str) -> bool {
        self.record.namespace == namespace && self.record.name == name
    }

    /// Pods that have it mounted.
    fn pods(&self) -> Vec<String> {
        let mut pods: Vec<String> = self.record.mounts.iter().map(|mount| mount.pod.clone()).collect();
        pods.sort();
        pods.dedup();
        pods.truncate(MAX_NAMED);
        pods
    }
}

impl Registry {
    /// The registry whose data, records and the like lie in `state`. Removes what an agent left that was killed.
    pub(crate) fn open(state: &Path) -> Result<Arc<Self>, DatasetError> {
        let data = state.join("data");
        fs::create_dir_all(&data).map_err(DatasetError::system("create", &data))?;
        let place = state.join("records");
        let failed = |error| DatasetError::System { action: "use", path: place.clone(), source: error };
        let records = Records::open(place.clone()).map_err(failed)?;
        let boot =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        let found = records.load().map_err(failed)?;
        let registry = Self {
            data,
            records,
            boot,
            state: Mutex::default(),
            ended: Condvar::new(),
            changed: watch::Sender::new(()),
        };
        registry.sweep(&found);
        let mut state = registry.lock();
        for record in found {
            state.datasets.insert(record.uid.clone(), Dataset::new(record));
        }
        drop(state);
        registry.look_again();
        Ok(Arc::new(registry))
    }

    /// Announces a dataset.
    pub(crate) fn prepare(&self, request: PrepareRequest) -> Result<PrepareReply, DatasetError> {
        let fresh = Record { boot: self.boot.clone(), ..new_record(request)? };
        self.forget_kept_data_that_vanished();
        let mut state = self.lock();
        loop {
            if let Some(dataset) = state.datasets.get_mut(&fresh.uid) {
                return self.prepare_again(dataset, fresh);
            }
            let called = |dataset: &&Dataset| dataset.is_called(&fresh.namespace, &fresh.name);
            let Some(old) = state.datasets.values().find(called) else { break };
            if !old.record.mounts.is_empty() {
                return Err(DatasetError::InUse { name: old.name(), pods: old.pods() });
            }
            // Others may go on meanwhile.
            let uid = old.record.uid.clone();
            state = self.finish(state, &uid, End::Remove)?;
        }
        if let Some(holder) = state.datasets.values().find(|other| touch(&other.record, &fresh)) {
            let path = format!("{}/{}", fresh.namespace, fresh.path.display());
            return Err(DatasetError::PathTaken { path, holder: holder.name() });
        }
        if state.datasets.len() >= MAX_DATASETS {
            return Err(DatasetError::TooMany {
                what: format!("this node has {MAX_DATASETS} datasets already"),
            });
        }
        self.save(&fresh)?;
        let reply = self.prepared(&fresh);
        state.datasets.insert(fresh.uid.clone(), Dataset::new(fresh));
        self.changed.send_replace(());
        Ok(reply)
    }

    fn prepare_again(&self, dataset: &mut Dataset, fresh: Record) -> Result<PrepareReply, DatasetError> {
        let known = &dataset.record;
        if (&known.namespace, &known.name, &known.path) != (&fresh.namespace, &fresh.name, &fresh.path) {
            let known = format!("{} at {}", dataset.name(), known.path.display());
            return Err(DatasetError::Changed { uid: fresh.uid, known });
        }
        self.forget_what_vanished(dataset);
        let record = Record { source: fresh.source, end: End::Wanted, ..dataset.record.clone() };
        if dataset.record != record {
            self.save(&record)?;
            dataset.record = record;
            self.changed.send_replace(());
        }
        Ok(self.prepared(&dataset.record))
    }

    fn prepared(&self, record: &Record) -> PrepareReply {
        let target = self.target(record).display().to_string();
        let Some(verified) = &record.verified else {
            return PrepareReply { target, ..PrepareReply::default() };
        };
        PrepareReply {
            target,
            verified: true,
            digest: verified.digest.clone(),
            size_bytes: verified.size_bytes,
            files: verified.files,
        }
    }

    /// Takes a dataset back; see [`ReleaseReply`].
    pub(crate) fn release(&self, uid: &str, keep_data: bool) -> Result<ReleaseReply, DatasetError> {
        let done = ReleaseReply { released: true, pods: Vec::new() };
        let end = if keep_data { End::Keep } else { End::Remove };
        let mut state = self.lock();
        let Some(dataset) = state.datasets.get_mut(uid) else { return Ok(done) };
        if dataset.record.end == End::Kept && keep_data {
            return Ok(done);
        }
        dataset.record.end = end;
        self.save(&dataset.record)?;
        if dataset.record.mounts.is_empty() {
            drop(self.finish(state, uid, end)?);
            self.changed.send_replace(());
            return Ok(done);
        }
        if let Some(transfer) = &dataset.transfer {
            transfer.cancel.send_replace(true);
        }
        let pods = dataset.pods();
        self.changed.send_replace(());
        Ok(ReleaseReply { released: false, pods })
    }

    /// All datasets that the operator knows of.
    pub(crate) fn list(&self) -> Vec<DatasetRecord> {
        let mut state = self.lock();
        for dataset in state.datasets.values_mut() {
            self.forget_what_vanished(dataset);
        }
        let wanted =
            state.datasets.values().map(|dataset| &dataset.record).filter(|record| record.end != End::Kept);
        wanted
            .map(|record| DatasetRecord {
                namespace: record.namespace.clone(),
                name: record.name.clone(),
                uid: record.uid.clone(),
                verified: record.verified.is_some(),
                digest: record.verified.as_ref().map(|it| it.digest.clone()).unwrap_or_default(),
                size_bytes: record.verified.as_ref().map_or(0, |it| it.size_bytes),
                mounts: record.mounts.len() as u32,
            })
            .collect()
    }

    /// For metrics.
    pub(crate) fn census(&self) -> Census {
        let state = self.lock();
        let mut census = Census::default();
        for dataset in state.datasets.values().filter(|dataset| dataset.record.end != End::Kept) {
            let counter = match dataset {
                Dataset { record: Record { verified: Some(_), .. }, .. } => &mut census.verified,
                Dataset { transfer: Some(_), .. } => &mut census.staging,
                Dataset { failed: Some(_), .. } => &mut census.failed,
                _ => &mut census.waiting,
            };
            *counter += 1;
            census.mounts += dataset.record.mounts.len() as u64;
        }
        census
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Records are saved before they are changed in memory, or read again at the next start.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the data of `record` lies.
    pub(super) fn target(&self, record: &Record) -> PathBuf {
        self.data.join(&record.namespace).join(&record.path)
    }

    pub(super) fn save(&self, record: &Record) -> Result<(), DatasetError> {
        self.records.save(record).map_err(DatasetError::system("write the record of", &record.uid))
    }

    /// Cancels the transfer of `uid` and waits for its end.
    pub(super) fn quiesce<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        uid: &str,
    ) -> Result<MutexGuard<'a, State>, DatasetError> {
        if let Some(transfer) = state.datasets.get(uid).and_then(|dataset| dataset.transfer.as_ref()) {
            transfer.cancel.send_replace(true);
        }
        let runs =
            |state: &mut State| state.datasets.get(uid).is_some_and(|dataset| dataset.transfer.is_some());
        let (state, waited) = self
            .ended
            .wait_timeout_while(state, CANCEL_PATIENCE, runs)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            let name = state.datasets.get(uid).map(Dataset::name).unwrap_or_default();
            return Err(DatasetError::Busy { name });
        }
        Ok(state)
    }

    /// Does what `end` says with a dataset that nobody has mounted.
    pub(super) fn finish<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        uid: &str,
        end: End,
    ) -> Result<MutexGuard<'a, State>, DatasetError> {
        let mut state = self.quiesce(state, uid)?;
        let number = next(&mut state);
        let Some(dataset) = state.datasets.get_mut(uid) else { return Ok(state) };
        if !dataset.record.mounts.is_empty() {
            return Ok(state);
        }
        self.forget_what_vanished(dataset);
        if end == End::Keep && dataset.record.verified.is_some() {
            dataset.record.end = End::Kept;
            self.save(&dataset.record)?;
            return Ok(state);
        }
        let discarded = self.discard(&dataset.record, number)?;
        self.records.remove(uid).map_err(DatasetError::system("remove the record of", uid))?;
        state.datasets.remove(uid);
        // The path is free; removing a large tree may take its time.
        drop(state);
        if let Some(discarded) = discarded {
            remove(&discarded);
        }
        Ok(self.lock())
    }
}

/// A number that was not used before.
pub(super) fn next(state: &mut State) -> u64 {
    state.counter += 1;
    state.counter
}
