//! What a user sees in each state, and what holds in all of them.

mod ends;
mod happenings;
mod lifecycle;
mod objects;
mod pods;
mod properties;
mod states;
mod stops;
mod world;
