use std::os::unix::fs::PermissionsExt as _;
use std::sync::Mutex;

use gridcast_proto::v1::IssueReply;
use gridcast_proto::v1::certificates_server::{Certificates, CertificatesServer};
use rcgen::{
    BasicConstraints, CertificateSigningRequestParams, CertifiedIssuer, DnType, IsCa, PublicKeyData as _,
};
use tempfile::TempDir;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use super::*;
use crate::listener::listen;

/// An operator that signs for the node that each token names.
#[derive(Clone)]
struct Operator {
    authority: Arc<CertifiedIssuer<'static, KeyPair>>,
    seconds: i64,
    /// Public keys that were signed.
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

impl Operator {
    fn new(seconds: i64) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Self { authority: Arc::new(authority()), seconds, seen: Arc::default() }
    }

    fn serve(&self) -> SocketAddr {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([OPERATOR.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &*self.authority).unwrap();
        let identity = tonic::transport::Identity::from_pem(certificate.pem(), key.serialize_pem());
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let server = Server::builder()
            .tls_config(ServerTlsConfig::new().identity(identity))
            .unwrap()
            .add_service(CertificatesServer::new(self.clone()))
            .serve_with_incoming(incoming);
        tokio::spawn(server);
        address
    }

    fn enrolment(&self, place: &TempDir, operator: SocketAddr, token: &str) -> Enrolment {
        let (authority, file) = (place.path().join("ca.pem"), place.path().join("token"));
        fs::write(&authority, self.authority.pem()).unwrap();
        fs::write(&file, format!("{token}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        Enrolment { name: "node-1".into(), operator: operator.to_string(), token: file, authority }
    }
}

#[tonic::async_trait]
impl Certificates for Operator {
    async fn issue(&self, request: Request<IssueRequest>) -> Result<Response<IssueReply>, Status> {
        let IssueRequest { token, csr_pem } = request.into_inner();
        let mut asked = CertificateSigningRequestParams::from_pem(&csr_pem)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let node =
            token.strip_prefix("token of ").ok_or_else(|| Status::unauthenticated("TokenRefused: no"))?;
        let mut params = CertificateParams::new([format!("{node}.nodes.gridcast.io")]).unwrap();
        params.distinguished_name.push(DnType::OrganizationName, Role::Agent.organization());
        asked.params = params;
        self.seen.lock().unwrap().push(asked.public_key.der_bytes().to_vec());
        let certificate = asked.signed_by(&*self.authority).unwrap();
        Ok(Response::new(IssueReply {
            certificate_pem: certificate.pem(),
            authority_pem: self.authority.pem(),
            valid_seconds: self.seconds,
        }))
    }
}

#[tokio::test]
async fn the_token_becomes_a_certificate_of_this_node() {
    let operator = Operator::new(86_400);
    let place = tempfile::tempdir().unwrap();
    let enrolment = operator.enrolment(&place, operator.serve(), "token of node-1");
    let issued = enrolment.attempt().await.unwrap();
    let left = issued.until - Instant::now();
    assert!(left > Duration::from_secs(86_000) && issued.renew < issued.until, "{left:?}");
    let subject = issued.identity.subject().unwrap();
    assert!(subject.covers("node-1.nodes.gridcast.io") && subject.role == Some(Role::Agent));
}

#[tokio::test]
async fn a_node_may_be_called_like_an_address() {
    let operator = Operator::new(86_400);
    let place = tempfile::tempdir().unwrap();
    let address = operator.serve();
    for name in ["10.0.0.1", "rack.7"] {
        let enrolment = operator.enrolment(&place, address, &format!("token of {name}"));
        let issued = Enrolment { name: name.into(), ..enrolment }.attempt().await.unwrap();
        let shown = issued.identity.subject().unwrap();
        assert!(shown.covers(&issued.identity.certified_name(name)), "{shown}");
        let name = rustls::pki_types::ServerName::try_from(issued.identity.certified_name(name)).unwrap();
        assert!(matches!(name, rustls::pki_types::ServerName::DnsName(_)), "what peers verify");
    }
}

#[tokio::test]
async fn what_keeps_a_node_out_is_told() {
    let operator = Operator::new(86_400);
    let place = tempfile::tempdir().unwrap();
    let address = operator.serve();
    let fails = async |enrolment: &Enrolment| {
        let error = enrolment.attempt().await.unwrap_err();
        (error.reason(), chain(&error))
    };
    let good = operator.enrolment(&place, address, "token of node-1");
    let (reason, text) = fails(&Enrolment { name: "node-2".into(), ..good.clone() }).await;
    assert!(reason == "WrongCertificate" && text.contains("not that of an agent called node-2"), "{text}");
    let (reason, text) = fails(&Enrolment { token: "/nonexistent".into(), ..good.clone() }).await;
    assert!(reason == "FileUnreadable" && text.contains("/nonexistent"), "{text}");
    let (reason, text) = fails(&Enrolment { operator: "127.0.0.1:1".into(), ..good.clone() }).await;
    assert!(reason == "OperatorUnreachable" && text.contains("127.0.0.1:1"), "{text}");
    assert_eq!(fails(&Enrolment { operator: "operator".into(), ..good.clone() }).await.0, "InvalidArgument");
    // Somebody else answers there: its authority is another.
    fs::write(&good.authority, authority().pem()).unwrap();
    assert_eq!(fails(&good).await.0, "OperatorUnreachable");
    let (reason, text) = fails(&operator.enrolment(&place, address, "stolen")).await;
    assert!(reason == "OperatorRefused" && text.contains("TokenRefused"), "{text}");
}

#[tokio::test]
async fn a_renewed_certificate_serves_new_connections_and_disturbs_no_old_one() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_stream::StreamExt as _;

    let operator = Operator::new(3);
    let place = tempfile::tempdir().unwrap();
    let enrolment = operator.enrolment(&place, operator.serve(), "token of node-1");
    let issued = enrolment.certificate().await;
    let identity = issued.identity.clone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut incoming = listen(address, identity.clone(), None).await.unwrap();

    let client = enrolment.attempt().await.unwrap().identity;
    let connect = async || {
        let config = client.client().unwrap();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("node-1.nodes.gridcast.io").unwrap();
        tokio_rustls::TlsConnector::from(config).connect(name, stream).await.unwrap()
    };
    let key = |stream: &tokio_rustls::client::TlsStream<tokio::net::TcpStream>| {
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
        shown.as_ref().to_vec()
    };
    let mut old = connect().await;
    let mut server = incoming.next().await.unwrap().unwrap();

    let (until, mut lives) = watch::channel(issued.until);
    let refused = Arc::new(Notify::new());
    let renewing = enrolment.renew(issued, &identity, &until, &refused);
    tokio::select! {
        () = renewing => panic!("it renews for ever"),
        changed = tokio::time::timeout(Duration::from_secs(30), lives.changed()) => changed.unwrap().unwrap(),
    }
    let new = connect().await;
    assert_ne!(key(&old), key(&new));
    server.write_all(b"still here").await.unwrap();
    let mut heard = [0; 10];
    old.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"still here");
    let seen = operator.seen.lock().unwrap();
    assert!(seen.len() == 3 && seen[0] != seen[1] && seen[1] != seen[2], "a key of its own for each");
}

#[tokio::test]
async fn names_are_looked_up_and_addresses_are_not() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    assert_eq!(resolve("10.0.0.1:7410").await.unwrap(), ["10.0.0.1:7410".parse().unwrap()]);
    assert_eq!(resolve("[fd00::1]:7410").await.unwrap(), ["[fd00::1]:7410".parse().unwrap()]);
    for wrong in ["host", "host:", ":7410", "host:70000"] {
        assert_eq!(resolve(wrong).await.unwrap_err().reason(), "InvalidArgument", "{wrong}");
    }
}
