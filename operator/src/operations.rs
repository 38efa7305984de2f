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
        atomic::{AtomicBool, AtomicUsize, Ordering},
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
/// An operation that is ended does so when it next waits for something: at once, nearly always.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// From one look whether all have ended to the next.
const LOOKS: Duration = Duration::from_millis(5);

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
    /// No operation is begun any more.
    closed: AtomicBool,
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
    /// it reports. Says whether it was begun now; none is after [`Self::close`]. Call it within a runtime.
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
        if self.shared.closed.load(Ordering::Relaxed) {
            return false;
        }
        let of_owner = entries.entry(owner.uid.clone()).or_default();
        if of_owner.contains_key(name) {
            return false;
        }
        let state = Arc::new(Mutex::new(State::Running(first)));
        let reporter = Reporter {
            state: state.clone(),
            owner: owner.clone(),
            queues: self.shared.queues.clone(),
            last: Arc::default(),
        };
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

    /// Ends all operations for good, since somebody else may begin them now: launches go on in their starters, everything
    /// else ends with its calls. Returns when they have ended, after a second at the latest.
    pub async fn close(&self) {
        let removed: Vec<Entry> = {
            let mut entries = self.entries();
            self.shared.closed.store(true, Ordering::Relaxed);
            entries.drain().flat_map(|(_, of_owner)| of_owner.into_values()).collect()
        };
        for entry in removed {
            entry.task.abort();
        }
        let begun = Instant::now();
        while self.running() > 0 && begun.elapsed() < ENDS_WITHIN {
            tokio::time::sleep(LOOKS).await;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Key;

    fn owner(uid: &str) -> Owner {
        Owner {
            kind: "VirtualCluster".into(),
            namespace: "default".into(),
            name: "ring".into(),
            uid: uid.into(),
        }
    }

    async fn triggered(queues: &Queues) -> Key {
        let key = queues.clusters.next().await;
        queues.clusters.finished(&key, None);
        key
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_is_begun_once_and_its_end_triggers_its_owner() {
        let queues = Queues::default();
        let operations = Operations::new(queues.clone());
        let (begin, owner) = (Instant::now(), owner("1"));
        assert!(operations.begin(&owner, "gate/1", 0, |reporter| async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            reporter.report(1);
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(2)
        }));
        assert!(!operations.begin(&owner, "gate/1", 9, |_| async { Ok(9) }), "it goes on");
        assert_eq!(operations.state(&owner, "gate/1"), Some(State::Running(0)));
        assert_eq!(operations.running(), 1);

        assert_eq!(triggered(&queues).await, ("default".into(), "ring".into()));
        assert_eq!(begin.elapsed().as_secs(), 5);
        assert_eq!(operations.state(&owner, "gate/1"), Some(State::Running(1)));
        triggered(&queues).await;
        assert_eq!(begin.elapsed().as_secs(), 10);
        assert_eq!(operations.state(&owner, "gate/1"), Some(State::Done(2)));
        assert_eq!(operations.state::<String>(&owner, "gate/1"), None, "another type");
        tokio::task::yield_now().await;
        assert_eq!(operations.running(), 0);
        assert!(!operations.begin(&owner, "gate/1", 9, |_| async { Ok(9) }), "it has ended");
        operations.cancel(&owner, "gate/1");
        assert!(operations.begin(&owner, "gate/1", 9, |_| async { Ok(9) }), "it was forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn reports_trigger_at_a_bounded_rate_and_the_last_is_seen() {
        let queues = Queues::default();
        let operations = Operations::new(queues.clone());
        let owner = owner("1");
        operations.begin(&owner, "stage/a", 0, |reporter| async move {
            for step in 1..=100 {
                reporter.report(step);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            std::future::pending().await
        });
        let mut seen = 0;
        while tokio::time::timeout(Duration::from_secs(2), triggered(&queues)).await.is_ok() {
            seen += 1;
        }
        assert!((5..=7).contains(&seen), "{seen} triggers for one second of reports");
        assert_eq!(operations.state(&owner, "stage/a"), Some(State::Running(100)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_cancelled_or_forgotten_ends_and_a_panic_is_a_failure() {
        struct Ends(Arc<AtomicUsize>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let operations = Operations::new(Queues::default());
        let (ended, owner, other) = (Arc::new(AtomicUsize::new(0)), owner("1"), owner("2"));
        for (owner, name) in [(&owner, "a"), (&owner, "b"), (&other, "a")] {
            let ends = Ends(ended.clone());
            operations.begin(owner, name, (), |_| async move {
                let _ends = ends;
                std::future::pending().await
            });
        }
        let ended = async || {
            tokio::time::sleep(Duration::from_millis(1)).await;
            ended.load(Ordering::Relaxed)
        };
        operations.cancel(&owner, "a");
        assert_eq!((ended().await, operations.names(&owner)), (1, vec!["b".to_owned()]));
        operations.forget(&owner);
        assert_eq!((ended().await, operations.running()), (2, 1));
        assert_eq!(operations.state(&other, "a"), Some(State::Running(())));

        operations.begin(&other, "wrong", (), |_| async { panic!("as a fault would") });
        ended().await;
        let Some(State::Failed(failure)) = operations.state::<()>(&other, "wrong") else {
            panic!("it failed")
        };
        assert_eq!(failure.reason, "Panicked");

        operations.close().await;
        assert_eq!((operations.running(), operations.names(&other).len()), (0, 0));
        assert_eq!(ended().await, 3);
        assert!(!operations.begin(&other, "late", (), |_| async { Ok(()) }), "somebody else may lead");
    }
}
