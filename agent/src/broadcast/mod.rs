//! How does a dataset travel from one node to all others?
