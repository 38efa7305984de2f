//! Does a value fit a structural schema, as the API server would judge it?
