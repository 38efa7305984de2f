//! What a user sees in each state, and what holds in all of them.

mod ends;
mod happenings;
mod lifecycle;
mod properties;
mod states;
mod world;
