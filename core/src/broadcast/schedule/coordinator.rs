//! When is a new plan needed, for whom and from where?
//!
//! Relays bridge what fails at once, by themselves; the coordinator gathers news for [`SETTLE`] and then asks for a plan
//! that uses what is really there. News about hops that are slower or faster than planned waits until the last plan is
//! [`PAUSE`] old. Each plan has an epoch; agents refuse lower ones.
//!
//! The source of a plan is a host that has everything: the one that is, else the first by name. Where nobody has, it is the
//! host that holds the most, and when the broadcast stands still the next one, as long as that brings anything new.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// News that come within this time lead to one plan.
pub const SETTLE: Duration = Duration::from_millis(200);
/// Between two plans for rates alone.
pub const PAUSE: Duration = Duration::from_secs(2);

/// What the coordinator hears.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A host holds so many chunks.
    Holds {
        /// Which.
        host: String,
        /// How many.
        chunks: u32,
    },
    /// A host can be reached no more.
    Gone {
        /// Which.
        host: String,
    },
    /// A host takes part from now on, or again, with so many chunks.
    Joined {
        /// Which.
        host: String,
        /// How many.
        chunks: u32,
    },
    /// A host gives up.
    Failed {
        /// Which.
        host: String,
        /// Why.
        reason: String,
    },
    /// A hop is much slower than planned.
    Slow {
        /// Who sends.
        from: String,
        /// Who receives.
        to: String,
    },
    /// Links or hosts are known to have other capacities now.
    Changed,
    /// Nothing moves, and hosts lack chunks.
    Stalled,
}

/// Why there is a new plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A host is gone.
    Gone(String),
    /// A host joined.
    Joined(String),
    /// A host gave up.
    Failed(String),
    /// A hop was slow.
    Slow(String, String),
    /// Capacities changed.
    Changed,
    /// Nothing moved.
    Stalled,
}

/// What is to be planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Number of the plan.
    pub epoch: u64,
    /// Where it begins.
    pub source: String,
    /// Others that have everything.
    pub sources: Vec<String>,
    /// All others that take part.
    pub destinations: Vec<String>,
    /// Why.
    pub reasons: BTreeSet<Reason>,
}

/// What it knows of a host.
#[derive(Clone, Debug, PartialEq)]
enum Standing {
    Alive(u32),
    Gone,
    Failed(String),
}

/// The state of a broadcast as its coordinator sees it.
#[derive(Clone, Debug)]
pub struct Coordinator {
    chunks: u32,
    epoch: u64,
    source: String,
    hosts: BTreeMap<String, Standing>,
    reasons: BTreeSet<Reason>,
    /// When the next plan is to be made.
    due: Option<Duration>,
    last: Duration,
    /// Sources that brought nothing more since somebody got anything.
    dry: BTreeSet<String>,
}

impl Coordinator {
    /// The first plan, of epoch 1, is running: `source` has all of `chunks`, `destinations` nothing.
    pub fn new(chunks: u32, source: &str, destinations: &[String]) -> Self {
        let mut hosts: BTreeMap<String, Standing> =
            destinations.iter().map(|name| (name.clone(), Standing::Alive(0))).collect();
        hosts.insert(source.to_owned(), Standing::Alive(chunks));
        Self {
            chunks,
            epoch: 1,
            source: source.to_owned(),
            hosts,
            reasons: BTreeSet::new(),
            due: None,
            last: Duration::ZERO,
            dry: BTreeSet::new(),
        }
    }

    /// Takes news in.
    pub fn hear(&mut self, now: Duration, news: News) {
        match news {
            News::Holds { host, chunks } => {
                if let Some(Standing::Alive(held)) = self.hosts.get_mut(&host)
                    && *held < chunks
                {
                    *held = chunks;
                    self.dry.clear();
                }
            }
            News::Gone { host } => {
                match self.hosts.get_mut(&host) {
                    Some(Standing::Gone | Standing::Failed(_)) => return,
                    Some(standing) => *standing = Standing::Gone,
                    // It only forwards what is for others.
                    None => {}
                }
                self.settle(now, Reason::Gone(host));
            }
            News::Joined { host, chunks } => {
                self.hosts.insert(host.clone(), Standing::Alive(chunks));
                self.dry.clear();
                self.settle(now, Reason::Joined(host));
            }
            News::Failed { host, reason } => {
                self.hosts.insert(host.clone(), Standing::Failed(reason));
                self.settle(now, Reason::Failed(host));
            }
            News::Slow { from, to } => self.plan_at(now.max(self.last + PAUSE), Reason::Slow(from, to)),
            News::Changed => {
                self.dry.clear();
                self.plan_at(now.max(self.last + PAUSE), Reason::Changed);
            }
            News::Stalled => {
                self.dry.insert(self.source.clone());
                self.settle(now, Reason::Stalled);
            }
        }
    }

