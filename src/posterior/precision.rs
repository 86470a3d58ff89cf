//! The precision of the posterior as an operator.

use crate::field::Engine;
use crate::model::{Model, Stack};

/// `Q̃ = GᵀG + σ⁻² I_m`, the precision of `x | y, θ` for `y = x + N(0, σ²)` at the observed nodes
/// (paper, Eq. posterior). Never formed: a product is `2L` sweeps over the graph, for all columns
/// of a block at once.
pub struct Precision<E: Engine> {
    stack: Stack<E>,
    /// `G x` between the two halves of a product.
    image: E::Block,
    /// The mask `m` of this rank's rows, halo included (where it is not used).
    observed: Vec<f64>,
    /// `σ⁻² m`, and `σ⁻¹ m` for right-hand sides.
    weight: E::Rows,
    root_weight: E::Rows,
    /// Room to compute rows in.
    host: Vec<f64>,
    coefficients: Vec<crate::field::Coefficients>,
    sigma: f64,
    owned: usize,
}

impl<E: Engine> Precision<E> {
    /// Room for a model of `layers` layers; `observed` says which owned rows have data.
    pub fn new(engine: &E, layers: usize, observed: &[bool]) -> Self {
        let part = engine.part();
        assert_eq!(observed.len(), part.owned, "a mark for each owned row");
        let mut mask: Vec<f64> = observed.iter().map(|&o| f64::from(u8::from(o))).collect();
        mask.resize(part.ids.len(), 0.0);
        Precision {
            stack: Stack::new(engine, layers, 0),
            image: engine.zeros(0),
            weight: engine.rows(&mask),
            root_weight: engine.rows(&mask),
            host: mask.clone(),
            observed: mask,
            coefficients: Vec::new(),
            sigma: 1.0,
            owned: part.owned,
        }
    }

    /// Takes over the parameters: the layers and the standard deviation `σ` of the noise.
    pub fn prepare(&mut self, engine: &E, model: &Model, sigma: f64) {
        self.stack.prepare(engine, model);
        self.coefficients.clear();
        self.coefficients.extend((0..model.layers.len()).map(|l| model.coefficients(l)));
        self.sigma = sigma;
        for (rows, weight) in
            [(&mut self.weight, sigma.powi(-2)), (&mut self.root_weight, 1.0 / sigma)]
        {
            self.host.iter_mut().zip(&self.observed).for_each(|(h, m)| *h = weight * m);
            engine.set_rows(&self.host, rows);
        }
    }

    /// `out = Q̃ x`.
    pub fn apply(&mut self, engine: &mut E, x: &mut E::Block, out: &mut E::Block) {
        let columns = engine.columns(x);
        if engine.columns(&self.image) != columns {
            engine.resize(&mut self.image, columns);
        }
        self.stack.apply(engine, false, x, &mut self.image);
        self.stack.transpose(engine, &mut self.image, out);
        engine.add_scaled_rows(&self.weight, x, out);
    }

    /// `out = Gᵀ w + σ⁻¹ I_m v`, the right-hand side of everything there is to solve for:
    ///
    /// - the posterior mean `Q̃ μ = σ⁻² y_m − Gᵀ b_G` with `w = −g(0)`, `v = y/σ`;
    /// - a posterior sample around zero (perturbation) with standard normal `w` and `v`: the
    ///   right-hand side then has covariance `GᵀG + σ⁻² I_m = Q̃`, the solution `Q̃⁻¹`.
    pub fn right_hand_side(
        &mut self,
        engine: &mut E,
        w: &mut E::Block,
        v: &E::Block,
        out: &mut E::Block,
    ) {
        self.stack.transpose(engine, w, out);
        engine.add_scaled_rows(&self.root_weight, v, out);
    }

    /// `out = σ⁻² I_m x`.
    pub(crate) fn weigh(&self, engine: &E, x: &E::Block, out: &mut E::Block) {
        engine.scale_rows(&self.weight, x, out);
    }

    /// `out = σ⁻¹ I_m x`.
    pub(crate) fn weigh_root(&self, engine: &E, x: &E::Block, out: &mut E::Block) {
        engine.scale_rows(&self.root_weight, x, out);
    }

    /// The layers, for products with `G` alone.
    pub fn stack(&mut self) -> &mut Stack<E> {
        &mut self.stack
    }

    /// Standard deviation of the noise.
    pub fn sigma(&self) -> f64 {
        self.sigma
    }

    /// `m` of all local rows.
    pub(super) fn mask(&self) -> &[f64] {
        &self.observed
    }

    /// `σ⁻² m` of the owned rows.
    pub(super) fn weight(&self) -> impl Iterator<Item = f64> {
        let owned = self.owned;
        self.observed[..owned].iter().map(|m| m / (self.sigma * self.sigma))
    }

    /// The layers' coefficients.
    pub(super) fn coefficients(&self) -> &[crate::field::Coefficients] {
        &self.coefficients
    }
}
