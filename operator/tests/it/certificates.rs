//! An agent that comes for its certificate.

use std::{net::SocketAddr, sync::Arc};

use gridcast_operator::{
    authority::{Authority, load_or_create, service::Service},
    metrics::Metrics,
};
use gridcast_proto::v1::{
    IssueReply, IssueRequest, certificates_client::CertificatesClient,
    certificates_server::CertificatesServer,
};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use serde_json::{Value, json};
use tonic::{
    Code, Status,
    transport::{
        Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig, server::TcpIncoming,
    },
};

use crate::fakeapi::FakeApi;

fn with_state() -> FakeApi {
    let fake = FakeApi::default();
    for (collection, name) in [("/v1/secrets", "gridcast-root"), ("/v1/configmaps", "gridcast-ca")] {
        fake.put_value(collection, json!({"metadata": {"name": name, "namespace": "own"}}));
    }
    fake
}

fn bound(account: &str) -> Value {
    json!({
        "authenticated": true, "audiences": ["gridcast.io"],
        "user": {"username": format!("system:serviceaccount:{account}"), "extra": {
            "authentication.kubernetes.io/pod-name": ["gridcast-agent-x"],
            "authentication.kubernetes.io/node-name": ["n1"],
        }}
    })
}

async fn serve(tls: ServerTlsConfig, service: Service) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder()
        .tls_config(tls)
        .unwrap()
        .add_service(CertificatesServer::new(service))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(server);
    address
}

struct Agent {
    address: SocketAddr,
    ca_pem: String,
    key: KeyPair,
}

impl Agent {
    async fn issue(&self, token: &str, csr_pem: String) -> Result<IssueReply, Status> {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.ca_pem))
            .domain_name("gridcast-operator");
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        let channel = endpoint.tls_config(tls).unwrap().connect().await.unwrap();
        let request = IssueRequest { token: token.into(), csr_pem };
        Ok(CertificatesClient::new(channel).issue(request).await?.into_inner())
    }

    /// It asks for another's name, as a compromised agent would.
    fn request(&self) -> String {
        let params = CertificateParams::new(vec!["controller".to_owned()]).unwrap();
        params.serialize_request(&self.key).unwrap().pem().unwrap()
    }
}

async fn start(fake: &FakeApi) -> (Arc<Authority>, Agent) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let authority = Arc::new(load_or_create(fake.client(), "own").await.unwrap());
    let service = Service::new(fake.client(), authority.clone(), "own", Metrics::new());
    let address = serve(authority.certificate_service_tls().unwrap(), service).await;
    let ca_pem = authority.agents_ca_pem().to_owned();
    (authority, Agent { address, ca_pem, key: KeyPair::generate_for(&PKCS_ED25519).unwrap() })
}

#[tokio::test]
async fn a_bound_token_gets_a_certificate_for_its_node_that_the_operator_accepts() {
    let fake = with_state();
    fake.accept_token("good", bound("own:gridcast-agent"));
    let (authority, agent) = start(&fake).await;
    let reply = agent.issue("good", agent.request()).await.unwrap();
    assert_eq!((reply.authority_pem.as_str(), reply.valid_seconds), (agent.ca_pem.as_str(), 86_400));

    // The agent serves with it; the operator reaches it by the node's name and by no other.
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(&reply.certificate_pem, agent.key.serialize_pem()))
        .client_ca_root(Certificate::from_pem(&agent.ca_pem));
    let service = Service::new(fake.client(), authority.clone(), "own", Metrics::new());
    let node = serve(tls, service).await;
    let call = async |name: &str| {
        let channel = authority.agent_channel(name, node).unwrap();
        CertificatesClient::new(channel).issue(IssueRequest::default()).await.unwrap_err()
    };
    assert_eq!(call("n1").await.code(), Code::Unauthenticated, "it answered: {:?}", call("n1").await);
    assert_eq!(call("n2").await.code(), Code::Unavailable, "it has another name");
    // A node may be called like an address, and only that one has the name.
    let mut numbered = bound("own:gridcast-agent");
    numbered["user"]["extra"]["authentication.kubernetes.io/node-name"] = json!(["10.0.0.1"]);
    fake.accept_token("numbered", numbered);
    let reply = agent.issue("numbered", agent.request()).await.unwrap();
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(&reply.certificate_pem, agent.key.serialize_pem()))
        .client_ca_root(Certificate::from_pem(&agent.ca_pem));
    let service = Service::new(fake.client(), authority.clone(), "own", Metrics::new());
    let like_an_address = serve(tls, service).await;
    for (name, code) in
        [("10.0.0.1", Code::Unauthenticated), ("10.0.0.2", Code::Unavailable), ("n1", Code::Unavailable)]
    {
        let channel = authority.agent_channel(name, like_an_address).unwrap();
        let status = CertificatesClient::new(channel).issue(IssueRequest::default()).await.unwrap_err();
        assert_eq!(status.code(), code, "{name}: {status:?}");
    }
    assert_eq!(
        call("controller").await.code(),
        Code::Unavailable,
        "the name in the request counts for nothing"
    );
}

