//! Brings results together: from every node that has them, merged by the agent of one node.

use gridcast_proto::v1::{CollectReply, CollectRequest, Peer};

use crate::{Remote, StepFailure};

/// Has `on` fetch `path` from all `members` into `target` of its own. Files that differ between members are kept apart and
/// named in the reply.
pub async fn collect(
    on: &Remote,
    members: Vec<Peer>,
    path: &str,
    target: &str,
) -> Result<CollectReply, StepFailure> {
    let request = CollectRequest { path: path.to_owned(), members, target: target.to_owned() };
    let reply = on.broadcasts().collect(request).await;
    let reply = reply.map_err(|s| match s.code() {
        tonic::Code::NotFound => StepFailure::new("CollectFailed", format!("{path}: no node has it")),
        _ => on.failed("CollectFailed", &format!("collecting {path}"), &s),
    })?;
    Ok(reply.into_inner())
}
