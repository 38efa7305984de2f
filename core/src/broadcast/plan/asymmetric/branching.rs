//! Which is the cheapest tree that leads from a root to all?
//!
//! Chu and Liu (1965), Edmonds (1967): every vertex takes its cheapest arc in; where that closes a cycle, the cycle becomes
//! one vertex, an arc into it costs what it adds to the cycle, and the question is asked again. Opening the cycles in
//! reverse gives a tree that no other is cheaper than. On a dense matrix each round costs `O(n^2)`, and there are at most as
//! many rounds as vertices; of equal arcs that of the first vertex is taken.

/// One round of contraction.
struct Round {
    size: usize,
    /// `costs[from * size + to]`.
    costs: Vec<f64>,
    /// The arc of the round before that each arc stands for.
    origins: Vec<(usize, usize)>,
    /// For each vertex where its cheapest arc comes from; the root's is itself.
    cheapest: Vec<usize>,
}

/// Size, costs and origins of a round.
type Contracted = (usize, Vec<f64>, Vec<(usize, usize)>);

/// The parent of each vertex in the cheapest tree from vertex 0 to all, the root's being itself; none where some vertex
/// cannot be reached. `costs[from * size + to]`, infinite where no arc leads.
pub(super) fn cheapest(costs: Vec<f64>, size: usize) -> Option<Vec<usize>> {
    let mut rounds = Vec::new();
    let mut round = Round::new(size, costs, Vec::new())?;
    while let Some((size, costs, origins)) = round.contracted() {
        rounds.push(round);
        round = Round::new(size, costs, origins)?;
    }
    let (mut parents, mut origins, mut size) = (round.cheapest, round.origins, round.size);
    while let Some(before) = rounds.pop() {
        let entries: Vec<(usize, usize)> = (1..size).map(|to| origins[parents[to] * size + to]).collect();
        parents = before.cheapest;
        for (from, to) in entries {
            parents[to] = from;
        }
        (origins, size) = (before.origins, before.size);
    }
    Some(parents)
}

impl Round {
    fn new(size: usize, costs: Vec<f64>, origins: Vec<(usize, usize)>) -> Option<Self> {
        let mut cheapest = vec![0; size];
        for (to, best) in cheapest.iter_mut().enumerate().skip(1) {
            let cheaper = |a: usize, b: usize| costs[b * size + to] < costs[a * size + to];
            let others = (0..size).filter(|&from| from != to);
            let from = others.reduce(|best, from| if cheaper(best, from) { from } else { best })?;
            if !costs[from * size + to].is_finite() {
                return None;
            }
            *best = from;
        }
        Some(Self { size, costs, origins, cheapest })
    }

    /// The next round; none when no cycle is left.
    fn contracted(&self) -> Option<Contracted> {
        let cycles = self.cycles();
        if cycles.iter().all(Option::is_none) {
            return None;
        }
        // Vertices of one cycle become one; the root stays the first.
        let mut groups = vec![usize::MAX; self.size];
        let mut of_cycle = vec![usize::MAX; self.size];
        let mut size = 0;
        for vertex in 0..self.size {
            let known = cycles[vertex].map(|cycle| of_cycle[cycle]).filter(|&group| group != usize::MAX);
            groups[vertex] = known.unwrap_or(size);
            if known.is_none() {
                if let Some(cycle) = cycles[vertex] {
                    of_cycle[cycle] = size;
                }
                size += 1;
            }
        }
        let mut costs = vec![f64::INFINITY; size * size];
        let mut origins = vec![(0, 0); size * size];
        for to in 1..self.size {
            let saved = cycles[to].map_or(0.0, |_| self.costs[self.cheapest[to] * self.size + to]);
            for from in (0..self.size).filter(|&from| groups[from] != groups[to]) {
                let arc = groups[from] * size + groups[to];
                let cost = self.costs[from * self.size + to] - saved;
                if cost < costs[arc] {
                    costs[arc] = cost;
                    origins[arc] = (from, to);
                }
            }
        }
        Some((size, costs, origins))
    }

    /// For each vertex the cycle of cheapest arcs that it is on, by one vertex of that.
    fn cycles(&self) -> Vec<Option<usize>> {
        let mut cycles = vec![None; self.size];
        // Which walk saw each vertex first; the root ends all.
        let mut seen = vec![usize::MAX; self.size];
        seen[0] = 0;
        for start in 1..self.size {
            let mut vertex = start;
            while seen[vertex] == usize::MAX {
                seen[vertex] = start;
                vertex = self.cheapest[vertex];
            }
            if vertex != 0 && seen[vertex] == start {
                let first = vertex;
                while cycles[vertex].is_none() {
                    cycles[vertex] = Some(first);
                    vertex = self.cheapest[vertex];
                }
            }
        }
        cycles
    }
}

#[cfg(test)]
mod tests;
