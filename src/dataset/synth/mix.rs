//! The paper's *Mix*: a sum of precisions from several hop distances.

use super::{Layer, LayerParameters, Prior, cg};
use crate::error::{Error, Result};
use crate::graph::{self, Graph};
use crate::progress::Progress;
use crate::random::{Purpose, Stream};

/// Zero mean and precision `Q = Σ_i G_iᵀ G_i`, with `G_i` a [`Layer`] on the i-hop graph.
///
/// With `α_i = -β_i` in every term (the default of `dgmrf synth mix`, and what the paper's data
/// was really made with) every `G_i` is `α_i D^(γ-1) (D - A)`: constants have no energy, `Q` is
/// singular and the prior *intrinsic*. The field is then drawn in the complement of the
/// constants, i.e. with covariance `Q⁺` and average zero, while the posterior, which the data
/// make proper, leaves the level free.
#[derive(Debug, Clone)]
pub struct Mix<'g> {
    layers: Vec<Layer<'g>>,
    intrinsic: bool,
}

/// The i-hop graphs for `i = 1..=hops`, all unweighted.
pub fn hop_graphs(graph: &Graph, hops: usize) -> Result<Vec<Graph>> {
    (1..=hops).map(|i| graph::k_hop(graph, i)).collect()
}

/// The parameters of the paper's text: `α_i ~ U[0.5, 1.5]`, `β_i ~ U[-1.1, -0.1]`, `γ = 1`.
pub fn random_parameters(hops: usize, seed: u64) -> Vec<LayerParameters> {
    let stream = Stream::new(seed, Purpose::Parameter, 0);
    let draw = |i| LayerParameters {
        alpha: 0.5 + stream.uniform(i, 0),
        beta: -1.1 + stream.uniform(i, 1),
        gamma: 1.0,
        bias: 0.0,
    };
    (0..hops as u64).map(draw).collect()
}

impl<'g> Mix<'g> {
    /// Term `i` lives on `graphs[i]`. `|β| ≥ α` is fine here as long as `Q` as a whole is positive
    /// definite; biases must be zero.
    pub fn new(graphs: &'g [Graph], parameters: &[LayerParameters]) -> Result<Self> {
        if graphs.is_empty() || graphs.len() != parameters.len() {
            return Err(Error::Setting(format!(
                "{} hop graphs with parameters for {}",
                graphs.len(),
                parameters.len()
            )));
        }
        if parameters.iter().any(|p| p.bias != 0.0) {
            return Err(Error::Setting("the terms of a mix have no bias".into()));
        }
        let terms = graphs.iter().zip(parameters);
        let layers = terms.map(|(g, &p)| Layer::new(g, p)).collect::<Result<Vec<_>>>()?;
        let intrinsic = parameters.iter().all(|p| p.alpha + p.beta == 0.0);
        if intrinsic && graph::components(&graphs[0]).count() > 1 {
            return Err(Error::Graph(
                "an intrinsic mix (alpha = -beta) needs a connected graph: every component would \
                 have a free level of its own"
                    .into(),
            ));
        }
        Ok(Mix { layers, intrinsic })
    }

    /// Whether constants have no energy, so that the field is drawn with average zero.
    pub fn is_intrinsic(&self) -> bool {
        self.intrinsic
    }

    /// The field `x = Q⁻¹ Σ_i G_iᵀ z_i` (`Q⁺` if intrinsic), by conjugate gradients to 1e-10; its
    /// covariance is `Q⁻¹ Q Q⁻¹ = Q⁻¹`.
    pub fn field(&self, z: &[Vec<f64>]) -> Result<Vec<f64>> {
        let n = self.nodes();
        let mut rhs = vec![0.0; n];
        let mut part = vec![0.0; n];
        for (layer, z) in self.layers.iter().zip(z) {
            layer.apply_transpose(z, &mut part);
            rhs.iter_mut().zip(&part).for_each(|(r, p)| *r += p);
        }
        let diagonal = self.diagonal();
        let mut image = vec![0.0; n];
        let product = |p: &[f64], out: &mut [f64]| {
            out.fill(0.0);
            for layer in &self.layers {
                layer.apply(p, &mut image);
                layer.apply_transpose(&image, &mut part);
                out.iter_mut().zip(&part).for_each(|(o, p)| *o += p);
            }
        };
        let mut x = vec![0.0; n];
        cg::solve(product, |i| diagonal[i], &rhs, &mut x, &cg::Options::default())?;
        if self.intrinsic {
            let level = x.iter().sum::<f64>() / n as f64;
            x.iter_mut().for_each(|x| *x -= level);
        }
        Ok(x)
    }

    /// The diagonal of `Q`: the squared column norms of the `G_i`.
    fn diagonal(&self) -> Vec<f64> {
        let mut diagonal = vec![0.0; self.nodes()];
        for layer in &self.layers {
            for row in layer.matrix().outer_iterator() {
                row.iter().for_each(|(j, v)| diagonal[j] += v * v);
            }
        }
        diagonal
    }
}

impl Prior for Mix<'_> {
    fn nodes(&self) -> usize {
        self.layers[0].nodes()
    }

    /// Column `i` of the stream is the white noise of term `i`.
    fn sample(&self, stream: Stream, progress: &mut Progress) -> Result<Vec<f64>> {
        let white = |column| (0..self.nodes() as u64).map(|i| stream.normal(i, column)).collect();
        let z: Vec<Vec<f64>> = (0..self.layers.len() as u64).map(white).collect();
        let x = self.field(&z)?;
        progress.advance(100);
        Ok(x)
    }

    fn precision(&self) -> sprs::CsMat<f64> {
        let square = |layer: &Layer| {
            let g = layer.matrix();
            &g.transpose_view().to_csr() * &g
        };
        let first = square(&self.layers[0]);
        self.layers[1..].iter().fold(first, |sum, layer| &sum + &square(layer))
    }

    fn information(&self) -> Vec<f64> {
        vec![0.0; self.nodes()]
    }
}
