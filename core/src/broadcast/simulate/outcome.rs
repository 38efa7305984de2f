//! What came of a broadcast.

/// A broadcast, from the beginning to the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Size of the dataset, bytes.
    pub size_bytes: u64,
    /// Size of a chunk, bytes.
    pub chunk_bytes: u64,
    /// Destinations and those that joined, by name.
    pub nodes: Vec<NodeOutcome>,
    /// Until the last one had everything, seconds.
    pub seconds: f64,
    /// Sum of size / time over those that have everything, Mbit/s.
    pub aggregate_mbps: f64,
    /// Chunks that arrived where they were already, bytes.
    pub duplicate_bytes: u64,
    /// Chunks that arrived spoilt or did not arrive because a plan or a host ended, bytes.
    pub wasted_bytes: u64,
    /// What each link carried, in the order of the topology.
    pub links: Vec<LinkBytes>,
    /// What happened.
    pub timeline: Vec<Moment>,
    /// How many plans were carried out.
    pub plans: u64,
    /// The most numbers that a node kept at any time, for each chunk of the dataset.
    pub memory_per_chunk: f64,
}

/// What a destination got.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeOutcome {
    /// Its name.
    pub name: String,
    /// When it had everything, each chunk with its hash: seconds since the beginning, or since it joined.
    pub seconds: Option<f64>,
    /// Size / time, Mbit/s; 0 without everything.
    pub rate_mbps: f64,
    /// What the first plan promised, Mbit/s.
    pub planned_mbps: f64,
    /// Why it does not have everything.
    pub reason: Option<String>,
}

/// What a link carried, both ways.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkBytes {
    /// One end.
    pub a: String,
    /// The other.
    pub b: String,
    /// From `a` to `b`, bytes.
    pub bytes: u64,
    /// From `b` to `a`, bytes.
    pub back_bytes: u64,
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since the beginning.
    pub seconds: f64,
    /// What happened.
    pub what: String,
}
