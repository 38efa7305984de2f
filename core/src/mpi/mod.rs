//! MPI launches.
