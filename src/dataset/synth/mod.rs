//! Generated datasets.
