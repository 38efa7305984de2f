//! How does the source keep a copy of its own without reading its origin twice, and without slowing a child?
//!
//! The copy reads the feeds as a child does: from the ring, and where the disk is slower than the network from the origin.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;

use super::counters::Counters;
use super::dataset::Dataset;
use super::failure::{Failure, blocking, join_error};
use super::intake::{Intake, queue};
use super::landing::{self, Arrival};
use super::member::PROGRESS_INTERVAL;
use super::outlet::Outlet;
use super::staging::{Need, Staging};
use super::store::Store;
use super::verify;

/// The source's own copy.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) store: Arc<Store>,
    target: PathBuf,
    staging: Arc<Mutex<Staging>>,
    holes: bool,
    arrival: Option<Arc<dyn Arrival>>,
}

impl Copy {
    /// Prepares a staging directory beside `target`.
    pub(crate) fn prepare(
        target: PathBuf,
        id: &str,
        dataset: &Dataset,
        arrival: Option<Arc<dyn Arrival>>,
    ) -> Result<Self, Failure> {
        let need = Need { bytes: dataset.required_bytes(), entries: dataset.entries.len() as u64 };
        let staging = Staging::for_target(&target, id, need)?;
        let directory = staging.directory().try_clone_to_owned();
        let directory = directory.map_err(|error| Failure::writing(staging.path(), &error))?;
        // Its own ledger: that of the source says what was read, this one what is stored.
        let store = Store::prepare(directory, staging.path().to_owned(), Arc::new(dataset.fresh()))?;
        let holes = staging.reports_holes();
        Ok(Self { store: Arc::new(store), target, staging: Arc::new(Mutex::new(staging)), holes, arrival })
    }

    /// Stores what the outlets, one for each tree, yield.
    pub(crate) async fn fill(&self, outlets: Vec<Outlet>, counters: &Arc<Counters>) -> Result<(), Failure> {
        let (intake, arrivals) = queue(counters);
        let mut tasks = JoinSet::new();
        for (tree, mut outlet) in outlets.into_iter().enumerate() {
            let intake = intake.clone();
            tasks.spawn(async move {
                while let Some(item) = outlet.next().await? {
                    intake.send(tree, item).await;
                }
                Ok(())
            });
        }
        let store = self.store.clone();
        let progress = self.report_progress();
        tokio::pin!(progress);
        let intake_run = Intake { arrivals, store, parents: None, counters: counters.clone() }.run();
        tokio::pin!(intake_run);
        loop {
            tokio::select! {
                result = &mut intake_run => return result,
                () = &mut progress => {}
                Some(joined) = tasks.join_next() => joined.map_err(|error| join_error(&error))??,
            }
        }
    }

    async fn report_progress(&self) {
        let Some(arrival) = &self.arrival else { return std::future::pending().await };
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        loop {
            ticks.tick().await;
            arrival.progress(self.store.dataset.ledger.progress().bytes, self.store.dataset.data_bytes());
        }
    }

    pub(crate) async fn publish(&self) -> Result<(), Failure> {
        let (store, staging) = (self.store.clone(), self.staging.clone());
        blocking(move || {
            store.finish()?;
            staging.lock().unwrap_or_else(PoisonError::into_inner).publish()
        })
        .await
    }

    /// The first difference of what was published. Where there is none the node's registry knows from then on.
    pub(crate) async fn difference(&self) -> Result<Option<String>, Failure> {
        let (target, dataset, holes) = (self.target.clone(), self.store.dataset.clone(), self.holes);
        let arrival = self.arrival.clone();
        blocking(move || {
            let difference = verify::difference(&target, &dataset, holes);
            if let Some(arrival) = arrival.filter(|_| difference.is_none()) {
                arrival.verified(&dataset.arrived())?;
            }
            Ok(difference)
        })
        .await
    }

    /// Ready when the copy is not wanted any more.
    pub(crate) async fn cancelled(&self) {
        landing::cancelled(self.arrival.as_ref()).await;
    }
}
