//! How does one node speak for its cluster? The gRPC service `Agent`.
