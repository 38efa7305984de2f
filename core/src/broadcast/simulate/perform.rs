//! Carries out what the machines command.

use std::time::Duration;

use super::super::schedule::{Command, Event, Message, News};
use super::world::{Happening, World, nanos};

impl World<'_> {
    /// Hands over all events of this moment, and what follows from them at once.
    pub(super) fn deliver(&mut self) {
        while let Some((vertex, event)) = self.inbox.pop_front() {
            self.in_vain += 1;
            if self.given_up() {
                return;
            }
            self.note_chunk(vertex, &event);
            let time = self.time();
            let Some(node) = self.hosts.get_mut(vertex).and_then(|host| host.node.as_mut()) else { continue };
            let commands = node.handle(time, event);
            self.remembered = self.remembered.max(node.remembered());
            for command in commands {
                self.perform(vertex, command);
            }
        }
    }

    /// Keeps the books of what is on disks.
    fn note_chunk(&mut self, vertex: usize, event: &Event) {
        let Event::Received { chunk, intact, .. } = *event else { return };
        let bytes = self.cut.bytes(chunk);
        let Some(host) = self.hosts.get_mut(vertex) else { return };
        if !intact {
            self.wasted_bits += bytes as f64 * 8.0;
        } else if !host.held.insert(chunk) {
            self.duplicate_bytes += bytes;
        } else {
            self.in_vain = 0;
        }
    }

    fn perform(&mut self, vertex: usize, command: Command) {
        match command {
            Command::Tell { to, message } => self.say(vertex, to, message),
            Command::Send { to, tree, chunk } => self.send(vertex, to, tree, chunk),
            Command::Withdraw { to, tree, chunk } => self.withdraw(vertex, to, tree, chunk),
            Command::WakeAt(time) => self.wake(vertex, time),
            Command::Complete => self.completed(vertex),
            Command::Connect { .. } => {}
            Command::Orphaned { tree } => {
                self.moment(format!("{} has nobody above it in tree {tree}", self.graph.name(vertex)));
            }
            Command::Distrust { host } => {
                let sender = self.shape.hosts().get(host).cloned().unwrap_or_default();
                self.moment(format!("{} leaves {sender}, which sent spoilt chunks", self.graph.name(vertex)));
            }
        }
    }

    fn say(&mut self, from: usize, to: usize, message: Message) {
        let (Some(&to), Some(number)) = (self.vertices.get(to), self.numbers[from]) else { return };
        let event = Event::Told { from: number, message };
        if !self.reaches(from, to) {
            self.stuck.push((from, to, event));
            return;
        }
        self.transmit(from, to, event);
    }

    /// An event reaches another host after the delay of the way.
    pub(super) fn transmit(&mut self, from: usize, to: usize, event: Event) {
        let delay = self.delay(from, to);
        if delay == 0 {
            self.inbox.push_back((to, event));
        } else {
            self.schedule(self.now + delay, Happening::Arrives(to, event, self.epoch));
        }
    }

    fn delay(&mut self, from: usize, to: usize) -> u64 {
        let graph = &self.graph;
        *self.delays.entry((from, to)).or_insert_with(|| {
            let route = graph.route(from, to).or_else(|| graph.route(to, from)).unwrap_or_default();
            let milliseconds: f64 = route.iter().map(|&arc| graph.arcs()[arc].delay_ms).sum();
            nanos(Duration::from_secs_f64(milliseconds.max(0.0) / 1e3))
        })
    }

    /// Once at a time, however often a host asks for it.
    fn wake(&mut self, vertex: usize, time: Duration) {
        let time = nanos(time).max(self.now);
        if self.wakes.insert((vertex, time)) {
            self.schedule(time, Happening::Arrives(vertex, Event::Woken, self.epoch));
        }
    }

    fn completed(&mut self, vertex: usize) {
        let chunks = self.cut.chunks;
        let name = self.graph.name(vertex).to_owned();
        let Some(host) = self.hosts.get_mut(vertex).filter(|host| host.complete.is_none()) else { return };
        host.complete = Some(self.now);
        self.moment(format!("{name} has everything"));
        self.coordinator.hear(self.time(), News::Holds { host: name, chunks });
    }

    fn send(&mut self, from: usize, to: usize, tree: usize, chunk: u32) {
        let (Some(number), Some(&vertex)) = (self.numbers[from], self.vertices.get(to)) else { return };
        let hop = match self.hop_of.get(&(number, to, tree)) {
            Some(&hop) => hop,
            None => match self.graph.route(from, vertex) {
                Some(route) => self.add_hop(number, to, tree, route),
                None => return,
            },
        };
        self.hops[hop].queue.push_back(chunk);
        self.start_next(hop);
    }

    /// Takes back what is not all sent.
    fn withdraw(&mut self, from: usize, to: usize, tree: usize, chunk: u32) {
        let Some(number) = self.numbers[from] else { return };
        let Some(&hop) = self.hop_of.get(&(number, to, tree)) else { return };
        let queue = &mut self.hops[hop].queue;
        if let Some(place) = queue.iter().position(|&other| other == chunk) {
            queue.remove(place);
        } else if self.hops[hop].running.is_some_and(|(_, running)| running == chunk) {
            if let Some((_, bits)) = self.stop(hop) {
                self.wasted_bits += bits;
            }
            self.start_next(hop);
        } else {
            return;
        }
        self.inbox.push_back((from, Event::Withdrawn { to, tree, chunk }));
    }

    fn start_next(&mut self, hop: usize) {
        let state = &mut self.hops[hop];
        if state.running.is_some() {
            return;
        }
        let Some(chunk) = state.queue.pop_front() else { return };
        if let Some(since) = state.idle_since.take() {
            state.idle += self.now - since.max(self.looked);
        }
        let bits = self.cut.bytes(chunk) as f64 * 8.0;
        let (stream, changed) =
            self.links.start(self.now, state.uses.iter().copied(), state.ceiling_mbps, bits);
        state.running = Some((stream, chunk));
        state.counted = 0.0;
        self.streams.insert(stream, hop);
        self.predict(changed);
    }

    /// The stream of a hop ends or is ended. Gives its chunk and the bits that it carried.
    pub(super) fn stop(&mut self, hop: usize) -> Option<(u32, f64)> {
        let (stream, chunk) = self.hops[hop].running.take()?;
        let (bits, changed) = self.links.stop(self.now, stream);
        self.streams.remove(&stream);
        self.forget_end(stream);
        let state = &mut self.hops[hop];
        state.bits += bits - state.counted;
        state.idle_since = Some(self.now);
        for &arc in &state.route {
            self.arc_bits[arc] += bits;
        }
        self.predict(changed);
        Some((chunk, bits))
    }

    pub(super) fn end_of_stream(&mut self, hop: usize) {
        let Some((chunk, _)) = self.stop(hop) else { return };
        let state = &self.hops[hop];
        let (from, to, tree, delay) = (state.from, state.to, state.tree, state.delay_nanos);
        let Some(number) = self.numbers[from] else { return };
        let host = &mut self.hosts[to];
        let intact = host.spoil == 0;
        host.spoil = host.spoil.saturating_sub(1);
        let event = Event::Received { from: number, tree, chunk, intact };
        if delay == 0 {
            self.inbox.push_back((to, event));
        } else {
            self.schedule(self.now + delay, Happening::Arrives(to, event, self.epoch));
        }
        self.start_next(hop);
    }
}
