//! The one error type of the crate. Every variant says *where* (file, line, node, rank)
//! and what to do next; `main` prints the chain and exits with 1.

use std::path::{Path, PathBuf};

/// Result of everything that can fail in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in the user's terms.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- files ----------------------------------------------------------------
    /// The operating system refused a file operation.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A text file holds something else than it should, at a known line.
    #[error("{}:{line}: {message}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// What is wrong and what is expected.
        message: String,
    },
    /// A file is wrong as a whole (empty, missing column, not a dataset, ...).
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        message: String,
    },
    /// The HDF5 library failed.
    #[error("{}: {what}: {source}", path.display())]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// What was being read or written.
        what: String,
        /// What the library said.
        source: hdf5::Error,
    },

    // ---- graphs and data ------------------------------------------------------
    /// A graph that no model can be put on.
    #[error("{0}")]
    Graph(String),
    /// Values that do not fit the graph or each other.
    #[error("{0}")]
    Data(String),

    // ---- settings -------------------------------------------------------------
    /// A value the user chose cannot work.
    #[error("{0}")]
    Setting(String),

    // ---- numerics -------------------------------------------------------------
    /// An iterative method or factorisation failed.
    #[error("{0}")]
    Numeric(String),

    // ---- ranks ----------------------------------------------------------------
    /// Another rank failed; all ranks stop together with its message.
    #[error("rank {rank}: {message}")]
    Rank {
        /// The failing rank.
        rank: usize,
        /// Its error.
        message: String,
    },
}

impl Error {
    /// A wrong line in a text file.
    pub fn parse(path: &Path, line: u64, message: impl Into<String>) -> Self {
        Error::Parse { path: path.into(), line, message: message.into() }
    }

    /// A file that is wrong as a whole.
    pub fn file(path: &Path, message: impl Into<String>) -> Self {
        Error::File { path: path.into(), message: message.into() }
    }
}

/// Attaches a path to the errors of the standard library and of HDF5.
pub trait WithPath<T> {
    /// `what` says which part of the file was in hand.
    fn with_path(self, path: &Path, what: &str) -> Result<T>;
}

impl<T> WithPath<T> for std::io::Result<T> {
    fn with_path(self, path: &Path, _what: &str) -> Result<T> {
        self.map_err(|source| Error::Io { path: path.into(), source })
    }
}

impl<T> WithPath<T> for hdf5::Result<T> {
    fn with_path(self, path: &Path, what: &str) -> Result<T> {
        self.map_err(|source| Error::Hdf5 { path: path.into(), what: what.into(), source })
    }
}
