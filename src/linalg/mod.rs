//! Linear algebra on the host that knows neither graphs nor statistics.
//!
//! Here: sparse columns and their products ([`SparseColumns`], [`Gram`]), sparse Cholesky factors
//! ([`Pattern`], [`Factor`]) and the compact form that preconditioners solve with ([`Panels`]), the
//! diagonal of a dense inverse ([`dense`]), eigenvalues of tridiagonal matrices and the Gauss rules
//! that follow from them (`tridiagonal.rs`, `gauss_rules.rs`).
//! Not here: systems spread over ranks and engines; those are in [`crate::solver`].

mod columns;
pub mod dense;
mod factor;
mod gauss_rules;
mod gram;
mod panels;
mod substitution;
mod tridiagonal;

pub use columns::SparseColumns;
pub use factor::{Factor, FactorError, Lower, Pattern};
pub(crate) use gauss_rules::gauss_rules;
pub use gram::Gram;
pub use panels::{Panels, Store};
pub use substitution::Scratch;
pub(crate) use tridiagonal::Tridiagonal;
