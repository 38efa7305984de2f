//! The starter as others use it: real processes on loopback, real keys, real `mpirun`.

mod exec;
mod init;
mod mpirun;
mod ranks;
mod remote;
mod support;
