//! What a host is while time passes, and the hops between hosts.

use std::collections::VecDeque;

use super::super::plan::sharing::Resource;
use super::super::schedule::{Chunks, Node};

/// A host of the topology, by vertex.
#[derive(Clone, Debug)]
pub(super) struct HostState {
    /// Its part in the plan that runs; none without one.
    pub(super) node: Option<Node>,
    /// What is on its disk, verified.
    pub(super) held: Chunks,
    pub(super) alive: bool,
    /// When it began to take part, nanoseconds; none if it does not.
    pub(super) joined: Option<u64>,
    pub(super) complete: Option<u64>,
    /// Chunks still to be spoilt.
    pub(super) spoil: u32,
}

/// A hop of a tree.
#[derive(Clone, Debug)]
pub(super) struct HopState {
    /// Vertices.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) tree: usize,
    pub(super) route: Vec<usize>,
    /// What it uses, how often, and how much of it there was at first.
    pub(super) uses: Vec<(Resource, f64, f64)>,
    pub(super) ceiling_mbps: f64,
    pub(super) delay_nanos: u64,
    pub(super) queue: VecDeque<u32>,
    /// The stream that runs, with its chunk.
    pub(super) running: Option<(u64, u32)>,
    /// Bits of the streams that ended since the last look.
    pub(super) bits: f64,
    /// What the running stream had carried at the last look.
    pub(super) counted: f64,
    /// Since when it has had nothing to send.
    pub(super) idle_since: Option<u64>,
    /// How long it had nothing to send since the last look, up to `idle_since`.
    pub(super) idle: u64,
}
