//! Which plugin listens here.

use gridcast_proto::csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    ProbeRequest, ProbeResponse, identity_server,
};
use tonic::{Request, Response, Status};

use super::DRIVER;

/// The identity service of CSI.
#[derive(Debug)]
pub(super) struct Identity;

#[tonic::async_trait]
impl identity_server::Identity for Identity {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Response::new(GetPluginInfoResponse { name: DRIVER.to_owned(), vendor_version }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(GetPluginCapabilitiesResponse {}))
    }

    /// Ready without the agent, too: a publish waits for it, and an unpublish must not fail for its sake.
    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
