//! Agents of Kubernetes nodes for these tests: an operator that signs certificates, two nodes, a pod on each.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gridcast_agent::tls::Identity;
use gridcast_proto::NODES_DOMAIN;
use gridcast_proto::v1::certificates_server::{Certificates, CertificatesServer};
use gridcast_proto::v1::mounts_client::MountsClient;
use gridcast_proto::v1::{IssueReply, IssueRequest, Peer};
use hyper_util::rt::TokioIo;
use nix::sched::{CloneFlags, setns};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DnType, IsCa,
    KeyPair,
};
use tokio::sync::oneshot;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::nodes::{Agent, Namespace};

/// UIDs of the pods, one on each node.
pub(crate) const PODS: [&str; 2] =
    ["aaaaaaaa-8a5b-4b6c-9d2e-1f2a3b4c5d6e", "bbbbbbbb-8a5b-4b6c-9d2e-1f2a3b4c5d6e"];
pub(crate) const BROADCAST: &str = "11111111-2222-3333-4444-555555555555";

/// What the agent of a node needs, each for its reason: to enter pods' network namespaces (sys_admin); to see those of
/// processes of other users (sys_ptrace); to read datasets whatever their modes (dac_read_search). Without any of them one of
/// these tests fails. Settings need none: /proc/sys takes the machine's root for the owner of whatever namespace.
const CAPABILITIES: &str = "+sys_admin,+sys_ptrace,+dac_read_search";

type Authority = std::sync::Arc<CertifiedIssuer<'static, KeyPair>>;

/// Signs for the node that each token names.
struct Operator(Authority);

#[tonic::async_trait]
impl Certificates for Operator {
    async fn issue(&self, request: Request<IssueRequest>) -> Result<Response<IssueReply>, Status> {
        let IssueRequest { token, csr_pem } = request.into_inner();
        let mut asked = CertificateSigningRequestParams::from_pem(&csr_pem).unwrap();
        asked.params = params(&certified(&token), "gridcast:agent");
        Ok(Response::new(IssueReply {
            certificate_pem: asked.signed_by(&*self.0).unwrap().pem(),
            authority_pem: self.0.pem(),
            valid_seconds: 86_400,
        }))
    }
}

/// What the operator writes into the certificates of nodes and source pods.
fn certified(name: &str) -> String {
    format!("{name}.{NODES_DOMAIN}")
}

fn params(name: &str, organization: &str) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    if !organization.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params
}

/// A running operator; ends when dropped.
struct Running {
    _stop: oneshot::Sender<()>,
}

fn operator(namespace: &Namespace, authority: Authority) -> Running {
    let place = fs::File::open(namespace.path()).unwrap();
    let (stop, stopped) = oneshot::channel();
    std::thread::spawn(move || {
        setns(place, CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let key = KeyPair::generate().unwrap();
            let own = params("gridcast-operator", "").signed_by(&key, &*authority).unwrap();
            let identity = tonic::transport::Identity::from_pem(own.pem(), key.serialize_pem());
            let incoming = TcpIncoming::bind("10.42.0.1:7410".parse().unwrap()).unwrap();
            Server::builder()
                .tls_config(ServerTlsConfig::new().identity(identity))
                .unwrap()
                .add_service(CertificatesServer::new(Operator(authority)))
                .serve_with_incoming_shutdown(incoming, async { drop(stopped.await) })
                .await
                .unwrap();
        });
    });
    Running { _stop: stop }
}

pub(crate) struct Fleet {
    // Dropped in this order: agents before the namespaces they live in.
    pub(crate) agents: Vec<Agent>,
    operator: Option<Running>,
    pub(crate) nodes: [Namespace; 2],
    pub(crate) pods: [Namespace; 2],
    authority: Authority,
    pub(crate) place: tempfile::TempDir,
}

impl Fleet {
    /// All runs.
    pub(crate) fn new() -> Self {
        let mut fleet = Self::prepare();
        fleet.start_operator();
        fleet.agents = vec![fleet.agent(0), fleet.agent(1)];
        fleet
    }

