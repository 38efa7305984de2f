//! Who are this node's fellows, and where do its programs read that?
//!
//! In `/etc/hosts` and in the machinefile. Both are single files that a container has mounted, so that they are written
//! where they are: a renamed file would be another one, which nobody has mounted. What is written stays behind two
//! marker comments; every other line of the hosts file is left as it is.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gridcast_proto::v1::ConfigureRequest;
use thiserror::Error;

use super::hosts::MAX_BYTES;

/// Members of a cluster at most: twice what it was measured with.
pub const MAX_MEMBERS: usize = 10_000;
/// Lines between these two are ours.
const BEGIN: &str = "# members of the cluster, written by gridcast: begin";
const END: &str = "# members of the cluster, written by gridcast: end";

/// Why a node was not told its fellows.
#[derive(Debug, Error)]
pub enum MembersError {
    /// More than [`MAX_MEMBERS`].
    #[error("{count} hosts are more than the {MAX_MEMBERS} of the largest cluster")]
    TooMany {
        /// As given.
        count: usize,
    },
    /// A name that is not a DNS label.
    #[error("host name {name:?} is not a DNS label (1 to 63 of a-z, 0-9 and '-', no '-' at either end)")]
    Name {
        /// Its beginning.
        name: String,
    },
    /// An address that is not a literal.
    #[error("address {address:?} of host {name} is not an IP address")]
    Address {
        /// The host.
        name: String,
        /// Its beginning.
        address: String,
    },
    /// A name that appears twice.
    #[error("host {name} is named twice")]
    Duplicate {
        /// The host.
        name: String,
    },
    /// A machinefile that is none.
    #[error("line {line} of the machinefile {problem}")]
    Machinefile {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A file cannot be read or written.
    #[error(
        "cannot rewrite {path} on this node: it has to be a file that the starter's user may write in place"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl MembersError {
    /// One PascalCase word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::File { .. } => "FileFailed",
            _ => "MembersInvalid",
        }
    }
}

/// The two files of a node.
#[derive(Debug)]
pub struct Files {
    hosts: PathBuf,
    machinefile: PathBuf,
    /// One writer at a time.
    writing: Mutex<()>,
}

impl Files {
    /// Nothing is read or written yet.
    pub fn new(hosts: PathBuf, machinefile: PathBuf) -> Self {
        Self { hosts, machinefile, writing: Mutex::default() }
    }

    /// The hosts file.
    pub fn hosts(&self) -> &Path {
        &self.hosts
    }

    /// Writes what was asked for; without hosts the hosts file is left alone, without a machinefile the machinefile is.
    /// If anything in the request is not as it should be, nothing is written.
    pub fn write(&self, request: &ConfigureRequest) -> Result<(), MembersError> {
        let members = members(request)?;
        check_machinefile(&request.machinefile, &members)?;
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if !members.is_empty() {
            let failed = |source| MembersError::File { path: self.hosts.clone(), source };
            let before = read(&self.hosts).map_err(failed)?;
            rewrite(&self.hosts, &before, &with_members(&before, &members)).map_err(failed)?;
        }
        if !request.machinefile.is_empty() {
            let failed = |source| MembersError::File { path: self.machinefile.clone(), source };
            let before = read(&self.machinefile).map_err(failed)?;
            rewrite(&self.machinefile, &before, request.machinefile.as_bytes()).map_err(failed)?;
        }
        Ok(())
    }
}

type Member<'a> = (&'a str, IpAddr);

/// The hosts of a request, each a name and an address and nothing else.
fn members(request: &ConfigureRequest) -> Result<Vec<Member<'_>>, MembersError> {
    let hosts = &request.hosts;
    if hosts.len() > MAX_MEMBERS {
        return Err(MembersError::TooMany { count: hosts.len() });
    }
    let mut names = HashSet::new();
    let mut members = Vec::with_capacity(hosts.len());
    for host in hosts {
        let name = host.name.as_str();
        if !is_dns_label(name) {
            return Err(MembersError::Name { name: beginning(name) });
        }
        let address = host.address.parse().map_err(|_| MembersError::Address {
            name: name.to_owned(),
            address: beginning(&host.address),
        })?;
        if !names.insert(name) {
            return Err(MembersError::Duplicate { name: name.to_owned() });
        }
        members.push((name, address));
    }
    Ok(members)
}

