//! How many may be connected at once?
//!
//! Whoever can reach a port can open connections to it. Beyond a bound they wait in the system's backlog, so that nobody
//! takes the descriptors that the operator needs for the API server and the agents.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, stream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Connections of one port.
const CONNECTIONS: usize = 256;
/// Before another is accepted after one that could not be: out of descriptors, most likely.
const PAUSE: Duration = Duration::from_millis(100);

/// A listening port with a bound of its connections.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    free: Arc<Semaphore>,
}

impl Listener {
    /// Listens on all addresses of both families, or of the one that there is.
    pub async fn bind(port: u16) -> io::Result<Self> {
        let both = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await;
        let socket = match both {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await?
            }
            result => result?,
        };
        Ok(Self { socket, free: Arc::new(Semaphore::new(CONNECTIONS)) })
    }

    /// The next connection.
    async fn next(&self) -> Option<Connection> {
        let permit = self.free.clone().acquire_owned().await.ok()?;
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    return Some(Connection { stream, _permit: permit });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// All connections, one after the other.
    pub fn connections(self) -> impl Stream<Item = io::Result<Connection>> {
        stream::unfold(self, async |listener| {
            listener.next().await.map(|connection| (Ok(connection), listener))
        })
    }
}

impl axum::serve::Listener for Listener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            if let Some(connection) = self.next().await
                && let Ok(address) = connection.stream.peer_addr()
            {
                return (connection, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// A connection; another may come when it goes.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;

    #[tokio::test]
    async fn beyond_the_bound_they_wait_until_one_goes() {
        let listener = Listener::bind(0).await.unwrap();
        let port = listener.socket.local_addr().unwrap().port();
        listener.free.forget_permits(CONNECTIONS - 2);
        let mut connections = Box::pin(listener.connections());
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap());
        }
        let first = connections.next().await.unwrap().unwrap();
        let _second = connections.next().await.unwrap().unwrap();
        let third = tokio::time::timeout(Duration::from_millis(50), connections.next()).await;
        assert!(third.is_err(), "two are the bound");
        drop(first);
        assert!(connections.next().await.unwrap().is_ok());
    }
}
