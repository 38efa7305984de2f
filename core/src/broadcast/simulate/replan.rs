//! Faults, and what is done about them.

use std::collections::VecDeque;

use super::super::plan::sharing::{self, Resource};
use super::super::plan::{Options, plan};
use super::super::schedule::{Entrance, Event, MAX_SPOILT, News};
use super::super::topology::{Host, LimitedHost, Topology};
use super::world::{Happening, World, nanos};
use super::{FaultKind, MAX_PLANS, NOTICE, Settings, SimulateError};

/// Whether all that faults name is there.
pub(super) fn check(topology: &Topology, settings: &Settings) -> Result<(), SimulateError> {
    let known = |name: &String| topology.hosts.iter().any(|host| host.name() == name);
    for fault in &settings.faults {
        let text = || fault.kind.to_string();
        match &fault.kind {
            FaultKind::Cut(a, b) | FaultKind::Heal(a, b) | FaultKind::Link(a, b, _) => {
                if links_between(topology, a, b).is_empty() {
                    return Err(SimulateError::UnknownLink { fault: text(), a: a.clone(), b: b.clone() });
                }
            }
            FaultKind::Kill(name)
            | FaultKind::Back(name)
            | FaultKind::Join(name)
            | FaultKind::Full(name)
            | FaultKind::Spoil(name)
            | FaultKind::Slow(name, _) => {
                if !known(name) {
                    return Err(SimulateError::UnknownHost { fault: text(), name: name.clone() });
                }
            }
        }
    }
    Ok(())
}

fn links_between(topology: &Topology, a: &str, b: &str) -> Vec<usize> {
    let joins =
        |link: &super::super::topology::Link| (link.a == a && link.b == b) || (link.a == b && link.b == a);
    (0..topology.links.len()).filter(|&link| joins(&topology.links[link])).collect()
}

