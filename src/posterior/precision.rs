//! The precision of the posterior as an operator.

use crate::field::{Coefficients, Engine};
use crate::likelihood::Curvature;
use crate::linalg::SparseColumns;
use crate::model::columns::{Layers, Walk};
use crate::model::{Model, Stack};
use crate::partition::{Overlap, OverlapExchange};
use crate::solver::Operator;
use crate::solver::schwarz::{Assemble, Assembly};

/// `Q̃ = GᵀG + W`, the precision of `x | y, θ` where the data add a diagonal `W` (paper, Eq. 1,
/// with `W = σ⁻² I_m` for Gaussian noise). Never formed: a product is `2L` sweeps over the graph,
/// for all columns of a block at once.
pub struct Precision<E: Engine> {
    stack: Stack<E>,
    /// `G x` between the two halves of a product.
    image: E::Block,
    /// `W` and `W^½`.
    weight: E::Block,
    root_weight: E::Block,
    /// `W` on the host.
    diagonal: Vec<f64>,
    coefficients: Vec<Coefficients>,
}

impl<E: Engine> Precision<E> {
    /// For a model of `layers` layers.
    pub fn new(engine: &E, layers: usize) -> Self {
        Precision {
            stack: Stack::new(engine, layers, 0),
            image: engine.zeros(0),
            weight: engine.zeros(1),
            root_weight: engine.zeros(1),
            diagonal: vec![0.0; engine.part().owned],
            coefficients: Vec::new(),
        }
    }

    /// Takes over the layers, and what the data add.
    pub fn prepare(&mut self, engine: &E, model: &Model, curvature: &Curvature) {
        self.stack.prepare(engine, model);
        self.coefficients.clear();
        self.coefficients.extend((0..model.layers.len()).map(|l| model.coefficients(l)));
        self.diagonal.copy_from_slice(&curvature.diagonal);
        engine.upload(&curvature.diagonal, &mut self.weight);
        engine.upload(&curvature.root, &mut self.root_weight);
    }

    /// `out = Gᵀ w + W^½ v`, the right-hand side of everything there is to solve for:
    ///
    /// - the posterior mean `Q̃ μ = W y − Gᵀ b_G` with `w = −g(0)`, `v = W^½ y`;
    /// - a posterior sample around zero (perturbation) with standard normal `w` and `v`: the
    ///   right-hand side then has covariance `GᵀG + W = Q̃`, the solution `Q̃⁻¹`.
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

    /// `out = W x`.
    pub(crate) fn weigh(&self, engine: &E, x: &E::Block, out: &mut E::Block) {
        engine.scale_rows(&self.weight, x, out);
    }

    /// `out = W^½ x`.
    pub(crate) fn weigh_root(&self, engine: &E, x: &E::Block, out: &mut E::Block) {
        engine.scale_rows(&self.root_weight, x, out);
    }

    /// The layers, for products with `G` alone.
    pub fn stack(&mut self) -> &mut Stack<E> {
        &mut self.stack
    }

    /// The diagonal of `W` at the owned rows.
    pub fn weight(&self) -> impl Iterator<Item = f64> {
        self.diagonal.iter().copied()
    }

    /// The layers' coefficients.
    pub fn coefficients(&self) -> &[Coefficients] {
        &self.coefficients
    }
}

impl<E: Engine> Operator<E> for Precision<E> {
    fn apply(&mut self, engine: &mut E, x: &mut E::Block, out: &mut E::Block) {
        let columns = engine.columns(x);
        if engine.columns(&self.image) != columns {
            engine.resize(&mut self.image, columns);
        }
        self.stack.apply(engine, false, x, &mut self.image);
        self.stack.transpose(engine, &mut self.image, out);
        engine.add_scaled_rows(&self.weight, x, out);
    }
}

/// `Q̃` on the rows of an overlap, for preconditioners that assemble blocks of it: `B = G`.
pub struct PrecisionEntries<'a> {
    layers: Layers<'a>,
    /// `W` of the rows that values are wanted for.
    weight: Vec<f64>,
}

impl<E: Engine> Assemble<E> for Precision<E> {
    type Assembly<'a>
        = PrecisionEntries<'a>
    where
        Self: 'a;

    fn reach(&self) -> usize {
        self.coefficients.len()
    }

    fn assembly<'a>(&'a self, engine: &E, overlap: &'a Overlap) -> PrecisionEntries<'a> {
        let layers = Layers::new(overlap, &self.coefficients);
        PrecisionEntries { layers, weight: self.weight_within(engine, overlap) }
    }
}

impl<E: Engine> Precision<E> {
    /// The diagonal of `W` at the owned rows and at the rings that the overlap has values for. All
    /// ranks call it.
    pub(super) fn weight_within(&self, engine: &E, overlap: &Overlap) -> Vec<f64> {
        let mut weight: Vec<f64> = self.weight().collect();
        let mut exchange = OverlapExchange::new(engine.world(), overlap);
        let mut ghosts = vec![0.0; exchange.ghosts()];
        exchange.fetch(&weight, 1, &mut ghosts);
        weight.append(&mut ghosts);
        weight
    }
}

impl Assembly for PrecisionEntries<'_> {
    type Walk<'w>
        = Walk<'w>
    where
        Self: 'w;

    fn walk(&self) -> Walk<'_> {
        Walk::new(&self.layers)
    }

    fn columns(&self, walk: &mut Walk<'_>, members: &[u32], limit: usize) -> Option<SparseColumns> {
        walk.columns(members, limit)
    }

    fn diagonal(&self, row: usize) -> f64 {
        self.weight[row]
    }
}
