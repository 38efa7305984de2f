//! Where is a host, according to the hosts file?
//!
//! The starter is static, and a static C library cannot load name services; the file is written by gridcast itself
//! and carries every member, so nothing else is needed.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Some 50,000 members; more is not a hosts file.
pub(super) const MAX_BYTES: u64 = 4 << 20;

/// Why a host has no address.
#[derive(Debug, Error)]
pub enum HostsError {
    /// The file cannot be read.
    #[error("cannot read {path}: it has to name every member of the cluster")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No line of the file names the host.
    #[error(
        "no line of {path} names `{host}`: correct the machinefile, or add the host to {path} on this node"
    )]
    Unknown {
        /// As asked for.
        host: String,
        /// The file.
        path: PathBuf,
    },
}

/// Where to dial a host, and under which names its certificate may be made out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Its address.
    pub address: IpAddr,
    /// Never empty, without repetition, the likeliest first.
    pub names: Vec<String>,
}

/// The lines of a hosts file: an address and its names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    lines: Vec<(IpAddr, Vec<String>)>,
}

impl Hosts {
    /// Reads a file and finds one host in it.
    pub fn locate_in(path: &Path, host: &str) -> Result<Location, HostsError> {
        let unknown = || HostsError::Unknown { host: host.to_owned(), path: path.to_owned() };
        Self::read(path)?.locate(host).ok_or_else(unknown)
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, HostsError> {
        let failed = |source| HostsError::Read { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(failed)?.len() > MAX_BYTES {
            return Err(failed(io::Error::other(format!("larger than {MAX_BYTES} bytes"))));
        }
        // A comment in another encoding must not cost the names.
        let text = String::from_utf8_lossy(&std::fs::read(path).map_err(failed)?).into_owned();
        Ok(Self::parse(&text))
    }

    /// Takes what is well-formed and passes over the rest, as every reader of this file does.
    pub fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split('#').next()?.split_ascii_whitespace();
            let address = words.next()?.parse().ok()?;
            let names: Vec<_> = words.map(str::to_owned).collect();
            (!names.is_empty()).then_some((address, names))
        };
        Self { lines: text.lines().filter_map(line).collect() }
    }

    /// Finds a host by name (letters of either case; also by its part before the first dot) or by address. Of
    /// several lines the first counts, an IPv4 address before an IPv6 one.
    pub fn locate(&self, host: &str) -> Option<Location> {
        if let Ok(address) = host.parse::<IpAddr>() {
            let mut names: Vec<String> = Vec::new();
            for (_, line) in self.lines.iter().filter(|(other, _)| *other == address) {
                names.extend(line.iter().cloned());
            }
            names.push(host.to_owned());
            return Some(Location { address, names: distinct(names) });
        }
        let short = host.split('.').next().unwrap_or(host);
        let address = self.address_of(host).or_else(|| self.address_of(short))?;
        Some(Location { address, names: distinct(vec![host.to_owned(), short.to_owned()]) })
    }

    /// Every address of every name, names in lower case: for who asks for many. A C library that finds a name on several
    /// lines may give a program any of their addresses.
    pub fn by_name(&self) -> HashMap<String, Vec<IpAddr>> {
        let mut by_name: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for (address, names) in &self.lines {
            for name in names {
                by_name.entry(name.to_ascii_lowercase()).or_default().push(*address);
            }
        }
        by_name
    }

    fn address_of(&self, host: &str) -> Option<IpAddr> {
        let named = |names: &[String]| names.iter().any(|name| name.eq_ignore_ascii_case(host));
        let mut found = self.lines.iter().filter(|(_, names)| named(names)).map(|(address, _)| *address);
        let first = found.next()?;
        if first.is_ipv4() { Some(first) } else { found.find(IpAddr::is_ipv4).or(Some(first)) }
    }
}

fn distinct(names: Vec<String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !name.is_empty() && !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "# made by gridcast\n127.0.0.1\tlocalhost\n::1 localhost ip6-localhost\n\
        10.42.0.1 ring-node-0 ring-node-0.ring # first\n  10.42.0.2   ring-node-1\nfe80::1%eth0 broken\n10.42.0.9\n\
        fd00::3 six\n10.42.0.3 six\n";

    #[test]
    fn names_aliases_and_short_names_are_found() {
        let hosts = Hosts::parse(FILE);
        let at = |host: &str| hosts.locate(host).map(|location| location.address.to_string());
        assert_eq!(at("ring-node-1").as_deref(), Some("10.42.0.2"));
        assert_eq!(at("RING-node-1").as_deref(), Some("10.42.0.2"));
        assert_eq!(at("ring-node-0.ring").as_deref(), Some("10.42.0.1"));
        assert_eq!(at("ring-node-1.ring.default.svc").as_deref(), Some("10.42.0.2"));
        assert_eq!(at("six").as_deref(), Some("10.42.0.3"));
        assert_eq!(at("first"), None);
        assert_eq!(at("broken"), None);
        assert_eq!(at("ring-node"), None);
    }

    #[test]
    fn a_certificate_may_be_made_out_to_the_short_name() {
        let hosts = Hosts::parse(FILE);
        assert_eq!(hosts.locate("ring-node-1.ring").unwrap().names, ["ring-node-1.ring", "ring-node-1"]);
        assert_eq!(hosts.locate("ring-node-1").unwrap().names, ["ring-node-1"]);
        assert_eq!(
            hosts.locate("10.42.0.1").unwrap().names,
            ["ring-node-0", "ring-node-0.ring", "10.42.0.1"]
        );
    }

    #[test]
    fn an_unknown_host_is_named_with_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), FILE).unwrap();
        let message = Hosts::locate_in(file.path(), "nobody").unwrap_err().to_string();
        assert!(message.contains("`nobody`") && message.contains(file.path().to_str().unwrap()), "{message}");
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in any::<String>(), host in any::<String>()) {
            if let Some(location) = Hosts::parse(&text).locate(&host) {
                prop_assert!(!location.names.is_empty());
            }
        }
    }
}
