//! Who signs certificates, and for whom?
//!
//! The operator is a small authority. All its keys come from one root of 32 bytes, by a label each, so that no Secret is
//! ever read back, every replica has the same keys, and a restart loses nothing. There is one authority for node agents
//! (and the source pods that speak to them), and one for each cluster and generation of its keys: a key of one cluster is
//! worth nothing in another, and nothing on a node.

mod certificate;
mod cluster;
pub mod root;
pub mod service;

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use gridcast_control::StepFailure;
use gridcast_proto::NODES_DOMAIN;
use rustls::pki_types::ServerName;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, ServerTlsConfig};

use self::certificate::{Issuer, Leaf, Lifetime, Role};
pub use self::{
    cluster::ClusterAuthority,
    root::{Root, load_or_create},
};

/// Name of the operator towards agents and starters.
const CONTROLLER: &str = "controller";
/// Name of the operator's certificate service.
const OPERATOR: &str = "gridcast-operator";
/// How long connecting to a peer may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A host that was switched off closes no connection; it is asked for a sign of life while a call is open.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// See [`KEEP_ALIVE_INTERVAL`].
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Why keys could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The root could not be read or made.
    #[error("cannot {what} {kind} {namespace}/{name}, which the chart makes")]
    Object {
        /// What was to be done.
        what: &'static str,
        /// Of what.
        kind: &'static str,
        /// Where.
        namespace: String,
        /// Which.
        name: &'static str,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The root is not what it should be.
    #[error(
        "key {key:?} of Secret {namespace}/{name} has {bytes} bytes instead of 32; restore the Secret from a backup, or \
         delete it and key ca.pem of ConfigMap {namespace}/gridcast-ca and upgrade the release: then all keys are new"
    )]
    Root {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: &'static str,
        /// The key.
        key: &'static str,
        /// What there is.
        bytes: usize,
    },
    /// There was a root, and it is gone.
    #[error(
        "Secret {namespace}/gridcast-root is empty, although ConfigMap {namespace}/gridcast-ca has a certificate made with \
         what it held: something has replaced it. Restore the Secret from a backup; or, if all agents and running clusters \
         may lose their keys, begin anew: `kubectl -n {namespace} patch configmap gridcast-ca --type=json \
         -p '[{{\"op\":\"remove\",\"path\":\"/data/ca.pem\"}}]'`"
    )]
    RootLost {
        /// The operator's namespace.
        namespace: String,
    },
    /// The system has no randomness.
    #[error("the system gives no random bytes")]
    Random,
    /// A name that no peer could verify.
    #[error(
        "{0:?} is no name that certificates can have: give the node a DNS name of at most 200 characters"
    )]
    Name(String),
    /// The library refused to sign.
    #[error("cannot sign a certificate")]
    Sign(#[from] rcgen::Error),
    /// The keys do not make a channel.
    #[error("cannot use the keys")]
    Use(#[from] tonic::transport::Error),
}

impl AuthorityError {
    /// One PascalCase word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Object { .. } => "RootUnavailable",
            Self::Root { .. } => "RootInvalid",
            Self::RootLost { .. } => "RootLost",
            Self::Name(_) => "NameUnsupported",
            Self::Random | Self::Sign(_) | Self::Use(_) => "KeysUnusable",
        }
    }
}

impl From<AuthorityError> for StepFailure {
    fn from(error: AuthorityError) -> Self {
        Self::new(error.reason(), gridcast_core::failure::chain(&error))
    }
}

/// The authority of this installation.
pub struct Authority {
    root: Root,
    agents: Issuer,
    /// The operator's own, for agents and source pods. It never leaves this process, and ends with it.
    controller: Leaf,
}

impl std::fmt::Debug for Authority {
    // Keys never reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Derives everything from `root`.
    pub fn new(root: Root) -> Result<Self, AuthorityError> {
        let agents = Issuer::derive(&root, "agents", "gridcast agents")?;
        let controller = agents.leaf(Role::Controller, CONTROLLER, Lifetime::LONG)?;
        Ok(Self { root, agents, controller })
    }

    /// Certificate of the agents' authority, PEM: always the same bytes for the same root.
    pub fn agents_ca_pem(&self) -> &str {
        self.agents.ca_pem()
    }

    /// The authority of one cluster and generation of its keys.
    pub fn cluster(&self, uid: &str, generation: u32) -> Result<ClusterAuthority, AuthorityError> {
        ClusterAuthority::derive(&self.root, uid, generation)
    }

    /// A lazy channel to the agent of a node.
    pub fn agent_channel(&self, node: &str, address: SocketAddr) -> Result<Channel, AuthorityError> {
        connect_lazily(self.controller_for_agents(node), address)
    }

    /// A lazy channel to the source pod of a Broadcast.
    pub fn source_channel(&self, uid: &str, address: SocketAddr) -> Result<Channel, AuthorityError> {
        connect_lazily(self.controller_for_agents(uid), address)
    }

    /// The files of a source pod's keys: `ca.pem`, `cert.pem`, `key.pem`, `domain`. Another key each time.
    pub fn source_keys(&self, uid: &str) -> Result<BTreeMap<String, String>, AuthorityError> {
        let leaf = self.agents.leaf(Role::Source, &certified(uid), Lifetime::LONG)?;
        let mut files = leaf.files(self.agents.ca_pem());
        files.insert("domain".to_owned(), NODES_DOMAIN.to_owned());
        Ok(files)
    }

    /// What [`service`] serves with: no client certificate is asked for, the token says who asks.
    pub fn certificate_service_tls(&self) -> Result<ServerTlsConfig, AuthorityError> {
        let Leaf { certificate_pem, key_pem } =
            self.agents.leaf(Role::Controller, OPERATOR, Lifetime::LONG)?;
        let identity = Identity::from_pem(certificate_pem, key_pem);
        Ok(ServerTlsConfig::new().identity(identity).timeout(CONNECT_TIMEOUT))
    }

