//! What runs inside a node on behalf of its cluster?
