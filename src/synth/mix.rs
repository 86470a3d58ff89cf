//! The paper's *Mix*: a sum of precisions from several hop distances.

use super::Prior;
use super::whole::{self, Block, Layer};
use crate::error::{Error, Result};
use crate::field::native::Native;
use crate::field::{Coefficients, Engine};
use crate::graph::{self, Graph};
use crate::model::layer::{LayerEntries, LayerSpec};
use crate::progress::Progress;
use crate::random::{Purpose, Stream};
use crate::solver::{Diagonal, Operator, cg};

/// Zero mean and precision `Q = Σ_i G_iᵀ G_i`, with `G_i` a layer on the i-hop graph.
///
/// With `α_i = -β_i` in every term (the default of `dgmrf synth mix`, and what the paper's data
/// was really made with) every `G_i` is `α_i D^(γ-1) (D - A)`: constants have no energy, `Q` is
/// singular and the prior *intrinsic*. The field is then drawn in the complement of the
/// constants, i.e. with covariance `Q⁺` and average zero, while the posterior, which the data
/// make proper, leaves the level free.
#[derive(Debug, Clone)]
pub struct Mix<'g> {
    graphs: &'g [Graph],
    layers: Vec<Coefficients>,
    intrinsic: bool,
}

/// The i-hop graphs for `i = 1..=hops`, all unweighted.
pub fn hop_graphs(graph: &Graph, hops: usize) -> Result<Vec<Graph>> {
    (1..=hops).map(|i| graph::k_hop(graph, i)).collect()
}

/// The parameters of the paper's text: `α_i ~ U[0.5, 1.5]`, `β_i ~ U[-1.1, -0.1]`, `γ = 1`.
pub fn random_parameters(hops: usize, seed: u64) -> Vec<LayerSpec> {
    let stream = Stream::new(seed, Purpose::Parameter, 0);
    let draw = |i| LayerSpec {
        alpha: 0.5 + stream.uniform(i, 0),
        beta: -1.1 + stream.uniform(i, 1),
        gamma: 1.0,
        ..LayerSpec::default()
    };
    (0..hops as u64).map(draw).collect()
}

impl<'g> Mix<'g> {
    /// Term `i` lives on `graphs[i]`. `|β| ≥ α` is fine here as long as `Q` as a whole is positive
    /// definite; biases must be zero.
    pub fn new(graphs: &'g [Graph], parameters: &[LayerSpec]) -> Result<Self> {
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
        graphs.iter().try_for_each(|graph| whole::check(graph, parameters))?;
        let intrinsic = parameters.iter().all(|p| p.alpha + p.beta == 0.0);
        if intrinsic && graph::components(&graphs[0]).count() > 1 {
            return Err(Error::Graph(
                "an intrinsic mix (alpha = -beta) needs a connected graph: every component would \
                 have a free level of its own"
                    .into(),
            ));
        }
        let layers = parameters.iter().map(LayerSpec::coefficients).collect();
        Ok(Mix { graphs, layers, intrinsic })
    }

    /// Whether constants have no energy, so that the field is drawn with average zero.
    pub fn is_intrinsic(&self) -> bool {
        self.intrinsic
    }

    /// The field `x = Q⁻¹ Σ_i G_iᵀ z_i` (`Q⁺` if intrinsic), by conjugate gradients to 1e-10; its
    /// covariance is `Q⁻¹ Q Q⁻¹ = Q⁻¹`.
    pub fn field(&self, z: &[Vec<f64>]) -> Result<Vec<f64>> {
        let mut matrix = Sum::new(self.graphs, &self.layers)?;
        let mut engine = whole::engine(&self.graphs[0])?;
        let [mut rhs, mut white, mut x] = [0; 3].map(|_| engine.zeros(1));
        for (term, z) in matrix.terms.iter_mut().zip(z) {
            engine.upload(z, &mut white);
            term.engine.adjoint(&term.layer, &mut white, &mut x);
            engine.axpy(&[1.0], &x, &mut rhs);
        }
        let mut diagonal = Diagonal::new(&engine, &self.diagonal());
        let options = cg::Options { tolerance: 1e-10, ..cg::Options::default() };
        let mut work = cg::Workspace::new(&engine);
        cg::solve(&mut engine, &mut matrix, &mut diagonal, &rhs, &mut x, &options, &mut work)?;
        let mut x = engine.download(&x);
        if self.intrinsic {
            let level = x.iter().sum::<f64>() / x.len() as f64;
            x.iter_mut().for_each(|x| *x -= level);
        }
        Ok(x)
    }

    /// The diagonal of `Q`: the squared column norms of the `G_i`.
    fn diagonal(&self) -> Vec<f64> {
        let mut diagonal = vec![0.0; self.nodes()];
        for (graph, c) in self.graphs.iter().zip(&self.layers) {
            let entries = LayerEntries::new(c, &graph.degrees());
            for i in 0..graph.nodes() {
                diagonal[i] += entries.own[i] * entries.own[i];
                for (j, w) in graph.weighted_neighbours(i) {
                    diagonal[j as usize] += (entries.neighbour[i] * w).powi(2);
                }
            }
        }
        diagonal
    }
}

/// `Σ_i G_iᵀ G_i`, each term with an engine for its own graph.
struct Sum {
    terms: Vec<Term>,
    image: Block,
    part: Block,
}

struct Term {
    engine: Native<f64>,
    layer: Layer,
}

impl Sum {
    fn new(graphs: &[Graph], layers: &[Coefficients]) -> Result<Self> {
        let term = |(graph, c): (&Graph, &Coefficients)| {
            let engine = whole::engine(graph)?;
            Ok(Term { layer: whole::layer(&engine, c), engine })
        };
        let terms: Vec<Term> = graphs.iter().zip(layers).map(term).collect::<Result<_>>()?;
        let [image, part] = [0; 2].map(|_| terms[0].engine.zeros(1));
        Ok(Sum { terms, image, part })
    }
}

impl Operator<Native<f64>> for Sum {
    fn apply(&mut self, engine: &mut Native<f64>, x: &mut Block, out: &mut Block) {
        let Sum { terms, image, part } = self;
        for (k, Term { engine: own, layer }) in terms.iter_mut().enumerate() {
            own.layer(layer, false, x, image);
            if k == 0 {
                own.adjoint(layer, image, out);
            } else {
                own.adjoint(layer, image, part);
                engine.axpy(&[1.0], part, out);
            }
        }
    }
}

impl Prior for Mix<'_> {
    fn nodes(&self) -> usize {
        self.graphs[0].nodes()
    }

    /// Column `i` of the stream is the white noise of term `i`.
    fn sample(&self, stream: Stream, progress: &mut Progress) -> Result<Vec<f64>> {
        let white = |column| super::white_noise(self.nodes(), stream, column);
        let z: Vec<Vec<f64>> = (0..self.layers.len() as u64).map(white).collect();
        let x = self.field(&z)?;
        progress.advance(100);
        Ok(x)
    }

    fn precision(&self) -> sprs::CsMat<f64> {
        let square = |(graph, c): (&Graph, &Coefficients)| {
            let g = whole::matrix(graph, c);
            &g.transpose_view().to_csr() * &g
        };
        let mut squares = self.graphs.iter().zip(&self.layers).map(square);
        let first = squares.next().expect("at least one term");
        squares.fold(first, |sum, square| &sum + &square)
    }

    fn information(&self) -> Result<Vec<f64>> {
        Ok(vec![0.0; self.nodes()])
    }
}
