//! One host's part in a broadcast.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::branch::{Branch, Child};
use super::stages::Stages;
use super::{Chunks, Command, Entrance, Event, Message, Settings, Shape};

/// The tree of a chunk that came down none.
pub(super) const NOWHERE: u16 = u16::MAX;

/// The state of a host. The same events give the same commands.
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) me: usize,
    pub(super) settings: Settings,
    pub(super) shape: Arc<Shape>,
    pub(super) held: Chunks,
    /// Chunks that were asked for, with the tree.
    pub(super) awaited: BTreeMap<u32, usize>,
    /// Of these the ones that are to come down another tree, this one, when the parent has let go of them.
    pub(super) moving: BTreeMap<u32, usize>,
    /// What hosts offered while it was awaited from elsewhere.
    pub(super) spare: BTreeMap<usize, BTreeSet<u32>>,
    /// By tree.
    pub(super) branches: Vec<Branch>,
    /// At the source of nested trees.
    pub(super) stages: Option<Stages>,
    /// What those below hold in open trees, or were offered.
    pub(super) peers: BTreeMap<usize, Chunks>,
    /// For each chunk how many of these lack it.
    pub(super) lacks: Vec<u16>,
    /// Down which tree each chunk came.
    pub(super) homes: Vec<u16>,
    pub(super) gone: BTreeSet<usize>,
    /// Spoilt chunks by sender.
    pub(super) spoilt: BTreeMap<usize, u32>,
    entrance: Entrance,
    /// When it will be woken.
    alarm: Option<Duration>,
    pub(super) now: Duration,
    pub(super) commands: Vec<Command>,
}

impl Node {
    /// Host number `me` of `shape`, with the chunks that it has.
    pub fn new(shape: Arc<Shape>, me: usize, held: Chunks, settings: Settings, entrance: Entrance) -> Self {
        let live = shape.nested().is_some() && entrance != Entrance::Resumed;
        let branches =
            (0..shape.trees()).map(|tree| place(&shape, tree, me, live, entrance, settings.chunks)).collect();
        let mut node = Self {
            me,
            settings,
            held,
            awaited: BTreeMap::new(),
            moving: BTreeMap::new(),
            spare: BTreeMap::new(),
            branches,
            stages: None,
            peers: BTreeMap::new(),
            lacks: vec![0; settings.chunks as usize],
            homes: vec![NOWHERE; settings.chunks as usize],
            gone: BTreeSet::new(),
            spoilt: BTreeMap::new(),
            entrance,
            alarm: None,
            now: Duration::ZERO,
            commands: Vec::new(),
            shape,
        };
        let order = node.shape.nested().filter(|_| live && node.roots());
        node.stages = order.map(|order| Stages::new(settings.chunks, order.to_vec()));
        node
    }

    /// What it holds.
    pub fn held(&self) -> &Chunks {
        &self.held
    }

