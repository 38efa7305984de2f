//! Measured networks.
