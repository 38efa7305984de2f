//! Keys, starters and callers for the tests. Everything ends with the value that stands for it.

use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gridcast_agent::tls::Identity;
use gridcast_proto::v1::exec_reply::Reply;
use gridcast_proto::v1::exec_request::Request;
use gridcast_proto::v1::relay_client::RelayClient;
use gridcast_proto::v1::starter_client::StarterClient;
use gridcast_proto::v1::{ExecReply, ExecRequest, ExecStart, ObservedRank, RanksRequest};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_gridcast-starter");
/// What completes the names of [`Cluster::members`].
pub(crate) const DOMAIN: &str = "0f1e.members.gridcast.io";
/// Far more than anything here takes, for a machine that is shared.
const PATIENCE: Duration = Duration::from_mins(1);

/// The authority of one run.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(parameters, key), pem }
    }

    /// Writes a key directory made out to `name`.
    pub(crate) fn keys(&self, directory: &Path, name: &str) {
        let key = KeyPair::generate().unwrap();
        self.issue(directory, &CertificateParams::new(vec![name.to_owned()]).unwrap(), &key);
    }

    /// The keys of a cluster in Kubernetes: one certificate for all members, and the domain that completes their names.
    pub(crate) fn member_keys(&self, directory: &Path, domain: &str) {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec![format!("*.{domain}")]).unwrap();
        parameters.distinguished_name.push(DnType::OrganizationName, "gridcast:member");
        self.issue(directory, &parameters, &key);
        std::fs::write(directory.join("domain"), domain).unwrap();
    }

    fn issue(&self, directory: &Path, parameters: &CertificateParams, key: &KeyPair) {
        let certificate = parameters.signed_by(key, &self.issuer).unwrap();
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join("ca.pem"), &self.pem).unwrap();
        std::fs::write(directory.join("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(directory.join("key.pem"), key.serialize_pem()).unwrap();
    }
}

/// Nodes h1, h2, … at 127.0.0.1, 127.0.0.2, … or the like, all starters on one port, each with its own keys.
pub(crate) struct Cluster {
    pub(crate) root: TempDir,
    pub(crate) authority: Authority,
    pub(crate) port: u16,
    /// What a node's address begins with; its number follows.
    prefix: &'static str,
    nodes: Vec<Node>,
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) process: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Cluster {
    pub(crate) fn new(size: u8) -> Self {
        let mut cluster = Self::empty(size);
        for index in 1..=size {
            let mut command = cluster.serve(index, &[]);
            cluster.start(index, &mut command);
        }
        cluster
    }

    /// Nodes h1, h2, … with the keys of a cluster in Kubernetes, all the same; the first `running` run.
    pub(crate) fn members(size: u8, running: u8) -> Self {
        let mut cluster = Self::empty(size);
        cluster.authority.member_keys(&cluster.path("controller"), DOMAIN);
        for index in 1..=size {
            cluster.authority.member_keys(&cluster.keys(index), DOMAIN);
        }
        for index in 1..=running {
            let mut command = cluster.serve(index, &[]);
            cluster.start(index, &mut command);
        }
        cluster
    }

    /// Keys and names, but nothing runs.
    pub(crate) fn empty(size: u8) -> Self {
        Self::empty_at(size, "127.0.0.")
    }

    /// The same at other addresses.
    pub(crate) fn empty_at(size: u8, prefix: &'static str) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let root = tempfile::tempdir().unwrap();
        // The test of another user's rank reaches the socket through it.
        std::fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let cluster = Self { root, authority: Authority::new(), port, prefix, nodes: Vec::new() };
        let mut hosts = String::from("127.0.0.1 localhost\n127.0.0.99 nobody\n");
        for index in 1..=size {
            cluster.authority.keys(&cluster.keys(index), &format!("h{index}"));
            writeln!(hosts, "{prefix}{index} h{index} # a node").unwrap();
        }
        cluster.authority.keys(&cluster.path("controller"), "controller");
        std::fs::write(cluster.hosts(), hosts).unwrap();
        std::fs::write(cluster.machinefile(), "").unwrap();
        cluster
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn keys(&self, index: u8) -> PathBuf {
        self.path(&format!("keys-h{index}"))
    }

    pub(crate) fn hosts(&self) -> PathBuf {
        self.path("hosts")
    }

    pub(crate) fn machinefile(&self) -> PathBuf {
        self.path("machinefile")
    }

    /// The lines that Configure left untouched and those that it wrote.
    pub(crate) fn hosts_text(&self) -> String {
        std::fs::read_to_string(self.hosts()).unwrap()
    }

    pub(crate) fn socket(&self, index: u8) -> PathBuf {
        self.path(&format!("ranks-h{index}.sock"))
    }

    pub(crate) fn address(&self, index: u8) -> SocketAddr {
        SocketAddr::new(format!("{}{index}", self.prefix).parse().unwrap(), self.port)
    }

    /// Whose the nodes' addresses are: loopback's, or of a namespace that the test has made.
    pub(crate) fn interface(&self) -> &'static str {
        if self.prefix.starts_with("127.") { "lo" } else { "eth0" }
    }

    /// `gridcast-starter serve` for a node, behind a prefix such as `unshare -pf`.
    pub(crate) fn serve(&self, index: u8, prefix: &[&str]) -> Command {
        let mut line: Vec<&str> = prefix.to_vec();
        line.push(PROGRAM);
        let mut command = Command::new(line[0]);
        command.args(&line[1..]);
        command.args(["serve", "--name", &format!("h{index}"), "--listen", &self.address(index).to_string()]);
        command.arg("--keys").arg(self.keys(index)).arg("--socket").arg(self.socket(index));
        self.settings(&mut command, index);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    pub(crate) fn start(&mut self, index: u8, command: &mut Command) {
        let process = command.spawn().unwrap();
        self.nodes.push(Node { name: format!("h{index}"), process });
        let (address, socket) = (self.address(index), self.socket(index));
        // The socket comes second.
        eventually("the starter answers", || {
            std::net::TcpStream::connect(address).is_ok() && socket.exists()
        });
    }

    /// Takes a node out, to end it in the test's own way.
    pub(crate) fn take(&mut self, index: u8) -> Node {
        let name = format!("h{index}");
        let position = self.nodes.iter().position(|node| node.name == name).unwrap();
        self.nodes.remove(position)
    }

    pub(crate) fn pid(&self, index: u8) -> u32 {
        let name = format!("h{index}");
        self.nodes.iter().find(|node| node.name == name).unwrap().process.id()
    }

    /// Where the remote shell of a node finds keys, names and the port.
    pub(crate) fn settings(&self, command: &mut Command, index: u8) {
        command.env("GRIDCAST_KEYS", self.keys(index)).env("GRIDCAST_HOSTS", self.hosts());
        command.env("GRIDCAST_STARTER_PORT", self.port.to_string());
        command.env("GRIDCAST_MACHINEFILE", self.machinefile());
    }

    /// `gridcast-starter exec …`, as called on h1.
    pub(crate) fn exec(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("exec").args(arguments).stdin(Stdio::null());
        self.settings(&mut command, 1);
        command
    }

    /// A controller's connection to a node.
    pub(crate) async fn client(&self, index: u8) -> StarterClient<Channel> {
        let identity = Identity::load(&self.path("controller")).unwrap();
        let endpoint = identity.endpoint_at(&format!("h{index}"), self.address(index)).unwrap();
        StarterClient::new(endpoint.connect().await.unwrap())
    }

    /// The same for the relay that a starter serves.
    pub(crate) async fn relay(&self, index: u8) -> RelayClient<Channel> {
        let identity = Identity::load(&self.path("controller")).unwrap();
        let endpoint = identity.endpoint_at(&format!("h{index}"), self.address(index)).unwrap();
        RelayClient::new(endpoint.connect().await.unwrap())
    }

    pub(crate) async fn ranks(&self, index: u8, launch: &str) -> Vec<ObservedRank> {
        let request = RanksRequest { launch: launch.to_owned() };
        self.client(index).await.ranks(request).await.unwrap().into_inner().ranks
    }
}

/// Waits for what has to come.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code, standard output, standard error.
pub(crate) fn outcome(output: &Output) -> (Option<i32>, String, String) {
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Whether a process is there and not a zombie.
pub(crate) fn alive(pid: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .and_then(|rest| rest.trim_start().chars().next())
        .is_some_and(|state| state != 'Z')
}

/// Children of a process that have ended and that nobody has collected.
pub(crate) fn zombies_of(parent: u32) -> usize {
    let is_zombie = |entry: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace();
        let state = fields.next()?;
        (state == "Z" && fields.next()? == parent.to_string()).then_some(())
    };
    std::fs::read_dir("/proc").unwrap().filter_map(is_zombie).count()
}

/// An `Exec` call in progress.
pub(crate) struct Call {
    pub(crate) requests: mpsc::Sender<ExecRequest>,
    pub(crate) replies: Streaming<ExecReply>,
}

/// Everything that a call brought.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    pub(crate) pid: i64,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) code: i32,
    pub(crate) signal: i32,
    pub(crate) failed: Option<(String, String)>,
}

