//! Why is there no plan?

use super::super::topology::TopologyError;
use super::Strategy;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says it")]
pub enum PlanError {
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error("the source `{name}` is no host of the topology; name one of its hosts")]
    UnknownSource { name: String },
    #[error("the destination `{name}` is no host of the topology; name one of its hosts")]
    UnknownDestination { name: String },
    #[error("the destination `{name}` is named twice; name it once")]
    DuplicateDestination { name: String },
    #[error("the destination `{name}` is the source; leave it out")]
    SourceIsDestination { name: String },
    #[error("the source `{name}` is named twice; name it once")]
    DuplicateSource { name: String },
    #[error("{} cannot be reached from `{from}`; add a link, or leave out what cannot be reached", quoted(.to))]
    Unreachable { from: String, to: Vec<String> },
    #[error(
        "the trees of the strategy {strategy} cannot be carried out on this network; choose Stable, Chain or Flat"
    )]
    Unsupported { strategy: Strategy },
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl PlanError {
    /// One word for reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Topology(_) => "InvalidTopology",
            Self::UnknownSource { .. } => "UnknownSource",
            Self::UnknownDestination { .. } => "UnknownDestination",
            Self::DuplicateDestination { .. } => "DuplicateDestination",
            Self::SourceIsDestination { .. } => "SourceIsDestination",
            Self::DuplicateSource { .. } => "DuplicateSource",
            Self::Unreachable { .. } => "Unreachable",
            Self::Unsupported { .. } => "UnsupportedStrategy",
        }
    }
}
