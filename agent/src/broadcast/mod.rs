//! How does a dataset travel from one node to all others?
//!
//! # Participants
//!
//! - The **coordinator** is the agent of the source. A controller calls [`Broadcasts.Start`](Service) there and reads
//!   events until `Finished` or `NodeFailed`; whoever drops that stream cancels the broadcast.
//! - A **member** is the agent of any other node. The coordinator calls `Relay.Follow` on it; it prepares a staging
//!   directory beside the target, connects to its children, receives, verifies, stores, publishes, verifies again.
//! - A **hop** is one `Relay.Push` call, parent to child, on an HTTP/2 connection of its own. Entries go first, then each
//!   chunk as `Data` messages and a `ChunkEnd` with its BLAKE3 hash, at last a `Seal` with the digest of the manifest.
//!   Acknowledgements come back on the same call.
//!
//! # Goals
//!
//! - *A node is never slowed by those that come after it.* A message is put into a ring of recent messages and leaves it
//!   when the ring is full, sent or not. A child that falls behind the ring is served from the files that its parent has
//!   stored. The source reads at the speed of its fastest child.
//! - *Cut-through.* A message is passed on when it arrives, before its chunk is complete, so that a chain of n hops costs n
//!   times the latency of a message, not of a chunk. Consequence: a corrupted chunk travels on; every node finds it
//!   itself, stores nothing of it and asks its parent again (`Resend`), at most [`MAX_REPAIRS`] times a chunk.
//! - *The origin is read once.* The source hashes while it sends; hashes follow the data, the digest comes last. Only a
//!   child that fell behind the source's ring makes it read again (from its own stored copy where it has one);
//!   `source_bytes_read` counts what really was read.
//! - *All or nothing.* What has the published name is complete: the staging directory is filled, gets its modes and times
//!   bottom-up, then is renamed once. Failure and cancellation remove it; a staging directory that a killed agent left is
//!   removed by the next broadcast beside it (it is locked while it is in use).
//! - *Believe nothing.* Entries are admitted by `gridcast_core` before a name is created; a chunk counts when its hash
//!   matches; the dataset counts when the manifest's digest matches; `Verified` means that the published directory was
//!   scanned and read again afterwards.
//! - *A name is proven.* Whoever pushes shows a certificate for the name that the plan gives to the parent. The agent of a
//!   Kubernetes node also asks its registry of datasets: a transfer comes from the announced source, to the announced
//!   place, or not at all.
//! - *Bounded memory.* A node holds, whatever the size of the dataset: [`RING_BYTES`] of recent messages (a member; the
//!   source [`SOURCE_RING_BYTES`]), a queue of [`INTAKE_MESSAGES`] messages and one chunk before its disk, HTTP/2's send
//!   buffer and a few messages per hop, [`STREAM_WINDOW_BYTES`] per connection that it reads too slowly; besides its
//!   entries, and 33 bytes per chunk.
//! - *Each tree has its rate.* Where there are several, the source reads for each no faster than it is planned, and a hop sends
//!   no more than a tenth faster, so that a slow node takes no more of its parents' links than it can use. What a retired
//!   tree has carried is announced to its members (`Carried`), not sent again.
//! - *The one that failed is named.* Whoever loses a parent or a child waits [`HOP_GRACE`] before it says so, so that the
//!   coordinator, which has a connection to every member, sees first who is gone.
//!
//! # Non-goals
//!
//! - *Durability.* Nothing is synced: a node that loses power stages again. (The dataset is a copy.)
//! - *Repairing a broadcast after a node was lost.* The first failed member ends it for all; members that had published keep
//!   their complete directory.
//! - *A target that is a mount point.* It cannot be renamed over; `TargetIsMount` says so. Mount its parent.
//! - *Hard links, owners, extended attributes*; a hard-linked file arrives as several files.
//! - *Children behind a program that writes into published data.* A child that lags reads what its parent published; a file
//!   changed there before the broadcast has finished ends it with `CorruptData`.
//! - *Trees that are not nested.* Trees take chunks from one queue; when it is empty the one with the fewest members retires
//!   and what it carried becomes the queue. That completes everybody only if each tree reaches only members that the larger
//!   ones reach, and the largest reaches all.

mod chronicle;
mod collect;
mod coordinator;
mod copy;
mod counters;
mod dataset;
mod failure;
mod feed;
mod hop;
mod inbound;
mod intake;
mod landing;
mod ledger;
mod member;
mod merge;
mod order;
mod origin;
mod outlet;
mod pace;
mod roots;
mod routes;
mod scan;
mod schedule;
mod service;
mod source;
mod staging;
mod store;
mod transfer;
mod verify;
mod wire;

use std::time::Duration;

use tonic::transport::Server;

pub use counters::Counters;
pub use failure::Failure;
pub(crate) use failure::with_reason;
pub(crate) use landing::{Arrival, Arrived, Landing};
pub use service::Service;
pub(crate) use staging::{remove, sweep};

/// Recent messages that a member keeps for its children, in bytes, all trees together.
pub const RING_BYTES: u64 = 8 << 20;
/// Recent messages that the source keeps: twice as much, since whoever falls behind makes it read the origin again.
pub const SOURCE_RING_BYTES: u64 = 16 << 20;
/// What of it each tree has at least; more than 16 trees make the source hold more.
pub const LEAST_SOURCE_RING_BYTES: u64 = 1 << 20;
/// Messages that wait to be hashed and written; 4 MiB.
pub const INTAKE_MESSAGES: usize = 64;
/// How often one chunk may arrive corrupted before the node gives up.
pub const MAX_REPAIRS: u32 = 4;
/// A gRPC message with its prefix stays within this.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// How long a node waits, after it lost a neighbour, for the coordinator to find out who is gone: longer than the
/// coordinator's keep-alive needs.
pub const HOP_GRACE: Duration = Duration::from_secs(15);
/// What a receiver lets a stream have in flight: 1 Gbit/s over 33 ms. One for all streams, since a server advertises it
/// before it knows what will come; within the design's bounds of 256 KiB and 16 MiB.
pub const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// A connection carries one bulk stream and small calls: above the sum of its streams' windows, lest one block another.
pub const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES + (1 << 20);
/// Largest HTTP/2 frame that a receiver accepts: a message is one frame instead of four.
pub const MAX_FRAME_BYTES: u32 = 1 << 20;

/// Sets what the receiving side of a hop advertises. The agent's server must be built with it.
///
/// The receiver sets frame size and windows. A peer that vanished without closing its connections (a killed network
/// namespace) is noticed after 25 seconds: a sign of life may have to wait behind bulk data in the peer's socket, several
/// MiB on a link of a few Mbit/s. The coordinator notices sooner, on connections that carry no data.
pub fn tune_server<L>(server: Server<L>) -> Server<L> {
    server
        .max_frame_size(MAX_FRAME_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(Duration::from_secs(5)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .tcp_nodelay(true)
}
