//! The node part of CSI: publish and unpublish.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use gridcast_core::failure::chain;
use gridcast_proto::csi::v1::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse, node_server,
};
use tonic::{Request, Response, Status};

use super::mounts::{MountError, Mounts, State, clear, is_gone, unmount_all};
use super::request::{self, Target, Volume};
use super::wait::Agent;

/// The node service of CSI.
#[derive(Debug)]
pub(super) struct Node {
    name: String,
    agent: Agent,
    mounts: Mounts,
    busy: Busy,
}

/// Volumes with a call under way. kubelet makes one at a time for each, but not across its own restart.
#[derive(Clone, Debug, Default)]
struct Busy(Arc<Mutex<BTreeSet<String>>>);

/// Held by a call.
struct Turn {
    busy: Busy,
    volume: String,
}

impl Busy {
    fn begin(&self, volume: &str) -> Result<Turn, Status> {
        let mut volumes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if volumes.insert(volume.to_owned()) {
            Ok(Turn { busy: self.clone(), volume: volume.to_owned() })
        } else {
            Err(Status::aborted(format!("another call for volume {volume} is under way")))
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.busy.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.volume);
    }
}

impl Node {
    /// A node of this name.
    pub(super) fn new(name: String, agent: Agent, mounts: Mounts) -> Self {
        Self { name, agent, mounts, busy: Busy::default() }
    }

    /// Drops what the agent takes to be mounted although nothing is left of it: otherwise the dataset would count as used
    /// for ever. Ends when that is done.
    pub(super) async fn settle(&self) {
        let volumes = match self.agent.volumes().await {
            Ok(volumes) => volumes,
            Err(status) => {
                tracing::warn!(why = status.message(), "volumes that are left over cannot be looked for");
                return;
            }
        };
        for volume in volumes {
            // Whoever calls for it at this moment sees to it.
            let (Ok(_turn), Ok(target)) = (self.busy.begin(&volume.volume_id), Target::parse(&volume.target))
            else {
                continue;
            };
            if !is_gone(&target).unwrap_or(false) {
                continue;
            }
            match self.agent.drop_volume(&volume.volume_id).await {
                Ok(()) => tracing::info!(
                    volume = volume.volume_id,
                    pod_uid = target.pod_uid,
                    "dropped a volume that nobody has any more"
                ),
                Err(status) => {
                    tracing::warn!(volume = volume.volume_id, why = status.message(), "a volume stays");
                }
            }
        }
    }

    async fn publish(&self, volume: &Volume) -> Result<(), Status> {
        let target = &volume.target.path;
        let prepare = || match self.mounts.state(target)? {
            State::Dataset => Ok(true),
            // Not even while it waits is there an empty directory.
            State::Nothing => clear(target).map(|()| false),
            State::Other => unmount_all(target).and_then(|()| clear(target)).map(|()| false),
        };
        if prepare().map_err(|error| self.failed(volume, &error))? {
            return Ok(());
        }
        let Volume { id, namespace, pod, broadcast, .. } = volume;
        tracing::info!(volume = id, namespace, pod, broadcast, "waiting for the dataset");
        let path = self.agent.acquire(volume).await.inspect_err(|status| {
            tracing::warn!(volume = id, namespace, pod, broadcast, why = status.message(), "not mounted");
        })?;
        // From here to the mount nothing waits: a call that kubelet gives up ends before it or after it.
        let mounted = self.mounts.publish(&path, target);
        match mounted {
            Ok(()) => {
                tracing::info!(volume = id, namespace, pod, broadcast, path = %path.display(), "mounted");
                Ok(())
            }
            Err(error) => {
                let status = self.failed(volume, &error);
                match self.agent.drop_volume(id).await {
                    // Nothing is left of it.
                    Ok(()) => Err(Status::internal(status.message())),
                    Err(_) => Err(status),
                }
            }
        }
    }

    /// Aborted is uncertain for kubelet: it calls unpublish when the pod goes, for what is left of the volume.
    fn failed(&self, volume: &Volume, error: &MountError) -> Status {
        let Volume { id, namespace, broadcast, .. } = volume;
        let (reason, text) = (error.reason(), chain(error));
        tracing::error!(volume = id, namespace, broadcast, reason, error = text, "not mounted");
        Status::aborted(format!(
            "Broadcast {namespace}/{broadcast} cannot be mounted on node {}: {text}",
            self.name
        ))
    }
}

#[tonic::async_trait]
impl node_server::Node for Node {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let volume = request::publish(request.into_inner())?;
        let _turn = self.busy.begin(&volume.id)?;
        self.publish(&volume).await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let (id, target) = request::unpublish(request.into_inner())?;
        let _turn = self.busy.begin(&id)?;
        self.mounts.unpublish(&target.path).map_err(|error| {
            let text = chain(&error);
            tracing::error!(volume = id, reason = error.reason(), error = text, "not unmounted");
            Status::internal(format!("volume {id} cannot be unmounted on node {}: {text}", self.name))
        })?;
        // After the unmount: the agent may remove the dataset as soon as it hears of it.
        self.agent.drop_volume(&id).await?;
        tracing::info!(volume = id, pod_uid = target.pod_uid, "unmounted");
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        Ok(Response::new(NodeGetCapabilitiesResponse {}))
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse { node_id: self.name.clone(), max_volumes_per_node: 0 }))
    }
}
