//! What gridcast knows: pure decisions. No Kubernetes, no gRPC, no runtime, no clock, no I/O.

pub mod broadcast;
pub mod failure;
pub mod lifecycle;
pub mod mpi;
pub mod network;
pub mod report;
