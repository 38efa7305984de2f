//! What does a node that keeps a registry of datasets have to say to the transfers that bring them?
//!
//! Nodes of a local run keep none: whoever belongs to the run may stage wherever it says.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

use super::failure::{Failure, blocking};
use super::service::Node;

/// A registry of the datasets that may come to this node.
pub(crate) trait Landing: Send + Sync + Debug {
    /// Lets `source` bring the broadcast `id` to `target`, or says why it may not. Until what is returned is dropped the
    /// target is that transfer's alone; an earlier transfer of the same dataset is cancelled. Blocks.
    fn begin(&self, id: &str, source: &str, target: &Path) -> Result<Arc<dyn Arrival>, Failure>;
}

/// A transfer that a registry has admitted.
pub(crate) trait Arrival: Send + Sync + Debug {
    /// So many of so many bytes are here.
    fn progress(&self, bytes: u64, of: u64);

    /// Ready when the dataset is not wanted any more.
    fn cancelled(&self) -> BoxFuture<'_, ()>;

    /// The published directory was read again and is what was sent. Blocks.
    fn verified(&self, arrived: &Arrived) -> Result<(), Failure>;

    /// It will not come; `message` names the node.
    fn failed(&self, reason: &str, message: &str);
}

/// What has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// BLAKE3 of the manifest, hex.
    pub(crate) digest: String,
    /// Bytes outside holes.
    pub(crate) size_bytes: u64,
    pub(crate) files: u64,
}

/// Asks the node's registry, where it has one, whether `source` may bring `id` to `target`.
pub(crate) async fn begin(
    node: &Arc<Node>,
    id: &str,
    source: &str,
    target: PathBuf,
) -> Result<Option<Arc<dyn Arrival>>, Failure> {
    let Some(landing) = node.landing.clone() else { return Ok(None) };
    let (id, source) = (id.to_owned(), source.to_owned());
    blocking(move || landing.begin(&id, &source, &target)).await.map(Some)
}

/// Ready when `arrival` is not wanted any more.
pub(crate) async fn cancelled(arrival: Option<&Arc<dyn Arrival>>) {
    match arrival {
        Some(arrival) => arrival.cancelled().await,
        None => std::future::pending().await,
    }
}
