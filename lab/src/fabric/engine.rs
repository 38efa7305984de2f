//! What happens to a packet between the host that sends it and those that receive it?
//!
//! An event is a packet (or a part of one) that comes to a place at a time. Events are taken in the order of their
//! time, not of the clock that reads them, so that being late does not change what happens on the links. Nobody
//! sees how late a switch is; so the caller is woken for deliveries, and what happens at switches is caught up with
//! before the next thing that could depend on it. There is no clock and no I/O here.
//!
//! Switches cut through: a packet begins to leave one as soon as the next link can send it without a pause. On an
//! idle way it takes the time of the slowest link once, not that of each.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::rc::Rc;

use gridcast_core::broadcast::topology::{Graph, Routes};

use super::counters::{Counters, LinkCounters, PortCounters};
use super::flood::Floods;
use super::link::{Link, LinkSpec, Random, Sent, default_queue_bytes};
use super::packet::{Account, Packet, Window};
use super::{FabricError, FabricSpec};

/// The most bytes of packets that are under way. Queues and delays bound it by themselves in any network that a
/// machine can emulate; this one protects the machine from the others.
const MAX_BYTES: usize = 512 << 20;

/// The network, with all that is under way in it.
#[derive(Debug)]
pub(crate) struct Engine {
    graph: Graph,
    routes: Routes,
    floods: Floods,
    /// Those of the topology's arcs, by number, then budgets.
    links: Vec<Link>,
    /// By host: the budgets that its packets pass before they leave it, and those before they reach it.
    sending: Vec<Vec<usize>>,
    receiving: Vec<Vec<usize>>,
    budget_names: Vec<(String, &'static str)>,
    ports: Vec<Port>,
    /// By host: its port.
    port_of: Vec<Option<usize>>,
    addresses: HashMap<Ipv4Addr, usize>,
    under_way: BinaryHeap<Event>,
    /// For each event a time before which nothing is delivered because of it.
    wakes: BinaryHeap<Reverse<u64>>,
    order: u64,
    account: Account,
    overloaded: u64,
}

#[derive(Debug)]
struct Port {
    host: usize,
    broadcast: Ipv4Addr,
    counters: PortCounters,
}

/// Whom a packet is for.
#[derive(Clone, Copy, Debug)]
enum For {
    /// A host.
    Host(usize),
    /// All hosts but the one that sent it.
    AllBut(usize),
}

/// Where a packet is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the host that sends it, before its budget of that index.
    Leaving(usize, usize),
    /// At a vertex.
    At(usize),
    /// In the host that receives it, before its budget of that index.
    Arriving(usize, usize),
}

#[derive(Clone, Debug)]
struct Event {
    at_ns: u64,
    order: u64,
    place: Place,
    to: For,
    packet: Rc<Packet>,
    window: Window,
}

impl Ord for Event {
    /// The earliest is the greatest, as `BinaryHeap` hands out the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

/// A packet, or a part of one, for a port.
#[derive(Debug)]
pub(crate) struct Delivery<'a> {
    /// Number of the port.
    pub(crate) port: usize,
    /// The packet.
    pub(crate) packet: &'a Packet,
    /// The part of it.
    pub(crate) window: Window,
    /// When it is due, nanoseconds.
    pub(crate) due_ns: u64,
}

impl Engine {
    /// A network at rest.
    pub(crate) fn new(spec: &FabricSpec) -> Result<Self, FabricError> {
        spec.validate()?;
        let graph = Graph::new(&spec.topology);
        let routes = Routes::new(&graph);
        let mut ports = Vec::new();
        let mut port_of = vec![None; graph.hosts()];
        let mut addresses = HashMap::new();
        for (number, port) in spec.ports.iter().enumerate() {
            let host = graph.host(&port.host).ok_or_else(|| FabricError::unknown_host(&port.host))?;
            let counters = PortCounters { host: port.host.clone(), ..PortCounters::default() };
            ports.push(Port { host, broadcast: port.broadcast(), counters });
            port_of[host] = Some(number);
            addresses.insert(port.address, host);
        }
        let mut seeds = Random(spec.seed);
        let mut engine = Self {
            floods: Floods::new(ports.iter().map(|port| port.host).collect()),
            links: links(&graph, &routes, &ports, &mut seeds),
            sending: vec![Vec::new(); graph.hosts()],
            receiving: vec![Vec::new(); graph.hosts()],
            budget_names: Vec::new(),
            graph,
            routes,
            ports,
            port_of,
            addresses,
            under_way: BinaryHeap::new(),
            wakes: BinaryHeap::new(),
            order: 0,
            account: Account::default(),
            overloaded: 0,
        };
        engine.add_budgets(&mut seeds);
        Ok(engine)
    }

