//! What do the parts of gridcast say to each other?
//!
//! # Participants
//!
//! - A **controller** (the operator, or `gridcast local`) decides what a cluster does. It calls agents and starters and
//!   keeps nothing that they need.
//! - An **agent** is on each node. It serves [`Agent`](v1::agent_server::Agent) (describe, probe, tune) and
//!   [`Broadcasts`](v1::broadcasts_server::Broadcasts) (stage, collect) to the controller, and
//!   [`Relay`](v1::relay_server::Relay) and [`Sink`](v1::sink_server::Sink) to other agents.
//! - A **starter** is the first process of each node. It serves [`Starter`](v1::starter_server::Starter) to the
//!   controller and to the starters of the same cluster, and [`RankReports`](v1::rank_reports_server::RankReports) on a
//!   Unix socket inside the node.
//!
//! # Goals
//!
//! - *Nobody is believed without a key.* Every call but a rank's report is mutual TLS with the keys of one run; servers
//!   take only clients of that authority, clients check that the node that answers has the name they meant. Consequence: an
//!   address that went to somebody else is an error, not a wrong copy.
//! - *A controller may die and be replaced.* Agents and starters hold what happened (the journal of settings, the progress
//!   of a broadcast, the ranks seen) and are asked for it. Consequence: calls say what is wanted, not what has changed, and
//!   repeat without harm; owners are named in requests, not remembered per connection.
//! - *The end of a stream means something.* Whoever drops a call cancels what it asked for: a broadcast, a command, a
//!   probe. Consequence: nothing runs on that nobody waits for, and a lost connection needs no further message.
//! - *Bulk does not wait behind itself.* One HTTP/2 connection per tree and hop, messages of at most 64 KiB, hashes after
//!   the data. Consequence: a stalled tree blocks no other, a relay passes on what it has not seen whole, and the origin
//!   is read once, hashed while it is sent.
//! - *Failures have a place.* A reply that says no carries one PascalCase word, and a message that names the host and the
//!   file or setting. Consequence: report, condition and metric use the same word.
//!
//! # Non-goals
//!
//! - *Compatibility across versions of one cluster.* Agent, starter and controller of a run come from one release; fields
//!   are added, not reused, but no version is negotiated.
//! - *Secrecy of ranks' reports.* The socket is open to every user of the node, as the program that reports is; a report
//!   decides nothing but what the placement check says about that node.
//! - *Decisions.* Trees, settings and placements are computed by `gridcast-core`; what travels is the result.
//!
//! How a broadcast moves through `Relay` is described in the agent's `broadcast` module, how commands and ranks are
//! started in its `starter` module.

/// On Kubernetes the agent of node `NAME` shows a certificate for `NAME.NODES_DOMAIN`, and a source pod one for the UID of
/// its Broadcast below it: nodes may be called like an address, `10.0.0.1` say, which no certificate can have as a DNS
/// name. No DNS server knows these names.
pub const NODES_DOMAIN: &str = "nodes.gridcast.io";

/// Version 1 of the contracts.
#[allow(missing_docs, clippy::pedantic, unreachable_pub, unused_qualifications)]
pub mod v1 {
    tonic::include_proto!("gridcast.v1");
}

/// The part of the Container Storage Interface, version 1, that kubelet speaks with a plugin of inline volumes.
pub mod csi {
    /// Version 1 of the interface.
    #[allow(missing_docs, clippy::pedantic, unreachable_pub, unused_qualifications)]
    pub mod v1 {
        tonic::include_proto!("csi.v1");
    }
}

/// How a plugin becomes known to kubelet.
#[allow(missing_docs, clippy::pedantic, unreachable_pub, unused_qualifications)]
pub mod pluginregistration {
    tonic::include_proto!("pluginregistration");
}
