//! Who sends which chunk to whom next? The conduct of a broadcast, without I/O: events in, commands out.
//!
//! A [`Node`] is one host's part. It knows the plan (as a [`Shape`]) and which chunks it holds; agents feed it with what
//! arrives and carry out what it commands, and so does the [simulator](super::simulate). It reads no clock.
//!
//! **Everything is offered, nothing is pushed.** Down each hop of a tree the child says how many entries it is ready for
//! ([`Message::Ready`]), the parent names one chunk for each ([`Message::Entry`], only chunks that it holds), and the child
//! fetches those that it neither holds nor awaits ([`Message::Fetch`]). So no chunk is on its way to a host twice, whatever
//! fails, joins or resumes; a host that has everything takes nothing and still passes the entries on.
//!
//! **Which chunks.** While a tree is *live*, its entries are one log, the same at all its hosts: the source extends it from
//! the queue of [`stages`], when somebody down the tree is ready. That is for nested plans that begin afresh, and without
//! loss there. When a tree retires, and from the start on plans that are not nested or that resume, its hops are *open*: a
//! parent offers what it holds and the child lacks, the chunk that the fewest of those that it feeds have got first (rarest
//! useful first; Massoulié, Twigg, Gkantsidis, Rodriguez, "Randomized decentralized broadcasting algorithms", INFOCOM 2007,
//! for random useful chunks).
//!
//! **What fails.** When a host is gone, those that it fed attach to the nearest host above it, at the place in the log where
//! they are, and fetch again what was under way. A chunk whose hash does not match is fetched again; after
//! [`MAX_SPOILT`] of them their sender is left. A host that joins or comes back takes part in a live tree from now on and
//! gets the rest when it opens.
//!
//! Memory of a node: one bit a chunk for itself and for each host that it feeds down open trees, 2 bytes a chunk of counts,
//! 4 bytes a chunk for each live tree. Nothing grows with time.

use std::time::Duration;

mod below;
mod branch;
mod chunks;
mod coordinator;
mod feeding;
mod hasten;
mod node;
mod shape;
pub(crate) mod stages;
mod taking;
mod watch;

pub use chunks::Chunks;
pub use coordinator::{Coordinator, Decision, News, PAUSE, Reason, SETTLE};
pub use node::Node;
pub use shape::Shape;
pub use watch::{SLOW_BELOW, SLOW_FOR, Watch};

/// Spoilt chunks from one sender after which nothing more is taken from it.
pub const MAX_SPOILT: u32 = 3;

/// How a host takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// From the beginning, where nobody but the source holds anything.
    Fresh,
    /// From the beginning of a plan for hosts that hold parts already.
    Resumed,
    /// In a broadcast that runs: it joins, or comes back.
    Late,
}

/// What does not change during a broadcast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Number of chunks.
    pub chunks: u32,
    /// Size of all chunks but the last, bytes.
    pub chunk_bytes: u64,
    /// Time of a message there and back: how far a hop must look ahead so as not to run dry.
    pub round_trip: Duration,
    /// Chunks that a hop looks ahead beyond that.
    pub ahead: u32,
    /// Most entries of a live tree that a relay is ahead of the slowest host that it feeds; none relays from disk.
    pub relay_queue: Option<u32>,
}

