//! How are nodes joined by a network that is as slow, as far and as lossy as a real one?
//!
//! One process owns a TUN interface in each node and moves packets along the links of a topology, hop by hop. Each
//! direction of a link has a rate, a queue that drops its tail, a delay and a loss. Links that several routes
//! use are shared as trunks are. Broadcast and multicast are copied at switches, each copy at the cost of its link.
//!
//! **Rates.** `mbps` in a topology is TCP goodput at MTU 1500: a full segment carries 1448 bytes and takes 1538 on
//! the wire, so the wire is faster by that ratio, and every packet is charged its IP bytes plus 38. Budgets of
//! hosts (`sendMbps`, `receiveMbps`, `totalMbps`) are rates of the same kind between a host and its links;
//! `diskMbps` is no matter of the network.
//!
//! **Queues.** Where none is declared, a queue holds the longest round trip of the network and 4 ms at the
//! link's rate, and at least 128 KiB (two 50,000-byte datagrams in fragments). Cubic then reaches the rate, and
//! a loaded link adds at most about one round trip and 4 ms to the delay where links are not slow.
//!
//! **Limits.** IPv4 only. A host is not held back when its first queue is full, as a network card would do; a
//! datagram that finds no room is dropped there, and counted. Times are those of the machine: [`Lateness`] tells
//! how well it kept up.

mod control;
mod counters;
mod engine;
mod flood;
mod link;
mod packet;
mod ports;
mod relay;
mod start;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::Ipv4Addr;

use gridcast_core::broadcast::topology::{Topology, TopologyError};
use serde::{Deserialize, Serialize};

pub use control::counters;
pub use counters::{Counters, Lateness, LinkCounters, PortCounters};
pub use relay::run;
pub use start::Fabric;
pub(crate) use start::run_hidden;

/// First argument of the hidden subcommand that is the fabric.
pub const FABRIC_ARG: &str = "__lab-fabric";
/// Name of the interface in each node.
pub const INTERFACE: &str = "eth0";

/// A network to be emulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FabricSpec {
    /// Hosts, switches, links. Hosts without a port only forward.
    pub topology: Topology,
    /// The nodes that are joined.
    pub ports: Vec<Port>,
    /// Seed of random losses.
    #[serde(default)]
    pub seed: u64,
}

/// A node and its place in the topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Name of the host in the topology.
    pub host: String,
    /// PID 1 of the node, in the machine's numbers.
    pub pid: i32,
    /// Address of its interface.
    pub address: Ipv4Addr,
    /// Length of its network's prefix, bits.
    pub prefix: u8,
}

/// Why there is no fabric.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The topology cannot be.
    #[error("the topology cannot be built")]
    Topology(#[from] TopologyError),
    /// The ports cannot be.
    #[error("port of {host}: {message}")]
    Port {
        /// The host.
        host: String,
        /// What is wrong.
        message: String,
    },
    /// A step failed on the machine.
    #[error("cannot {step}")]
    Machine {
        /// What was tried.
        step: String,
        /// What the machine said.
        source: io::Error,
    },
    /// The fabric's process said why.
    #[error("the fabric did not begin: {0}")]
    NotReady(String),
}

impl FabricError {
    /// One word for a report.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Topology(_) => "TopologyInvalid",
            Self::Port { .. } => "PortInvalid",
            Self::Machine { .. } | Self::NotReady(_) => "FabricFailed",
        }
    }

    fn machine(step: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Machine { step: step.into(), source }
    }

    fn unknown_host(host: &str) -> Self {
        let message = "the topology has no such host; name it under hosts".to_owned();
        Self::Port { host: host.to_owned(), message }
    }
}

impl Port {
    /// The address of all hosts in its network.
    pub fn broadcast(&self) -> Ipv4Addr {
        let hosts = u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0);
        Ipv4Addr::from(u32::from(self.address) | hosts)
    }
}

impl FabricSpec {
    /// Whether it can be built.
    pub fn validate(&self) -> Result<(), FabricError> {
        self.topology.validate()?;
        let (mut hosts, mut addresses) = (HashSet::new(), HashMap::new());
        for port in &self.ports {
            let wrong = |message: String| Err(FabricError::Port { host: port.host.clone(), message });
            if !self.topology.hosts.iter().any(|host| host.name() == port.host) {
                return Err(FabricError::unknown_host(&port.host));
            }
            if !hosts.insert(&port.host) {
                return wrong("the host has two ports; give it one".to_owned());
            }
            if let Some(other) = addresses.insert(port.address, &port.host) {
                return wrong(format!("its address {} is also that of {other}; change one", port.address));
            }
            if !(8..=30).contains(&port.prefix) {
                return wrong(format!("a network of /{} is not one of hosts; use 8 to 30", port.prefix));
            }
        }
        Ok(())
    }
}