    /// A client's TLS towards an agent: the operator's keys, and nobody but `name`, a node or the UID of a Broadcast, is
    /// accepted.
    pub fn controller_for_agents(&self, name: &str) -> ClientTlsConfig {
        client_tls(&self.controller, self.agents.ca_pem(), &certified(name))
    }

    /// Signs for a node's agent the public key of a request (PKCS #10, PEM); nothing else of the request counts.
    pub fn sign_agent(
        &self,
        node: &str,
        request_pem: &str,
        valid: Duration,
    ) -> Result<String, AuthorityError> {
        let name = certified(node);
        if !matches!(ServerName::try_from(name.as_str()), Ok(ServerName::DnsName(_))) {
            return Err(AuthorityError::Name(node.to_owned()));
        }
        self.agents.sign_request(Role::Agent, &name, request_pem, Lifetime::of(valid))
    }
}

/// The name in the certificate of a node's agent or a source pod.
fn certified(name: &str) -> String {
    format!("{name}.{NODES_DOMAIN}")
}

fn client_tls(own: &Leaf, ca_pem: &str, name: &str) -> ClientTlsConfig {
    ClientTlsConfig::new()
        .identity(Identity::from_pem(&own.certificate_pem, &own.key_pem))
        .ca_certificate(Certificate::from_pem(ca_pem))
        .domain_name(name)
}

fn connect_lazily(tls: ClientTlsConfig, address: SocketAddr) -> Result<Channel, AuthorityError> {
    let endpoint = Endpoint::from_shared(format!("https://{address}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(false);
    Ok(endpoint.tls_config(tls)?.connect_lazy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridcast_proto::v1::{
        IssueReply, IssueRequest,
        certificates_client::CertificatesClient,
        certificates_server::{Certificates, CertificatesServer},
    };
    use proptest::prelude::*;
    use tonic::{
        Request, Response, Status,
        transport::{Server, server::TcpIncoming},
    };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_same_root_gives_the_same_authorities(bytes: [u8; 32], other: [u8; 32], generation in 0u32..9) {
            prop_assume!(bytes != other);
            let agents = |bytes| {
                Authority::new(Root::from_bytes(bytes)).unwrap().agents_ca_pem().to_owned()
            };
            let cluster = |bytes, uid, generation| {
                let authority = Authority::new(Root::from_bytes(bytes)).unwrap();
                authority.cluster(uid, generation).unwrap().ca_pem().to_owned()
            };
            prop_assert_eq!(agents(bytes), agents(bytes));
            prop_assert_ne!(agents(bytes), agents(other));
            let own = cluster(bytes, "u", generation);
            prop_assert_eq!(&own, &cluster(bytes, "u", generation));
            prop_assert_ne!(&own, &cluster(bytes, "u", generation + 1));
            prop_assert_ne!(&own, &cluster(bytes, "v", generation));
            prop_assert_ne!(&own, &agents(bytes));
        }
    }

    struct Nobody;

    #[tonic::async_trait]
    impl Certificates for Nobody {
        async fn issue(&self, request: Request<IssueRequest>) -> Result<Response<IssueReply>, Status> {
            let shown = request.peer_certs().map_or(0, |certificates| certificates.len());
            Ok(Response::new(IssueReply { valid_seconds: i64::from(shown > 0), ..IssueReply::default() }))
        }
    }

    /// Serves with a directory of keys, as agents and starters do.
    async fn serve(files: BTreeMap<String, String>) -> SocketAddr {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(&files["cert.pem"], &files["key.pem"]))
            .client_ca_root(Certificate::from_pem(&files["ca.pem"]));
        let server = Server::builder()
            .tls_config(tls)
            .unwrap()
            .add_service(CertificatesServer::new(Nobody))
            .serve_with_incoming(TcpIncoming::from(listener));
        tokio::spawn(server);
        address
    }

    async fn answers(channel: Channel) -> bool {
        let reply = CertificatesClient::new(channel).issue(IssueRequest::default()).await;
        reply.is_ok_and(|reply| reply.into_inner().valid_seconds > 0)
    }

    #[tokio::test]
    async fn keys_open_what_they_are_for_and_nothing_else() {
        let root = Root::random().unwrap();
        let authority = Authority::new(root.clone()).unwrap();
        let cluster = authority.cluster("5f6c", 1).unwrap();
        let member = serve(cluster.member_keys().unwrap()).await;
        assert!(answers(cluster.channel("ring-node-0", member).unwrap()).await);
        assert!(answers(cluster.channel("ring-node-999", member).unwrap()).await);
        let after_restart = Authority::new(root).unwrap().cluster("5f6c", 1).unwrap();
        assert!(answers(after_restart.channel("ring-node-0", member).unwrap()).await);
        let rotated = authority.cluster("5f6c", 2).unwrap();
        assert!(!answers(rotated.channel("ring-node-0", member).unwrap()).await, "rotated keys");
        let foreign = authority.cluster("7a00", 1).unwrap();
        assert!(!answers(foreign.channel("ring-node-0", member).unwrap()).await, "another cluster");
        assert!(!answers(authority.agent_channel("ring-node-0", member).unwrap()).await, "agents' keys");

        let source = serve(authority.source_keys("9b1d").unwrap()).await;
        assert!(answers(authority.source_channel("9b1d", source).unwrap()).await);
        assert!(!answers(authority.source_channel("0c0c", source).unwrap()).await, "another broadcast");
        assert!(!answers(cluster.channel("9b1d", source).unwrap()).await, "a cluster's keys");
    }
}
