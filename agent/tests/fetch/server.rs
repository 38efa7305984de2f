//! A server that answers the n-th request as a function says, one request a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

pub(crate) struct Server {
    address: SocketAddr,
    scheme: &'static str,
    requests: Arc<Mutex<Vec<String>>>,
}

/// A reply with a body of a known length.
pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

impl Server {
    /// In a thread that goes with the process.
    pub(crate) fn start(answer: impl Fn(usize, &str) -> Vec<u8> + Send + 'static) -> Self {
        Self::serve("http", answer, |stream| Box::new(stream))
    }

    /// The same behind TLS; also its authority's certificate.
    pub(crate) fn start_tls(answer: impl Fn(usize, &str) -> Vec<u8> + Send + 'static) -> (Self, String) {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let server = Self::serve("https", answer, move |stream| {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            Box::new(rustls::StreamOwned::new(connection, stream))
        });
        (server, cert.pem())
    }

    fn serve(
        scheme: &'static str,
        answer: impl Fn(usize, &str) -> Vec<u8> + Send + 'static,
        wrap: impl Fn(std::net::TcpStream) -> Box<dyn Stream> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = wrap(stream.unwrap());
                // A client that does not trust the certificate asks nothing.
                let Some(request) = read_head(&mut stream) else { continue };
                let number = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request.clone());
                    seen.len() - 1
                };
                let _ = stream.write_all(&answer(number, &request)).and_then(|()| stream.flush());
            }
        });
        Self { address, scheme, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// The heads of all requests so far, in lower case.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

pub(crate) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).to_lowercase())
}
