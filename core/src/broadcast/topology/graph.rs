//! The topology as numbered vertices and directed arcs.

use std::collections::{HashMap, VecDeque};

use super::{Host, Topology};

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arc {
    /// Vertex at its tail.
    pub from: usize,
    /// Vertex at its head.
    pub to: usize,
    /// Capacity, Mbit/s of TCP goodput; 0 where the link carries nothing this way.
    pub mbps: f64,
    /// Delay one way, milliseconds.
    pub delay_ms: f64,
    /// Packets lost at random, percent.
    pub loss_percent: f64,
    /// Queue at its tail, bytes on the wire, where declared.
    pub queue_bytes: Option<u64>,
}

/// Budgets of a host, Mbit/s each; infinite where none is declared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// All it can send.
    pub send: f64,
    /// All it can receive.
    pub receive: f64,
    /// All it can send and receive together.
    pub total: f64,
    /// All it can write to its disk.
    pub disk: f64,
}

impl Limits {
    /// No budget is declared.
    pub(crate) const NONE: Self =
        Self { send: f64::INFINITY, receive: f64::INFINITY, total: f64::INFINITY, disk: f64::INFINITY };
}

impl Host {
    /// Its budgets.
    pub fn limits(&self) -> Limits {
        let Self::Limited(host) = self else { return Limits::NONE };
        let budget = |declared: Option<f64>| declared.unwrap_or(f64::INFINITY);
        Limits {
            send: budget(host.send_mbps),
            receive: budget(host.receive_mbps),
            total: budget(host.total_mbps),
            disk: budget(host.disk_mbps),
        }
    }
}

impl Topology {
    /// Names of all vertices by number: hosts, then switches.
    pub fn vertex_names(&self) -> Vec<&str> {
        self.hosts.iter().map(Host::name).chain(self.switches.iter().map(String::as_str)).collect()
    }

    /// The number of the vertex with this name.
    pub fn vertex(&self, name: &str) -> Option<usize> {
        let host = self.hosts.iter().position(|host| host.name() == name);
        host.or_else(|| Some(self.hosts.len() + self.switches.iter().position(|switch| switch == name)?))
    }

    /// Two arcs for each link, there and back: `links[i]` gives arcs `2 i` and `2 i + 1`. Links with an unknown end, which
    /// [`Topology::validate`] refuses, give none.
    pub fn arcs(&self) -> Vec<Arc> {
        let names = self.vertex_names();
        let vertices: HashMap<_, _> =
            names.iter().enumerate().map(|(vertex, name)| (*name, vertex)).collect();
        let mut arcs = Vec::with_capacity(2 * self.links.len());
        for link in &self.links {
            let (Some(&a), Some(&b)) = (vertices.get(link.a.as_str()), vertices.get(link.b.as_str())) else {
                continue;
            };
            arcs.push(Arc {
                from: a,
                to: b,
                mbps: link.mbps,
                delay_ms: link.delay_ms.unwrap_or(0.0),
                loss_percent: link.loss_percent.unwrap_or(0.0),
                queue_bytes: link.queue_bytes,
            });
            arcs.push(Arc {
                from: b,
                to: a,
                mbps: link.back_mbps.unwrap_or(link.mbps),
                delay_ms: link.back_delay_ms.or(link.delay_ms).unwrap_or(0.0),
                loss_percent: link.back_loss_percent.or(link.loss_percent).unwrap_or(0.0),
                queue_bytes: link.back_queue_bytes.or(link.queue_bytes),
            });
        }
        arcs
    }
}

/// Gives the first arc of each bundle the capacity of all of them.
fn bundle(arcs: &mut [Arc]) {
    let mut bundles: HashMap<(usize, usize), Vec<usize>> = HashMap::new();
    for (index, arc) in arcs.iter().enumerate() {
        bundles.entry((arc.from, arc.to)).or_default().push(index);
    }
    for bundle in bundles.into_values().filter(|bundle| bundle.len() > 1) {
        let mut capacities: Vec<f64> = bundle.iter().map(|&arc| arcs[arc].mbps).collect();
        // The same sum for any order of the file.
        capacities.sort_by(f64::total_cmp);
        for &arc in &bundle {
            arcs[arc].mbps = 0.0;
        }
        if let Some(first) = bundle.first() {
            arcs[*first].mbps = capacities.iter().sum();
        }
    }
}

/// A topology made ready for walks: what starts and ends at each vertex. Arcs without capacity are listed in
/// [`Graph::arcs`] and walked by nobody. Of several links between two vertices one arc each way has the capacity of all, the
/// others have none.
#[derive(Clone, Debug)]
pub struct Graph {
    names: Vec<String>,
    vertices: HashMap<String, usize>,
    limits: Vec<Limits>,
    arcs: Vec<Arc>,
    leaving: Vec<Vec<usize>>,
    entering: Vec<Vec<usize>>,
}