    /// Takes an event in, at a time since the beginning that never goes back, and says what is to be done.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Command> {
        self.now = self.now.max(now);
        match event {
            Event::Started => self.started(),
            Event::Told { message, .. } if !message.is_plausible() => {}
            Event::Told { from, message } => self.told(from, message),
            Event::Received { from, tree, chunk, intact } => self.received(from, tree, chunk, intact),
            Event::Withdrawn { to, tree, chunk } => self.tell(to, Message::Cancelled { tree, chunk }),
            Event::Gone { host } => self.lost(host),
            Event::Back { host } => {
                self.gone.remove(&host);
            }
            Event::Woken => self.woken(),
        }
        std::mem::take(&mut self.commands)
    }

    /// Numbers that it keeps: for tests of bounds.
    pub fn remembered(&self) -> usize {
        let branch = |branch: &Branch| branch.log.len() + branch.fetching.len() + branch.again.len();
        let branches: usize = self.branches.iter().map(branch).sum();
        let spare: usize = self.spare.values().map(BTreeSet::len).sum();
        let hops: usize = self.branches.iter().map(|branch| branch.children.len()).sum();
        branches
            + spare
            + hops * self.lacks.len()
            + self.awaited.len()
            + self.moving.len()
            + self.lacks.len()
            + self.homes.len()
    }

    pub(super) fn tell(&mut self, to: usize, message: Message) {
        self.commands.push(Command::Tell { to, message });
    }

    /// The branch of a tree; none for a number that no plan has.
    pub(super) fn branch(&mut self, tree: usize) -> Option<&mut Branch> {
        self.branches.get_mut(tree)
    }

    /// Whether it feeds trees and is fed by none.
    fn roots(&self) -> bool {
        let mut trees = 0..self.shape.trees();
        trees.all(|tree| {
            self.shape.parent(tree, self.me).is_none() && !self.shape.children(tree, self.me).is_empty()
        })
    }

    fn started(&mut self) {
        for tree in 0..self.branches.len() {
            let branch = &self.branches[tree];
            match branch.parent {
                Some(parent) if self.entrance == Entrance::Late => {
                    self.tell(parent, Message::Attach { tree, position: None });
                }
                _ => {}
            }
        }
        for host in self.above() {
            self.tell_holds(host);
        }
        (0..self.branches.len()).for_each(|tree| self.ask(tree));
        if self.held.complete() {
            self.commands.push(Command::Complete);
        }
    }

    /// One alarm is set at a time, for the earliest of all trees: each that rings sets at most one.
    fn woken(&mut self) {
        if self.alarm.is_some_and(|alarm| alarm <= self.now) {
            self.alarm = None;
            self.serve_all();
        }
    }

    pub(super) fn wake_at(&mut self, time: Duration) {
        if self.alarm.is_none_or(|alarm| time < alarm) {
            self.alarm = Some(time);
            self.commands.push(Command::WakeAt(time));
        }
    }

    fn told(&mut self, from: usize, message: Message) {
        match message {
            Message::Attach { tree, position } => self.attach(from, tree, position),
            Message::Attached { tree, position, end } => self.attached(from, tree, position, end),
            Message::Ready { tree, upto } => self.ready(from, tree, upto),
            Message::Entry { tree, chunk } => self.entry(from, tree, chunk),
            Message::Fetch { tree, chunk } => self.fetched(from, tree, chunk),
            Message::Cancel { tree, chunk } => {
                self.commands.push(Command::Withdraw { to: from, tree, chunk });
            }
            Message::Cancelled { tree, chunk } => self.cancelled(from, tree, chunk),
            Message::Refuse { tree, chunk } => self.refused(from, tree, chunk),
            Message::Retired { tree, end } => self.retired(from, tree, end),
            Message::Holds { chunks } => self.holds(from, chunks),
            Message::Holding { chunk } => self.holding(from, chunk),
            Message::Lacking { chunk } => self.lacking(from, chunk),
        }
    }

    /// A host is gone: it is fed no more, and what it was to send comes from the next one above.
    pub(super) fn lost(&mut self, host: usize) {
        if !self.gone.insert(host) {
            return;
        }
        self.forget(host);
        self.spare.remove(&host);
        for tree in 0..self.branches.len() {
            self.branches[tree].children.remove(&host);
            if self.branches[tree].parent == Some(host) {
                self.reparent(tree);
            }
            self.adopt(tree);
            // Those that remain may have been held up by the one that is gone.
            self.ask(tree);
        }
    }

    /// Connects to those below a host that is gone; they attach when they have noticed.
    fn adopt(&mut self, tree: usize) {
        for child in self.shape.children_but(tree, self.me, &self.gone) {
            if !self.branches[tree].children.contains_key(&child)
                && !self.shape.children(tree, self.me).contains(&child)
            {
                self.commands.push(Command::Connect { to: child, tree });
            }
        }
    }
}

/// The place of `me` in a tree at the beginning.
fn place(shape: &Shape, tree: usize, me: usize, live: bool, entrance: Entrance, chunks: u32) -> Branch {
    let late = entrance == Entrance::Late;
    let children = shape.children(tree, me).iter().filter(|_| !late);
    let child = |&child: &usize| {
        let fed =
            Child { subtree: shape.below(tree, child), lacks: vec![0; chunks as usize], ..Child::default() };
        (child, fed)
    };
    Branch {
        parent: shape.parent(tree, me),
        attached: !late,
        end: (!live).then_some(0),
        children: children.map(child).collect(),
        ..Branch::default()
    }
}
