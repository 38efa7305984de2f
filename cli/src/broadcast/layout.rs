//! Where are the hosts and switches of a network in a drawing?
//!
//! As a tree that grows from the source to the right, by breadth-first search: a column for each distance. Each host has a row
//! of its own, so that what is said of it can stand at the right end of that row. A switch is in the middle of what hangs on
//! it, or, where nothing does, of its neighbours. O(V log V + E), and for switches on which nothing hangs O(V) each.

use std::collections::{HashMap, VecDeque};

use gridcast_core::broadcast::topology::Topology;

/// Least distance of a switch on which nothing hangs from others in its column, rows.
const APART: f64 = 2.0;

/// Columns and rows, counted from 0, of all vertices, hosts first.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) columns: Vec<usize>,
    pub(super) rows: Vec<f64>,
    /// Number of columns and of rows.
    pub(super) size: (usize, usize),
}

impl Layout {
    pub(super) fn new(network: &Topology, source: &str) -> Self {
        let names = network.vertex_names();
        let joined = joined(network, &names);
        let mut layout = Self { columns: vec![0; names.len()], rows: vec![0.0; names.len()], size: (1, 0) };
        let mut seen = vec![false; names.len()];
        let first = network.vertex(source);
        for root in first.into_iter().chain(0..names.len()) {
            if !seen[root] {
                layout.place(root, network.hosts.len(), &joined, &mut seen);
            }
        }
        layout
    }

    /// Places all that is connected with `root`, below what is placed already.
    fn place(&mut self, root: usize, hosts: usize, joined: &[Vec<usize>], seen: &mut [bool]) {
        let mut behind: Vec<Vec<usize>> = vec![Vec::new(); joined.len()];
        let mut queue = VecDeque::from([root]);
        seen[root] = true;
        while let Some(vertex) = queue.pop_front() {
            for &next in &joined[vertex] {
                if !std::mem::replace(&mut seen[next], true) {
                    self.columns[next] = self.columns[vertex] + 1;
                    self.size.0 = self.size.0.max(self.columns[next] + 1);
                    behind[vertex].push(next);
                    queue.push_back(next);
                }
            }
        }
        let mut walk = Vec::new();
        let mut stack = vec![root];
        while let Some(vertex) = stack.pop() {
            walk.push(vertex);
            if vertex < hosts {
                self.rows[vertex] = self.size.1 as f64;
                self.size.1 += 1;
            }
            stack.extend(behind[vertex].iter().rev());
        }
        for &vertex in walk.iter().rev().filter(|&&vertex| vertex >= hosts) {
            if let (Some(&first), Some(&last)) = (behind[vertex].first(), behind[vertex].last()) {
                self.rows[vertex] = f64::midpoint(self.rows[first], self.rows[last]);
            }
        }
        let bare: Vec<usize> =
            walk.iter().copied().filter(|&vertex| vertex >= hosts && behind[vertex].is_empty()).collect();
        let mut placed: Vec<usize> =
            walk.into_iter().filter(|&vertex| vertex < hosts || !behind[vertex].is_empty()).collect();
        for vertex in bare {
            self.place_bare(vertex, &joined[vertex], &placed);
            placed.push(vertex);
        }
    }

    /// A switch on which nothing hangs is as near to the middle of its neighbours as others in its column leave it room.
    fn place_bare(&mut self, vertex: usize, neighbours: &[usize], placed: &[usize]) {
        let around: Vec<f64> = neighbours.iter().map(|&near| self.rows[near]).collect();
        let middle = around.iter().sum::<f64>() / around.len().max(1) as f64;
        let column = placed.iter().filter(|&&other| self.columns[other] == self.columns[vertex]);
        let taken: Vec<f64> = column.map(|&other| self.rows[other]).collect();
        let free = |row: f64| row >= 0.0 && taken.iter().all(|other| (other - row).abs() >= APART);
        let steps = (0..=4 * (taken.len() + 1)).flat_map(|step| {
            let away = step as f64 * APART / 2.0;
            [middle + away, middle - away]
        });
        let row = steps.into_iter().find(|&row| free(row)).unwrap_or(middle);
        self.rows[vertex] = row;
        self.size.1 = self.size.1.max(row.ceil() as usize + 1);
    }
}

/// The neighbours of each vertex by name, whichever way links lead.
fn joined(network: &Topology, names: &[&str]) -> Vec<Vec<usize>> {
    let numbers: HashMap<&str, usize> =
        names.iter().enumerate().map(|(vertex, name)| (*name, vertex)).collect();
    let mut joined = vec![Vec::new(); names.len()];
    for link in &network.links {
        if let (Some(&a), Some(&b)) = (numbers.get(link.a.as_str()), numbers.get(link.b.as_str())) {
            joined[a].push(b);
            joined[b].push(a);
        }
    }
    for list in &mut joined {
        // Leaves first would tear sites apart; names keep `host-2` by `host-3`.
        list.sort_by_key(|&vertex| names[vertex]);
        list.dedup();
    }
    joined
}
