//! Which datasets are on this node, who may bring them, and who uses them?
//!
//! The operator announces a dataset (`Prepare`), its source brings it (`Relay.Follow`), pods wait for it and mount it
//! (`Mounts.Acquire`), the operator takes it back (`Release`). Rules, each a test:
//!
//! - *Its place is its own.* Data lies at `DATA/NAMESPACE/PATH`; no two datasets' paths touch, and a transfer may write
//!   nowhere else.
//! - *Verified is a fact on the disk.* It is noted, synced, after the published directory was read again; it is taken
//!   back when the directory has gone, or when the machine lost power before the data itself was synced.
//! - *What is mounted stays.* Release and replacement wait for the last volume; nobody else gets one meanwhile.
//! - *Nothing half is left.* A killed transfer's remains go at the next start.

mod arrival;
mod record;
mod registry;
mod request;
mod service;
#[cfg(test)]
mod tests;
mod upkeep;
mod volumes;

use std::io;
use std::path::PathBuf;

use gridcast_core::failure::chain;
use thiserror::Error;
use tonic::{Code, Status};

use crate::broadcast::with_reason;

pub(crate) use arrival::Door;
pub(crate) use registry::{Census, Registry};
pub(crate) use service::{DatasetsService, MountsService};

/// Why a request about datasets cannot be fulfilled.
#[derive(Debug, Error)]
pub(crate) enum DatasetError {
    /// Outside of what can be.
    #[error("{field} is `{value}`: give {bound}")]
    Argument {
        /// The request's field.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What it may hold.
        bound: &'static str,
    },
    /// The same UID with other data.
    #[error("dataset {uid} was announced as {known}: a Broadcast does not change its name or path")]
    Changed {
        /// The UID.
        uid: String,
        /// Namespace, name and path.
        known: String,
    },
    /// Another dataset has it.
    #[error(
        "path {path} belongs to Broadcast {holder} already, or lies inside its data: choose another path"
    )]
    PathTaken {
        /// The path, with its namespace.
        path: String,
        /// Namespace and name.
        holder: String,
    },
    /// Its predecessor of the same name is still mounted.
    #[error("an earlier Broadcast {name} is still mounted by pods {}: they must end first", pods.join(", "))]
    InUse {
        /// Namespace and name.
        name: String,
        /// UIDs, at most 20.
        pods: Vec<String>,
    },
    /// A transfer does not end.
    #[error("a transfer of {name} does not end: ask again")]
    Busy {
        /// Namespace and name.
        name: String,
    },
    /// It did not come in time.
    #[error("{what}")]
    Waiting {
        /// What is waited for.
        what: String,
    },
    /// More than this node takes.
    #[error("{what}")]
    TooMany {
        /// Of what, and how many there are.
        what: String,
    },
    /// The system refused.
    #[error("cannot {action} {path}")]
    System {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl DatasetError {
    /// One PascalCase word.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Argument { .. } => "InvalidArgument",
            Self::Changed { .. } => "DatasetChanged",
            Self::PathTaken { .. } => "PathTaken",
            Self::InUse { .. } => "DatasetInUse",
            Self::Busy { .. } => "TransferBusy",
            Self::Waiting { .. } => "DatasetNotReady",
            Self::TooMany { .. } => "TooMany",
            Self::System { .. } => "StateUnusable",
        }
    }

    fn system(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::System { action, path, source }
    }
}

impl From<DatasetError> for Status {
    fn from(error: DatasetError) -> Self {
        let code = match error {
            DatasetError::Argument { .. } | DatasetError::Changed { .. } => Code::InvalidArgument,
            DatasetError::PathTaken { .. } => Code::AlreadyExists,
            DatasetError::InUse { .. } | DatasetError::Busy { .. } => Code::FailedPrecondition,
            DatasetError::Waiting { .. } => Code::DeadlineExceeded,
            DatasetError::TooMany { .. } => Code::ResourceExhausted,
            DatasetError::System { .. } => Code::Internal,
        };
        with_reason(Self::new(code, chain(&error)), error.reason())
    }
}
