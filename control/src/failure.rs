//! How does a step end that does not end well?

/// A step that failed: one PascalCase word and one sentence, as conditions and reports have them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct StepFailure {
    /// One PascalCase word.
    pub reason: String,
    /// Names the host, rank or file.
    pub message: String,
}

impl StepFailure {
    /// A failure with its word and sentence.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}
