//! The states of a virtual cluster.
