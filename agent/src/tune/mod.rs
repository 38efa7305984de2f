//! Which kernel settings of this node does a run change, and how are they put back?
