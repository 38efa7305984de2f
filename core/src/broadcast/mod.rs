//! Broadcasts: the network they run on, the trees they run down, the data they carry.

pub mod dataset;
pub mod maxflow;
pub mod paper;
pub mod plan;
pub(crate) mod random;
#[cfg(test)]
mod samples;
pub mod schedule;
pub mod simulate;
pub mod topology;
pub mod validity;
