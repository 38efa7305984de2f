//! May this transfer bring a dataset here, and what became of it?

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gridcast_core::failure::chain;
use tokio::sync::watch;

use super::DatasetError;
use super::record::{End, Verified};
use super::registry::{Registry, State, Transfer, next};
use crate::broadcast::{Arrival, Arrived, Failure, Landing, remove};

/// The registry as broadcasts see it.
#[derive(Clone, Debug)]
pub(crate) struct Door(pub(crate) Arc<Registry>);

/// One admitted transfer.
#[derive(Debug)]
struct Admitted {
    registry: Arc<Registry>,
    uid: String,
    number: u64,
    cancel: watch::Receiver<bool>,
}

impl Landing for Door {
    fn begin(&self, id: &str, source: &str, target: &Path) -> Result<Arc<dyn Arrival>, Failure> {
        let registry = &self.0;
        let mut state = registry.lock();
        let uid = uid_of(&state, id).ok_or_else(|| {
            let detail =
                format!("broadcast {id} is of no dataset of this node: the operator announces it first");
            Failure::NotPermitted { detail }
        })?;
        registry.admit(&mut state, &uid, source, target)?;
        // The latest transfer is the one that somebody waits for.
        state = registry.quiesce(state, &uid).map_err(|error| failure(&error))?;
        // Meanwhile all may have changed.
        registry.admit(&mut state, &uid, source, target)?;
        let number = next(&mut state);
        let Some(dataset) = state.datasets.get_mut(&uid) else { return Err(Failure::Released) };
        let discarded = registry.discard(&dataset.record, number).map_err(|error| failure(&error))?;
        if !dataset.record.begun {
            check_free(target)?;
            dataset.record.begun = true;
            registry.save(&dataset.record).map_err(|error| failure(&error))?;
        }
        let (cancel, cancelled) = watch::channel(false);
        dataset.failed = None;
        dataset.transfer = Some(Transfer { number, progress: (0, 0), cancel });
        drop(state);
        let admitted = Arc::new(Admitted { registry: registry.clone(), uid, number, cancel: cancelled });
        registry.changed.send_replace(());
        if let Some(discarded) = discarded {
            remove(&discarded);
        }
        Ok(admitted)
    }
}

impl Registry {
    /// Whether `source` may bring `uid` to `target` now.
    fn admit(&self, state: &mut State, uid: &str, source: &str, target: &Path) -> Result<(), Failure> {
        let Some(dataset) = state.datasets.get_mut(uid) else { return Err(Failure::Released) };
        let refuse = |detail| Err(Failure::NotPermitted { detail });
        if dataset.record.end != End::Wanted {
            return Err(Failure::Released);
        }
        if dataset.record.source != source {
            let known = &dataset.record.source;
            return refuse(format!("dataset {} comes from {known}, not from {source}", dataset.name()));
        }
        if self.target(&dataset.record) != target {
            let (name, shown) = (dataset.name(), self.target(&dataset.record));
            return refuse(format!(
                "dataset {name} goes to {}, not to {}",
                shown.display(),
                target.display()
            ));
        }
        self.forget_what_vanished(dataset);
        if dataset.record.verified.is_some() {
            let detail = format!("dataset {} is here already, verified: leave this node out", dataset.name());
            return Err(Failure::InvalidRequest { detail });
        }
        Ok(())
    }

    /// Changes the dataset `uid` if `number` is its transfer.
    fn of_transfer<T>(
        &self,
        uid: &str,
        number: u64,
        change: impl FnOnce(&mut super::registry::Dataset) -> T,
    ) -> Option<T> {
        let mut state = self.lock();
        let dataset = state.datasets.get_mut(uid)?;
        let ours = dataset.transfer.as_ref().is_some_and(|transfer| transfer.number == number);
        ours.then(|| change(dataset))
    }

