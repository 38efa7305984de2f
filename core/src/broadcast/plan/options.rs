//! What is a plan to be like?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Plan;

/// How trees are made.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Every destination at its own best.
    #[default]
    Stable,
    /// The source sends to each destination itself.
    Flat,
    /// A chain in random order.
    Random,
    /// A chain in the order of a depth-first walk.
    DepthFirst,
    /// Depth-first trees, each to all destinations (Izmailov, Ganguly, Tu 2004).
    Fpfr,
    /// The destination with the largest bandwidth from the tree is added next, behind the latest of the best parents (Wang
    /// et al. 2007).
    Dijkstra,
    /// The same, behind the earliest of the best parents.
    DijkstraEarliest,
    /// A chain by descending bandwidth from the source.
    Chain,
}

impl Strategy {
    /// All but `Stable`: what others have published, and what is obvious.
    pub const BASELINES: [Self; 7] = [
        Self::Flat,
        Self::Random,
        Self::DepthFirst,
        Self::Fpfr,
        Self::Dijkstra,
        Self::DijkstraEarliest,
        Self::Chain,
    ];
}

impl std::fmt::Display for Strategy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, formatter)
    }
}

/// How a host passes on what it receives. Our own trees are the same in both; the baselines are not.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Relay {
    /// From disk: a host keeps its own rate, whatever those behind it can take.
    #[default]
    Asynchronous,
    /// With backpressure: a tree moves at the rate of its slowest hop.
    Synchronous,
}

/// What those who carry a plan out can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Executable {
    /// Any number of trees at once.
    #[default]
    Trees,
    /// Trees that take chunks from one queue: each reaches only hosts that the larger ones reach, the largest all. Hosts may
    /// relay from disk, at a rate of their own. See [`Plan::carried`].
    Nested,
}

/// What a plan may be like.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How trees are made.
    pub strategy: Strategy,
    /// How hosts pass on.
    pub relay: Relay,
    /// Most trees; 0 is no limit. The baselines know no limit.
    pub max_trees: u32,
    /// Seed of `Random`.
    pub seed: u64,
    /// Destinations that cannot be reached are left out and named, instead of refused.
    pub partial: bool,
    /// What can be carried out.
    pub executable: Executable,
    /// Other hosts that have all of the data, and send as the source does.
    pub sources: Vec<String>,
    /// Broadcasts that go on meanwhile: what they use is not there.
    pub beside: Vec<Plan>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            strategy: Strategy::Stable,
            relay: Relay::Asynchronous,
            max_trees: 16,
            seed: 0,
            partial: false,
            executable: Executable::Trees,
            sources: Vec::new(),
            beside: Vec::new(),
        }
    }
}
