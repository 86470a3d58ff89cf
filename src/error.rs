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
    /// Conjugate gradients gave no solution.
    #[error(transparent)]
    Cg(#[from] CgError),
    /// Conjugate gradients gave no solution, and the strong preconditioner does not exist here.
    #[error("{source} (no preconditioner \"schwarz\" here: {refusal})")]
    CgWithoutBlocks {
        /// Why there is no solution.
        source: CgError,
        /// Why there are no blocks.
        refusal: String,
    },

    // ---- fits ---------------------------------------------------------------------
    /// A fit cannot go on.
    #[error(
        "training stopped: {source} ({})",
        checkpoint.map_or("there is no checkpoint".to_owned(), |step| {
            format!("the last good checkpoint is that of step {step}")
        })
    )]
    Stopped {
        /// Why.
        source: Box<Error>,
        /// Step of the last good checkpoint.
        checkpoint: Option<u64>,
    },
    /// A signal has ended a fit before it was finished.
    #[error(
        "training was interrupted by a signal; {}",
        if *saved {
            "its checkpoint is written, and the same command goes on from there"
        } else {
            "checkpoints are switched off, so nothing is left of it"
        }
    )]
    Interrupted {
        /// Whether there is a checkpoint to go on from.
        saved: bool,
    },

    // ---- ranks ----------------------------------------------------------------
    /// Another rank failed; all ranks stop together with its message.
    #[error("rank {rank}: {message}")]
    Rank {
        /// The failing rank.
        rank: usize,
        /// What went wrong there.
        message: String,
    },
    /// The ranks have failed together, and the first of them says why.
    #[error("the ranks have failed together")]
    FailedTogether,
}

/// Why conjugate gradients gave no solution; there is never a silent half of one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CgError {
    /// The iterations ran out.
    #[error(
        "conjugate gradients reached a relative residual of {:.1e} after {iterations} iterations, \
         {tolerance:.0e} was asked for{}",
        worst(residuals), of_columns(residuals, *tolerance)
    )]
    NoConvergence {
        /// Iterations made.
        iterations: usize,
        /// Relative residual that was asked for.
        tolerance: f64,
        /// Relative residual that each column reached.
        residuals: Vec<f64>,
    },
    /// The residual is small enough, but the error it leaves is not.
    #[error(
        "conjugate gradients came within {:.1e} posterior standard deviations after {iterations} \
         iterations, {error:.0e} was asked for",
        worst(bounds)
    )]
    NotAccurate {
        /// Iterations made.
        iterations: usize,
        /// Error that was asked for, in standard deviations.
        error: f64,
        /// Bound on the error of each column.
        bounds: Vec<f64>,
    },
    /// The matrix is singular, indefinite or not finite.
    #[error(
        "conjugate gradients broke down in iteration {iteration}: the matrix is not positive \
         definite in working precision (curvature {curvature:.1e}, residual {residual:.1e})"
    )]
    Breakdown {
        /// Iteration, counted from 1.
        iteration: usize,
        /// Column of the block.
        column: usize,
        /// `⟨p, A p⟩` of the search direction.
        curvature: f64,
        /// Relative residual there.
        residual: f64,
    },
}

fn worst(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |worst, v| v.max(worst))
}

fn of_columns(residuals: &[f64], tolerance: f64) -> String {
    match residuals.len() {
        1 => String::new(),
        all => {
            let missing = residuals.iter().filter(|r| **r > tolerance).count();
            format!(" ({missing} of {all} columns have not converged)")
        }
    }
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
