//! How does a broadcast go on after something has changed?
//!
//! Whoever is complete is a source from now on, whoever left is out of the network, and links are what they are now. The
//! chunks that a host has already do not matter here: a plan says who sends to whom and how fast, and the schedule sends each
//! host what it misses.

use super::super::topology::Topology;
use super::{Options, Plan, PlanError, plan};

/// How far a broadcast is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Hosts that have all of the data.
    pub complete: Vec<String>,
    /// Hosts that left: they neither receive nor forward.
    pub gone: Vec<String>,
}

/// A plan for the rest of a broadcast that ran by `before`, on the network as it is now. Options that name sources are
/// overruled by what is so. When the source is gone, a complete host takes its place; without one,
/// [`PlanError::UnknownSource`] names the source.
pub fn replan(
    topology: &Topology,
    before: &Plan,
    progress: &Progress,
    options: &Options,
) -> Result<Plan, PlanError> {
    let mut network = topology.clone();
    network.hosts.retain(|host| !progress.gone.iter().any(|gone| gone == host.name()));
    network.links.retain(|link| !progress.gone.iter().any(|gone| *gone == link.a || *gone == link.b));
    let is_there = |name: &&String| network.hosts.iter().any(|host| host.name() == name.as_str());
    let mut sources: Vec<&String> =
        before.sources.iter().chain(&progress.complete).filter(|name| **name != before.source).collect();
    sources.sort_unstable();
    sources.dedup();
    sources.retain(is_there);
    let source =
        if is_there(&&before.source) || sources.is_empty() { &before.source } else { sources.remove(0) };
    let missing = before.destinations.iter().map(|arrival| &arrival.name).filter(is_there);
    let destinations: Vec<String> =
        missing.filter(|name| *name != source && !sources.contains(name)).cloned().collect();
    let options = Options { sources: sources.into_iter().cloned().collect(), ..options.clone() };
    plan(&network, source, &destinations, &options)
}

#[cfg(test)]
mod tests;