#[tokio::test]
async fn others_are_refused_by_name() {
    let fake = with_state();
    fake.accept_token("foreign", bound("default:gridcast-agent"));
    let mut unbound = bound("own:gridcast-agent");
    unbound["user"]["extra"] = json!({});
    fake.accept_token("unbound", unbound);
    fake.accept_token("good", bound("own:gridcast-agent"));
    let mut long = bound("own:gridcast-agent");
    let name = format!("{}a", "a.".repeat(120));
    long["user"]["extra"]["authentication.kubernetes.io/node-name"] = json!([name]);
    fake.accept_token("long", long);
    let (_, agent) = start(&fake).await;
    for (token, csr, code, word) in [
        ("nonsense", agent.request(), Code::Unauthenticated, "TokenRefused"),
        ("foreign", agent.request(), Code::PermissionDenied, "WrongAccount"),
        ("unbound", agent.request(), Code::PermissionDenied, "TokenUnbound"),
        ("long", agent.request(), Code::FailedPrecondition, "NameUnsupported"),
        ("good", "no request".into(), Code::InvalidArgument, "RequestInvalid"),
        (&"x".repeat(20_000), agent.request(), Code::InvalidArgument, "TooLarge"),
    ] {
        let status = agent.issue(token, csr).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().starts_with(&format!("{word}: ")), "{status:?}");
    }
}

#[tokio::test]
async fn a_restart_and_a_second_replica_have_the_same_keys_and_write_nothing() {
    let fake = with_state();
    let (first, second) =
        tokio::join!(load_or_create(fake.client(), "own"), load_or_create(fake.client(), "own"));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.agents_ca_pem(), second.agents_ca_pem());
    let before = fake.requests();
    let third = load_or_create(fake.client(), "own").await.unwrap();
    assert_eq!(third.agents_ca_pem(), first.agents_ca_pem());
    assert_eq!(fake.requests(), before);

    let error = load_or_create(FakeApi::default().client(), "own").await.unwrap_err();
    assert!(error.to_string().contains("gridcast-ca, which the chart makes"), "{error}");
}

#[tokio::test]
async fn a_root_that_was_lost_is_not_made_anew_until_somebody_says_so() {
    let fake = with_state();
    let first = load_or_create(fake.client(), "own").await.unwrap();
    let secret = fake.objects("/v1/secrets").pop().unwrap();
    assert_eq!(secret["immutable"], true, "nothing replaces it by an empty one");
    // One deletes it all the same, and the chart makes it again.
    let empty = |collection: &str, name: &str| {
        fake.put_value(collection, json!({"metadata": {"name": name, "namespace": "own"}}));
    };
    empty("/v1/secrets", "gridcast-root");
    let writes = fake.requests();
    let error = load_or_create(fake.client(), "own").await.unwrap_err();
    assert_eq!(error.reason(), "RootLost");
    for part in ["Secret own/gridcast-root is empty", "Restore the Secret", "patch configmap gridcast-ca"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(fake.requests(), writes, "nothing was written");

    fake.put_value("/v1/secrets", secret);
    let restored = load_or_create(fake.client(), "own").await.unwrap();
    assert_eq!(restored.agents_ca_pem(), first.agents_ca_pem());
    empty("/v1/secrets", "gridcast-root");
    empty("/v1/configmaps", "gridcast-ca");
    let anew = load_or_create(fake.client(), "own").await.unwrap();
    assert_ne!(anew.agents_ca_pem(), first.agents_ca_pem());
}

#[tokio::test]
async fn the_root_of_an_operator_before_this_one_is_protected_once() {
    let fake = with_state();
    load_or_create(fake.client(), "own").await.unwrap();
    let mut secret = fake.objects("/v1/secrets").pop().unwrap();
    secret.as_object_mut().unwrap().remove("immutable");
    fake.put_value("/v1/secrets", secret);
    load_or_create(fake.client(), "own").await.unwrap();
    assert_eq!(fake.objects("/v1/secrets").pop().unwrap()["immutable"], true);
    let writes = fake.requests();
    load_or_create(fake.client(), "own").await.unwrap();
    assert_eq!(fake.requests(), writes);
}
