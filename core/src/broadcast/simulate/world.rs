//! Hosts, hops and events, in the order of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::super::plan::sharing::Resource;
use super::super::plan::{Hop, Plan, Relay};
use super::super::schedule::{self, Chunks, Coordinator, Entrance, Event, Node, Shape, Watch};
use super::super::topology::{Graph, Topology};
use super::hosts::{HopState, HostState};
use super::links::{Links, Prospect};
use super::{Cut, LOOK, Moment, Settings, SimulateError};

/// What is going to happen.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Happening {
    /// A stream ends.
    End(Prospect, usize),
    /// An event reaches a host (a vertex), unless a newer plan runs.
    Arrives(usize, Event, u64),
    /// A fault, by number.
    Fault(usize),
    /// All notice that a host (a vertex) is gone.
    Noticed(usize),
    /// The coordinator may decide.
    Decide,
    /// Hops are looked at.
    Look,
}

/// The whole of it.
pub(super) struct World<'a> {
    pub(super) settings: &'a Settings,
    pub(super) cut: Cut,
    /// The network as it is now.
    pub(super) topology: Topology,
    /// The network as it was at first: arcs keep their numbers.
    pub(super) first: &'a Topology,
    pub(super) graph: Graph,
    pub(super) planned: BTreeMap<String, f64>,
    pub(super) hosts: Vec<HostState>,
    pub(super) shape: Arc<Shape>,
    /// Vertex of each host of the shape.
    pub(super) vertices: Vec<usize>,
    pub(super) hops: Vec<HopState>,
    /// Place in `hops` of a hop, by its ends in the shape and its tree.
    pub(super) hop_of: BTreeMap<(usize, usize, usize), usize>,
    pub(super) links: Links,
    /// Place in `hops` by stream.
    pub(super) streams: BTreeMap<u64, usize>,
    /// Links that are cut, by their place in the topology.
    pub(super) cuts: BTreeSet<usize>,
    /// Budgets that faults have set, by vertex, Mbit/s.
    pub(super) slow: BTreeMap<usize, f64>,
    /// What is told across a cut: from, to, what.
    pub(super) stuck: Vec<(usize, usize, Event)>,
    /// Number in the shape, by vertex.
    pub(super) numbers: Vec<Option<usize>>,
    /// Time of a message between two vertices, nanoseconds.
    pub(super) delays: BTreeMap<(usize, usize), u64>,
    /// Now, nanoseconds.
    pub(super) now: u64,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    /// When each stream ends: its happening.
    ends: BTreeMap<u64, u64>,
    /// When hosts (vertices) want to be woken.
    pub(super) wakes: BTreeSet<(usize, u64)>,
    sequence: u64,
    /// Events at this very moment.
    pub(super) inbox: VecDeque<(usize, Event)>,
    pub(super) epoch: u64,
    pub(super) coordinator: Coordinator,
    /// Where the data was at first.
    pub(super) source: String,
    /// When the coordinator is to be asked, nanoseconds.
    pub(super) asked: Option<u64>,
    pub(super) watch: Watch,
    looking: bool,
    /// When hops were looked at last.
    pub(super) looked: u64,
    pub(super) arc_bits: Vec<f64>,
    pub(super) duplicate_bytes: u64,
    pub(super) wasted_bits: f64,
    pub(super) timeline: Vec<Moment>,
    pub(super) remembered: usize,
    /// The most that was to happen at any time.
    pub(super) most_waiting: usize,
    /// Events since anybody got anything new, or a fault.
    pub(super) in_vain: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(
        topology: &'a Topology,
        plan: &Plan,
        settings: &'a Settings,
        cut: Cut,
    ) -> Result<Self, SimulateError> {
        let graph = Graph::new(topology);
        let destinations: Vec<String> =
            plan.destinations.iter().map(|arrival| arrival.name.clone()).collect();
        let part = |name: &String| destinations.binary_search(name).is_ok();
        let hosts = (0..graph.hosts()).map(|host| {
            let name = graph.name(host).to_owned();
            let source = name == plan.source;
            HostState {
                node: None,
                held: if source { Chunks::all(cut.chunks) } else { Chunks::none(cut.chunks) },
                alive: true,
                joined: (source || part(&name)).then_some(0),
                complete: source.then_some(0),
                spoil: 0,
            }
        });
        let mut world = Self {
            settings,
            cut,
            topology: topology.clone(),
            first: topology,
            planned: plan
                .destinations
                .iter()
                .map(|arrival| (arrival.name.clone(), arrival.rate_mbps))
                .collect(),
            hosts: hosts.collect(),
            shape: Arc::new(Shape::new(plan)),
            vertices: Vec::new(),
            hops: Vec::new(),
            hop_of: BTreeMap::new(),
            links: Links::default(),
            streams: BTreeMap::new(),
            cuts: BTreeSet::new(),
            slow: BTreeMap::new(),
            stuck: Vec::new(),
            numbers: Vec::new(),
            delays: BTreeMap::new(),
            now: 0,
            heap: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            ends: BTreeMap::new(),
            wakes: BTreeSet::new(),
            sequence: 0,
            inbox: VecDeque::new(),
            epoch: 1,
            coordinator: Coordinator::new(cut.chunks, &plan.source, &destinations),
            source: plan.source.clone(),
            asked: None,
            watch: Watch::default(),
            looking: false,
            looked: 0,
            arc_bits: vec![0.0; graph.arcs().len()],
            duplicate_bytes: 0,
            wasted_bits: 0.0,
            timeline: Vec::new(),
            remembered: 0,
            most_waiting: 0,
            in_vain: 0,
            graph,
        };
        for (number, fault) in settings.faults.iter().enumerate() {
            world.schedule(nanos(fault.at), Happening::Fault(number));
        }
        world.install(plan, Entrance::Fresh)?;
        Ok(world)
    }

    /// Lets a plan begin: every node anew, with what it holds.
    pub(super) fn install(&mut self, plan: &Plan, entrance: Entrance) -> Result<(), SimulateError> {
        self.shape = Arc::new(Shape::new(plan));
        let names = self.shape.hosts().iter();
        self.vertices = names.map(|name| self.graph.host(name).unwrap_or(usize::MAX)).collect();
        self.numbers = vec![None; self.graph.hosts()];
        for (number, &vertex) in self.vertices.iter().enumerate() {
            if let Some(place) = self.numbers.get_mut(vertex) {
                *place = Some(number);
            }
        }
        for (tree, hops) in plan.carried().iter().enumerate() {
            for hop in &hops.hops {
                let route = self.route(hop)?;
                if let (Some(from), Some(to)) = (self.shape.host(&hop.from), self.shape.host(&hop.to)) {
                    self.add_hop(from, to, tree, route);
                }
            }
        }
        for host in &mut self.hosts {
            host.node = None;
        }
        self.wakes.clear();
        for (number, vertex) in self.vertices.clone().into_iter().enumerate() {
            self.begin(vertex, number, entrance);
        }
        self.deliver();
        Ok(())
    }

    /// Lets a host that lives take its part, with what it holds.
    pub(super) fn begin(&mut self, vertex: usize, number: usize, entrance: Entrance) {
        let (shape, settings) = (Arc::clone(&self.shape), self.node_settings());
        if let Some(host) = self.hosts.get_mut(vertex).filter(|host| host.alive) {
            host.node = Some(Node::new(shape, number, host.held.clone(), settings, entrance));
            self.inbox.push_back((vertex, Event::Started));
        }
    }

    fn node_settings(&self) -> schedule::Settings {
        let farthest = self.hops.iter().map(|hop| hop.delay_nanos).max().unwrap_or(0);
        schedule::Settings {
            chunks: self.cut.chunks,
            chunk_bytes: self.cut.chunk_bytes,
            round_trip: Duration::from_nanos(2 * farthest),
            ahead: 0,
            relay_queue: match self.settings.options.relay {
                Relay::Asynchronous => None,
                Relay::Synchronous => Some(self.settings.relay_queue),
            },
        }
    }

    /// The arcs of a hop's path.
    fn route(&self, hop: &Hop) -> Result<Vec<usize>, SimulateError> {
        let arc = |ends: &[String]| {
            let (from, to) = (self.graph.vertex(&ends[0])?, self.graph.vertex(&ends[1])?);
            self.graph.arc_between(from, to)
        };
        let route: Option<Vec<usize>> = hop.path.windows(2).map(arc).collect();
        route.ok_or_else(|| SimulateError::NoWay { from: hop.from.clone(), to: hop.to.clone() })
    }

    /// A hop of the plan, or one that bridges a host that is gone. `from` and `to` are numbers of the shape.
    pub(super) fn add_hop(&mut self, from: usize, to: usize, tree: usize, route: Vec<usize>) -> usize {
        let delay_ms: f64 = route.iter().map(|&arc| self.graph.arcs()[arc].delay_ms).sum();
        self.hops.push(HopState {
            from: self.vertices[from],
            to: self.vertices[to],
            tree,
            uses: self.uses(&route),
            route,
            ceiling_mbps: self.shape.rate_mbps(tree),
            delay_nanos: (delay_ms * 1e6) as u64,
            queue: VecDeque::new(),
            running: None,
            bits: 0.0,
            counted: 0.0,
            idle_since: Some(self.now),
            idle: 0,
        });
        self.hop_of.insert((from, to, tree), self.hops.len() - 1);
        self.hops.len() - 1
    }

    pub(super) fn schedule(&mut self, time: u64, happening: Happening) {
        self.sequence += 1;
        self.heap.push(Reverse((time, self.sequence)));
        self.happenings.insert(self.sequence, happening);
        self.most_waiting = self.most_waiting.max(self.heap.len() + self.inbox.len() + self.stuck.len());
    }

    /// Nanoseconds as the machines take them.
    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    pub(super) fn moment(&mut self, what: String) {
        self.timeline.push(Moment { seconds: self.now as f64 / 1e9, what });
    }

    /// Until nothing happens any more, or everybody has everything and no fault is to come, or nothing comes of it.
    pub(super) fn run(&mut self) {
        loop {
            if self.given_up() {
                return;
            }
            self.look_again();
            let Some(Reverse((time, number))) = self.heap.pop() else {
                if self.stalled() {
                    continue;
                }
                return;
            };
            let Some(happening) = self.happenings.remove(&number) else { continue };
            if let Happening::End(prospect, _) = happening
                && !self.links.holds(prospect)
            {
                continue;
            }
            self.now = time;
            self.in_vain += 1;
            if let Happening::Arrives(host, Event::Woken, _) = happening {
                self.wakes.remove(&(host, time));
            }
            self.happen(happening);
            self.deliver();
            self.ask_coordinator();
        }
    }

    /// Whether so much has happened since anybody got anything that nobody ever will.
    pub(super) fn given_up(&self) -> bool {
        self.in_vain > self.settings.patience
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::End(_, hop) => self.end_of_stream(hop),
            Happening::Arrives(host, event, epoch) if epoch == self.epoch => {
                self.inbox.push_back((host, event));
            }
            Happening::Arrives(..) => {}
            Happening::Fault(number) => self.fault(number),
            Happening::Noticed(host) => self.notice(host),
            Happening::Decide => self.decide(),
            Happening::Look => self.look(),
        }
    }

    /// Hops are looked at as long as any of them runs.
    fn look_again(&mut self) {
        if !self.looking && !self.streams.is_empty() {
            self.looking = true;
            self.schedule(self.now + nanos(LOOK), Happening::Look);
        }
    }

    pub(super) fn looked(&mut self) {
        self.looking = false;
        self.looked = self.now;
    }

    /// Notes when streams end now, instead of when they were to end before.
    pub(super) fn predict(&mut self, changed: Vec<Prospect>) {
        for prospect in changed {
            self.forget_end(prospect.stream);
            if let (Some(end), Some(&hop)) = (prospect.end, self.streams.get(&prospect.stream)) {
                self.schedule(end, Happening::End(prospect, hop));
                self.ends.insert(prospect.stream, self.sequence);
            }
        }
        // What was forgotten must not pile up.
        if self.heap.len() > 2 * self.happenings.len() + 4096 {
            let happenings = &self.happenings;
            self.heap.retain(|Reverse((_, number))| happenings.contains_key(number));
        }
    }

    /// A stream does not end when it was to end.
    pub(super) fn forget_end(&mut self, stream: u64) {
        if let Some(number) = self.ends.remove(&stream) {
            self.happenings.remove(&number);
        }
    }

    /// What a stream uses: what it is, how often and how much there is. The ends always count, so that they can become slow.
    fn uses(&self, route: &[usize]) -> Vec<(Resource, f64, f64)> {
        let mut uses: BTreeMap<Resource, u32> =
            super::super::plan::sharing::uses(&self.graph, route).into_iter().collect();
        if let (Some(&first), Some(&last)) = (route.first(), route.last()) {
            uses.entry(Resource::Send(self.graph.arcs()[first].from)).or_insert(1);
            uses.entry(Resource::Receive(self.graph.arcs()[last].to)).or_insert(1);
        }
        let capacity = |resource| super::super::plan::sharing::capacity(&self.graph, resource);
        uses.into_iter().map(|(resource, count)| (resource, f64::from(count), capacity(resource))).collect()
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