impl World<'_> {
    pub(super) fn fault(&mut self, number: usize) {
        let kind = self.settings.faults[number].kind.clone();
        self.moment(kind.to_string());
        self.in_vain = 0;
        match kind {
            FaultKind::Kill(name) => self.kill(&name),
            FaultKind::Full(name) => {
                if let Some(vertex) = self.graph.host(&name)
                    && self.hosts[vertex].complete.is_none()
                {
                    self.silence(vertex);
                    self.coordinator
                        .hear(self.time(), News::Failed { host: name, reason: "no space".to_owned() });
                    self.schedule(self.now, Happening::Noticed(vertex));
                }
            }
            FaultKind::Back(name) | FaultKind::Join(name) => self.join(&name),
            FaultKind::Spoil(name) => {
                if let Some(vertex) = self.graph.host(&name) {
                    self.hosts[vertex].spoil = MAX_SPOILT;
                }
            }
            FaultKind::Slow(name, mbps) => {
                if let Some(vertex) = self.graph.host(&name) {
                    self.slow.insert(vertex, mbps);
                    for resource in [Resource::Send(vertex), Resource::Receive(vertex)] {
                        let mbps = mbps.min(sharing::capacity(&self.graph, resource));
                        let changed = self.links.set_capacity(self.now, resource, mbps);
                        self.predict(changed);
                    }
                }
            }
            FaultKind::Cut(a, b) => self.set_link(&a, &b, Some(0.0)),
            FaultKind::Heal(a, b) => self.set_link(&a, &b, None),
            FaultKind::Link(a, b, mbps) => self.set_link(&a, &b, Some(mbps)),
        }
    }

    /// A host dies. Only what is on its disk remains.
    fn kill(&mut self, name: &str) {
        if let Some(vertex) = self.graph.host(name).filter(|&vertex| self.hosts[vertex].alive) {
            self.silence(vertex);
            self.schedule(self.now + nanos(NOTICE), Happening::Noticed(vertex));
        }
    }

    fn silence(&mut self, vertex: usize) {
        self.hosts[vertex].alive = false;
        self.hosts[vertex].node = None;
        for hop in 0..self.hops.len() {
            let state = &self.hops[hop];
            let through = state.route.iter().any(|&arc| self.graph.arcs()[arc].to == vertex);
            if through || state.from == vertex {
                self.drop_hop(hop);
            }
        }
    }

    fn drop_hop(&mut self, hop: usize) {
        self.hops[hop].queue = VecDeque::new();
        if let Some((_, bits)) = self.stop(hop) {
            self.wasted_bits += bits;
        }
    }

    /// All that are left hear that a host is gone.
    pub(super) fn notice(&mut self, vertex: usize) {
        if self.hosts[vertex].alive {
            return;
        }
        let name = self.graph.name(vertex).to_owned();
        self.coordinator.hear(self.time(), News::Gone { host: name });
        if let Some(host) = self.numbers[vertex] {
            for other in self.vertices.clone() {
                self.inbox.push_back((other, Event::Gone { host }));
            }
        }
    }

    /// A host takes part, for the first time or again.
    fn join(&mut self, name: &str) {
        let Some(vertex) = self.graph.host(name) else { return };
        let host = &mut self.hosts[vertex];
        if host.alive && host.joined.is_some() {
            return;
        }
        host.alive = true;
        host.joined = host.joined.or(Some(self.now));
        let chunks = host.held.held();
        self.coordinator.hear(self.time(), News::Joined { host: name.to_owned(), chunks });
        if let Some(host) = self.numbers[vertex] {
            // The plan that runs has a place for it.
            self.begin(vertex, host, Entrance::Late);
            for other in self.vertices.clone() {
                self.inbox.push_back((other, Event::Back { host }));
            }
        }
    }

    fn set_link(&mut self, a: &str, b: &str, mbps: Option<f64>) {
        for link in links_between(&self.topology, a, b) {
            let first = &self.first.links[link];
            let (there, back) = mbps.map_or((first.mbps, first.back_mbps), |mbps| {
                (mbps, first.back_mbps.map(|back| back.min(mbps)))
            });
            if there > 0.0 {
                self.cuts.remove(&link);
                self.topology.links[link].mbps = there;
                self.topology.links[link].back_mbps = back;
            } else {
                self.cuts.insert(link);
            }
            for (arc, mbps) in [(2 * link, there), (2 * link + 1, back.unwrap_or(there))] {
                let changed = self.links.set_capacity(self.now, Resource::Arc(arc), mbps);
                self.predict(changed);
            }
        }
        let stuck = std::mem::take(&mut self.stuck);
        for (from, to, event) in stuck {
            if self.reaches(from, to) {
                self.transmit(from, to, event);
            } else {
                self.stuck.push((from, to, event));
            }
        }
        if mbps.is_none() {
            // That a way is free again is found out by trying.
            self.coordinator.hear(self.time(), News::Changed);
        }
    }

    /// Whether messages get from one vertex to another over links that are not cut.
    pub(super) fn reaches(&self, from: usize, to: usize) -> bool {
        if self.cuts.is_empty() || from == to {
            return true;
        }
        let mut reached = vec![false; self.graph.vertices()];
        reached[from] = true;
        let mut next = vec![from];
        while let Some(vertex) = next.pop() {
            for &arc in self.graph.leaving(vertex) {
                let head = self.graph.arcs()[arc].to;
                if !self.cuts.contains(&(arc / 2)) && !std::mem::replace(&mut reached[head], true) {
                    next.push(head);
                }
            }
        }
        reached[to]
    }

    /// Hops that are slower than planned.
    pub(super) fn look(&mut self) {
        let elapsed = self.now - self.looked;
        let mut news = Vec::new();
        for hop in 0..self.hops.len() {
            let state = &mut self.hops[hop];
            if let Some((stream, _)) = state.running {
                let sent = self.links.sent(self.now, stream);
                state.bits += sent - state.counted;
                state.counted = sent;
            }
            let idle = state.idle + state.idle_since.map_or(0, |since| self.now - since.max(self.looked));
            let mbps = state.bits * 1e3 / elapsed.max(1) as f64;
            (state.bits, state.idle) = (0.0, 0);
            let busy = idle * 100 < elapsed;
            let (from, to, tree, planned) = (state.from, state.to, state.tree, state.ceiling_mbps);
            let now = std::time::Duration::from_nanos(self.now);
            if self.watch.slow((from, to, tree), planned, mbps, busy, now) {
                let name = |vertex| self.graph.name(vertex).to_owned();
                news.push(News::Slow { from: name(from), to: name(to) });
            }
        }
        self.looked();
        for news in news {
            self.coordinator.hear(self.time(), news);
        }
    }

    /// Sees to it that the coordinator is asked when it wants to be.
    pub(super) fn ask_coordinator(&mut self) {
        let due = self.coordinator.due().map(|due| nanos(due).max(self.now));
        if let Some(due) = due.filter(|&due| self.asked.is_none_or(|asked| due < asked)) {
            self.asked = Some(due);
            self.schedule(due, Happening::Decide);
        }
    }

    fn lacking(&self) -> bool {
        self.hosts.iter().any(|host| host.alive && host.joined.is_some() && host.complete.is_none())
    }

    /// Nothing is going to happen. Whether something is now.
    pub(super) fn stalled(&mut self) -> bool {
        if !self.lacking() || self.epoch >= MAX_PLANS {
            return false;
        }
        self.report_holdings();
        self.coordinator.hear(self.time(), News::Stalled);
        self.asked = None;
        self.ask_coordinator();
        !self.coordinator.hopeless()
    }

    fn report_holdings(&mut self) {
        for vertex in 0..self.hosts.len() {
            let host = &self.hosts[vertex];
            if host.alive && host.joined.is_some() {
                let (host, chunks) = (self.graph.name(vertex).to_owned(), host.held.held());
                self.coordinator.hear(self.time(), News::Holds { host, chunks });
            }
        }
    }

    /// A new plan on the network as it is.
    pub(super) fn decide(&mut self) {
        self.asked = None;
        self.report_holdings();
        let Some(decision) = self.coordinator.decide(self.time()) else { return };
        if !self.lacking() || self.epoch >= MAX_PLANS {
            return;
        }
        for hop in 0..self.hops.len() {
            self.drop_hop(hop);
        }
        self.hops.clear();
        self.hop_of.clear();
        self.streams.clear();
        self.stuck.clear();
        self.watch.clear();
        self.epoch = decision.epoch;
        let options =
            Options { partial: true, sources: decision.sources.clone(), ..self.settings.options.clone() };
        match plan(&self.network(), &decision.source, &decision.destinations, &options) {
            Ok(plan) => {
                self.moment(format!("plan {} from {}", decision.epoch, decision.source));
                // A plan keeps to the links that it was made on.
                if let Err(error) = self.install(&plan, Entrance::Resumed) {
                    self.moment(error.to_string());
                }
            }
            Err(error) => self.moment(format!("no plan {}: {error}", decision.epoch)),
        }
    }

    /// The network as it is: without links that are cut or end at a dead host, with hosts as slow as they are.
    fn network(&self) -> Topology {
        let mut network = self.topology.clone();
        let mut link = 0..;
        network.links.retain(|_| link.next().is_some_and(|link| !self.cuts.contains(&link)));
        let dead = |name: &str| self.graph.host(name).is_some_and(|vertex| !self.hosts[vertex].alive);
        network.links.retain(|link| !dead(&link.a) && !dead(&link.b));
        for (vertex, host) in network.hosts.iter_mut().enumerate() {
            if let Some(&mbps) = self.slow.get(&vertex) {
                let limits = host.limits();
                let finite = |mbps: f64| mbps.is_finite().then_some(mbps);
                *host = Host::Limited(LimitedHost {
                    name: host.name().to_owned(),
                    send_mbps: Some(limits.send.min(mbps)),
                    receive_mbps: Some(limits.receive.min(mbps)),
                    total_mbps: finite(limits.total),
                    disk_mbps: finite(limits.disk),
                });
            }
        }
        network
    }
}
