//! Networks with symmetric links, for tests.

use crate::broadcast::random::Random;
use crate::broadcast::topology::{Host, Link, Topology};

/// A network while it is built.
pub(super) struct Builder {
    random: Random,
    hosts: Vec<String>,
    switches: Vec<String>,
    links: Vec<Link>,
}

impl Builder {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), hosts: Vec::new(), switches: Vec::new(), links: Vec::new() }
    }

    fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.random.below(most - least + 1)
    }

    fn host(&mut self) -> String {
        self.hosts.push(format!("h{}", self.hosts.len()));
        self.hosts[self.hosts.len() - 1].clone()
    }

    fn switch(&mut self) -> String {
        self.switches.push(format!("s{}", self.switches.len()));
        self.switches[self.switches.len() - 1].clone()
    }

    /// A link with a rate that many links have, or one of its own; none where there is one.
    fn link(&mut self, a: &str, b: &str) {
        let joins = |link: &Link| (link.a == a && link.b == b) || (link.a == b && link.b == a);
        if self.links.iter().any(joins) {
            return;
        }
        let mbps = match self.random.below(4) {
            0 => 100.0,
            1 => 1000.0,
            2 => self.between(1, 10) as f64 * 100.0,
            _ => self.random.between(100.0, 1000.0),
        };
        self.links.push(Link::new(a, b, mbps));
    }

    fn topology(self) -> Topology {
        Topology {
            hosts: self.hosts.into_iter().map(Host::Name).collect(),
            switches: self.switches,
            links: self.links,
        }
    }
}

/// Leaves and spines; each host hangs on `homes` neighbouring leaves, with a rate of its own.
pub(super) fn leaf_spine(seed: u64, leaves: usize, spines: usize, per_leaf: usize, homes: usize) -> Topology {
    let mut net = Builder::new(seed);
    let spine: Vec<String> = (0..spines).map(|_| net.switch()).collect();
    let leaf: Vec<String> = (0..leaves).map(|_| net.switch()).collect();
    for leaf in &leaf {
        for spine in &spine {
            let mbps = net.random.between(1000.0, 4000.0).round();
            net.links.push(Link::new(leaf, spine, mbps));
        }
    }
    for index in 0..leaves * per_leaf {
        let host = net.host();
        let first = index % leaves / homes * homes;
        for home in 0..homes {
            let mbps = net.random.between(100.0, 1000.0).round();
            net.links.push(Link::new(&host, &leaf[(first + home) % leaves], mbps));
        }
    }
    net.topology()
}

/// Sites, each with a switch, or two that each host is joined to, in a ring with chords.
pub(super) fn sites(seed: u64, sites: usize, per_site: usize, homes: usize) -> Topology {
    let mut net = Builder::new(seed);
    let switches: Vec<Vec<String>> = (0..sites).map(|_| (0..homes).map(|_| net.switch()).collect()).collect();
    for (site, here) in switches.iter().enumerate() {
        for pair in here.windows(2) {
            net.link(&pair[0], &pair[1]);
        }
        let chord = net.random.below(sites);
        for other in [(site + 1) % sites, chord] {
            if other != site {
                let far = switches[other][net.random.below(homes)].clone();
                let near = here[net.random.below(homes)].clone();
                net.link(&near, &far);
            }
        }
        for _ in 0..per_site {
            let host = net.host();
            for switch in here {
                net.link(&host, switch);
            }
        }
    }
    net.topology()
}

/// A fat tree of switches with `k` ports.
fn fat_tree(mut net: Builder, k: usize) -> Topology {
    let half = k / 2;
    let core: Vec<String> = (0..half * half).map(|_| net.switch()).collect();
    for _ in 0..k {
        let upper: Vec<String> = (0..half).map(|_| net.switch()).collect();
        for (number, upper) in upper.iter().enumerate() {
            for core in &core[number * half..(number + 1) * half] {
                net.link(upper, core);
            }
        }
        for _ in 0..half {
            let edge = net.switch();
            for upper in &upper {
                net.link(&edge, upper);
            }
            for _ in 0..half {
                let host = net.host();
                net.link(&host, &edge);
            }
        }
    }
    net.topology()
}

/// Vertices, hosts and switches at random, in a ring with chords.
fn random(mut net: Builder) -> Topology {
    let hosts = net.between(3, 40);
    let switches = net.between(0, 12);
    let mut vertices: Vec<String> = (0..hosts).map(|_| net.host()).collect();
    vertices.extend((0..switches).map(|_| net.switch()).collect::<Vec<_>>());
    net.random.shuffle(&mut vertices);
    for (number, vertex) in vertices.iter().enumerate() {
        net.link(vertex, &vertices[(number + 1) % vertices.len()]);
    }
    for _ in 0..net.between(0, vertices.len()) {
        let (a, b) = (net.random.below(vertices.len()), net.random.below(vertices.len()));
        if a != b {
            net.link(&vertices[a], &vertices[b]);
        }
    }
    net.topology()
}

/// A tree of switches and hosts with more links at random.
fn sparse(mut net: Builder) -> Topology {
    let hosts = net.between(3, 50);
    let switches = net.between(1, 10);
    let mut vertices = vec![net.switch()];
    for _ in 1..switches {
        let (up, switch) = (net.random.below(vertices.len()), net.switch());
        net.link(&vertices[up].clone(), &switch);
        vertices.push(switch);
    }
    for _ in 0..hosts {
        let (up, host) = (net.random.below(vertices.len()), net.host());
        net.link(&vertices[up].clone(), &host);
        if net.random.below(8) == 0 {
            vertices.push(host);
        }
    }
    for _ in 0..net.between(1, 10) {
        let (a, b) = (net.random.below(vertices.len()), net.random.below(vertices.len()));
        if a != b {
            net.link(&vertices[a].clone(), &vertices[b].clone());
        }
    }
    net.topology()
}

/// One of all kinds, of 3 to 60 hosts.
pub(super) fn any(seed: u64) -> Topology {
    let mut net = Builder::new(seed);
    match net.random.below(6) {
        0 => fat_tree(net, 4),
        1 => sites(seed, 3 + net.random.below(5), 1 + net.random.below(7), 1),
        2 => sites(seed, 3 + net.random.below(5), 1 + net.random.below(7), 2),
        3 => leaf_spine(seed, 4, 1 + net.random.below(3), 1 + net.random.below(10), 1 + net.random.below(2)),
        4 => sparse(net),
        _ => random(net),
    }
}
