//! What does the agent of a Kubernetes node do beside what every agent does?

pub(crate) mod datasets;
pub(crate) mod pods;
