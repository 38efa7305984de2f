//! Which object is reconciled next, and when?
//!
//! A trigger says that something about an object may have changed; how often it comes does not matter. Objects run at
//! once up to a bound, one object never twice at a time, and after a run an object rests a moment, so that the thousand
//! pods of one cluster do not make a thousand reconciliations. Unlike a debounce, a first trigger waits for nothing and
//! steady triggers cannot put a run off.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// Namespace and name.
pub type Key = (String, String);

/// Rest of one object between the end of a run and the start of its next. Twenty runs a second are enough to follow
/// anything; what a watch delivers in one burst is seen by one run.
const REST: Duration = Duration::from_millis(50);

/// The queues of the three kinds.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// VirtualClusters.
    pub clusters: Arc<Queue>,
    /// Broadcasts.
    pub broadcasts: Arc<Queue>,
    /// NetworkMaps.
    pub network_maps: Arc<Queue>,
}

impl Queues {
    /// The queue of a kind, by its name.
    pub fn of(&self, kind: &str) -> Option<&Arc<Queue>> {
        match kind {
            "VirtualCluster" => Some(&self.clusters),
            "Broadcast" => Some(&self.broadcasts),
            "NetworkMap" => Some(&self.network_maps),
            _ => None,
        }
    }
}

/// Objects of one kind that wait for a reconciliation. Bounded by the number of objects.
#[derive(Debug, Default)]
pub struct Queue {
    schedule: Mutex<Schedule>,
    changed: Notify,
}

impl Queue {
    /// Has the object reconciled as soon as it may.
    pub fn trigger(&self, namespace: &str, name: &str) {
        self.trigger_in(namespace, name, Duration::ZERO);
    }

    /// Has the object reconciled after `wait`, or sooner if something else asks for it.
    pub fn trigger_in(&self, namespace: &str, name: &str, wait: Duration) {
        let now = Instant::now();
        self.lock().trigger((namespace.to_owned(), name.to_owned()), now, now + wait);
        self.changed.notify_one();
    }

    /// Waits for the next object. The caller runs it and then says [`Self::finished`].
    pub async fn next(&self) -> Key {
        loop {
            let due = match self.lock().take(Instant::now()) {
                Next::Run(key) => return key,
                Next::Wait(due) => due,
            };
            match due {
                Some(due) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(due) => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    /// Says that a run ended, and when to run again though nothing triggers.
    pub fn finished(&self, key: &Key, again: Option<Duration>) {
        let now = Instant::now();
        self.lock().finished(key, now, again.map(|wait| now + wait));
        self.changed.notify_one();
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.lock().forget(&(namespace.to_owned(), name.to_owned()));
    }

    /// Objects that are due and wait for their turn.
    pub fn depth(&self) -> usize {
        self.lock().depth(Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, PartialEq)]
enum Next {
    Run(Key),
    /// Nothing is due before this.
    Wait(Option<Instant>),
}

/// What [`Queue`] guards. Time is an argument.
#[derive(Debug, Default)]
struct Schedule {
    order: BTreeSet<(Instant, Key)>,
    due: HashMap<Key, Instant>,
    /// Objects that run, and when they are wanted again.
    running: HashMap<Key, Option<Instant>>,
    /// Until when an object rests.
    resting: HashMap<Key, Instant>,
}

impl Schedule {
    fn trigger(&mut self, key: Key, now: Instant, at: Instant) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = Some(again.map_or(at, |earlier| earlier.min(at)));
            return;
        }
        let rested = self.resting.get(&key).copied().unwrap_or(now);
        self.put(key, at.max(rested));
    }

    fn put(&mut self, key: Key, at: Instant) {
        match self.due.get(&key) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => {
                self.order.remove(&(*later, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), at);
        self.order.insert((at, key));
    }

    fn take(&mut self, now: Instant) -> Next {
        match self.order.first() {
            Some((at, _)) if *at > now => Next::Wait(Some(*at)),
            Some(_) => {
                let Some((_, key)) = self.order.pop_first() else { return Next::Wait(None) };
                self.due.remove(&key);
                self.running.insert(key.clone(), None);
                Next::Run(key)
            }
            None => Next::Wait(None),
        }
    }

    fn finished(&mut self, key: &Key, now: Instant, again: Option<Instant>) {
        let wanted = self.running.remove(key).flatten();
        let rested = now + REST;
        self.resting.retain(|_, until| *until > now);
        self.resting.insert(key.clone(), rested);
        if let Some(at) = wanted.into_iter().chain(again).min() {
            self.put(key.clone(), at.max(rested));
        }
    }

    fn forget(&mut self, key: &Key) {
        if let Some(at) = self.due.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
        self.resting.remove(key);
    }

    fn depth(&self, now: Instant) -> usize {
        self.order.iter().take_while(|(at, _)| *at <= now).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("default".into(), name.into())
    }

    #[test]
    fn an_object_never_runs_twice_at_a_time_and_misses_no_trigger() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.trigger(key("a"), now, now);
        assert_eq!(schedule.take(now), Next::Run(key("a")));
        schedule.trigger(key("a"), now, now);
        schedule.trigger(key("b"), now, now);
        assert_eq!(schedule.take(now), Next::Run(key("b")));
        assert_eq!(schedule.take(now), Next::Wait(None));
        schedule.finished(&key("a"), now, None);
        assert_eq!(schedule.take(now), Next::Wait(Some(now + REST)));
        assert_eq!(schedule.take(now + REST), Next::Run(key("a")));
        schedule.finished(&key("a"), now + REST, None);
        assert_eq!(schedule.take(now + 9 * REST), Next::Wait(None));
    }

    #[test]
    fn steady_triggers_do_not_put_a_run_off() {
        let (mut schedule, mut now) = (Schedule::default(), Instant::now());
        let mut runs = 0;
        for _ in 0..1000 {
            schedule.trigger(key("a"), now, now);
            if let Next::Run(key) = schedule.take(now) {
                runs += 1;
                schedule.finished(&key, now, None);
            }
            now += Duration::from_millis(1);
        }
        assert_eq!(runs, 20, "one each {REST:?}");
    }

    #[test]
    fn the_earliest_wish_counts_and_a_run_answers_all() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        schedule.trigger(key("a"), now, at(60));
        schedule.trigger(key("a"), now, at(5));
        schedule.trigger(key("a"), now, at(30));
        assert_eq!(schedule.take(now), Next::Wait(Some(at(5))));
        assert_eq!(schedule.take(at(5)), Next::Run(key("a")));
        schedule.trigger(key("a"), at(5), at(50));
        schedule.finished(&key("a"), at(6), Some(at(20)));
        assert_eq!(schedule.take(at(6)), Next::Wait(Some(at(20))));
        schedule.forget(&key("a"));
        assert_eq!(schedule.take(at(100)), Next::Wait(None));
    }
}
