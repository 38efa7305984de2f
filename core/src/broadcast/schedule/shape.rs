//! Who feeds whom, tree by tree? A plan in the form in which it is carried out.
//!
//! Hosts are numbered by name, so every agent that has the plan has the same numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::super::plan::Plan;

/// Hosts and trees of a broadcast.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    hosts: Vec<String>,
    trees: Vec<ShapeTree>,
    order: Option<Vec<usize>>,
}

/// One tree.
#[derive(Clone, Debug, PartialEq)]
struct ShapeTree {
    rate_mbps: f64,
    /// Who feeds each host of it; the roots are not named.
    parents: BTreeMap<usize, usize>,
    children: BTreeMap<usize, Vec<usize>>,
}

impl Shape {
    /// The trees of a plan, as they are carried out.
    pub fn new(plan: &Plan) -> Self {
        let trees = plan.carried();
        let names = trees.iter().flat_map(|tree| &tree.hops).flat_map(|hop| [&hop.from, &hop.to]);
        let named = plan.destinations.iter().map(|arrival| &arrival.name).chain([&plan.source]);
        let hosts: BTreeSet<&String> = names.chain(named).collect();
        let hosts: Vec<String> = hosts.into_iter().cloned().collect();
        let number: BTreeMap<&str, usize> = hosts.iter().map(String::as_str).zip(0..).collect();
        let hops = |tree: &super::super::plan::Tree| {
            let hops = tree.hops.iter();
            hops.filter_map(|hop| Some((*number.get(hop.from.as_str())?, *number.get(hop.to.as_str())?)))
                .collect()
        };
        let trees: Vec<(f64, Vec<(usize, usize)>)> =
            trees.iter().map(|tree| (tree.rate_mbps, hops(tree))).collect();
        Self::of(hosts, &trees)
    }

    /// Trees as a rate and hops `(from, to)` each, a hop after the one that feeds it.
    pub(crate) fn of(hosts: Vec<String>, trees: &[(f64, Vec<(usize, usize)>)]) -> Self {
        let trees: Vec<ShapeTree> = trees
            .iter()
            .map(|(rate_mbps, hops)| {
                let mut children: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
                for &(from, to) in hops {
                    children.entry(from).or_default().push(to);
                }
                let parents = hops.iter().map(|&(from, to)| (to, from)).collect();
                ShapeTree { rate_mbps: *rate_mbps, parents, children }
            })
            .collect();
        let order = nested(&trees);
        Self { hosts, trees, order }
    }

    /// Names of the hosts, ascending; their places are their numbers.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The number of a host.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.hosts.binary_search_by(|host| host.as_str().cmp(name)).ok()
    }

    /// How many trees there are.
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    /// Rate of a tree, Mbit/s.
    pub fn rate_mbps(&self, tree: usize) -> f64 {
        self.trees.get(tree).map_or(0.0, |tree| tree.rate_mbps)
    }

    /// Who feeds `host` in `tree`; nobody feeds a root, or a host that is not of the tree.
    pub fn parent(&self, tree: usize, host: usize) -> Option<usize> {
        self.trees.get(tree)?.parents.get(&host).copied()
    }

    /// Whom `host` feeds in `tree`.
    pub fn children(&self, tree: usize, host: usize) -> &[usize] {
        self.trees.get(tree).and_then(|tree| tree.children.get(&host)).map_or(&[], Vec::as_slice)
    }

    /// Whether `host` is fed in `tree`, or feeds.
    pub fn is_member(&self, tree: usize, host: usize) -> bool {
        self.parent(tree, host).is_some() || !self.children(tree, host).is_empty()
    }

    /// Those above `host` in `tree`, the nearest first.
    pub fn above(&self, tree: usize, host: usize) -> Vec<usize> {
        std::iter::successors(self.parent(tree, host), |&above| self.parent(tree, above))
            // A plan that is no tree must not make this endless.
            .take(self.hosts.len())
            .collect()
    }

    /// `host` and those below it in `tree`.
    pub fn below(&self, tree: usize, host: usize) -> BTreeSet<usize> {
        let (mut next, mut below) = (vec![host], BTreeSet::new());
        while let Some(host) = next.pop() {
            if below.insert(host) {
                next.extend(self.children(tree, host));
            }
        }
        below
    }

    /// The nearest of those above `host` in `tree` that is not in `gone`.
    pub fn parent_but(&self, tree: usize, host: usize, gone: &BTreeSet<usize>) -> Option<usize> {
        std::iter::successors(self.parent(tree, host), |&above| self.parent(tree, above))
            // A plan that is no tree must not make this endless.
            .take(self.hosts.len())
            .find(|above| !gone.contains(above))
    }

    /// Whom `host` feeds in `tree` when those in `gone` do not: children, and in place of those that are gone theirs.
    pub fn children_but(&self, tree: usize, host: usize, gone: &BTreeSet<usize>) -> Vec<usize> {
        let mut next: Vec<usize> = self.children(tree, host).to_vec();
        let mut children = BTreeSet::new();
        let mut seen = BTreeSet::new();
        while let Some(child) = next.pop() {
            if !gone.contains(&child) {
                children.insert(child);
            } else if seen.insert(child) {
                next.extend(self.children(tree, child));
            }
        }
        children.into_iter().collect()
    }

    /// The trees from the largest to the smallest, if each has all hosts of the next one and all have one root.
    pub fn nested(&self) -> Option<&[usize]> {
        self.order.as_deref()
    }
}

fn nested(trees: &[ShapeTree]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..trees.len()).collect();
    order.sort_by_key(|&tree| (std::cmp::Reverse(trees[tree].parents.len()), tree));
    let roots = |tree: &ShapeTree| {
        let fed = |host: &&usize| !tree.parents.contains_key(host);
        tree.children.keys().filter(fed).copied().collect::<BTreeSet<_>>()
    };
    let root = roots(&trees[*order.first()?]);
    let alike = root.len() == 1 && trees.iter().all(|tree| roots(tree) == root);
    let within = |pair: &[usize]| {
        let larger = &trees[pair[0]].parents;
        trees[pair[1]].parents.keys().all(|host| larger.contains_key(host))
    };
    (alike && order.windows(2).all(within)).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|host| format!("h{host}")).collect()
    }

    #[test]
    fn trees_are_nested_when_each_has_the_hosts_of_the_next() {
        let small = (1.0, vec![(0, 2)]);
        let large = (2.0, vec![(0, 1), (1, 2)]);
        let other = (1.0, vec![(0, 1), (1, 3)]);
        let elsewhere = (1.0, vec![(1, 2)]);
        let order =
            |trees: &[(f64, Vec<(usize, usize)>)]| Shape::of(names(4), trees).nested().map(<[_]>::to_vec);
        assert_eq!(order(&[small.clone(), large.clone()]), Some(vec![1, 0]));
        assert_eq!(order(&[large.clone(), other]), None);
        assert_eq!(order(&[large, elsewhere]), None);
        assert_eq!(order(&[]), None);
    }

    #[test]
    fn in_place_of_those_that_are_gone_come_their_children() {
        let shape = Shape::of(names(6), &[(1.0, vec![(0, 1), (1, 2), (2, 3), (1, 4), (0, 5)])]);
        let gone = BTreeSet::from([1, 2]);
        assert_eq!(shape.children_but(0, 0, &gone), [3, 4, 5]);
        assert_eq!(shape.parent_but(0, 3, &gone), Some(0));
        assert_eq!(shape.parent_but(0, 3, &BTreeSet::from([2])), Some(1));
        assert_eq!(shape.parent_but(0, 1, &BTreeSet::from([0])), None);
    }
}
