//! What is the network between these hosts like, and what should their TCP settings be?

mod matrix;
mod ping;
pub mod tcp;
mod tournament;
mod worst;

pub use matrix::{Matrix, MatrixError};
pub use ping::PingStatistics;
pub use tournament::{Concurrency, concurrent_latency_pairs, concurrent_pairs, disjoint, limit, rounds};
pub use worst::worst_pairs;
