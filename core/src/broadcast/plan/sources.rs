//! How is a broadcast planned that has several sources?
//!
//! By one more host, the super-source, with a link to each of them that carries all that the source can send. A tree from
//! there, without its first links, is one or several trees from the sources. On a tree-shaped network that raises nobody's
//! rate (what limits a slow host is never behind a faster one), on others it can.
//!
//! A source has no use for what it could receive: its budgets for receiving and for both together no longer matter, but what
//! it can send. A hop whose way leads through a source begins at the last one.

use std::collections::BTreeSet;

use super::super::topology::{Host, LimitedHost, Link, Topology};
use super::{Plan, PlanError};

/// No host can be called this: a name begins with a letter or a digit.
const SUPER_SOURCE: &str = "*";

/// A network with one source.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) topology: Topology,
    pub(crate) source: String,
    /// The sources behind it; none where it is one itself.
    sources: BTreeSet<String>,
}

/// The network as it is with one source; with more, all of them behind a super-source.
pub(crate) fn joined(topology: &Topology, source: &str, more: &[String]) -> Result<Joined, PlanError> {
    let mut topology = topology.clone();
    if more.is_empty() {
        return Ok(Joined { topology, source: source.to_owned(), sources: BTreeSet::new() });
    }
    let mut sources = BTreeSet::new();
    for name in more.iter().map(String::as_str).chain([source]) {
        if !sources.insert(name.to_owned()) {
            return Err(PlanError::DuplicateSource { name: name.to_owned() });
        }
    }
    for name in &sources {
        let host = topology.hosts.iter_mut().find(|host| host.name() == name);
        let host = host.ok_or_else(|| PlanError::UnknownSource { name: name.clone() })?;
        let limits = host.limits();
        let send = limits.send.min(limits.total);
        let send_mbps = Some(send).filter(|mbps| mbps.is_finite());
        *host = Host::Limited(LimitedHost {
            name: name.clone(),
            send_mbps,
            receive_mbps: None,
            total_mbps: None,
            disk_mbps: None,
        });
        let links = topology.links.iter();
        let mut leaving: Vec<f64> = links
            .filter_map(|link| match (&link.a == name, &link.b == name) {
                (true, _) => Some(link.mbps),
                (_, true) => Some(link.back_mbps.unwrap_or(link.mbps)),
                _ => None,
            })
            .collect();
        // The same sum for any order of the file.
        leaving.sort_by(f64::total_cmp);
        let mbps = leaving.iter().sum::<f64>().min(send);
        if mbps > 0.0 {
            topology.links.push(Link::new(SUPER_SOURCE, name, mbps));
        }
    }
    topology.hosts.push(Host::Name(SUPER_SOURCE.to_owned()));
    Ok(Joined { topology, source: SUPER_SOURCE.to_owned(), sources })
}

impl Joined {
    /// Makes a plan of this network one of the network as it is; `source` is named first.
    pub(crate) fn restore(&self, plan: &mut Plan, source: &str) {
        if self.sources.is_empty() {
            return;
        }
        source.clone_into(&mut plan.source);
        plan.sources = self.sources.iter().filter(|name| *name != source).cloned().collect();
        for hop in plan.trees.iter_mut().flat_map(|tree| &mut tree.hops) {
            if let Some(last) = hop.path.iter().rposition(|vertex| self.sources.contains(vertex)) {
                hop.path.drain(..last);
                hop.from.clone_from(&hop.path[0]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
