//! Names of API servers, resolved without the C library: this program is static, and a static one cannot load the name
//! services that the library would ask.

use std::{
    future::Future,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hickory_resolver::{TokioResolver, net::NetError};
use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;

/// Answers by /etc/hosts and the servers of /etc/resolv.conf. Both are read when the first name is asked for: an address
/// needs neither.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    resolver: Arc<tokio::sync::OnceCell<TokioResolver>>,
}

impl Service<Name> for Names {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = NetError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NetError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NetError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = Arc::clone(&self.resolver);
        Box::pin(async move {
            let resolver =
                resolver.get_or_try_init(|| async { TokioResolver::builder_tokio()?.build() }).await?;
            let found: Vec<IpAddr> = resolver.lookup_ip(name.as_str()).await?.iter().collect();
            // The port is the connector's.
            let addresses: Vec<SocketAddr> = found.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
            Ok(addresses.into_iter())
        })
    }
}