    /// When [`Coordinator::decide`] has something to say.
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// The plan to be made now, if one is.
    pub fn decide(&mut self, now: Duration) -> Option<Decision> {
        self.due.take_if(|due| *due <= now)?;
        let reasons = std::mem::take(&mut self.reasons);
        let source = self.choose_source()?;
        self.last = now;
        self.epoch += 1;
        self.source.clone_from(&source);
        let (mut sources, mut destinations) = (Vec::new(), Vec::new());
        for (name, standing) in self.hosts.iter().filter(|(name, _)| **name != source) {
            match standing {
                Standing::Alive(held) if *held >= self.chunks => sources.push(name.clone()),
                Standing::Alive(_) => destinations.push(name.clone()),
                Standing::Gone | Standing::Failed(_) => {}
            }
        }
        Some(Decision { epoch: self.epoch, source, sources, destinations, reasons })
    }

    /// Whether no host is left that could bring anything new.
    pub fn hopeless(&self) -> bool {
        self.choose_source().is_none()
    }

    /// Why a host does not have everything, if it is known to have given up or to be gone.
    pub fn reason(&self, host: &str) -> Option<String> {
        match self.hosts.get(host)? {
            Standing::Alive(_) => None,
            Standing::Gone => Some("gone".to_owned()),
            Standing::Failed(reason) => Some(reason.clone()),
        }
    }

    fn settle(&mut self, now: Duration, reason: Reason) {
        self.plan_at(now + SETTLE, reason);
    }

    fn plan_at(&mut self, time: Duration, reason: Reason) {
        self.reasons.insert(reason);
        self.due = Some(self.due.map_or(time, |due| due.min(time)));
    }

    /// None is left that could bring anything new.
    fn choose_source(&self) -> Option<String> {
        let rank = |name: &String, held: u32| (held, *name == self.source, std::cmp::Reverse(name.clone()));
        let candidates = self.hosts.iter().filter_map(|(name, standing)| match standing {
            Standing::Alive(held) if !self.dry.contains(name) => {
                Some((rank(name, (*held).min(self.chunks)), name))
            }
            _ => None,
        });
        candidates.max().map(|(_, name)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn several_that_die_at_once_lead_to_one_plan_without_them() {
        let mut coordinator = Coordinator::new(10, "S", &names(&["A", "B", "C"]));
        coordinator.hear(at(1000), News::Gone { host: "A".into() });
        coordinator.hear(at(1100), News::Gone { host: "B".into() });
        assert_eq!(coordinator.decide(at(1150)), None);
        let decision = coordinator.decide(at(1200)).unwrap();
        assert_eq!((decision.epoch, decision.source.as_str()), (2, "S"));
        assert_eq!(decision.destinations, names(&["C"]));
        assert_eq!(decision.reasons, BTreeSet::from([Reason::Gone("A".into()), Reason::Gone("B".into())]));
        assert_eq!(coordinator.decide(at(1300)), None);
        assert_eq!(coordinator.reason("A").as_deref(), Some("gone"));
    }

    #[test]
    fn a_complete_host_takes_over_from_a_dead_source() {
        let mut coordinator = Coordinator::new(10, "S", &names(&["A", "B", "C"]));
        coordinator.hear(at(0), News::Holds { host: "B".into(), chunks: 10 });
        coordinator.hear(at(0), News::Holds { host: "C".into(), chunks: 9 });
        coordinator.hear(at(0), News::Gone { host: "S".into() });
        let decision = coordinator.decide(at(200)).unwrap();
        assert_eq!((decision.source.as_str(), decision.destinations), ("B", names(&["A", "C"])));
        // Whoever has everything is a source.
        coordinator.hear(at(300), News::Holds { host: "C".into(), chunks: 10 });
        coordinator.hear(at(5000), News::Changed);
        let decision = coordinator.decide(at(5000)).unwrap();
        assert_eq!((decision.sources, decision.destinations), (names(&["C"]), names(&["A"])));
    }

    #[test]
    fn where_nobody_has_everything_all_are_tried_once() {
        let mut coordinator = Coordinator::new(10, "S", &names(&["A", "B"]));
        coordinator.hear(at(0), News::Holds { host: "A".into(), chunks: 6 });
        coordinator.hear(at(0), News::Holds { host: "B".into(), chunks: 5 });
        coordinator.hear(at(0), News::Gone { host: "S".into() });
        assert_eq!(coordinator.decide(at(200)).unwrap().source, "A");
        coordinator.hear(at(300), News::Stalled);
        assert_eq!(coordinator.decide(at(500)).unwrap().source, "B");
        coordinator.hear(at(600), News::Stalled);
        assert_eq!(coordinator.decide(at(800)), None);
        // Something new: it is tried again.
        coordinator.hear(at(900), News::Joined { host: "S".into(), chunks: 10 });
        assert_eq!(coordinator.decide(at(1100)).unwrap().source, "S");
    }

    #[test]
    fn plans_for_rates_alone_keep_a_pause() {
        let mut coordinator = Coordinator::new(10, "S", &names(&["A"]));
        let slow = News::Slow { from: "S".into(), to: "A".into() };
        coordinator.hear(at(3000), slow.clone());
        assert_eq!(coordinator.decide(at(3000)).unwrap().epoch, 2);
        coordinator.hear(at(3100), slow);
        assert_eq!(coordinator.due(), Some(at(5000)));
    }
}
