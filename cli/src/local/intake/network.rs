//! Which network joins the nodes: that of a file, or one switch?

use std::{collections::BTreeSet, path::Path};

use gridcast_core::broadcast::topology::{Host, Topology};

use crate::{failure::Failure, topology};

use super::{NodePlan, listed};

/// The default link, Mbit/s and milliseconds one way.
const DEFAULT_LINK: (f64, f64) = (1000.0, 0.1);

/// The topology of the file, or one switch. Its hosts are exactly the nodes.
pub(super) fn topology(file: Option<&Path>, nodes: &[NodePlan]) -> Result<Topology, Failure> {
    let names: Vec<String> = nodes.iter().map(|n| n.name.clone()).collect();
    let Some(file) = file else {
        return Ok(Topology::one_switch(&names, DEFAULT_LINK.0, DEFAULT_LINK.1));
    };
    let refuse = |why: String| Failure::input(format!("--topology {}: {why}", file.display()));
    let read = topology::read(file).map_err(refuse)?;
    read.topology.validate().map_err(|e| match read.line(&e) {
        Some(line) => refuse(format!("line {line}: {e}")),
        None => refuse(e.to_string()),
    })?;
    let topology = read.topology;
    let declared: BTreeSet<&str> = topology.hosts.iter().map(Host::name).collect();
    let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    if let Some(unknown) = declared.difference(&wanted).next() {
        return Err(refuse(format!(
            "hosts: {unknown} is no node of the cluster; rename or remove it: the nodes are {}",
            listed(&names)
        )));
    }
    if let Some(missing) = wanted.difference(&declared).next() {
        return Err(refuse(format!("hosts: node {missing} is missing; add it, and a link to it")));
    }
    Ok(topology)
}
