//! Where does a packet go next? The forwarding tables of all vertices.

use super::graph::Graph;

/// The next arc for each vertex and destination host, precomputed: 4 bytes for each pair.
#[derive(Clone, Debug)]
pub struct Routes {
    hosts: usize,
    next: Vec<u32>,
}

/// No way, or already there.
const NOWHERE: u32 = u32::MAX;

impl Routes {
    /// The routes of [`Graph::route`], for all pairs.
    pub fn new(graph: &Graph) -> Self {
        let hosts = graph.hosts();
        let mut next = vec![NOWHERE; graph.vertices() * hosts];
        for host in 0..hosts {
            let distances = graph.distances_to(host);
            for vertex in 0..graph.vertices() {
                if let Some(arc) = graph.next_arc(vertex, &distances) {
                    next[vertex * hosts + host] = arc as u32;
                }
            }
        }
        Self { hosts, next }
    }

    /// The arc on which `vertex` sends what is for `host`; none where there is no way, or `vertex` is that host.
    pub fn next_arc(&self, vertex: usize, host: usize) -> Option<usize> {
        if host >= self.hosts {
            return None;
        }
        self.next.get(vertex * self.hosts + host).filter(|&&arc| arc != NOWHERE).map(|&arc| arc as usize)
    }
}
