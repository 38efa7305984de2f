//! What is done in which state, and what does it look like to the agents?

mod fixture;
mod invariants;
mod steps;
mod tables;
