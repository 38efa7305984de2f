//! How are the members of a cluster reached?

use std::net::{IpAddr, SocketAddr};

use gridcast_control::{Remote, StepFailure};
use gridcast_proto::v1::Peer;

use crate::{agents::Agents, authority::ClusterAuthority, virtual_cluster::Host};

/// The starters of these hosts, in the same order. They are asked for starters' services only, and as peers they are what
/// results are fetched from.
pub fn starters(authority: &ClusterAuthority, hosts: &[Host], port: u16) -> Result<Vec<Remote>, StepFailure> {
    hosts.iter().map(|host| member(authority, &host.name, &host.address, port)).collect()
}

/// One that serves with the cluster's keys: a starter, or the agent of a collect pod.
pub fn member(
    authority: &ClusterAuthority,
    name: &str,
    address: &str,
    port: u16,
) -> Result<Remote, StepFailure> {
    let ip: IpAddr = address.parse().map_err(|_| {
        StepFailure::new("NoAddress", format!("{name}: the address {address:?} of its pod is no IP address"))
    })?;
    let channel = authority.channel(name, SocketAddr::new(ip, port))?;
    let peer = Peer { name: name.to_owned(), address: ip.to_string(), port: port.into(), ..Peer::default() };
    Ok(Remote::new(name, peer, channel.clone(), Some(channel)))
}

/// The agents of these hosts' nodes, each for what concerns its host's network namespace; in the same order. Fails with the
/// first that has none.
pub fn agents(agents: &Agents, hosts: &[Host]) -> Result<Vec<Remote>, StepFailure> {
    hosts.iter().map(|host| agent(agents, host)).collect()
}

/// Those of the agents that are there.
pub fn some_agents(agents: &Agents, hosts: &[Host]) -> Vec<Remote> {
    hosts.iter().filter_map(|host| agent(agents, host).ok()).collect()
}

fn agent(agents: &Agents, host: &Host) -> Result<Remote, StepFailure> {
    agents.pod(&host.name, &host.uid, &host.address, &host.node)
}
