//! How does kubelet learn of the plugin, and again when that failed?
//!
//! kubelet watches its directory of registration sockets: it asks a new one who it is, calls the plugin for the node's id,
//! writes that to the node's CSINode object and tells the outcome. It does not try again after a failure (the API server
//! may have been away for a moment), only when the socket goes and a new one appears; so that is what happens then. After
//! its own restart kubelet walks the directory, and a socket that stayed is found.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gridcast_proto::pluginregistration::registration_server::{self, RegistrationServer};
use gridcast_proto::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tokio::sync::Notify;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::{CsiError, DRIVER, socket};

/// Pause before the first new attempt; doubled until the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The last answer must reach kubelet, which then closes; it is not waited for beyond this.
const LAST_ANSWER: Duration = Duration::from_secs(2);

/// Serves the registration socket at `path` for the plugin at `endpoint`. Ends only with an error.
pub(super) async fn keep(path: &Path, endpoint: &Path) -> Result<(), CsiError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let failed = Arc::new(Notify::new());
        let service = Registration { endpoint: endpoint.to_owned(), failed: Arc::clone(&failed) };
        let listener = socket::bind(path)?;
        let told = Arc::clone(&failed);
        let serving = Server::builder()
            .add_service(RegistrationServer::new(service))
            .serve_with_incoming_shutdown(listener.incoming(), async move { told.notified().await });
        let given_up = async {
            failed.notified().await;
            tokio::time::sleep(LAST_ANSWER).await;
        };
        tokio::select! {
            served = serving => {
                served.map_err(|source| CsiError::Serve { path: path.to_owned(), source })?;
            }
            () = given_up => {}
        }
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// The registration service.
#[derive(Debug)]
struct Registration {
    endpoint: PathBuf,
    failed: Arc<Notify>,
}

#[tonic::async_trait]
impl registration_server::Registration for Registration {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.endpoint.display().to_string(),
            // Of the interface, not of this plugin: kubelet refuses 0.x and 2.x.
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        if plugin_registered {
            tracing::info!("registered with kubelet");
        } else {
            tracing::warn!(error, "kubelet could not register the plugin; offering it again");
            self.failed.notify_waiters();
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