impl Graph {
    /// The graph of a topology that [`Topology::validate`] accepts; of another, the graph of the links that make sense.
    pub fn new(topology: &Topology) -> Self {
        let names: Vec<String> = topology.vertex_names().into_iter().map(str::to_owned).collect();
        let mut arcs = topology.arcs();
        bundle(&mut arcs);
        let mut leaving = vec![Vec::new(); names.len()];
        let mut entering = vec![Vec::new(); names.len()];
        for (index, arc) in arcs.iter().enumerate().filter(|(_, arc)| arc.mbps > 0.0) {
            leaving[arc.from].push(index);
            entering[arc.to].push(index);
        }
        for list in &mut leaving {
            list.sort_by(|&a, &b| names[arcs[a].to].cmp(&names[arcs[b].to]));
        }
        Self {
            vertices: names.iter().cloned().enumerate().map(|(vertex, name)| (name, vertex)).collect(),
            names,
            limits: topology.hosts.iter().map(Host::limits).collect(),
            arcs,
            leaving,
            entering,
        }
    }

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        self.names.len()
    }

    /// Number of hosts: vertices below it are hosts, the others switches.
    pub fn hosts(&self) -> usize {
        self.limits.len()
    }

    /// The vertex with this name.
    pub fn vertex(&self, name: &str) -> Option<usize> {
        self.vertices.get(name).copied()
    }

    /// The host with this name; none if that is a switch.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.vertex(name).filter(|&vertex| vertex < self.hosts())
    }

    /// The name of a vertex.
    pub fn name(&self, vertex: usize) -> &str {
        &self.names[vertex]
    }

    /// Budgets of a vertex; a switch has none.
    pub fn limits(&self, vertex: usize) -> Limits {
        self.limits.get(vertex).copied().unwrap_or(Limits::NONE)
    }

    /// All arcs, as [`Topology::arcs`] numbers them.
    pub fn arcs(&self) -> &[Arc] {
        &self.arcs
    }

    /// Arcs with capacity that start at `vertex`, by the name of their head.
    pub fn leaving(&self, vertex: usize) -> &[usize] {
        &self.leaving[vertex]
    }

    /// Arcs with capacity that end at `vertex`.
    pub fn entering(&self, vertex: usize) -> &[usize] {
        &self.entering[vertex]
    }

    /// The arc from `from` to `to`; none where no link leads there.
    pub fn arc_between(&self, from: usize, to: usize) -> Option<usize> {
        self.leaving[from].iter().copied().find(|&arc| self.arcs[arc].to == to)
    }

    /// Which vertices can be reached from `from`, itself included.
    pub fn reached_from(&self, from: usize) -> Vec<bool> {
        let mut reached = vec![false; self.vertices()];
        reached[from] = true;
        let mut queue = vec![from];
        while let Some(vertex) = queue.pop() {
            for &arc in &self.leaving[vertex] {
                let head = self.arcs[arc].to;
                if !reached[head] {
                    reached[head] = true;
                    queue.push(head);
                }
            }
        }
        reached
    }

    /// Number of arcs from each vertex to `to` along the shortest way; none where there is no way.
    pub fn distances_to(&self, to: usize) -> Vec<Option<u32>> {
        let mut distances = vec![None; self.vertices()];
        distances[to] = Some(0);
        let mut queue = VecDeque::from([(to, 0)]);
        while let Some((vertex, distance)) = queue.pop_front() {
            for &arc in &self.entering[vertex] {
                let tail = self.arcs[arc].from;
                if distances[tail].is_none() {
                    distances[tail] = Some(distance + 1);
                    queue.push_back((tail, distance + 1));
                }
            }
        }
        distances
    }

    /// The first arc of the way from `vertex`, given the distances to its end: the fewest arcs, among those the neighbour
    /// with the least name.
    pub fn next_arc(&self, vertex: usize, distances: &[Option<u32>]) -> Option<usize> {
        let distance = distances[vertex]?;
        self.leaving[vertex]
            .iter()
            .copied()
            .find(|&arc| distances[self.arcs[arc].to].is_some_and(|next| next + 1 == distance))
    }

    /// The arcs from `from` to `to`: fewest first, ties by the least name at each step. The same for any order of the
    /// file. None where there is no way.
    pub fn route(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let distances = self.distances_to(to);
        distances[from]?;
        let mut route = Vec::new();
        let mut vertex = from;
        while vertex != to {
            let arc = self.next_arc(vertex, &distances)?;
            route.push(arc);
            vertex = self.arcs[arc].to;
        }
        Some(route)
    }
}
