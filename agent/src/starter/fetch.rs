//! What does a node give away of its data?
//!
//! Results: whoever holds keys of the cluster may fetch a path, as the starter's own user sees it. A starter takes part
//! in no broadcast.

use gridcast_proto::v1::relay_server::Relay;
use gridcast_proto::v1::{FetchRequest, FollowRequest, PushMessage};
use tonic::{Request, Response, Status, Streaming};

use crate::broadcast;
use crate::tls::Identity;

/// `Relay` of which only `Fetch` is answered. Paths are the container's own.
#[derive(Debug, Clone)]
pub struct FetchService {
    files: broadcast::Service,
}

impl FetchService {
    /// For the node called `name`.
    pub fn new(name: &str, identity: Identity) -> Self {
        Self { files: broadcast::Service::new(name, identity) }
    }
}

fn only_fetch<T>() -> Result<T, Status> {
    Err(Status::permission_denied(
        "a starter takes part in no broadcast: ask the node's agent, on its own port",
    ))
}

#[tonic::async_trait]
impl Relay for FetchService {
    type FollowStream = <broadcast::Service as Relay>::FollowStream;
    type PushStream = <broadcast::Service as Relay>::PushStream;
    type FetchStream = <broadcast::Service as Relay>::FetchStream;

    async fn follow(&self, _: Request<FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        only_fetch()
    }

    async fn push(&self, _: Request<Streaming<PushMessage>>) -> Result<Response<Self::PushStream>, Status> {
        only_fetch()
    }

    async fn fetch(&self, request: Request<FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        self.files.fetch(request).await
    }
}
