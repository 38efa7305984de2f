//! When is the dataset here?
//!
//! Only the agent of the node knows. It may be restarting: a call that breaks is made again, within the same time.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridcast_core::failure::chain;
use gridcast_proto::v1::mounts_client::MountsClient;
use gridcast_proto::v1::{AcquireRequest, DropRequest, Volume as Registered, VolumesRequest};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::request::Volume;

/// Pause before a call is made again; doubled until the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The agent ends a wait by itself; one that does not has hung.
const ANSWER: Duration = Duration::from_secs(5);

/// How long an unpublish waits for an agent that is away, before kubelet is asked to try again.
const DROP_WAIT: Duration = Duration::from_secs(10);

/// The agent of this node.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    socket: PathBuf,
    node: String,
    wait: Duration,
}

/// How a call ended without an answer to rely on.
enum Broken {
    /// To be made again: the agent is not there, or went meanwhile. What was seen of that.
    Away(String),
    /// The agent said no.
    Refused(Status),
}

impl Agent {
    /// Waits up to `wait` for each dataset.
    pub(super) fn new(socket: PathBuf, node: String, wait: Duration) -> Self {
        Self { socket, node, wait }
    }

    /// Waits until the volume's dataset is here and verified; where it is.
    ///
    /// What the agent itself refuses it has not registered: that ends with a code that kubelet takes as final, so that a pod
    /// which never had its volume can go without the plugin. If the agent did not answer it may have registered the volume; the
    /// code is then one that kubelet takes as uncertain, and it calls unpublish when the pod goes.
    pub(super) async fn acquire(&self, volume: &Volume) -> Result<PathBuf, Status> {
        let Volume { id, target, namespace, pod: _, broadcast } = volume;
        let begun = Instant::now();
        let deadline = begun + self.wait;
        let mut pause = FIRST_PAUSE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let request = AcquireRequest {
                namespace: namespace.clone(),
                name: broadcast.clone(),
                volume_id: id.clone(),
                pod_uid: target.pod_uid.clone(),
                timeout_millis: u32::try_from(left.as_millis()).unwrap_or(u32::MAX),
                target: target.path.display().to_string(),
            };
            let away = match timeout(left + ANSWER, acquire_once(&self.socket, request)).await {
                Ok(Ok(path)) => return Ok(path),
                Ok(Err(Broken::Refused(status))) => {
                    return Err(self.refused(volume, &status, begun.elapsed()));
                }
                Ok(Err(Broken::Away(why))) => why,
                Err(_) => "it does not answer".to_owned(),
            };
            if deadline <= Instant::now() + pause {
                return Err(self.away(volume, &away));
            }
            tracing::debug!(volume = id, why = away, "the agent is away");
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    fn refused(&self, volume: &Volume, status: &Status, waited: Duration) -> Status {
        let Volume { namespace, broadcast, .. } = volume;
        let (node, why) = (&self.node, status.message());
        match status.code() {
            Code::DeadlineExceeded => Status::failed_precondition(format!(
                "Broadcast {namespace}/{broadcast} is not on node {node} after {} s: {why}. See `kubectl describe broadcast \
                 {broadcast} -n {namespace}`; the pod starts by itself once the data is verified here",
                waited.as_secs()
            )),
            code => {
                let code = match code {
                    // Uncertain for kubelet, which this is not.
                    Code::ResourceExhausted | Code::Aborted => Code::FailedPrecondition,
                    code => code,
                };
                let text =
                    format!("Broadcast {namespace}/{broadcast} cannot be mounted on node {node}: {why}");
                Status::new(code, text)
            }
        }
    }

    fn away(&self, volume: &Volume, why: &str) -> Status {
        let Volume { namespace, broadcast, .. } = volume;
        Status::unavailable(format!(
            "Broadcast {namespace}/{broadcast} waits for the gridcast agent of node {}, which is not at {}: {why}. Look at the \
             gridcast-agent pod of that node; kubelet tries again by itself",
            self.node,
            self.socket.display()
        ))
    }

    /// All volumes that the agent takes to be mounted; waits for an agent that is away for as long as it takes.
    pub(super) async fn volumes(&self) -> Result<Vec<Registered>, Status> {
        let mut pause = FIRST_PAUSE;
        loop {
            match timeout(ANSWER, volumes_once(&self.socket)).await {
                Ok(Ok(volumes)) => return Ok(volumes),
                Ok(Err(Broken::Refused(status))) => return Err(status),
                Ok(Err(Broken::Away(_))) | Err(_) => {}
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Tells the agent that the volume is not mounted.
    pub(super) async fn drop_volume(&self, volume_id: &str) -> Result<(), Status> {
        let deadline = Instant::now() + DROP_WAIT;
        let mut pause = FIRST_PAUSE;
        loop {
            let request = DropRequest { volume_id: volume_id.to_owned() };
            let away = match timeout_at(deadline, drop_once(&self.socket, request)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(Broken::Refused(status))) => {
                    return Err(Status::unavailable(format!(
                        "the gridcast agent of node {} keeps volume {volume_id} registered: {}",
                        self.node,
                        status.message()
                    )));
                }
                Ok(Err(Broken::Away(why))) => why,
                Err(_) => "it does not answer".to_owned(),
            };
            if deadline <= Instant::now() + pause {
                return Err(Status::unavailable(format!(
                    "volume {volume_id} is unmounted, but the gridcast agent of node {} cannot be told so at {}: {away}",
                    self.node,
                    self.socket.display()
                )));
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }
}

async fn volumes_once(socket: &Path) -> Result<Vec<Registered>, Broken> {
    let answer = MountsClient::new(connect(socket).await?).volumes(VolumesRequest {}).await;
    answer.map(|reply| reply.into_inner().volumes).map_err(Broken::of)
}

async fn acquire_once(socket: &Path, request: AcquireRequest) -> Result<PathBuf, Broken> {
    let answer = MountsClient::new(connect(socket).await?).acquire(request).await;
    answer.map(|reply| PathBuf::from(reply.into_inner().path)).map_err(Broken::of)
}

async fn drop_once(socket: &Path, request: DropRequest) -> Result<(), Broken> {
    let answer = MountsClient::new(connect(socket).await?).drop(request).await;
    answer.map(drop).map_err(Broken::of)
}

impl Broken {
    fn of(status: Status) -> Self {
        // A status with a cause was made here, of a connection that broke; the agent's own come without.
        match status.source() {
            Some(cause) => Self::Away(chain(cause)),
            None if matches!(status.code(), Code::Unavailable | Code::Cancelled) => {
                Self::Away(status.message().to_owned())
            }
            None => Self::Refused(status),
        }
    }
}

/// A connection for one call: waits of many volumes do not share a bound, and a new agent is found at once.
async fn connect(socket: &Path) -> Result<Channel, Broken> {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { io::Result::Ok(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    // The address is not used: the connector goes to the socket.
    let endpoint = Endpoint::from_static("http://agent.invalid");
    endpoint
        .connect_with_connector(connector)
        .await
        .map_err(|error| Broken::Away(error.source().map_or_else(|| error.to_string(), chain)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::request::Target;

    /// An agent gives up sooner on a dataset that nobody told it of.
    #[test]
    fn what_is_told_is_the_time_that_was_waited() {
        let agent = Agent::new("/nowhere".into(), "n1".into(), Duration::from_secs(100));
        let volume = Volume {
            id: "v".into(),
            target: Target { path: "/v".into(), pod_uid: "u".into() },
            namespace: "ns".into(),
            pod: "p".into(),
            broadcast: "weights".into(),
        };
        let status =
            agent.refused(&volume, &Status::deadline_exceeded("not announced"), Duration::from_secs(30));
        assert!(
            status.message().contains("is not on node n1 after 30 s: not announced"),
            "{}",
            status.message()
        );
    }
}
