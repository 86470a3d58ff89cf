//! Datasets from files.
