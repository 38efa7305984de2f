//! Who sends to whom, and is the plan one that this agent can carry out?

use std::collections::{BTreeMap, BTreeSet};

use gridcast_core::broadcast::plan::{MOST_TREES, is_nested};
use gridcast_proto::v1;

use super::failure::Failure;
use super::pace::HOP_HEADROOM;

/// A plan that was checked: every tree is an out-tree from the source, and they are nested: each reaches only members that
/// the larger ones reach, and the largest reaches all.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    peers: BTreeMap<String, v1::Peer>,
    trees: Vec<Vec<v1::Hop>>,
    rates: Vec<f64>,
    /// For each tree from whom each of its members receives.
    parents: Vec<BTreeMap<String, String>>,
}

impl Routes {
    /// Checks `plan` among `peers`, the source included.
    pub(crate) fn new(plan: &v1::Plan, source: &str, peers: &[v1::Peer]) -> Result<Self, Failure> {
        let mut known = BTreeMap::new();
        for peer in peers {
            if known.insert(peer.name.clone(), peer.clone()).is_some() {
                return Err(Failure::invalid(format!("member {} is listed twice; list it once", peer.name)));
            }
        }
        if !known.contains_key(source) {
            return Err(Failure::invalid(format!("the source {source} is not among the peers")));
        }
        if plan.trees.len() > MOST_TREES {
            return Err(Failure::invalid(format!(
                "a plan of {} trees; plan at most {MOST_TREES}",
                plan.trees.len()
            )));
        }
        for (index, tree) in plan.trees.iter().enumerate() {
            check_tree(index, &tree.hops, source, &known)?;
        }
        check_nested(&plan.trees, known.len() - 1)?;
        let parents = |tree: &v1::Tree| {
            tree.hops.iter().map(|hop| (hop.to.clone(), hop.from.clone())).collect::<BTreeMap<_, _>>()
        };
        Ok(Self {
            peers: known,
            trees: plan.trees.iter().map(|tree| tree.hops.clone()).collect(),
            rates: plan.trees.iter().map(|tree| tree.rate_mbps).collect(),
            parents: plan.trees.iter().map(parents).collect(),
        })
    }

    /// Number of trees.
    pub(crate) fn trees(&self) -> usize {
        self.trees.len()
    }

    /// Members that `tree` reaches.
    pub(crate) fn reach(&self, tree: usize) -> usize {
        self.trees[tree].len()
    }

    /// To whom `node` sends in `tree`.
    pub(crate) fn children(&self, tree: usize, node: &str) -> Vec<v1::Peer> {
        let to = |hop: &v1::Hop| self.peers.get(&hop.to).cloned();
        self.trees[tree].iter().filter(|hop| hop.from == node).filter_map(to).collect()
    }

    /// From whom `node` receives in `tree`; none where the tree does not reach it.
    pub(crate) fn parent(&self, tree: usize, node: &str) -> Option<&str> {
        self.parents.get(tree)?.get(node).map(String::as_str)
    }

    /// The rate that `tree` is held to, Mbit/s. One tree alone has nothing to leave room for.
    pub(crate) fn pace(&self, tree: usize) -> Option<f64> {
        let rate = self.rates.get(tree).copied().filter(|rate| rate.is_finite() && *rate > 0.0);
        rate.filter(|_| self.trees.len() > 1)
    }

    /// The rate that a hop of `tree` is held to, Mbit/s: a little more, so that it makes up for a pause.
    pub(crate) fn hop_pace(&self, tree: usize) -> Option<f64> {
        self.pace(tree).map(|rate| rate * HOP_HEADROOM)
    }

    /// For each tree whether it reaches `node`.
    pub(crate) fn of(&self, node: &str) -> Vec<bool> {
        self.parents.iter().map(|parents| parents.contains_key(node)).collect()
    }
}

/// Whether every member is completed by one queue.
fn check_nested(trees: &[v1::Tree], members: usize) -> Result<(), Failure> {
    let reached = |tree: &v1::Tree| tree.hops.iter().map(|hop| hop.to.clone()).collect::<BTreeSet<_>>();
    let sets: Vec<BTreeSet<String>> = trees.iter().map(reached).collect();
    if sets.iter().map(BTreeSet::len).max().unwrap_or(0) < members {
        return Err(Failure::invalid("no tree of the plan reaches every member; plan nested trees"));
    }
    if !is_nested(&sets, members) {
        return Err(Failure::invalid(
            "a tree of the plan reaches a member that a larger one does not reach; plan nested trees",
        ));
    }
    Ok(())
}

