//! What is a node, how does it begin, and how does one act inside it?
//!
//! A node is PID 1 of a PID namespace, with network, mount, UTS and IPC namespaces of its own. Its root is a tmpfs
//! into which all entries of the machine's root are bound; upon them come the node's private directories and
//! binds. A mount path that does not exist on the machine appears in the node only.
//!
//! ```text
//! owner (cli)                    holds the write end of the lifetime pipe
//!  `- keeper (INIT_ARG)          in the machine's namespaces; kills and reaps PID 1
//!      `- PID 1 of the node      stdin: the read end of the lifetime pipe
//! ```
//!
//! The keeper exists because a process cannot move itself into a new PID namespace, only its children. Whatever
//! ends it takes PID 1 along, and with PID 1 the kernel ends every process of the node; so nothing outlives it.

mod bind;
pub(crate) mod enter;
pub(crate) mod init;
mod root;
mod start;
mod supervise;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use bind::bind;
pub use enter::{command, command_in, connect, in_network};
pub use start::{Node, NodeError};

/// First argument of the hidden subcommand that becomes a node.
pub const INIT_ARG: &str = "__lab-node-init";
/// First argument of the hidden subcommand that runs a program inside a node.
pub const ENTER_ARG: &str = "__lab-node-enter";

/// Runs a hidden subcommand of the lab if the program was started for one, and does not return then.
/// `main` calls this before anything else, before any thread in particular.
pub fn run_init_if_asked() {
    crate::program::run_if_asked();
}

/// What a node is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its hostname: 1 to 64 bytes.
    pub name: String,
    /// Address of its interface, for whoever makes the fabric; the node itself does not use it.
    pub address: Ipv4Addr,
    /// Length of the network's prefix, bits.
    pub prefix: u8,
    /// An empty directory of the machine, on which the node mounts its root. The machine does not see that mount.
    pub root: PathBuf,
    /// Directories that only this node sees: the path in the node, and the directory of the machine behind it.
    #[serde(default)]
    pub private: Vec<(PathBuf, PathBuf)>,
    /// Files and directories of the machine that the node sees elsewhere.
    #[serde(default)]
    pub binds: Vec<Bind>,
    /// Size of its `/dev/shm`, bytes.
    pub shm_bytes: u64,
    /// Program and arguments of PID 1. The program is a path in the node; PID 1 shall reap orphans, and end at the
    /// end of its standard input (it is killed two seconds later if it does not).
    pub init: Vec<String>,
    /// The whole environment of PID 1.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// A file or directory of the machine, seen at another path in a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bind {
    /// Path on the machine.
    pub source: PathBuf,
    /// Path in the node.
    pub target: PathBuf,
    /// Whether the node must not write to it.
    #[serde(default)]
    pub read_only: bool,
}

impl NodeSpec {
    /// Says what makes the specification impossible, if anything.
    pub fn validate(&self) -> Result<(), String> {
        if self.name.is_empty() || self.name.len() > 64 {
            return Err("name: a hostname has 1 to 64 bytes".to_owned());
        }
        if self.init.is_empty() {
            return Err("init: PID 1 needs a program".to_owned());
        }
        let private =
            self.private.iter().flat_map(|(target, source)| [("private", target), ("private", source)]);
        let binds = self.binds.iter().flat_map(|bind| [("binds", &bind.target), ("binds", &bind.source)]);
        for (field, path) in private.chain(binds).chain([("root", &self.root)]) {
            if !plain(path) {
                return Err(format!("{field}: `{}` is not an absolute path without `..`", path.display()));
            }
        }
        for target in
            self.private.iter().map(|(target, _)| target).chain(self.binds.iter().map(|b| &b.target))
        {
            if target == Path::new("/") {
                return Err("private, binds: `/` cannot be replaced".to_owned());
            }
            if let Some(kernel) = ["/proc", "/sys", "/dev"].iter().find(|kernel| target.starts_with(kernel)) {
                return Err(format!("private, binds: `{}` lies in {kernel}", target.display()));
            }
        }
        Ok(())
    }
}

fn plain(path: &Path) -> bool {
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}
