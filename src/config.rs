//! Settings of a run.
