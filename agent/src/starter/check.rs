//! Would a launch from this node find everybody, and its launcher?
//!
//! Asked before a launch, so that what `mpirun` would tell in its own words after its own patience is told at once, by
//! host and cause. Names are looked up where [`super::remote`] looks them up, the hosts file; whether a name server runs
//! is of no interest to a launch.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use gridcast_proto::v1::{CheckProblem, CheckReply, CheckRequest, Host};
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use super::hosts::{Hosts, HostsError};
use super::members::MAX_MEMBERS;
use super::program::{ProgramError, find_program};
use super::remote::{RemoteError, ask_name};
use super::variable;
use crate::tls::Identity;

/// Handshakes in progress: enough to hide the network's delay, few enough that each gets its turn of the processor.
const AT_ONCE: usize = 64;
/// Problems that are told; the others are counted.
const MAX_PROBLEMS: usize = 20;
/// Where the caller gives none, and the most that it can give.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIMEOUT: Duration = Duration::from_mins(5);

/// Why a request cannot be answered at all.
#[derive(Debug, Error)]
pub enum CheckError {
    /// More peers than any cluster has.
    #[error("{count} peers are more than the {MAX_MEMBERS} hosts of the largest cluster")]
    TooMany {
        /// As given.
        count: usize,
    },
    /// The port is none.
    #[error("port {port} is not between 1 and 65535")]
    Port {
        /// As given.
        port: u32,
    },
    /// A peer's address is not a literal.
    #[error("address {address:?} of peer {name} is not an IP address")]
    Address {
        /// The peer.
        name: String,
        /// As given.
        address: String,
    },
}

/// What is wrong for one host.
#[derive(Debug, Error)]
enum Problem {
    #[error(transparent)]
    Hosts(HostsError),
    #[error("no line of {file} names it: tell this node its fellows (Configure)")]
    NotNamed { file: PathBuf },
    #[error(
        "{file} names it {found}, but its address is {address}: remove that line (hostAliases of the pod's template?)"
    )]
    NamedOtherwise { file: PathBuf, found: IpAddr, address: IpAddr },
    #[error(transparent)]
    Remote(RemoteError),
    #[error("{address} is the starter of {other}: the address is not the host's any more")]
    Another { address: SocketAddr, other: String },
    #[error("{address} did not answer within {millis} ms: check that the node is up and not overloaded")]
    Silent { address: SocketAddr, millis: u128 },
    #[error(transparent)]
    Program(ProgramError),
}