fn check_tree(
    index: usize,
    hops: &[v1::Hop],
    source: &str,
    known: &BTreeMap<String, v1::Peer>,
) -> Result<(), Failure> {
    let mut parents = BTreeMap::new();
    for hop in hops {
        for name in [&hop.from, &hop.to] {
            if !known.contains_key(name) {
                return Err(Failure::invalid(format!("tree {index} names {name}, which is not a member")));
            }
        }
        if hop.to == source || parents.insert(hop.to.as_str(), hop.from.as_str()).is_some() {
            return Err(Failure::invalid(format!("tree {index} has two ways to {}; plan one", hop.to)));
        }
    }
    // Each node has one parent: it is a tree from the source if every way up ends there. Nodes known to be fine are
    // remembered, so that a chain of n costs n steps.
    let mut rooted = BTreeSet::from([source]);
    for &start in parents.keys() {
        let mut way = Vec::new();
        let mut at = start;
        while !rooted.contains(at) {
            way.push(at);
            match parents.get(at) {
                Some(&parent) if way.len() <= parents.len() => at = parent,
                _ => {
                    return Err(Failure::invalid(format!(
                        "tree {index} does not lead from the source to {start}"
                    )));
                }
            }
        }
        rooted.extend(way);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(names: &[&str]) -> Vec<v1::Peer> {
        names
            .iter()
            .map(|name| v1::Peer {
                name: (*name).to_owned(),
                address: "127.0.0.1".to_owned(),
                port: 1,
                ..Default::default()
            })
            .collect()
    }

    fn plan(trees: &[&[(&str, &str)]]) -> v1::Plan {
        let hop = |&(from, to): &(&str, &str)| v1::Hop { from: from.to_owned(), to: to.to_owned() };
        v1::Plan {
            strategy: "test".to_owned(),
            trees: trees
                .iter()
                .map(|hops| v1::Tree { rate_mbps: 1.0, hops: hops.iter().map(hop).collect() })
                .collect(),
        }
    }

    #[test]
    fn a_tree_knows_parents_and_children() {
        let plan = plan(&[&[("s", "a"), ("a", "b"), ("a", "c")], &[("s", "a")]]);
        let routes = Routes::new(&plan, "s", &peers(&["s", "a", "b", "c"])).unwrap();
        let children: Vec<String> = routes.children(0, "a").into_iter().map(|peer| peer.name).collect();
        assert_eq!(children, ["b", "c"]);
        assert!(routes.children(1, "a").is_empty());
        assert_eq!(routes.parent(0, "c"), Some("a"));
        assert_eq!(routes.parent(1, "c"), None);
        assert_eq!((routes.trees(), routes.reach(0), routes.reach(1)), (2, 3, 1));
        assert_eq!((routes.of("a"), routes.of("c")), (vec![true, true], vec![true, false]));
        assert_eq!((routes.pace(0), routes.pace(2)), (Some(1.0), None));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let refused = |trees: &[&[(&str, &str)]]| {
            Routes::new(&plan(trees), "s", &peers(&["s", "a", "b"])).unwrap_err().to_string()
        };
        assert!(refused(&[&[("s", "a")]]).contains("no tree"));
        assert!(refused(&[]).contains("no tree"));
        let crossing: [&[(&str, &str)]; 2] = [&[("s", "a")], &[("s", "b")]];
        assert!(refused(&[&[("s", "a"), ("a", "b")], crossing[0], crossing[1]]).contains("a larger one"));
        assert!(refused(&[&[("s", "a"), ("s", "x")]]).contains("names x"));
        assert!(refused(&[&[("s", "a"), ("b", "a")]]).contains("two ways to a"));
        assert!(refused(&[&[("a", "b"), ("b", "a")]]).contains("does not lead"));
        assert!(refused(&[&[("s", "a"), ("b", "b")]]).contains("does not lead"));
        assert!(refused(&[&[("s", "a"), ("a", "s")]]).contains("two ways to s"));
    }
}
