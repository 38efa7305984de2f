//! Is this broadcast one that can be carried out here?

use std::path::PathBuf;

use gridcast_core::broadcast::dataset::checked_chunk_bytes;
use gridcast_proto::v1;

use super::failure::Failure;
use super::routes::Routes;
use super::service::{Node, check_id};

/// A request that was checked.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) request: v1::StartBroadcastRequest,
    pub(crate) routes: Routes,
    pub(crate) peers: Vec<v1::Peer>,
    pub(crate) chunk_bytes: u32,
    pub(crate) source_path: PathBuf,
    pub(crate) target: PathBuf,
}

impl Order {
    pub(crate) fn check(node: &Node, request: v1::StartBroadcastRequest) -> Result<Self, Failure> {
        check_id(&request.id)?;
        let source = request.source.clone().unwrap_or_default();
        if source.name != node.name {
            let detail =
                format!("this is {}, not the source {}; call the source's agent", node.name, source.name);
            return Err(Failure::InvalidRequest { detail });
        }
        let mut peers = vec![source];
        peers.extend(request.members.iter().cloned());
        let routes = Routes::new(&request.plan.clone().unwrap_or_default(), &node.name, &peers)?;
        let chunk_bytes =
            checked_chunk_bytes(request.chunk_bytes).map_err(|e| Failure::invalid(e.to_string()))?;
        let source_path = node.local(&request.source_path)?;
        let target = node.local(&request.target)?;
        Ok(Self { request, routes, peers, chunk_bytes, source_path, target })
    }
}