/// From host to host, along a hop of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Child to parent: it takes part from entry `position` on; none begins with the next one.
    Attach {
        /// The tree.
        tree: usize,
        /// Entries that it knows.
        position: Option<usize>,
    },
    /// Parent to child, on `Attach`.
    Attached {
        /// The tree.
        tree: usize,
        /// The number of the next entry.
        position: usize,
        /// Entries of the live log, if it has ended.
        end: Option<usize>,
    },
    /// Child to parent: it is ready for all entries before number `upto`.
    Ready {
        /// The tree.
        tree: usize,
        /// Number of entries since the beginning.
        upto: usize,
    },
    /// Parent to child: the next entry.
    Entry {
        /// The tree.
        tree: usize,
        /// What it offers.
        chunk: u32,
    },
    /// Child to parent: send this chunk.
    Fetch {
        /// The tree.
        tree: usize,
        /// A chunk that was offered.
        chunk: u32,
    },
    /// Child to parent: send this chunk no more, it can come sooner down another tree.
    Cancel {
        /// The tree.
        tree: usize,
        /// A chunk that was to be fetched.
        chunk: u32,
    },
    /// Parent to child, on `Cancel`: this chunk does not come any more. One that was sent already comes instead.
    Cancelled {
        /// The tree.
        tree: usize,
        /// The chunk.
        chunk: u32,
    },
    /// Parent to child: what it was to send it does not have.
    Refuse {
        /// The tree.
        tree: usize,
        /// The chunk.
        chunk: u32,
    },
    /// Parent to child: the log of the tree is `end` entries long; what comes after it is whatever the child lacks.
    Retired {
        /// The tree.
        tree: usize,
        /// Length of its log.
        end: usize,
    },
    /// To all above in open trees: all that it holds.
    Holds {
        /// The chunks.
        chunks: Chunks,
    },
    /// To all above in open trees: it now holds this chunk too.
    Holding {
        /// The chunk.
        chunk: u32,
    },
    /// Child to parents of open trees: it does not hold this chunk, whatever it was offered.
    Lacking {
        /// The chunk.
        chunk: u32,
    },
}

/// Most entries of a tree that anybody speaks of.
const MAX_ENTRIES: usize = u32::MAX as usize / 2;

impl Message {
    /// Whether its numbers can be, whoever sent it.
    fn is_plausible(&self) -> bool {
        match *self {
            Self::Attach { position, .. } => position.is_none_or(|position| position <= MAX_ENTRIES),
            Self::Attached { position, end, .. } => position.max(end.unwrap_or(0)) <= MAX_ENTRIES,
            Self::Ready { upto, .. } => upto <= MAX_ENTRIES,
            Self::Retired { end, .. } => end <= MAX_ENTRIES,
            _ => true,
        }
    }
}

/// What happened at a host.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The plan is there, at everybody that this host may hear from.
    Started,
    /// Another host said something.
    Told {
        /// Who.
        from: usize,
        /// What.
        message: Message,
    },
    /// All of a chunk arrived.
    Received {
        /// Who sent it.
        from: usize,
        /// Down which tree.
        tree: usize,
        /// Which.
        chunk: u32,
        /// Whether it has its hash.
        intact: bool,
    },
    /// What [`Command::Withdraw`] asked for was in time.
    Withdrawn {
        /// To whom it was to be sent.
        to: usize,
        /// Down which tree.
        tree: usize,
        /// Which.
        chunk: u32,
    },
    /// Another host can be reached no more, or is not to be.
    Gone {
        /// Which.
        host: usize,
    },
    /// A host that was gone can be reached again.
    Back {
        /// Which.
        host: usize,
    },
    /// The time of a [`Command::WakeAt`] has come.
    Woken,
}

/// What a host is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Say something to another host.
    Tell {
        /// To whom.
        to: usize,
        /// What.
        message: Message,
    },
    /// Send a chunk, behind those for the same hop that are not sent yet.
    Send {
        /// To whom.
        to: usize,
        /// Down which tree.
        tree: usize,
        /// Which.
        chunk: u32,
    },
    /// Do not send a chunk, or stop sending it, if it is not all sent; then [`Event::Withdrawn`].
    Withdraw {
        /// To whom.
        to: usize,
        /// Down which tree.
        tree: usize,
        /// Which.
        chunk: u32,
    },
    /// Connect to a host that is now to be fed from here.
    Connect {
        /// To whom.
        to: usize,
        /// Down which tree.
        tree: usize,
    },
    /// Send [`Event::Woken`] at this time.
    WakeAt(Duration),
    /// All chunks are here.
    Complete,
    /// Nobody above in this tree is left, and chunks are missing.
    Orphaned {
        /// The tree.
        tree: usize,
    },
    /// A host sent too many spoilt chunks and was left.
    Distrust {
        /// Which.
        host: usize,
    },
}
