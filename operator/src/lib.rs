//! What does gridcast do about the objects in a cluster?
//!
//! For each of the three kinds ([`kind`]): observe what there is, from caches ([`stores`]) and long steps ([`operations`]);
//! plan what should be (pure: no client, no clock); [`apply`] it. [`reconcile`] runs that loop, for what [`watch`]
//! triggers in a [`queue`]. What each kind does is in [`virtual_cluster`], [`broadcast`] and [`network_map`].
//!
//! Nodes are reached through their [`agents`], with keys that the [`authority`] signs; one replica leads ([`lease`]).
//! [`verdict`] makes the conditions that `kubectl wait`, Argo CD and Flux read; [`failure`] says when another try makes
//! sense.

pub mod agents;
pub mod apply;
pub mod args;
pub mod authority;
pub mod auxiliary_pod;
pub mod broadcast;
pub mod context;
pub mod events;
pub mod failure;
pub mod http;
pub mod kind;
pub mod lease;
pub mod listen;
pub mod metrics;
pub mod network_map;
pub mod operations;
pub mod queue;
pub mod reconcile;
pub mod run;
pub mod shelf;
pub mod slim;
pub mod stores;
pub mod uninstall;
pub mod verdict;
pub mod virtual_cluster;
pub mod watch;
