//! What may a user ask of gridcast, and what does gridcast answer?
//!
//! Three kinds of the group `gridcast.io/v1alpha1`, each useful alone: [`VirtualCluster`], [`Broadcast`] and
//! [`NetworkMap`], as Rust types with their bounds and CEL rules, and the `CustomResourceDefinition`s generated from
//! them ([`crds`], `crds/*.yaml`). [`manifest`] reads YAML and refuses what the API server would refuse, by the same
//! schema and the same rules, with the same field paths.
//!
//! Nothing here connects to anything or decides anything: those who act on an object convert it to their own types.

// `KubeSchema` makes a hidden struct per kind, on which the lint misfires.
#![allow(unreachable_pub)]

mod bounds;
pub mod broadcast;
pub mod conditions;
pub mod definitions;
pub mod manifest;
pub mod network_map;
pub mod reference;
mod rules;
mod schema;
pub mod source;
pub mod virtual_cluster;

pub use broadcast::{Broadcast, BroadcastSpec, BroadcastStatus};
pub use definitions::crds;
pub use manifest::{Document, Resource, ValidationErrors, parse};
pub use network_map::{NetworkMap, NetworkMapSpec, NetworkMapStatus};
pub use source::{Source, Strategy};
pub use virtual_cluster::{VirtualCluster, VirtualClusterSpec, VirtualClusterStatus};

/// The API group of every kind.
pub const GROUP: &str = "gridcast.io";
/// The API version of every kind.
pub const VERSION: &str = "v1alpha1";