fn beginning(text: &str) -> String {
    text.chars().take(80).collect()
}

fn is_dns_label(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Every line begins with a member (`name slots=1 max_slots=1`, `name:1`) and holds printable characters only.
fn check_machinefile(text: &str, members: &[Member<'_>]) -> Result<(), MembersError> {
    let names: HashSet<&str> = members.iter().map(|(name, _)| *name).collect();
    let wrong = |index: usize, problem| MembersError::Machinefile { line: index + 1, problem };
    for (index, line) in text.split_terminator('\n').enumerate() {
        if !line.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
            return Err(wrong(index, "holds something other than printable ASCII"));
        }
        let host = line.split([' ', ':']).next().unwrap_or(line);
        if !is_dns_label(host) {
            return Err(wrong(index, "does not begin with a host"));
        }
        if !names.is_empty() && !names.contains(host) {
            return Err(wrong(index, "names a host that is not among the members"));
        }
    }
    Ok(())
}

/// The hosts file as it shall be: lines that are not ours as they were, then ours.
fn with_members(before: &[u8], members: &[Member<'_>]) -> Vec<u8> {
    let mut after = Vec::with_capacity(before.len() + members.len() * 32);
    let mut ours = false;
    for line in before.split_inclusive(|byte| *byte == b'\n') {
        match line.trim_ascii() {
            text if text == BEGIN.as_bytes() => ours = true,
            text if text == END.as_bytes() => ours = false,
            // A beginning without an end was cut short while it was written: all that follows is ours.
            _ if ours => {}
            _ => after.extend_from_slice(line),
        }
    }
    if after.last().is_some_and(|byte| *byte != b'\n') {
        after.push(b'\n');
    }
    let mut block = format!("{BEGIN}\n");
    for (name, address) in members {
        // Writing into a String cannot fail.
        let _ = writeln!(block, "{address}\t{name}");
    }
    block.push_str(END);
    block.push('\n');
    after.extend_from_slice(block.as_bytes());
    after
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("larger than {MAX_BYTES} bytes")));
    }
    Ok(content)
}

/// The same file, other content. It is cut after it was written, not before: at no moment is it empty, as a program that
/// resolves a name just then would find it.
fn rewrite(path: &Path, before: &[u8], after: &[u8]) -> io::Result<()> {
    if before == after {
        return Ok(());
    }
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(after)?;
    file.set_len(after.len() as u64)
}

#[cfg(test)]
mod tests {
    use gridcast_proto::v1::Host;
    use proptest::prelude::*;

    use super::*;
    use crate::starter::hosts::Hosts;

    fn request(hosts: &[(&str, &str)], machinefile: &str) -> ConfigureRequest {
        let host = |(name, address): &(&str, &str)| Host { name: (*name).into(), address: (*address).into() };
        ConfigureRequest { hosts: hosts.iter().map(host).collect(), machinefile: machinefile.to_owned() }
    }

    struct Node {
        root: tempfile::TempDir,
        files: Files,
    }

    fn node(hosts: &[u8]) -> Node {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::write(path("hosts"), hosts).unwrap();
        std::fs::write(path("machinefile"), "").unwrap();
        let files = Files::new(path("hosts"), path("machinefile"));
        Node { root, files }
    }

    impl Node {
        fn content(&self, name: &str) -> String {
            String::from_utf8(std::fs::read(self.root.path().join(name)).unwrap()).unwrap()
        }
    }

    const OWN: &str = "127.0.0.1\tlocalhost\n10.0.0.1\tring-node-0.ring.default.svc ring-node-0";

