//! Nodes for these tests: unnamed network namespaces joined by a veth pair, a real agent in each.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gridcast_agent::tls::Identity;
use gridcast_proto::v1::Peer;
use gridcast_proto::v1::agent_client::AgentClient;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tonic::transport::Channel;

/// A namespace that lives as long as a process that reads from this one: nothing is left, however the test ends.
pub(crate) struct Namespace {
    holder: Child,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        Self::held_by(&["unshare", "--net", "cat"])
    }

    /// That of a process which this command becomes.
    pub(crate) fn held_by(command: &[&str]) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "these tests make network namespaces: run them as root");
        let holder = Command::new(command[0]).args(&command[1..]).stdin(Stdio::piped()).spawn().unwrap();
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let namespace = Self { holder };
        for _ in 0..1_000 {
            if fs::read_link(namespace.path()).is_ok_and(|other| other != own) {
                namespace.run(&["ip", "link", "set", "lo", "up"]);
                return namespace;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("unshare made no namespace");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.holder.id()
    }

    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.pid()).into()
    }

    /// A command inside that dies with the calling thread.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "nsenter",
            "--net",
            "--target",
            &self.pid().to_string(),
            program,
        ]);
        command
    }

    /// Runs a command inside and returns what it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments[0]).args(&arguments[1..]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text} {}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// Runs asynchronous code on a thread inside.
    pub(crate) fn enter<T, F>(&self, work: F) -> T
    where
        T: Send,
        F: AsyncFnOnce() -> T + Send,
    {
        let path = self.path();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let namespace = fs::File::open(path).unwrap();
                nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(work())
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Keys of a run: one directory per name.
pub(crate) struct Keys(tempfile::TempDir);

impl Keys {
    pub(crate) fn new(names: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        for name in names {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![(*name).to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            let path = directory.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("ca.pem"), authority.pem()).unwrap();
            fs::write(path.join("cert.pem"), certificate.pem()).unwrap();
            fs::write(path.join("key.pem"), key.serialize_pem()).unwrap();
        }
        Self(directory)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn identity(&self, name: &str) -> Identity {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Identity::load(&self.path(name)).unwrap()
    }
}

/// A running agent.
pub(crate) struct Agent {
    pub(crate) process: Child,
}

impl Agent {
    pub(crate) fn start(namespace: &Namespace, name: &str, keys: &Path, state: &Path) -> Self {
        let mut process = namespace
            .command(env!("CARGO_BIN_EXE_gridcast-agent"))
            .args(["--name", name, "--listen", "0.0.0.0:7411", "--probe-port", "7413"])
            .arg("--keys")
            .arg(keys)
            .arg("--state")
            .arg(state)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap());
        let mut text = String::new();
        while !text.contains(" ready ") {
            assert_ne!(said.read_line(&mut text).unwrap(), 0, "agent {name} ended: {text}");
        }
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self { process }
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.process.id()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How a node of a [`Pair`] is reached.
pub(crate) fn peer(index: usize) -> Peer {
    Peer {
        name: format!("node-{index}"),
        address: format!("10.42.0.{}", index + 1),
        port: 7411,
        ..Peer::default()
    }
}

/// Two nodes, `node-0` at 10.42.0.1 and `node-1` at 10.42.0.2, and a controller in the namespace of the first.
pub(crate) struct Pair {
    // Dropped in this order: agents before the namespaces they live in.
    pub(crate) agents: Vec<Agent>,
    pub(crate) namespaces: [Namespace; 2],
    pub(crate) keys: Keys,
    pub(crate) state: tempfile::TempDir,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let namespaces = [Namespace::new(), Namespace::new()];
        let [first, second] = &namespaces;
        let (near, far) = (first.pid().to_string(), second.pid().to_string());
        let link = [
            "ip", "link", "add", "eth0", "netns", &near, "type", "veth", "peer", "name", "eth0", "netns",
            &far,
        ];
        first.run(&link);
        for (namespace, address) in [(first, "10.42.0.1/16"), (second, "10.42.0.2/16")] {
            namespace.run(&["ip", "address", "add", address, "dev", "eth0"]);
            namespace.run(&["ip", "link", "set", "eth0", "up"]);
        }
        let mut pair = Self {
            agents: Vec::new(),
            namespaces,
            keys: Keys::new(&["node-0", "node-1", "controller"]),
            state: tempfile::tempdir().unwrap(),
        };
        pair.agents = vec![pair.agent(0), pair.agent(1)];
        pair
    }

    /// Both directions of the link at this rate, with a queue of a megabyte.
    pub(crate) fn throttle(&self, rate: &str) {
        self.throttle_with(rate, "1600");
    }

    /// The same with a larger bucket: this kernel's timers cannot refill a small one fast enough above 20 Mbit/s.
    pub(crate) fn throttle_with(&self, rate: &str, burst: &str) {
        for namespace in &self.namespaces {
            namespace.run(&[
                "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", burst,
                "limit", "1000000",
            ]);
        }
    }

    pub(crate) fn agent(&self, index: usize) -> Agent {
        let name = format!("node-{index}");
        Agent::start(&self.namespaces[index], &name, &self.keys.path(&name), &self.state.path().join(&name))
    }

    /// Runs `work` with a controller's connection to agent 0.
    pub(crate) fn control<T: Send>(&self, work: impl AsyncFnOnce(AgentClient<Channel>) -> T + Send) -> T {
        let identity = self.keys.identity("controller");
        let peer = peer(0);
        self.namespaces[0].enter(async move || {
            let channel = identity.endpoint(&peer).unwrap().connect().await.unwrap();
            work(AgentClient::new(channel)).await
        })
    }
}