    fn add_budgets(&mut self, seeds: &mut Random) {
        for host in 0..self.graph.hosts() {
            let limits = self.graph.limits(host);
            for (field, mbps) in
                [("sendMbps", limits.send), ("totalMbps", limits.total), ("receiveMbps", limits.receive)]
            {
                if !mbps.is_finite() {
                    continue;
                }
                let queue_bytes = default_queue_bytes(mbps, 0.0);
                let budget = LinkSpec { mbps, delay_ms: 0.0, loss_percent: 0.0, queue_bytes };
                let number = self.links.len();
                self.links.push(Link::new(budget, seeds.next()));
                self.budget_names.push((self.graph.name(host).to_owned(), field));
                if field != "receiveMbps" {
                    self.sending[host].push(number);
                }
                if field != "sendMbps" {
                    self.receiving[host].push(number);
                }
            }
        }
    }

    /// Takes what the host of a port sends at time `now_ns`.
    pub(crate) fn send(&mut self, port: usize, bytes: &[u8], now_ns: u64) {
        let Port { host, broadcast, ref mut counters } = self.ports[port];
        let Some(packet) = Packet::read(bytes, &self.account) else {
            counters.foreign += 1;
            return;
        };
        counters.sent += 1;
        let destination = packet.destination();
        let to =
            if destination.is_multicast() || destination == Ipv4Addr::BROADCAST || destination == broadcast {
                For::AllBut(host)
            } else {
                match self.addresses.get(&destination) {
                    Some(&to) if self.routes.next_arc(host, to).is_some() => For::Host(to),
                    _ => {
                        counters.unroutable += 1;
                        return;
                    }
                }
            };
        if self.account.get() > MAX_BYTES {
            self.overloaded += 1;
            return;
        }
        let most = self.part_segments(host, to, &packet);
        let packet = Rc::new(packet);
        let whole = packet.whole();
        let place = if self.sending[host].is_empty() { Place::At(host) } else { Place::Leaving(host, 0) };
        let mut first = 0;
        while first < whole.count {
            let window = Window { first, count: most.min(whole.count - first) };
            first += window.count;
            self.order += 1;
            let packet = Rc::clone(&packet);
            self.step(Event { at_ns: now_ns, order: self.order, place, to, packet, window }, &mut |_| {});
        }
    }

    /// How many segments shall travel together to a host, so that none of the links is kept too long by them.
    fn part_segments(&self, from: usize, to: For, packet: &Packet) -> u32 {
        let For::Host(to) = to else { return 1 };
        let count = packet.whole().count;
        if count == 1 {
            return 1;
        }
        let mut least = u64::MAX;
        for &budget in self.sending[from].iter().chain(&self.receiving[to]) {
            least = least.min(self.links[budget].part_bytes());
        }
        let mut vertex = from;
        while let Some(arc) = self.routes.next_arc(vertex, to) {
            least = least.min(self.links[arc].part_bytes());
            vertex = self.graph.arcs()[arc].to;
        }
        ((least / packet.frame_bytes()) as u32).clamp(1, count)
    }