pub(crate) fn start(argv: &[&str]) -> ExecStart {
    ExecStart {
        argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
        inherit_environment: true,
        ..ExecStart::default()
    }
}

impl Call {
    pub(crate) async fn new(mut client: StarterClient<Channel>, start: ExecStart) -> Self {
        let (requests, outgoing) = mpsc::channel(4);
        requests.send(ExecRequest { request: Some(Request::Start(start)) }).await.unwrap();
        let replies = client.exec(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        Self { requests, replies }
    }

    pub(crate) async fn send(&self, request: Request) {
        // A command that has ended takes no more.
        let _ = self.requests.send(ExecRequest { request: Some(request) }).await;
    }

    pub(crate) async fn next(&mut self) -> Option<Reply> {
        self.replies.message().await.unwrap().map(|reply| reply.reply.unwrap())
    }

    /// The PID, once it has started.
    pub(crate) async fn started(&mut self) -> i64 {
        match self.next().await {
            Some(Reply::Started(started)) => started.pid,
            other => panic!("not started: {other:?}"),
        }
    }

    /// Reads to the end.
    pub(crate) async fn finish(mut self) -> Brought {
        let mut brought = Brought::default();
        while let Some(reply) = self.next().await {
            match reply {
                Reply::Started(started) => brought.pid = started.pid,
                Reply::Stdout(bytes) => brought.stdout.extend_from_slice(&bytes),
                Reply::Stderr(bytes) => brought.stderr.extend_from_slice(&bytes),
                Reply::Exited(exited) => (brought.code, brought.signal) = (exited.code, exited.signal),
                Reply::Failed(failed) => brought.failed = Some((failed.reason, failed.message)),
            }
        }
        brought
    }
}

/// Runs a script without input.
pub(crate) async fn run(client: StarterClient<Channel>, script: &str) -> Brought {
    let call = Call::new(client, start(&["sh", "-c", script])).await;
    call.send(Request::StdinClosed(true)).await;
    call.finish().await
}
