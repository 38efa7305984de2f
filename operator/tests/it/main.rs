//! The real controllers against an in-process API server.

mod command;
mod controller;
mod fakeapi;
