//! Preconditioners of the posterior precision, which follow its parameters.

use super::Precision;
use super::diagonal;
use crate::field::Engine;
use crate::solver::schwarz;
use crate::solver::{Diagonal, Precondition, Refusal, Schwarz};

words! {
    /// Which preconditioner to use.
    pub enum Choice {
        /// The diagonal of `Q̃`, and blocks where that converges slowly.
        #[default]
        Auto = "auto",
        /// The identity.
        None = "none",
        /// The diagonal of `Q̃`.
        Jacobi = "jacobi",
        /// Overlapping blocks of `Q̃`, each solved exactly: for large unobserved regions.
        Schwarz = "schwarz",
    }
}

/// `M⁻¹ ≈ Q̃⁻¹`, made from a [`Precision`].
pub enum Preconditioner<E: Engine> {
    /// A diagonal that stays as it is.
    Fixed(Diagonal<E>),
    /// The dominating diagonal of `Q̃`, made anew for other parameters.
    Jacobi(Jacobi<E>),
    /// Overlapping blocks of `Q̃`.
    Schwarz(Box<Schwarz>),
}

/// The dominating diagonal of `Q̃`.
pub struct Jacobi<E: Engine> {
    inverse: Diagonal<E>,
    /// `Σ_j w_ij² / d_i²` of each owned row.
    share: Vec<f64>,
    /// Scratch for the diagonal, one value per owned row.
    diagonal: Vec<f64>,
}

impl<E: Engine> Preconditioner<E> {
    /// No preconditioner: the identity.
    pub fn none(engine: &E) -> Self {
        Self::Fixed(Diagonal::identity(engine))
    }

    /// The diagonal of `Q̃`, exact wherever it can be had. All ranks call it.
    pub fn exact_jacobi(engine: &E, precision: &Precision<E>) -> Self {
        Self::Fixed(Diagonal::new(engine, &diagonal::exact(engine, precision)))
    }

    /// Overlapping blocks of `Q̃`, or why not on this graph. All ranks call it.
    pub fn schwarz(
        engine: &E,
        precision: &Precision<E>,
        options: &schwarz::Options,
    ) -> Result<Self, Refusal> {
        Ok(Self::Schwarz(Box::new(Schwarz::new(engine, precision, options)?)))
    }

    /// The diagonal of `Q̃`: exact for one layer, its dominating term for more. Cheap enough to be
    /// made anew in every step of a fit ([`Preconditioner::follow`]).
    pub fn jacobi(engine: &E, precision: &Precision<E>) -> Self {
        let part = engine.part();
        let mut made = Jacobi {
            inverse: Diagonal::identity(engine),
            share: diagonal::share(part),
            diagonal: vec![0.0; part.owned],
        };
        made.follow(engine, precision);
        Self::Jacobi(made)
    }

    /// Follows new parameters of the precision. A fixed diagonal stays as it is, and stays valid: a
    /// preconditioner of nearby parameters is one. All ranks call it.
    pub fn follow(&mut self, engine: &E, precision: &Precision<E>) {
        match self {
            Self::Fixed(_) => {}
            Self::Jacobi(jacobi) => jacobi.follow(engine, precision),
            Self::Schwarz(blocks) => blocks.follow(engine, precision),
        }
    }

    /// The diagonal of `M⁻¹` on the host, one value per owned row, where that is all of it.
    pub fn inverse_diagonal(&self, owned: usize) -> Option<&[f64]> {
        match self {
            Self::Fixed(diagonal) => Some(&diagonal.inverse()[..owned]),
            Self::Jacobi(jacobi) => Some(&jacobi.inverse.inverse()[..owned]),
            Self::Schwarz(_) => None,
        }
    }
}

impl<E: Engine> Jacobi<E> {
    fn follow(&mut self, engine: &E, precision: &Precision<E>) {
        diagonal::dominating(engine.part(), precision, &self.share, &mut self.diagonal);
        self.inverse.set(engine, &self.diagonal);
    }
}

impl<E: Engine> Precondition<E> for Preconditioner<E> {
    fn apply(&mut self, engine: &mut E, r: &mut E::Block, z: &mut E::Block) {
        match self {
            Self::Fixed(diagonal) => diagonal.apply(engine, r, z),
            Self::Jacobi(jacobi) => jacobi.inverse.apply(engine, r, z),
            Self::Schwarz(blocks) => blocks.apply(engine, r, z),
        }
    }

    fn diagonal(&self) -> Option<&E::Block> {
        match self {
            Self::Fixed(diagonal) => diagonal.diagonal(),
            Self::Jacobi(jacobi) => jacobi.inverse.diagonal(),
            Self::Schwarz(_) => None,
        }
    }
}
