//! Preconditioners of conjugate gradients: cheap approximations of `Q̃⁻¹`.

use super::Precision;
use super::diagonal;
use super::schwarz::{self, Refusal, Schwarz};
use crate::field::Engine;

/// Which preconditioner to use.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    serde::Serialize,
    serde::Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The diagonal of `Q̃`, and blocks where that converges slowly.
    #[default]
    Auto,
    /// The identity.
    None,
    /// The diagonal of `Q̃`.
    Jacobi,
    /// Overlapping blocks of `Q̃`, each solved exactly: for large unobserved regions.
    Schwarz,
}

/// `M⁻¹ ≈ Q̃⁻¹`, symmetric and positive definite.
pub enum Preconditioner<E: Engine> {
    /// One number per node: the identity, or the inverse of the diagonal (Jacobi).
    Diagonal(Diagonal<E>),
    /// Anything else.
    Operator(Box<dyn Operator<E>>),
}

/// A preconditioner that is more than a diagonal.
pub trait Operator<E: Engine> {
    /// `z = M⁻¹ r`. Always called by all ranks together.
    fn apply(&mut self, engine: &mut E, r: &mut E::Block, z: &mut E::Block);
    /// Follows new parameters of the precision it was made from. Called by all ranks together.
    fn prepare(&mut self, engine: &E, precision: &Precision<E>);
}

/// A diagonal preconditioner.
pub struct Diagonal<E: Engine> {
    /// The inverse of the diagonal.
    pub(super) inverse: E::Rows,
    host: Vec<f64>,
    /// `Σ_j w_ij² / d_i²` of each row; empty for the identity.
    share: Vec<f64>,
}

impl<E: Engine> Preconditioner<E> {
    /// No preconditioner: the identity.
    pub fn none(engine: &E) -> Self {
        let host = vec![1.0; engine.part().ids.len()];
        Self::Diagonal(Diagonal { inverse: engine.rows(&host), host, share: Vec::new() })
    }

    /// The diagonal of `Q̃`, exact wherever it can be had. All ranks call it.
    pub fn exact_jacobi(engine: &E, precision: &Precision<E>) -> Self {
        Self::from_diagonal(engine, &diagonal::exact(engine, precision))
    }

    /// Overlapping blocks of `Q̃`, or why not on this graph. All ranks call it.
    pub fn schwarz(
        engine: &E,
        precision: &Precision<E>,
        options: &schwarz::Options,
    ) -> Result<Self, Refusal> {
        Schwarz::new(engine, precision, options).map(|made| Self::Operator(Box::new(made)))
    }

    /// The diagonal of `Q̃`: exact for one layer, its dominating term for more (see
    /// [`Preconditioner::prepare`]). Cheap enough to be made anew in every step of a fit.
    pub fn jacobi(engine: &E, precision: &Precision<E>) -> Self {
        let host = vec![1.0; engine.part().ids.len()];
        let share = diagonal::share(engine.part());
        let mut made = Self::Diagonal(Diagonal { inverse: engine.rows(&host), host, share });
        made.prepare(engine, precision);
        made
    }

    /// The inverse of a given diagonal, one value per owned row.
    pub fn from_diagonal(engine: &E, diagonal: &[f64]) -> Self {
        let mut host: Vec<f64> = diagonal.iter().map(|d| 1.0 / d).collect();
        host.resize(engine.part().ids.len(), 0.0);
        Self::Diagonal(Diagonal { inverse: engine.rows(&host), host, share: Vec::new() })
    }

    /// Follows new parameters of the precision, where it is made from them by
    /// [`Preconditioner::jacobi`] or [`Preconditioner::schwarz`]; others stay as they are (and stay
    /// valid: a preconditioner of nearby parameters is one).
    pub fn prepare(&mut self, engine: &E, precision: &Precision<E>) {
        let d = match self {
            Self::Diagonal(d) => d,
            Self::Operator(operator) => return operator.prepare(engine, precision),
        };
        if d.share.is_empty() {
            return;
        }
        diagonal::dominating(engine.part(), precision, &d.share, &mut d.host);
        d.host.iter_mut().for_each(|value| *value = 1.0 / *value);
        engine.set_rows(&d.host, &mut d.inverse);
    }

    /// The diagonal of `M`, where that is all of it; empty for others. One value per local row.
    pub fn diagonal(&self) -> Vec<f64> {
        match self {
            Self::Diagonal(d) => d.host.iter().map(|inverse| 1.0 / inverse).collect(),
            Self::Operator(_) => Vec::new(),
        }
    }

    /// `z = M⁻¹ r`.
    pub(super) fn apply(&mut self, engine: &mut E, r: &mut E::Block, z: &mut E::Block) {
        match self {
            Self::Diagonal(d) => engine.scale_rows(&d.inverse, r, z),
            Self::Operator(operator) => operator.apply(engine, r, z),
        }
    }
}