    /// The network only.
    pub(crate) fn prepare() -> Self {
        let nodes = [Namespace::new(), Namespace::new()];
        // Neither is root's: the second not even in its own eyes on the node.
        let user = ["--reuid", "100000", "--regid", "100000", "--clear-groups"];
        let pods = [
            Namespace::held_by(&[&["unshare", "--net", "setpriv"][..], &user, &["cat"]].concat()),
            Namespace::held_by(
                &[&["setpriv"][..], &user, &["unshare", "--user", "--map-root-user", "--net", "cat"]]
                    .concat(),
            ),
        ];
        join(&nodes, "10.42.0");
        join(&pods, "10.43.0");
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let fleet = Self {
            agents: Vec::new(),
            operator: None,
            nodes,
            pods,
            authority: authority.into(),
            place: tempfile::tempdir().unwrap(),
        };
        fs::write(fleet.path("ca.pem"), fleet.authority.pem()).unwrap();
        fs::create_dir(fleet.path("exports")).unwrap();
        for index in 0..2 {
            fs::write(fleet.path(&format!("token-{index}")), format!("node-{index}")).unwrap();
            fleet.make_proc(index);
        }
        fleet
    }

    pub(crate) fn start_operator(&mut self) {
        self.operator = Some(operator(&self.nodes[0], self.authority.clone()));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// What the node sees of its processes: those of its pod.
    fn make_proc(&self, index: usize) {
        let proc = self.path(&format!("proc-{index}"));
        let pid = self.pods[index].pid().to_string();
        fs::create_dir_all(proc.join(&pid)).unwrap();
        for name in ["sys", "thread-self", "self", "meminfo"] {
            symlink(Path::new("/proc").join(name), proc.join(name)).unwrap();
        }
        for name in ["ns", "stat"] {
            symlink(format!("/proc/{pid}/{name}"), proc.join(&pid).join(name)).unwrap();
        }
        fs::write(proc.join(&pid).join("cgroup"), format!("0::/kubepods/pod{}/c1\n", PODS[index])).unwrap();
    }

    /// How the agent of a node is started.
    pub(crate) fn command(&self, index: usize) -> Command {
        // With the capabilities that the chart grants, and no other.
        let mut command = self.nodes[index].command("setpriv");
        command
            .args(["--no-new-privs", "--inh-caps", "-all", "--bounding-set", &format!("-all,{CAPABILITIES}")])
            .arg(env!("CARGO_BIN_EXE_gridcast-agent"))
            .args(["node", "--operator", "10.42.0.1:7410", "--name", &format!("node-{index}")])
            .args(["--address", &format!("10.42.0.{}", index + 1)])
            .arg("--token")
            .arg(self.path(&format!("token-{index}")))
            .arg("--authority")
            .arg(self.path("ca.pem"))
            .arg("--state")
            .arg(self.path(&format!("state-{index}")))
            .arg("--mounts-socket")
            .arg(self.path(&format!("mounts-{index}/agent.sock")))
            .arg("--source-root")
            .arg(self.path("exports"))
            .arg("--proc")
            .arg(self.path(&format!("proc-{index}")))
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn agent(&self, index: usize) -> Agent {
        wait_ready(self.command(index))
    }

    /// The agent of a source pod, at 10.42.0.1:7421.
    pub(crate) fn source_pod(&self) -> Agent {
        let keys = self.keys(BROADCAST, "gridcast:source");
        let mut command = self.nodes[0].command(env!("CARGO_BIN_EXE_gridcast-agent"));
        command
            .args(["--name", BROADCAST, "--listen", "10.42.0.1:7421", "--probe-port", "7423", "--keys"])
            .arg(keys)
            .arg("--state")
            .arg(self.path("state-source"))
            .stderr(Stdio::piped());
        wait_ready(command)
    }

    fn keys(&self, name: &str, organization: &str) -> PathBuf {
        let directory = self.path(&format!("keys-{name}-{organization}"));
        let key = KeyPair::generate().unwrap();
        let certificate = params(&certified(name), organization).signed_by(&key, &*self.authority).unwrap();
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("ca.pem"), self.authority.pem()).unwrap();
        fs::write(directory.join("cert.pem"), certificate.pem()).unwrap();
        fs::write(directory.join("key.pem"), key.serialize_pem()).unwrap();
        fs::write(directory.join("domain"), NODES_DOMAIN).unwrap();
        directory
    }

    pub(crate) fn identity(&self, name: &str, organization: &str) -> Identity {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Identity::load(&self.keys(name, organization)).unwrap()
    }

    /// Runs `work` on the first node with a connection to `peer` of somebody with this certificate.
    pub(crate) fn call<T: Send>(
        &self,
        who: (&str, &str),
        peer: &Peer,
        work: impl AsyncFnOnce(Channel) -> T + Send,
    ) -> T {
        let identity = self.identity(who.0, who.1);
        self.nodes[0].enter(async move || {
            let channel = identity.endpoint(peer).unwrap().connect().await.unwrap();
            work(channel).await
        })
    }

    /// The same for the operator.
    pub(crate) fn control<T: Send>(&self, peer: &Peer, work: impl AsyncFnOnce(Channel) -> T + Send) -> T {
        self.call(("controller", "gridcast:controller"), peer, work)
    }

    /// What the mount helper of a node uses.
    pub(crate) async fn mounts(&self, index: usize) -> MountsClient<Channel> {
        let socket = self.path(&format!("mounts-{index}/agent.sock"));
        let connect = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        MountsClient::new(endpoint.connect_with_connector(connect).await.unwrap())
    }

    /// Status line and body of a page of health or metrics.
    pub(crate) fn get(&self, index: usize, page: &str) -> Option<(String, String)> {
        self.nodes[index].enter(async || {
            let mut stream = std::net::TcpStream::connect(format!("10.42.0.{}:7414", index + 1)).ok()?;
            write!(stream, "GET {page} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n").ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            let (head, body) = text.split_once("\r\n\r\n")?;
            Some((head.lines().next()?.to_owned(), body.to_owned()))
        })
    }

    /// Metrics by name with labels.
    pub(crate) fn metrics(&self, index: usize) -> BTreeMap<String, u64> {
        let (_, text) = self.get(index, "/metrics").unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let values = lines.filter_map(|line| line.rsplit_once(' '));
        values.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }
}

/// How the agent of a node is reached, and the pod on it.
pub(crate) fn node(index: usize) -> Peer {
    Peer {
        name: format!("node-{index}"),
        address: format!("10.42.0.{}", index + 1),
        port: 7411,
        pod: PODS[index].to_owned(),
        probe_address: format!("10.43.0.{}", index + 1),
        probe_name: format!("ring-node-{index}"),
    }
}

fn join(ends: &[Namespace; 2], network: &str) {
    let (near, far) = (ends[0].pid().to_string(), ends[1].pid().to_string());
    ends[0].run(&[
        "ip", "link", "add", "eth0", "netns", &near, "type", "veth", "peer", "name", "eth0", "netns", &far,
    ]);
    for (end, host) in ends.iter().zip(["1", "2"]) {
        end.run(&["ip", "address", "add", &format!("{network}.{host}/16"), "dev", "eth0"]);
        end.run(&["ip", "link", "set", "eth0", "up"]);
    }
}

fn wait_ready(mut command: Command) -> Agent {
    let mut process = command.spawn().unwrap();
    let mut said = BufReader::new(process.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains(" ready ") {
        assert_ne!(said.read_line(&mut text).unwrap(), 0, "the agent ended: {text}");
    }
    // RUST_LOG shows what agents say.
    let loud = std::env::var_os("RUST_LOG").is_some();
    std::thread::spawn(move || {
        if loud {
            let _ = std::io::copy(&mut said, &mut std::io::stderr());
        } else {
            let _ = std::io::copy(&mut said, &mut std::io::sink());
        }
    });
    Agent { process }
}
