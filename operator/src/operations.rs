//! What goes on that is longer than a reconciliation?
//!
//! Measuring, staging, the gate, a launch: each is a task that belongs to an object, by its UID, and has a name. What it
//! reported last and how it ended is part of what the object's next plan observes; a report or the end triggers that
//! plan. Operations die with the operator and are begun again by a plan that misses them: what they ask of agents is
//! repeatable.

use std::{
    any::Any,
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use tokio::{task::AbortHandle, time::Instant};

pub use crate::kind::Owner;
use crate::queue::Queues;
pub use gridcast_control::StepFailure;

/// Reports of one operation trigger its owner at most this often: more could not be shown anyway.
const REPORTS_EVERY: Duration = Duration::from_millis(200);

/// How far an operation is.
#[derive(Clone, Debug, PartialEq)]
pub enum State<T> {
    /// It goes on; what it reported last.
    Running(T),
    /// It ended well.
    Done(T),
    /// It did not.
    Failed(StepFailure),
}

/// All operations of this process. Clones share them.
#[derive(Clone, Default)]
pub struct Operations {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    entries: Mutex<HashMap<String, HashMap<String, Entry>>>,
    queues: Queues,
    running: AtomicUsize,
}

struct Entry {
    /// `Arc<Mutex<State<T>>>` of the operation's own `T`.
    state: Arc<dyn Any + Send + Sync>,
    task: AbortHandle,
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").field("running", &self.running()).finish_non_exhaustive()
    }
}

impl Operations {
    /// None yet; their owners are triggered in `queues`.
    pub fn new(queues: Queues) -> Self {
        Self { shared: Arc::new(Shared { queues, ..Shared::default() }) }
    }

    /// Begins `work` for `owner` under `name`, unless it was begun before, however that ended. `first` is its state until
    /// it reports. Says whether it was begun now. Call it within a runtime.
    pub fn begin<T, F>(
        &self,
        owner: &Owner,
        name: &str,
        first: T,
        work: impl FnOnce(Reporter<T>) -> F,
    ) -> bool
    where
        F: Future<Output = Result<T, StepFailure>> + Send + 'static,
        T: Clone + Send + Sync + 'static,
    {
        let mut entries = self.entries();
        let of_owner = entries.entry(owner.uid.clone()).or_default();
        if of_owner.contains_key(name) {
            return false;
        }
        let state = Arc::new(Mutex::new(State::Running(first)));
        let reporter =
            Reporter { state: state.clone(), owner: owner.clone(), queues: self.shared.queues.clone(), last: Arc::default() };
        let (work, counted) = (work(reporter.clone()), Counted::new(&self.shared));
        let task = tokio::spawn(async move {
            let _counted = counted;
            // A panic must not leave an operation that runs for ever in everybody's eyes.
            let end = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
                Err(StepFailure::new("Panicked", "the operator failed in this step; its log has the place"))
            });
            reporter.end(end);
        });
        of_owner.insert(name.to_owned(), Entry { state, task: task.abort_handle() });
        true
    }

    /// How far the operation is. `None` if it was not begun, or with another `T`.
    pub fn state<T: Clone + Send + Sync + 'static>(&self, owner: &Owner, name: &str) -> Option<State<T>> {
        let entries = self.entries();
        let state = entries.get(&owner.uid)?.get(name)?.state.clone();
        drop(entries);
        let state = state.downcast::<Mutex<State<T>>>().ok()?;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(state)
    }

    /// Ends the operation, if it goes on, and forgets it; what it had asked of others ends with it. It may be begun again.
    pub fn cancel(&self, owner: &Owner, name: &str) {
        let mut entries = self.entries();
        let Some(of_owner) = entries.get_mut(&owner.uid) else { return };
        if let Some(entry) = of_owner.remove(name) {
            entry.task.abort();
        }
        if of_owner.is_empty() {
            entries.remove(&owner.uid);
        }
    }

    /// Ends and forgets all operations of `owner`.
    pub fn forget(&self, owner: &Owner) {
        let removed = self.entries().remove(&owner.uid);
        for entry in removed.into_iter().flatten().map(|(_, entry)| entry) {
            entry.task.abort();
        }
    }

    /// The names of the operations of `owner`, ended ones included, sorted.
    pub fn names(&self, owner: &Owner) -> Vec<String> {
        let mut names: Vec<String> =
            self.entries().get(&owner.uid).map(|of| of.keys().cloned().collect()).unwrap_or_default();
        names.sort();
        names
    }

    /// Operations that go on.
    pub fn running(&self) -> usize {
        self.shared.running.load(Ordering::Relaxed)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, HashMap<String, Entry>>> {
        self.shared.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts an operation while its task lives, however it ends.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.running.fetch_add(1, Ordering::Relaxed);
        Self(shared.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What an operation tells the plans of its owner.
#[derive(Clone)]
pub struct Reporter<T> {
    state: Arc<Mutex<State<T>>>,
    owner: Owner,
    queues: Queues,
    /// When a report last triggered the owner, or will.
    last: Arc<Mutex<Option<Instant>>>,
}

impl<T> std::fmt::Debug for Reporter<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reporter").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl<T> Reporter<T> {
    /// Says how far it is.
    pub fn report(&self, progress: T) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Running(progress);
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let next = last.map_or(now, |last| (last + REPORTS_EVERY).max(now));
        // One that is still to come shows this report too.
        if last.is_none_or(|last| last <= now) {
            *last = Some(next);
            self.trigger(next - now);
        }
    }

    fn end(&self, result: Result<T, StepFailure>) {
        let state = match result {
            Ok(result) => State::Done(result),
            Err(failure) => State::Failed(failure),
        };
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.trigger(Duration::ZERO);
    }

    fn trigger(&self, wait: Duration) {
        if let Some(queue) = self.queues.of(&self.owner.kind) {
            queue.trigger_in(&self.owner.namespace, &self.owner.name, wait);
        }
    }
}
