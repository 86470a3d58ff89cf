//! The deep GMRF of the paper: a stack of layers.

use super::{Layer, LayerParameters, Prior, cg};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::progress::Progress;
use crate::random::Stream;
use rayon::prelude::*;

/// `x` such that `g(x) = z ~ N(0, I)`, where `g` applies `h ← G_l h + b_l` for `l = 1..L`:
/// mean `-G⁻¹ c` and precision `GᵀG` for `g(x) = G x + c` (paper, eq. layerG and section 3.1).
///
/// On a k-hop graph with one layer this is the paper's *Dense*.
#[derive(Debug, Clone)]
pub struct Dgmrf<'g> {
    layers: Vec<Layer<'g>>,
}

impl<'g> Dgmrf<'g> {
    /// One layer per element of `parameters`, first to last; `|β| < α` in each of them.
    pub fn new(graph: &'g Graph, parameters: &[LayerParameters]) -> Result<Self> {
        if parameters.is_empty() {
            return Err(Error::Setting("a DGMRF needs at least one layer".into()));
        }
        parameters.iter().try_for_each(LayerParameters::check_invertible)?;
        let layers = parameters.iter().map(|&p| Layer::new(graph, p)).collect::<Result<_>>()?;
        Ok(Dgmrf { layers })
    }

    /// The field with `g(x) = z`: solves `G_l h_(l-1) = h_l - b_l` from the last layer to the
    /// first, each to 1e-10.
    pub fn field(&self, z: Vec<f64>, progress: &mut Progress) -> Result<Vec<f64>> {
        let mut h = z;
        for layer in self.layers.iter().rev() {
            h.iter_mut().for_each(|h| *h -= layer.parameters().bias);
            h = layer.solve(&h, &cg::Options::default())?;
            progress.advance(100 / self.layers.len() as u64);
        }
        Ok(h)
    }
}

impl Prior for Dgmrf<'_> {
    fn nodes(&self) -> usize {
        self.layers[0].nodes()
    }

    fn sample(&self, stream: Stream, progress: &mut Progress) -> Result<Vec<f64>> {
        let z = (0..self.nodes() as u64).into_par_iter().map(|i| stream.normal(i, 0)).collect();
        self.field(z, progress)
    }

    fn precision(&self) -> sprs::CsMat<f64> {
        let mut product = self.layers[0].matrix();
        for layer in &self.layers[1..] {
            product = &layer.matrix() * &product;
        }
        &product.transpose_view().to_csr() * &product
    }

    /// `h = -Gᵀ c` with the stacked bias `c = g(0)`.
    fn information(&self) -> Vec<f64> {
        let mut h = vec![0.0; self.nodes()];
        let mut next = h.clone();
        for layer in &self.layers {
            layer.apply(&h, &mut next);
            next.iter_mut().for_each(|v| *v += layer.parameters().bias);
            std::mem::swap(&mut h, &mut next);
        }
        for layer in self.layers.iter().rev() {
            layer.apply_transpose(&h, &mut next);
            std::mem::swap(&mut h, &mut next);
        }
        h.iter_mut().for_each(|v| *v = -*v);
        h
    }
}
