//! How does a client become a connection that was proven, with the keys of the moment?
//!
//! TLS is shaken here rather than in tonic, which keeps the keys it was started with: a certificate of a day is renewed
//! under a server that runs for months, and what is connected stays connected.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gridcast_core::failure::chain;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;

use crate::bind;
use crate::tls::{CONNECT_TIMEOUT, Identity};

/// Clients that shake hands at once; more wait in the kernel's queue.
const MAX_HANDSHAKES: usize = 64;
/// Proven connections that wait for the server.
const QUEUE_CONNECTIONS: usize = 16;
/// Out of descriptors, mostly: they come back when a connection ends.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Proven connections, for tonic.
pub(crate) type Incoming = ReceiverStream<io::Result<TlsStream<TcpStream>>>;

/// Connections to `listen` whose clients showed a certificate of `identity`'s authority. `refused` is told of those that
/// did not get through. Ends when the stream is dropped.
pub(crate) async fn listen(
    listen: SocketAddr,
    identity: Identity,
    refused: Option<Arc<Notify>>,
) -> io::Result<Incoming> {
    let listener = TcpListener::from_std(bind::tcp(listen)?)?;
    let (queue, incoming) = mpsc::channel(QUEUE_CONNECTIONS);
    tokio::spawn(accept(listener, identity, queue, refused));
    Ok(ReceiverStream::new(incoming))
}

async fn accept(
    listener: TcpListener,
    identity: Identity,
    queue: mpsc::Sender<io::Result<TlsStream<TcpStream>>>,
    refused: Option<Arc<Notify>>,
) {
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    loop {
        let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = queue.closed() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (identity, queue, refused) = (identity.clone(), queue.clone(), refused.clone());
        tokio::spawn(async move {
            match shake_hands(stream, &identity).await {
                // A server that has stopped takes no more.
                Ok(stream) => drop(queue.send(Ok(stream)).await),
                Err(error) => {
                    tracing::debug!(%peer, error = chain(&error), "a client did not get through");
                    if let Some(refused) = refused {
                        refused.notify_one();
                    }
                }
            }
            drop(permit);
        });
    }
}

async fn shake_hands(stream: TcpStream, identity: &Identity) -> io::Result<TlsStream<TcpStream>> {
    stream.set_nodelay(true)?;
    let acceptor = identity.acceptor().map_err(io::Error::other)?;
    tokio::time::timeout(CONNECT_TIMEOUT, acceptor.accept(stream)).await?
}
