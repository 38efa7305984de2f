//! `gridcast-agent`: one per node.

fn main() {}
