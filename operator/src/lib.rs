//! What does gridcast do about the objects in a cluster?
//!
//! For each of the three kinds: [`observe`] what there is, [`plan`] what should be (pure: no client, no clock), and
//! [`apply`] it; [`reconcile`] runs that loop. A [`verdict`] becomes the conditions that `kubectl wait`, Argo CD and Flux
//! read; [`failure`] says when another try makes sense.
//!
//! This version accepts the objects and says, in their conditions, what it cannot do yet: it provisions no nodes, stages
//! no data and measures no network. It says so rather than staying silent, because an object without conditions looks
//! like an operator that is not there.

pub mod apply;
pub mod args;
pub mod auxiliary_pod;
pub mod failure;
pub mod kind;
pub mod observe;
pub mod plan;
pub mod reconcile;
pub mod run;
pub mod verdict;
pub mod virtual_cluster;