    /// Writes the data of a dataset to the disk; from then on a power failure does not take it away.
    fn sync(&self, uid: &str, digest: &str) -> io::Result<()> {
        let Some(target) = self.lock().datasets.get(uid).map(|dataset| self.target(&dataset.record)) else {
            return Ok(());
        };
        nix::unistd::syncfs(File::open(target)?)?;
        let mut state = self.lock();
        let Some(dataset) = state.datasets.get_mut(uid) else { return Ok(()) };
        if let Some(verified) = dataset.record.verified.as_mut().filter(|verified| verified.digest == digest)
        {
            verified.synced = true;
            self.records.save(&dataset.record)?;
        }
        Ok(())
    }
}

impl Arrival for Admitted {
    fn progress(&self, bytes: u64, of: u64) {
        let set = |dataset: &mut super::registry::Dataset| {
            if let Some(transfer) = &mut dataset.transfer {
                transfer.progress = (bytes, of);
            }
        };
        self.registry.of_transfer(&self.uid, self.number, set);
    }

    fn cancelled(&self) -> BoxFuture<'_, ()> {
        let mut cancel = self.cancel.clone();
        async move {
            // The sender goes with the transfer, and that only after this.
            if cancel.wait_for(|cancel| *cancel).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }

    fn verified(&self, arrived: &Arrived) -> Result<(), Failure> {
        let registry = &self.registry;
        let note = |dataset: &mut super::registry::Dataset| {
            if dataset.record.end != End::Wanted {
                return Err(Failure::Released);
            }
            let mut record = dataset.record.clone();
            record.verified = Some(Verified {
                digest: arrived.digest.clone(),
                size_bytes: arrived.size_bytes,
                files: arrived.files,
                synced: false,
            });
            registry.save(&record).map_err(|error| failure(&error))?;
            dataset.record = record;
            dataset.failed = None;
            Ok(())
        };
        registry.of_transfer(&self.uid, self.number, note).unwrap_or(Err(Failure::Released))?;
        registry.changed.send_replace(());
        tracing::info!(
            dataset = self.uid,
            digest = arrived.digest,
            bytes = arrived.size_bytes,
            "a dataset is here"
        );
        let (registry, uid, digest) = (registry.clone(), self.uid.clone(), arrived.digest.clone());
        let sync = move || {
            if let Err(error) = registry.sync(&uid, &digest) {
                tracing::warn!(dataset = uid, %error, "a dataset was not synced: after a power failure it is staged again");
            }
        };
        // Where no thread is to be had it is simply not synced.
        let _ = std::thread::Builder::new().name("sync-dataset".to_owned()).spawn(sync);
        Ok(())
    }

    fn failed(&self, reason: &str, message: &str) {
        let note = |dataset: &mut super::registry::Dataset| {
            if dataset.record.verified.is_none() {
                dataset.failed = Some(format!("{reason}: {message}"));
            }
        };
        self.registry.of_transfer(&self.uid, self.number, note);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.registry.of_transfer(&self.uid, self.number, |dataset| dataset.transfer = None);
        self.registry.ended.notify_all();
        self.registry.changed.send_replace(());
    }
}

/// The dataset whose UID `id` begins with, as a whole or up to a `-`.
fn uid_of(state: &State, id: &str) -> Option<String> {
    let begins = |uid: &&String| {
        id.strip_prefix(uid.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    state.datasets.keys().filter(begins).max_by_key(|uid| uid.len()).cloned()
}

/// What is there already, and is no dataset's, is not touched.
fn check_free(target: &Path) -> Result<(), Failure> {
    let taken = || Failure::TargetExists { path: target.display().to_string() };
    match fs::read_dir(target) {
        Ok(mut found) => {
            if found.next().is_none() {
                Ok(())
            } else {
                Err(taken())
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => Err(taken()),
    }
}

fn failure(error: &DatasetError) -> Failure {
    Failure::TargetUnusable { path: "the node's registry of datasets".to_owned(), error: chain(error) }
}
