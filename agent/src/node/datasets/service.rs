//! How do the operator and the mount helper reach the registry of datasets?

use std::sync::Arc;

use gridcast_proto::v1::datasets_server::Datasets;
use gridcast_proto::v1::mounts_server::Mounts;
use gridcast_proto::v1::{
    AcquireReply, AcquireRequest, DropReply, DropRequest, ListDatasetsReply, ListDatasetsRequest,
    PrepareReply, PrepareRequest, ReleaseReply, ReleaseRequest, VolumesReply, VolumesRequest,
};
use tokio::sync::{Semaphore, watch};
use tonic::{Request, Response, Status};

use super::DatasetError;
use super::registry::Registry;
use crate::access::{Call, caller};
use crate::tls::Identity;

/// Volumes that are waited for at once.
const MAX_WAITING: usize = 1_024;

/// `Datasets`, for the operator.
#[derive(Clone, Debug)]
pub(crate) struct DatasetsService {
    registry: Arc<Registry>,
    identity: Identity,
}

/// `Mounts`, for the mount helper of this node: whoever can open the socket is it.
#[derive(Clone, Debug)]
pub(crate) struct MountsService {
    registry: Arc<Registry>,
    stopping: watch::Receiver<bool>,
    waiting: Arc<Semaphore>,
}

impl DatasetsService {
    pub(crate) fn new(registry: Arc<Registry>, identity: Identity) -> Self {
        Self { registry, identity }
    }
}

impl MountsService {
    /// Waiting ends when `stopping` becomes true.
    pub(crate) fn new(registry: Arc<Registry>, stopping: watch::Receiver<bool>) -> Self {
        Self { registry, stopping, waiting: Arc::new(Semaphore::new(MAX_WAITING)) }
    }
}

/// Runs `work` off the runtime's workers: it syncs and removes files.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DatasetError> + Send + 'static,
) -> Result<Response<T>, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(Response::new(done.map_err(|_| Status::internal("the work on datasets was interrupted"))??))
}

#[tonic::async_trait]
impl Datasets for DatasetsService {
    async fn prepare(&self, request: Request<PrepareRequest>) -> Result<Response<PrepareReply>, Status> {
        caller(&self.identity, &request, Call::Datasets)?;
        let registry = self.registry.clone();
        blocking(move || registry.prepare(request.into_inner())).await
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseReply>, Status> {
        caller(&self.identity, &request, Call::Datasets)?;
        let registry = self.registry.clone();
        let ReleaseRequest { uid, keep_data } = request.into_inner();
        blocking(move || registry.release(&uid, keep_data)).await
    }

    async fn list(
        &self,
        request: Request<ListDatasetsRequest>,
    ) -> Result<Response<ListDatasetsReply>, Status> {
        caller(&self.identity, &request, Call::Datasets)?;
        let registry = self.registry.clone();
        blocking(move || Ok(ListDatasetsReply { datasets: registry.list() })).await
    }
}

#[tonic::async_trait]
impl Mounts for MountsService {
    async fn acquire(&self, request: Request<AcquireRequest>) -> Result<Response<AcquireReply>, Status> {
        let Ok(_waiting) = self.waiting.try_acquire() else {
            return Err(Status::resource_exhausted(format!("{MAX_WAITING} volumes are waited for already")));
        };
        let mut stopping = self.stopping.clone();
        let path = tokio::select! {
            path = self.registry.acquire(request.into_inner()) => path?,
            _ = stopping.wait_for(|stopping| *stopping) => {
                return Err(Status::unavailable("the node's agent is stopping: ask again"));
            }
        };
        Ok(Response::new(AcquireReply { path: path.display().to_string() }))
    }

    async fn drop(&self, request: Request<DropRequest>) -> Result<Response<DropReply>, Status> {
        let registry = self.registry.clone();
        blocking(move || {
            registry.drop_volume(&request.into_inner().volume_id)?;
            Ok(DropReply {})
        })
        .await
    }

    async fn volumes(&self, _: Request<VolumesRequest>) -> Result<Response<VolumesReply>, Status> {
        let registry = self.registry.clone();
        blocking(move || Ok(VolumesReply { volumes: registry.volumes() })).await
    }
}
