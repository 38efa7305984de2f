//! Why did a broadcast end, and who is at fault?

use std::io;
use std::path::Path;

use gridcast_proto::v1;

/// Why a node could not take part to the end. Paths are shown with unusual bytes escaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says it")]
pub enum Failure {
    #[error("its agent is gone ({detail}); look at the agent's log, then start again")]
    AgentLost { detail: String },
    #[error("disk full: {detail}; free space there or choose another disk")]
    DiskFull { detail: String },
    #[error("data arrived corrupted: {detail}; check this node's memory, disk and network")]
    CorruptData { detail: String },
    #[error("`{path}` changed while it was read; start again when nobody writes to it")]
    SourceChanged { path: String },
    #[error("`{path}` does not exist; give a file or directory of this node")]
    SourceMissing { path: String },
    #[error("cannot read `{path}`: {error}")]
    SourceUnreadable { path: String, error: String },
    #[error(
        "`{path}` is a {kind}, which cannot be copied; remove it or give a directory without devices, sockets, FIFOs"
    )]
    UnsupportedFile { path: String, kind: &'static str },
    #[error("{detail}")]
    DatasetInvalid { detail: String },
    #[error("`{path}` exists and is not an empty directory; remove it or choose another target")]
    TargetExists { path: String },
    #[error(
        "`{path}` is a mount point, which a complete directory cannot be renamed to; mount its parent instead"
    )]
    TargetIsMount { path: String },
    #[error("cannot write `{path}`: {error}")]
    TargetUnusable { path: String, error: String },
    #[error("{detail}")]
    InvalidRequest { detail: String },
    #[error("cancelled: the caller went away")]
    Cancelled,
    #[error("`{path}` is not below a directory that this node's agent may read: {detail}")]
    SourceForbidden { path: String, detail: String },
    #[error("{detail}")]
    NotPermitted { detail: String },
    #[error("cancelled: the dataset was released")]
    Released,
    #[error("the agent failed: {detail}; please report this")]
    Internal { detail: String },
}

impl Failure {
    /// One PascalCase word for events, conditions and reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::AgentLost { .. } => "AgentLost",
            Self::DiskFull { .. } => "DiskFull",
            Self::CorruptData { .. } => "CorruptData",
            Self::SourceChanged { .. } => "SourceChanged",
            Self::SourceMissing { .. } => "SourceMissing",
            Self::SourceUnreadable { .. } => "SourceUnreadable",
            Self::UnsupportedFile { .. } => "UnsupportedFile",
            Self::DatasetInvalid { .. } => "DatasetInvalid",
            Self::TargetExists { .. } => "TargetExists",
            Self::TargetIsMount { .. } => "TargetIsMount",
            Self::TargetUnusable { .. } => "TargetUnusable",
            Self::InvalidRequest { .. } => "InvalidRequest",
            Self::Cancelled => "Cancelled",
            Self::SourceForbidden { .. } => "SourceForbidden",
            Self::NotPermitted { .. } => "NotPermitted",
            Self::Released => "Released",
            Self::Internal { .. } => "Internal",
        }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::InvalidRequest { detail: detail.into() }
    }

    pub(crate) fn corrupt(detail: impl Into<String>) -> Self {
        Self::CorruptData { detail: detail.into() }
    }

    pub(crate) fn lost(detail: impl Into<String>) -> Self {
        Self::AgentLost { detail: detail.into() }
    }

    /// An error of the system on something that is read at the source.
    pub(crate) fn reading(path: &str, error: &io::Error) -> Self {
        match error.kind() {
            // It was there when its directory was listed.
            io::ErrorKind::NotFound => Self::SourceChanged { path: path.to_owned() },
            _ => Self::SourceUnreadable { path: path.to_owned(), error: error.to_string() },
        }
    }

    /// An error of the system on something that is written.
    pub(crate) fn writing(path: &Path, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => {
                Self::DiskFull { detail: format!("no space left for {}", path.display()) }
            }
            _ => Self::TargetUnusable { path: path.display().to_string(), error: error.to_string() },
        }
    }

    /// The gRPC status of a call that ends with it; the reason travels as metadata too.
    pub(crate) fn status(&self, node: &str) -> tonic::Status {
        let code = match self {
            Self::SourceMissing { .. } => tonic::Code::NotFound,
            Self::InvalidRequest { .. } => tonic::Code::InvalidArgument,
            Self::DiskFull { .. } => tonic::Code::ResourceExhausted,
            Self::AgentLost { .. } => tonic::Code::Unavailable,
            Self::CorruptData { .. } => tonic::Code::DataLoss,
            Self::Cancelled => tonic::Code::Cancelled,
            Self::SourceForbidden { .. } | Self::NotPermitted { .. } => tonic::Code::PermissionDenied,
            Self::Internal { .. } => tonic::Code::Internal,
            _ => tonic::Code::FailedPrecondition,
        };
        with_reason(tonic::Status::new(code, format!("{node}: {self}")), self.reason())
    }
}

/// Metadata key under which a status carries its reason.
pub(crate) const REASON_KEY: &str = "gridcast-reason";

/// `status` with a reason of one PascalCase word.
pub(crate) fn with_reason(mut status: tonic::Status, reason: &'static str) -> tonic::Status {
    status.metadata_mut().insert(REASON_KEY, tonic::metadata::MetadataValue::from_static(reason));
    status
}

/// A failure and the node at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) node: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(node: &str, failure: &Failure) -> Self {
        Self {
            node: node.to_owned(),
            reason: failure.reason().to_owned(),
            message: format!("{node}: {failure}"),
        }
    }

    /// What `member` reported.
    pub(crate) fn reported(member: &str, failed: v1::FollowFailed) -> Self {
        let node = if failed.node.is_empty() { member.to_owned() } else { failed.node };
        // The coordinator has not cancelled: the member's agent is going down.
        if failed.reason == Failure::Cancelled.reason() {
            return Self::new(&node, &Failure::lost("it is stopping"));
        }
        Self { node, reason: failed.reason, message: failed.message }
    }

    pub(crate) fn into_follow(self, member: &str) -> v1::FollowFailed {
        let node = if self.node == member { String::new() } else { self.node };
        v1::FollowFailed { reason: self.reason, message: self.message, node }
    }

    pub(crate) fn into_event(self) -> v1::NodeFailed {
        v1::NodeFailed { node: self.node, reason: self.reason, message: self.message }
    }
}

/// A blocking task that ended without a result panicked or was stopped with the runtime.
pub(crate) fn join_error(error: &tokio::task::JoinError) -> Failure {
    if error.is_cancelled() {
        Failure::Cancelled
    } else {
        Failure::Internal { detail: format!("a task panicked: {error}") }
    }
}

/// Runs `work` off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(join_error(&error)),
    }
}
