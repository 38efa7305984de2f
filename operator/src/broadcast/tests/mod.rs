//! What is done in which state, and what does it look like to the agents?

pub(crate) mod agents;
mod fixture;
mod invariants;
mod places;
mod steps;
mod tables;