impl Problem {
    /// One of the contract's four.
    fn reason(&self) -> &'static str {
        match self {
            Self::Hosts(_) | Self::NotNamed { .. } | Self::NamedOtherwise { .. } => "NameUnresolved",
            Self::Remote(RemoteError::KeyRefused { .. } | RemoteError::Keys(_)) => "KeyRefused",
            Self::Remote(_) | Self::Another { .. } | Self::Silent { .. } => "NoStarter",
            Self::Program(_) => "NoMpirun",
        }
    }

    fn told(&self, host: &str) -> CheckProblem {
        let message = match self {
            Self::Remote(error) => error.explained(),
            _ => gridcast_core::failure::chain(self),
        };
        CheckProblem {
            host: host.to_owned(),
            reason: self.reason().to_owned(),
            message: format!("{host}: {message}"),
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Here<'a> {
    /// This node's name.
    pub node: &'a str,
    /// The file that names resolve from.
    pub hosts: &'a Path,
    /// What is shown to peers.
    pub identity: &'a Identity,
}

/// Tries everything, and returns within the request's time.
pub async fn check(here: Here<'_>, request: CheckRequest) -> Result<CheckReply, CheckError> {
    let CheckRequest { peers, port, program, timeout_millis } = request;
    if peers.len() > MAX_MEMBERS {
        return Err(CheckError::TooMany { count: peers.len() });
    }
    let port = u16::try_from(port).ok().filter(|port| *port > 0).ok_or(CheckError::Port { port })?;
    let peers = addresses(peers, port)?;
    let limit = match timeout_millis {
        0 => DEFAULT_TIMEOUT,
        millis => Duration::from_millis(millis.into()).min(MAX_TIMEOUT),
    };
    let mut problems = Vec::new();
    if !program.is_empty()
        && let Err(error) = find(&program)
    {
        problems.push(Problem::Program(error).told(here.node));
    }
    match Hosts::read(here.hosts) {
        // One cause, not one for each peer.
        Err(error) if !peers.is_empty() => problems.push(Problem::Hosts(error).told(here.node)),
        Err(_) => {}
        Ok(hosts) => {
            let names = hosts.by_name();
            let deadline = Instant::now() + limit;
            let tries = peers.into_iter().map(|peer| attempt(here, peer, &names, deadline, limit));
            let mut tries = futures::stream::iter(tries).buffered(AT_ONCE);
            while let Some(problem) = tries.next().await {
                problems.extend(problem);
            }
        }
    }
    let problems_total = problems.len() as u32;
    problems.truncate(MAX_PROBLEMS);
    Ok(CheckReply { problems, problems_total })
}

/// A host, and where its starter is to be.
type Peer = (String, SocketAddr);

fn addresses(peers: Vec<Host>, port: u16) -> Result<Vec<Peer>, CheckError> {
    let peer = |Host { name, address }: Host| match address.parse() {
        Ok(ip) => Ok((name, SocketAddr::new(ip, port))),
        Err(_) => Err(CheckError::Address { name, address }),
    };
    peers.into_iter().map(peer).collect()
}

fn find(program: &str) -> Result<PathBuf, ProgramError> {
    let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    find_program(program, variable("PATH").as_deref(), &directory)
}

async fn attempt(
    here: Here<'_>,
    (name, address): Peer,
    names: &HashMap<String, Vec<IpAddr>>,
    deadline: Instant,
    limit: Duration,
) -> Option<CheckProblem> {
    let problem = match resolved(&name, address.ip(), names, here.hosts) {
        Err(problem) => problem,
        Ok(()) => match timeout_at(deadline, ask_name(here.identity, &name, address)).await {
            Err(_) => Problem::Silent { address, millis: limit.as_millis() },
            Ok(Err(error)) => Problem::Remote(error),
            Ok(Ok(other)) if other == name => return None,
            // A cluster's members share their keys, so that the handshake alone does not tell them apart.
            Ok(Ok(other)) => Problem::Another { address, other },
        },
    };
    Some(problem.told(&name))
}

/// Every address of the same family has to be the right one: a program may be given any of them.
fn resolved(
    name: &str,
    address: IpAddr,
    names: &HashMap<String, Vec<IpAddr>>,
    file: &Path,
) -> Result<(), Problem> {
    let same_family = |found: &&IpAddr| found.is_ipv4() == address.is_ipv4();
    let found = names.get(&name.to_ascii_lowercase()).into_iter().flatten();
    let mut found = found.filter(same_family).peekable();
    if found.peek().is_none() {
        return Err(Problem::NotNamed { file: file.to_owned() });
    }
    match found.find(|found| **found != address) {
        Some(found) => Err(Problem::NamedOtherwise { file: file.to_owned(), found: *found, address }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_address_and_no_other_of_the_family() {
        let file = "10.0.0.1 a a.ring\nfd00::1 a\n10.0.0.2 b\n10.0.0.3 b\nfd00::4 c\n";
        let names = Hosts::parse(file).by_name();
        let tried = |name: &str, address: &str| {
            let problem = resolved(name, address.parse().unwrap(), &names, Path::new("/etc/hosts")).err()?;
            Some((problem.reason(), problem.told(name).message))
        };
        for (name, address) in [("a", "10.0.0.1"), ("A", "10.0.0.1"), ("a", "fd00::1"), ("c", "fd00::4")] {
            assert_eq!(tried(name, address), None, "{name}");
        }
        for (name, address, word) in [
            ("a", "10.0.0.9", "a: /etc/hosts names it 10.0.0.1, but its address is 10.0.0.9"),
            ("b", "10.0.0.2", "b: /etc/hosts names it 10.0.0.3"),
            ("c", "10.0.0.4", "c: no line of /etc/hosts names it"),
            ("d", "10.0.0.4", "d: no line of /etc/hosts names it"),
        ] {
            let (reason, message) = tried(name, address).unwrap();
            assert_eq!(reason, "NameUnresolved");
            assert!(message.starts_with(word), "{message}");
        }
    }
}
