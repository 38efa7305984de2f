//! How a command ends when it does not end well, and with which exit code.

use std::fmt::Display;

pub(crate) use gridcast_core::failure::chain;

/// Why a command stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The input is wrong; nothing was made. The message names the field, host or file and the next step.
    #[error("{0}")]
    Input(String),
    /// A step failed. One PascalCase word and a message that names the host, rank or file.
    #[error("{reason}: {message}")]
    Failed {
        /// The word for the report.
        reason: String,
        /// One sentence.
        message: String,
    },
}

impl Failure {
    /// A failed step.
    pub(crate) fn failed(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), message: message.into() }
    }

    /// Wrong input.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::Input(message.into())
    }

    /// A failure before anything was made is one of the input: there is no report of it.
    pub(crate) fn nothing_made(self) -> Self {
        match self {
            Self::Failed { message, .. } | Self::Input(message) => Self::Input(message),
        }
    }

    /// The exit code of the command, as the contract for scripts states it. An interrupted run is no failure of the command: its
    /// ending says 130.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Failed { .. } => 1,
        }
    }
}

impl From<gridcast_control::StepFailure> for Failure {
    fn from(failure: gridcast_control::StepFailure) -> Self {
        Self::Failed { reason: failure.reason, message: failure.message }
    }
}

/// Turns any error of an operating-system call into a failed step.
pub(crate) trait OrFailed<T> {
    /// `what` says what was being done, to which file or host.
    fn or_failed(self, reason: &str, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: std::error::Error> OrFailed<T> for Result<T, E> {
    fn or_failed(self, reason: &str, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::failed(reason, format!("cannot {what}: {}", chain(&error))))
    }
}
