//! One DGMRF layer as a linear operator.

use super::cg;
use crate::error::{Error, Result};
use crate::graph::Graph;
use rayon::prelude::*;

/// The four numbers of a layer; the default is the paper's E.1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerParameters {
    /// Scale of the self term, positive.
    pub alpha: f64,
    /// Weight of the neighbours.
    pub beta: f64,
    /// Power of the degree.
    pub gamma: f64,
    /// Added to every node.
    pub bias: f64,
}

impl Default for LayerParameters {
    fn default() -> Self {
        LayerParameters { alpha: 1.2, beta: -1.0, gamma: 1.0, bias: 0.0 }
    }
}

impl LayerParameters {
    /// `|β| < α` makes the layer invertible on every graph.
    pub fn check_invertible(&self) -> Result<()> {
        let LayerParameters { alpha, beta, .. } = self;
        if beta.abs() < *alpha {
            return Ok(());
        }
        Err(Error::Setting(format!(
            "alpha {alpha}, beta {beta}: |beta| must be smaller than alpha, or the layer need not \
             be invertible and the field has no proper law"
        )))
    }
}

/// The matrix of a layer (paper, eq. layerG),
///
/// ```text
/// G = α D^γ + β D^(γ-1) A,    (G h)_i = α d_i^γ h_i + β d_i^(γ-1) Σ_j w_ij h_j,
/// ```
///
/// with the (weighted) adjacency `A` and degrees `D` of a graph. The bias is not part of it.
#[derive(Debug, Clone)]
pub struct Layer<'g> {
    graph: &'g Graph,
    parameters: LayerParameters,
    /// `α d^γ`, the diagonal.
    own: Vec<f64>,
    /// `β d^(γ-1)`, the factor of the neighbour sum.
    neighbour: Vec<f64>,
    /// `d^-½`
    scale: Vec<f64>,
}

/// Rows below which a product is not worth more than one thread.
const ROWS: usize = 8192;

impl<'g> Layer<'g> {
    /// The layer on a graph; parameters must be finite, `α > 0`, every node connected.
    pub fn new(graph: &'g Graph, parameters: LayerParameters) -> Result<Self> {
        let LayerParameters { alpha, beta, gamma, bias } = parameters;
        if let Some(bad) = [alpha, beta, gamma, bias].iter().find(|v| !v.is_finite()) {
            return Err(Error::Setting(format!("layer parameter {bad} is not a finite number")));
        }
        if alpha <= 0.0 {
            return Err(Error::Setting(format!("alpha {alpha} must be positive")));
        }
        if let Some(i) = graph.first_isolated() {
            return Err(Error::Graph(format!("node {i} is isolated: no layer is defined there")));
        }
        let degrees = graph.degrees();
        Ok(Layer {
            graph,
            parameters,
            own: degrees.iter().map(|d| alpha * d.powf(gamma)).collect(),
            neighbour: degrees.iter().map(|d| beta * d.powf(gamma - 1.0)).collect(),
            scale: degrees.iter().map(|d| 1.0 / d.sqrt()).collect(),
        })
    }

    /// The numbers it was made from.
    pub fn parameters(&self) -> LayerParameters {
        self.parameters
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.own.len()
    }

    /// `out = G h`.
    pub fn apply(&self, h: &[f64], out: &mut [f64]) {
        out.par_iter_mut().with_min_len(ROWS).enumerate().for_each(|(i, out)| {
            *out = self.own[i] * h[i] + self.neighbour[i] * self.neighbour_sum(i, |j| h[j]);
        });
    }

    /// `out = Gᵀ g`; `A` is symmetric, so `Gᵀ = α D^γ + β A D^(γ-1)`.
    pub fn apply_transpose(&self, g: &[f64], out: &mut [f64]) {
        out.par_iter_mut().with_min_len(ROWS).enumerate().for_each(|(i, out)| {
            *out = self.own[i] * g[i] + self.neighbour_sum(i, |j| self.neighbour[j] * g[j]);
        });
    }

    /// `Σ_j w_ij f(j)`.
    #[inline]
    fn neighbour_sum(&self, i: usize, f: impl Fn(usize) -> f64) -> f64 {
        match self.graph.weights() {
            None => self.graph.neighbours(i).iter().map(|&j| f(j as usize)).sum(),
            Some(_) => self.graph.weighted_neighbours(i).map(|(j, w)| w * f(j as usize)).sum(),
        }
    }

    /// Solves `G h = r` for `|β| < α`.
    ///
    /// With `ρ = β/α` and `Ã = D^-½ A D^-½`, `G = α D^(γ-½) (I + ρ Ã) D^½`, and the matrix in the
    /// middle is symmetric positive definite with condition at most `(1 + |ρ|) / (1 - |ρ|)`:
    /// conjugate gradients on `(I + ρ Ã) u = D^½ D^-γ r / α`, then `h = D^-½ u`.
    pub fn solve(&self, r: &[f64], options: &cg::Options) -> Result<Vec<f64>> {
        self.parameters.check_invertible()?;
        let (scale, rho) = (&self.scale, self.parameters.beta / self.parameters.alpha);
        let rhs: Vec<f64> = (0..self.nodes()).map(|i| r[i] / (scale[i] * self.own[i])).collect();
        let mut u = vec![0.0; self.nodes()];
        let product = |p: &[f64], out: &mut [f64]| {
            out.par_iter_mut().with_min_len(ROWS).enumerate().for_each(|(i, out)| {
                *out = p[i] + rho * scale[i] * self.neighbour_sum(i, |j| scale[j] * p[j]);
            });
        };
        cg::solve(product, |_| 1.0, &rhs, &mut u, options)?;
        u.iter_mut().zip(scale).for_each(|(u, scale)| *u *= scale);
        Ok(u)
    }

    /// The entries of `G`.
    pub fn matrix(&self) -> sprs::CsMat<f64> {
        let n = self.nodes();
        let mut entries = sprs::TriMat::with_capacity((n, n), n + 2 * self.graph.edges());
        for i in 0..n {
            entries.add_triplet(i, i, self.own[i]);
            for (j, w) in self.graph.weighted_neighbours(i) {
                entries.add_triplet(i, j as usize, self.neighbour[i] * w);
            }
        }
        entries.to_csr()
    }
}
