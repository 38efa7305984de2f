//! What the tests of nodes and fabric share.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "each test takes what it needs"
)]

pub mod net;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gridcast_lab::Lifetime;
use gridcast_lab::node::{Node, NodeSpec, command};
use tempfile::TempDir;

/// Nodes of one test, in a state directory of its own.
pub struct Nodes {
    pub nodes: Vec<Node>,
    pub lifetime: Lifetime,
    pub state: TempDir,
}

/// A specification whose directories exist below `state`.
pub fn spec(state: &Path, name: &str, number: u8) -> NodeSpec {
    gridcast_lab::use_program(env!("CARGO_BIN_EXE_gridcast-lab"));
    let directory = |what: &str| {
        let path = state.join(name).join(what);
        fs::create_dir_all(&path).unwrap();
        path
    };
    NodeSpec {
        name: name.to_owned(),
        address: Ipv4Addr::new(10, 42, 0, number),
        prefix: 16,
        root: directory("root"),
        private: vec![(PathBuf::from("/data"), directory("data"))],
        binds: Vec::new(),
        shm_bytes: 1 << 20,
        init: vec!["/bin/cat".to_owned()],
        environment: BTreeMap::new(),
    }
}

/// A file that takes what PID 1 says.
pub fn log(state: &Path) -> File {
    File::options().create(true).append(true).open(state.join("log")).unwrap()
}

impl Nodes {
    pub fn start(names: &[&str], adapt: impl Fn(&mut NodeSpec)) -> Self {
        let state = tempfile::tempdir().unwrap();
        let lifetime = Lifetime::new().unwrap();
        let nodes = names.iter().zip(1..).map(|(name, number)| {
            let mut spec = spec(state.path(), name, number);
            adapt(&mut spec);
            Node::start(&spec, lifetime.watch().unwrap(), log(state.path())).unwrap()
        });
        let nodes = nodes.collect();
        Self { nodes, lifetime, state }
    }

    /// A shell command in a node.
    pub fn shell(&self, node: usize, script: &str) -> Command {
        let mut shell = command(self.nodes[node].pid(), "/bin/sh");
        shell.args(["-c", script]);
        shell
    }

    /// What a shell command in a node prints.
    pub fn says(&self, node: usize, script: &str) -> String {
        let output = self.shell(node, script).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(output.status.success(), "{script}: {text} {}", String::from_utf8_lossy(&output.stderr));
        text
    }
}

/// Waits until something is so, for at most ten seconds.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !so() {
        assert!(Instant::now() < deadline, "{what}: not within ten seconds");
        std::thread::sleep(Duration::from_millis(5));
    }
}