    #[test]
    fn members_come_after_what_was_there_and_a_new_address_replaces_the_old() {
        let node = node(OWN.as_bytes());
        let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(node.files.hosts()).unwrap());
        let before = inode();
        let machinefile = "ring-node-0 slots=1 max_slots=1\nring-node-1 slots=1 max_slots=1\n";
        let members = [("ring-node-0", "10.0.0.1"), ("ring-node-1", "10.0.0.2")];
        node.files.write(&request(&members, machinefile)).unwrap();
        let expected = format!("{OWN}\n{BEGIN}\n10.0.0.1\tring-node-0\n10.0.0.2\tring-node-1\n{END}\n");
        assert_eq!(node.content("hosts"), expected);
        assert_eq!(node.content("machinefile"), machinefile);
        // Somebody else's line after ours stays, and ours go behind it.
        std::fs::write(node.files.hosts(), expected + "10.9.9.9 storage").unwrap();
        let members = [("ring-node-0", "10.0.0.1"), ("ring-node-1", "fd00::7")];
        node.files.write(&request(&members, "")).unwrap();
        let expected =
            format!("{OWN}\n10.9.9.9 storage\n{BEGIN}\n10.0.0.1\tring-node-0\nfd00::7\tring-node-1\n{END}\n");
        assert_eq!(node.content("hosts"), expected);
        assert_eq!(node.content("machinefile"), machinefile, "an empty one leaves it alone");
        node.files.write(&request(&[], "")).unwrap();
        assert_eq!(node.content("hosts"), expected);
        assert_eq!(inode(), before, "the file that is mounted is the one that was written");
        let file = node.content("hosts");
        let address = |name| Hosts::parse(&file).locate(name).unwrap().address.to_string();
        assert_eq!(address("ring-node-1"), "fd00::7");
    }

    #[test]
    fn a_shorter_list_leaves_nothing_of_the_longer_one() {
        let node = node(OWN.as_bytes());
        let many: Vec<_> =
            (0..5000).map(|n| (format!("n-{n}"), format!("10.1.{}.{}", n / 250, n % 250))).collect();
        let many: Vec<_> = many.iter().map(|(name, address)| (name.as_str(), address.as_str())).collect();
        node.files.write(&request(&many, "n-4999:1\n")).unwrap();
        assert_eq!(node.content("hosts").lines().count(), 2 + 2 + 5000);
        node.files.write(&request(&[("n-1", "10.1.0.1")], "n-1:1\n")).unwrap();
        assert_eq!(node.content("hosts"), format!("{OWN}\n{BEGIN}\n10.1.0.1\tn-1\n{END}\n"));
        assert_eq!(node.content("machinefile"), "n-1:1\n");
    }

    #[test]
    fn what_was_cut_short_is_replaced() {
        let node = node(format!("{OWN}\n{BEGIN}\n10.0.0.1\tring-node-0\n10.0").as_bytes());
        node.files.write(&request(&[("a", "10.0.0.1")], "")).unwrap();
        assert_eq!(node.content("hosts"), format!("{OWN}\n{BEGIN}\n10.0.0.1\ta\n{END}\n"));
    }

    #[test]
    fn one_wrong_word_and_nothing_is_written() {
        let good = ("a", "10.0.0.1");
        let long = "x".repeat(64);
        for (wrong, machinefile, word) in [
            (("b.c", "10.0.0.2"), "", "b.c"),
            (("B", "10.0.0.2"), "", "DNS label"),
            (("", "10.0.0.2"), "", "DNS label"),
            (("-b", "10.0.0.2"), "", "-b"),
            ((long.as_str(), "10.0.0.2"), "", "DNS label"),
            (("b\n10.0.0.3 c", "10.0.0.2"), "", "DNS label"),
            (("b", "10.0.0.2 c"), "", "not an IP address"),
            (("b", "10.0.0.2\n10.0.0.3 c"), "", "not an IP address"),
            (("b", "node-b"), "", "node-b"),
            (("b", "fe80::1%eth0"), "", "not an IP address"),
            (("a", "10.0.0.2"), "", "twice"),
            (("b", "10.0.0.2"), "a slots=1\nc slots=1\n", "line 2 of the machinefile names a host"),
            (("b", "10.0.0.2"), "a slots=1\n\n", "line 2"),
            (("b", "10.0.0.2"), "a slots=1\r\n", "printable"),
            (("b", "10.0.0.2"), "# a\n", "does not begin with a host"),
        ] {
            let node = node(OWN.as_bytes());
            let error = node.files.write(&request(&[good, wrong], machinefile)).unwrap_err();
            assert_eq!(error.reason(), "MembersInvalid");
            assert!(error.to_string().contains(word), "{error}");
            assert_eq!([node.content("hosts"), node.content("machinefile")], [OWN, ""], "{error}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("none");
        let files = Files::new(missing.clone(), missing.clone());
        let error = files.write(&request(&[("a", "10.0.0.1")], "")).unwrap_err();
        assert_eq!(error.reason(), "FileFailed");
        assert!(error.to_string().contains(missing.to_str().unwrap()), "{error}");
        assert!(!missing.exists(), "it is not made: nobody would have it mounted");
    }

    fn word() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z][a-z0-9-]{0,8}",
            "[0-9]{1,3}(\\.[0-9]{1,3}){3}",
            "[a-z0-9 #\\n\\r\\t.:\\PC-]{0,12}",
            Just(BEGIN.to_owned()),
            Just(END.to_owned()),
            any::<String>(),
        ]
    }

    proptest! {
        #[test]
        fn no_input_adds_a_line(hosts in proptest::collection::vec((word(), word()), 0..6), machinefile in word(), foreign in any::<Vec<u8>>()) {
            let node = node(&foreign);
            let pairs: Vec<_> = hosts.iter().map(|(name, address)| (name.as_str(), address.as_str())).collect();
            let lines = |bytes: &[u8]| bytes.split(|byte| *byte == b'\n').count();
            let written = node.files.write(&request(&pairs, &machinefile));
            let now = std::fs::read(node.files.hosts()).unwrap();
            if written.is_err() || hosts.is_empty() {
                prop_assert_eq!(&now, &foreign);
            } else {
                let own = lines(&foreign) + usize::from(foreign.last().is_some_and(|byte| *byte != b'\n'));
                prop_assert_eq!(lines(&now), own + 2 + hosts.len());
                prop_assert!(now.starts_with(&foreign));
                let text = String::from_utf8_lossy(&now[foreign.len()..]).into_owned();
                for (name, address) in &pairs {
                    let found = Hosts::parse(&text).locate(name).unwrap().address;
                    prop_assert_eq!(found, address.parse::<IpAddr>().unwrap());
                }
                // Once more changes nothing.
                node.files.write(&request(&pairs, &machinefile)).unwrap();
                prop_assert_eq!(std::fs::read(node.files.hosts()).unwrap(), now);
            }
        }

        #[test]
        fn lines_of_others_survive_any_number_of_rewritings(foreign in proptest::collection::vec(word(), 0..8), members in 1u8..5) {
            let text: String = foreign.iter().map(|line| line.replace('\n', " ") + "\n").collect();
            let node = node(text.as_bytes());
            let names: Vec<_> = (0..members).map(|n| (format!("m-{n}"), format!("10.0.0.{n}"))).collect();
            for count in 1..=names.len() {
                let pairs: Vec<_> = names[..count].iter().map(|(name, address)| (name.as_str(), address.as_str())).collect();
                node.files.write(&request(&pairs, "")).unwrap();
            }
            let expected = with_members(text.as_bytes(), &names.iter().map(|(name, address)| (name.as_str(), address.parse().unwrap())).collect::<Vec<_>>());
            prop_assert_eq!(std::fs::read(node.files.hosts()).unwrap(), expected);
        }
    }
}
