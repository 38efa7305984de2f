//! What may a member of the cluster, or its controller, ask of a node?

use std::sync::Arc;
use std::time::{Duration, Instant};

use gridcast_core::failure::chain;
use gridcast_proto::v1 as wire;
use gridcast_proto::v1::exec_request::Request as Asked;
use gridcast_proto::v1::starter_server::Starter;
use gridcast_proto::v1::{ExecReply, ExecRequest, ExecStart, RanksReply, RanksRequest};
use tokio::sync::{Semaphore, TryAcquireError, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::check::{self, Here};
use super::children::Children;
use super::command::Place;
use super::launch::Launches;
use super::members::{Files, MembersError};
use super::ranks::Ranks;
use super::session;
use super::streams::REPLIES_IN_FLIGHT;
use crate::tls::Identity;

/// Commands that run at once for callers. A node of 5,000 daemons' first fan-out stays far below.
const MAX_COMMANDS: usize = 1024;
/// How long a caller may take to say what to start, and a peer to shake hands.
pub(super) const FIRST_MESSAGE: Duration = Duration::from_secs(10);
/// Checks at once; each may have some sixty handshakes in progress.
const MAX_CHECKS: usize = 4;

/// `Starter` over mutual TLS. Clones share their state.
#[derive(Debug, Clone)]
pub struct StarterService {
    children: Arc<Children>,
    place: Arc<Place>,
    ranks: Arc<Ranks>,
    files: Arc<Files>,
    identity: Arc<Identity>,
    launches: Arc<Launches>,
    /// Closed when the starter is told to end.
    commands: Arc<Semaphore>,
    checks: Arc<Semaphore>,
}

impl StarterService {
    /// Of the node that `place` describes.
    pub fn new(
        children: Arc<Children>,
        place: Arc<Place>,
        ranks: Arc<Ranks>,
        files: Arc<Files>,
        identity: Arc<Identity>,
    ) -> Self {
        let launches = Arc::new(Launches::new(Arc::clone(&children), Arc::clone(&place)));
        let commands = Arc::new(Semaphore::new(MAX_COMMANDS));
        let checks = Arc::new(Semaphore::new(MAX_CHECKS));
        Self { children, place, ranks, files, identity, launches, commands, checks }
    }

    /// Nothing is started from now on.
    pub fn close(&self) {
        self.commands.close();
        self.launches.close();
    }

    /// Waits for the end of what [`Children::end_all`] told to end, as far as this service hears of it.
    pub async fn settle(&self) {
        self.launches.settle().await;
    }
}

#[tonic::async_trait]
impl Starter for StarterService {
    type ExecStream = ReceiverStream<Result<ExecReply, Status>>;
    type LaunchStream = ReceiverStream<Result<wire::LaunchEvent, Status>>;

    async fn exec(
        &self,
        request: Request<Streaming<ExecRequest>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        let mut requests = request.into_inner();
        let start = first(&mut requests).await?;
        let permit = Arc::clone(&self.commands).try_acquire_owned().map_err(|error| match error {
            TryAcquireError::Closed => Status::unavailable("the node is ending"),
            TryAcquireError::NoPermits => {
                Status::resource_exhausted(format!("{MAX_COMMANDS} commands run on this node already"))
            }
        })?;
        let (replies, stream) = mpsc::channel(REPLIES_IN_FLIGHT);
        let (children, place) = (Arc::clone(&self.children), Arc::clone(&self.place));
        tracing::debug!(argv = ?start.argv, launch = start.launch, "exec");
        // A task of its own: it outlives the call, because it ends the command of a caller that has gone.
        tokio::spawn(async move {
            session::run(children, place, start, requests, replies).await;
            drop(permit);
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn ranks(&self, request: Request<RanksRequest>) -> Result<Response<RanksReply>, Status> {
        let ranks = self.ranks.list(&request.into_inner().launch, Instant::now());
        Ok(Response::new(RanksReply { ranks }))
    }

    async fn configure(
        &self,
        request: Request<wire::ConfigureRequest>,
    ) -> Result<Response<wire::ConfigureReply>, Status> {
        self.files.write(&request.into_inner())?;
        let node = self.place.node.clone();
        Ok(Response::new(wire::ConfigureReply { node, version: env!("CARGO_PKG_VERSION").to_owned() }))
    }

    async fn check(
        &self,
        request: Request<wire::CheckRequest>,
    ) -> Result<Response<wire::CheckReply>, Status> {
        let _permit = self.checks.try_acquire().map_err(|_| {
            Status::resource_exhausted(format!("{MAX_CHECKS} checks run on this node already"))
        })?;
        let here = Here { node: &self.place.node, hosts: self.files.hosts(), identity: &self.identity };
        let checked = check::check(here, request.into_inner()).await;
        checked.map(Response::new).map_err(|error| Status::invalid_argument(error.to_string()))
    }

    async fn launch(
        &self,
        request: Request<wire::LaunchRequest>,
    ) -> Result<Response<Self::LaunchStream>, Status> {
        let events = self.launches.launch(request.into_inner())?;
        Ok(Response::new(ReceiverStream::new(events)))
    }

    async fn stop_launch(
        &self,
        request: Request<wire::StopLaunchRequest>,
    ) -> Result<Response<wire::StopLaunchReply>, Status> {
        let wire::StopLaunchRequest { id, grace_millis } = request.into_inner();
        let was_running = self.launches.stop(&id, Duration::from_millis(grace_millis.into())).await?;
        Ok(Response::new(wire::StopLaunchReply { was_running }))
    }
}

impl From<MembersError> for Status {
    fn from(error: MembersError) -> Self {
        let text = format!("{}: {}", error.reason(), chain(&error));
        match error {
            MembersError::File { .. } => Self::failed_precondition(text),
            _ => Self::invalid_argument(text),
        }
    }
}

async fn first(requests: &mut Streaming<ExecRequest>) -> Result<ExecStart, Status> {
    let message = tokio::time::timeout(FIRST_MESSAGE, requests.message());
    let message = message.await.map_err(|_| Status::deadline_exceeded("no start within ten seconds"))??;
    match message.and_then(|message| message.request) {
        Some(Asked::Start(start)) => Ok(start),
        _ => Err(Status::invalid_argument("the first message of Exec has to be start")),
    }
}
