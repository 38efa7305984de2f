//! How fast and how steady is the way to a peer?
