//! One node as a controller calls it, and as its peers reach it.

use std::time::Duration;

use gridcast_proto::v1::{
    self as wire, agent_client::AgentClient, broadcasts_client::BroadcastsClient,
    datasets_client::DatasetsClient, starter_client::StarterClient,
};
use tonic::{Status, transport::Channel};

use crate::StepFailure;

/// Port of an agent's gRPC server.
pub const AGENT_PORT: u16 = 7411;
/// Port of a starter's gRPC server.
pub const STARTER_PORT: u16 = 7412;
/// Port of the probes' reflector and sink, UDP and TCP.
pub const PROBE_PORT: u16 = 7413;

/// One node, connected.
#[derive(Clone, Debug)]
pub struct Remote {
    /// As matrices, plans and messages name it.
    pub name: String,
    /// As its peers reach it. Of a pod: the agent of the pod's node, with the pod's UID and the address of its probes.
    pub peer: wire::Peer,
    agent: Channel,
    starter: Option<Channel>,
}

impl Remote {
    /// A node whose agent answers on `agent` (for a pod, the agent of its Kubernetes node) and whose starter, where there is
    /// one to be asked, on `starter`. Channels may be lazy.
    pub fn new(name: impl Into<String>, peer: wire::Peer, agent: Channel, starter: Option<Channel>) -> Self {
        Self { name: name.into(), peer, agent, starter }
    }

    /// The agent's service. Requests carry [`Self::pod`].
    pub fn agent(&self) -> AgentClient<Channel> {
        AgentClient::new(self.agent.clone())
    }

    /// The agent's broadcasts.
    pub fn broadcasts(&self) -> BroadcastsClient<Channel> {
        BroadcastsClient::new(self.agent.clone())
    }

    /// The agent's datasets. Only the agent of a Kubernetes node has any.
    pub fn datasets(&self) -> DatasetsClient<Channel> {
        DatasetsClient::new(self.agent.clone())
    }

    /// The starter. A node without one is a failed precondition, so that callers have one kind of error.
    pub fn starter(&self) -> Result<StarterClient<Channel>, Status> {
        let channel = self.starter.clone().ok_or_else(|| {
            Status::failed_precondition(format!("{}: the node has no starter to ask", self.name))
        })?;
        Ok(StarterClient::new(channel))
    }

    /// UID of the pod that requests are about; empty where the agent itself is the node.
    pub fn pod(&self) -> String {
        self.peer.pod.clone()
    }

    /// The node as its peers reach it.
    pub fn peer(&self) -> wire::Peer {
        self.peer.clone()
    }

    /// Says what went wrong in a call to this node's agent or starter. `what` is what was being done, as in "measuring".
    pub fn failed(&self, reason: &str, what: &str, status: &Status) -> StepFailure {
        if is_gone(status) {
            let text = format!("{}: the node no longer answers while {what}: {}", self.name, told(status));
            return StepFailure::new("AgentLost", text);
        }
        StepFailure::new(reason, format!("{}: {what}: {}", self.name, status.message()))
    }
}

/// Whether a call failed because its server went away, rather than by the server's own word.
pub fn is_gone(status: &Status) -> bool {
    use std::error::Error as _;
    status.source().is_some() || status.code() == tonic::Code::Unavailable
}

/// What went wrong, and its causes. The text of a [`Status`] itself shows its source as a debugger would.
pub(crate) fn told(status: &Status) -> String {
    use std::error::Error as _;
    let mut text = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) && more != "transport error" {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&more);
        }
        cause = error.source();
    }
    if text.is_empty() { status.code().description().to_owned() } else { text }
}

/// An answer, or that none came in time. A host that was switched off closes no connection.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(limit, call).await {
        Ok(reply) => reply.map(tonic::Response::into_inner),
        Err(_) => Err(Status::unavailable(format!("no answer within {} s", limit.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Text(&'static str, #[source] Option<Box<Text>>);

    #[test]
    fn a_failed_call_is_told_for_people() {
        let cause = Text("No route to host (os error 113)", None);
        let connecting = Text("tcp connect error", Some(Box::new(cause)));
        let status = Status::from_error(Box::new(connecting));
        assert_eq!(told(&status), "tcp connect error: No route to host (os error 113)");
        assert_eq!(told(&Status::unavailable("no answer within 5 s")), "no answer within 5 s");
        assert_eq!(told(&Status::unavailable("")), "The service is currently unavailable");
    }
}
