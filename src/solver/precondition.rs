//! What a preconditioner must do, and the simplest one.

use crate::field::Engine;

/// `M⁻¹ ≈ A⁻¹`, symmetric and positive definite.
pub trait Precondition<E: Engine> {
    /// `z = M⁻¹ r`. All ranks call it together.
    fn apply(&mut self, engine: &mut E, r: &mut E::Block, z: &mut E::Block);

    /// The diagonal of `M⁻¹`, where `M⁻¹` is diagonal: conjugate gradients then apply it in the
    /// passes that they make anyway, and need two blocks less.
    fn diagonal(&self) -> Option<&E::Block> {
        None
    }
}

/// A diagonal preconditioner: the identity, or the inverse of a given diagonal (Jacobi).
pub struct Diagonal<E: Engine> {
    inverse: E::Block,
    /// The inverse of the diagonal, one value per owned row.
    host: Vec<f64>,
}

impl<E: Engine> Diagonal<E> {
    /// No preconditioner.
    pub fn identity(engine: &E) -> Self {
        let host = vec![1.0; engine.part().owned];
        Diagonal { inverse: engine.node_field(&host), host }
    }

    /// The inverse of a diagonal with one value per owned row.
    pub fn new(engine: &E, diagonal: &[f64]) -> Self {
        let mut made = Self::identity(engine);
        made.set(engine, diagonal);
        made
    }

    /// Takes another diagonal, one value per owned row.
    pub fn set(&mut self, engine: &E, diagonal: &[f64]) {
        assert_eq!(diagonal.len(), engine.part().owned, "one value per owned row");
        self.host.iter_mut().zip(diagonal).for_each(|(h, d)| *h = 1.0 / d);
        engine.upload(&self.host, &mut self.inverse);
    }

    /// The inverse of the diagonal, one value per owned row.
    pub fn inverse(&self) -> &[f64] {
        &self.host
    }
}

impl<E: Engine> Precondition<E> for Diagonal<E> {
    fn apply(&mut self, engine: &mut E, r: &mut E::Block, z: &mut E::Block) {
        engine.scale_rows(&self.inverse, r, z);
    }

    fn diagonal(&self) -> Option<&E::Block> {
        Some(&self.inverse)
    }
}