    /// When to [`advance`](Self::advance) next at the latest, so that nothing is delivered late.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.wakes.peek().map(|wake| wake.0)
    }

    /// Lets everything happen that is due at `now_ns`. To be called before [`send`](Self::send) at a later time.
    pub(crate) fn advance(&mut self, now_ns: u64, deliver: &mut dyn FnMut(Delivery<'_>)) {
        while self.under_way.peek().is_some_and(|event| event.at_ns <= now_ns) {
            if let Some(event) = self.under_way.pop() {
                self.step(event, deliver);
            }
        }
        while self.due_ns().is_some_and(|due| due <= now_ns) {
            self.wakes.pop();
        }
    }

    /// Counts how a delivery went.
    pub(crate) fn delivered(&mut self, port: usize, accepted: bool) {
        let counters = &mut self.ports[port].counters;
        if accepted {
            counters.received += 1;
        } else {
            counters.refused += 1;
        }
    }

    fn step(&mut self, event: Event, deliver: &mut dyn FnMut(Delivery<'_>)) {
        match event.place {
            Place::Leaving(host, index) => match self.sending[host].get(index) {
                Some(&budget) => self.pass(budget, &event, Place::Leaving(host, index + 1)),
                None => self.step(Event { place: Place::At(host), ..event }, deliver),
            },
            Place::Arriving(host, index) => match (self.receiving[host].get(index), self.port_of[host]) {
                (Some(&budget), _) => self.pass(budget, &event, Place::Arriving(host, index + 1)),
                (None, Some(port)) => deliver(Delivery {
                    port,
                    packet: &event.packet,
                    window: event.window,
                    due_ns: event.at_ns,
                }),
                (None, None) => {}
            },
            Place::At(vertex) => self.forward(vertex, event, deliver),
        }
    }

    fn forward(&mut self, vertex: usize, event: Event, deliver: &mut dyn FnMut(Delivery<'_>)) {
        match event.to {
            For::Host(host) if host == vertex => {
                self.step(Event { place: Place::Arriving(host, 0), ..event }, deliver);
            }
            For::Host(host) => {
                if let Some(arc) = self.routes.next_arc(vertex, host) {
                    self.pass(arc, &event, Place::At(self.graph.arcs()[arc].to));
                }
            }
            For::AllBut(source) => {
                for arc in self.floods.next_arcs(source, vertex, &self.graph, &self.routes) {
                    self.pass(arc, &event, Place::At(self.graph.arcs()[arc].to));
                }
                if vertex != source && self.port_of.get(vertex).is_some_and(Option::is_some) {
                    self.step(Event { place: Place::Arriving(vertex, 0), ..event }, deliver);
                }
            }
        }
    }

    /// Puts the packet on a link that leads to `place`: as much as the queue takes, without what is lost.
    fn pass(&mut self, number: usize, event: &Event, place: Place) {
        let link = &mut self.links[number];
        let Some(sent) = link.admit(event.at_ns, &event.packet, event.window) else { return };
        let end = event.window.first + sent.count;
        let (mut first, mut segment) = (event.window.first, event.window.first);
        while self.links[number].is_lossy() && segment < end {
            if self.links[number].loses() {
                self.push(event, place, sent, first..segment);
                first = segment + 1;
            }
            segment += 1;
        }
        self.push(event, place, sent, first..end);
    }

    fn push(&mut self, event: &Event, place: Place, sent: Sent, segments: Range<u32>) {
        if segments.is_empty() {
            return;
        }
        let window = Window { first: segments.start, count: segments.len() as u32 };
        let (at_ns, wake_ns) = self.times(place, event.to, sent, event.packet.wire_bytes(window));
        self.order += 1;
        let packet = Rc::clone(&event.packet);
        self.under_way.push(Event { at_ns, order: self.order, place, to: event.to, packet, window });
        self.wakes.push(Reverse(wake_ns));
    }

    /// When a packet that has been sent to `place` is to be seen to there, and a time before which nothing is
    /// delivered because of it.
    fn times(&self, place: Place, to: For, sent: Sent, bytes: u64) -> (u64, u64) {
        let Sent { head_ns, tail_ns, .. } = sent;
        let (Place::At(vertex), For::Host(host)) = (place, to) else { return (tail_ns, tail_ns) };
        let Some(arc) = self.routes.next_arc(vertex, host) else { return (tail_ns, tail_ns) };
        let next = &self.links[arc];
        // Cut through, but so late that the last bit has come when it has to leave: a fast link is not kept by a
        // packet that trickles in from a slow one.
        let takes_ns = next.takes_ns(bytes);
        let at_ns = head_ns.max(tail_ns.saturating_sub(takes_ns));
        (at_ns, next.begins_ns(at_ns) + takes_ns + self.delay_ns(vertex, host))
    }

    /// The delays of the links from a vertex to a host.
    fn delay_ns(&self, mut vertex: usize, host: usize) -> u64 {
        let mut delay_ns = 0;
        while let Some(arc) = self.routes.next_arc(vertex, host) {
            delay_ns += self.links[arc].delay_ns();
            vertex = self.graph.arcs()[arc].to;
        }
        delay_ns
    }

    /// What was counted, but for time and lateness, which are not known here.
    pub(crate) fn counters(&self) -> Counters {
        let arcs = self.graph.arcs();
        let (links, budgets) = self.links.split_at(arcs.len());
        let links = arcs.iter().zip(links).map(|(arc, link)| {
            LinkCounters::new(self.graph.name(arc.from), self.graph.name(arc.to), link.passage)
        });
        let budgets = self.budget_names.iter().zip(budgets);
        Counters {
            links: links.collect(),
            budgets: budgets
                .map(|((host, field), link)| LinkCounters::new(host, field, link.passage))
                .collect(),
            ports: self.ports.iter().map(|port| port.counters.clone()).collect(),
            overloaded: self.overloaded,
            ..Counters::default()
        }
    }
}

/// The links of the topology. One that carries nothing this way is there for its number's sake; no route uses it.
fn links(graph: &Graph, routes: &Routes, ports: &[Port], seeds: &mut Random) -> Vec<Link> {
    let longest = longest_rtt_ms(graph, routes, ports);
    let links = graph.arcs().iter().map(|arc| {
        let spec = LinkSpec {
            mbps: arc.mbps,
            delay_ms: arc.delay_ms,
            loss_percent: arc.loss_percent,
            queue_bytes: arc.queue_bytes.unwrap_or_else(|| default_queue_bytes(arc.mbps, longest)),
        };
        Link::new(spec, seeds.next())
    });
    links.collect()
}

/// The longest round trip between two ports, milliseconds, by the delays of the links.
fn longest_rtt_ms(graph: &Graph, routes: &Routes, ports: &[Port]) -> f64 {
    let one_way = |from: usize, to: usize| {
        let (mut vertex, mut delay) = (from, 0.0);
        while let Some(arc) = routes.next_arc(vertex, to) {
            delay += graph.arcs()[arc].delay_ms;
            vertex = graph.arcs()[arc].to;
        }
        delay
    };
    let mut longest = 0.0_f64;
    for (index, a) in ports.iter().enumerate() {
        for b in &ports[..index] {
            longest = longest.max(one_way(a.host, b.host) + one_way(b.host, a.host));
        }
    }
    longest
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
