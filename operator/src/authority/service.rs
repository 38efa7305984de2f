//! How does an agent get its certificate?
