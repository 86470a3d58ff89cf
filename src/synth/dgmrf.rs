//! The deep GMRF of the paper: a stack of layers.

use super::Prior;
use super::whole::{self, Block, Layer};
use crate::error::{Error, Result};
use crate::field::native::Native;
use crate::field::{Coefficients, Engine};
use crate::graph::Graph;
use crate::model::layer::LayerSpec;
use crate::progress::Progress;
use crate::random::Stream;
use crate::solver::{Diagonal, Operator, cg};

/// `x` such that `g(x) = z ~ N(0, I)`, where `g` applies `h ← G_l h + b_l` for `l = 1..L`:
/// mean `-G⁻¹ c` and precision `GᵀG` for `g(x) = G x + c` (paper, Eq. 2 and 6).
///
/// On a k-hop graph with one layer this is the paper's *Dense*.
#[derive(Debug, Clone)]
pub struct Dgmrf<'g> {
    graph: &'g Graph,
    layers: Vec<Coefficients>,
}

/// `D + ρA`: a layer with `α = γ = 1`, which is symmetric, and positive definite for `|ρ| < 1`.
struct Shifted(Layer);

impl Operator<Native<f64>> for Shifted {
    fn apply(&mut self, engine: &mut Native<f64>, x: &mut Block, out: &mut Block) {
        engine.layer(&self.0, false, x, out);
    }
}

impl<'g> Dgmrf<'g> {
    /// One layer per element of `layers`, first to last; `|β| < α` in each of them.
    pub fn new(graph: &'g Graph, layers: &[LayerSpec]) -> Result<Self> {
        if layers.is_empty() {
            return Err(Error::Setting("a DGMRF needs at least one layer".into()));
        }
        whole::check(graph, layers)?;
        layers.iter().try_for_each(LayerSpec::check_invertible)?;
        Ok(Dgmrf { graph, layers: layers.iter().map(LayerSpec::coefficients).collect() })
    }

    /// The field with `g(x) = z`: solves `G_l h_(l-1) = h_l - b_l` from the last layer to the
    /// first, each to 1e-10.
    ///
    /// With `G = α D^(γ-1) (D + ρA)` that is a system with a symmetric matrix, and `D` makes a good
    /// preconditioner: the condition is at most `(1 + |ρ|) / (1 - |ρ|)`, whatever the degrees are.
    pub fn field(&self, z: Vec<f64>, progress: &mut Progress) -> Result<Vec<f64>> {
        let mut engine = whole::engine(self.graph)?;
        let degree = engine.part().degree.clone();
        let mut preconditioner = Diagonal::new(&engine, &degree);
        let (mut b, mut x) = (engine.zeros(1), engine.zeros(1));
        let options = cg::Options { tolerance: 1e-10, ..cg::Options::default() };
        let mut work = cg::Workspace::new(&engine);
        let mut h = z;
        for c in self.layers.iter().rev() {
            for (h, d) in h.iter_mut().zip(&degree) {
                *h = (*h - c.bias) * d.powf(1.0 - c.gamma) / c.alpha;
            }
            engine.upload(&h, &mut b);
            let symmetric = Coefficients { alpha: 1.0, gamma: 1.0, bias: 0.0, ..*c };
            let mut matrix = Shifted(whole::layer(&engine, &symmetric));
            cg::solve(
                &mut engine,
                &mut matrix,
                &mut preconditioner,
                &b,
                &mut x,
                &options,
                &mut work,
            )?;
            h = engine.download(&x);
            progress.advance(100 / self.layers.len() as u64);
        }
        Ok(h)
    }
}

impl Prior for Dgmrf<'_> {
    fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    fn sample(&self, stream: Stream, progress: &mut Progress) -> Result<Vec<f64>> {
        self.field(super::white_noise(self.nodes(), stream, 0), progress)
    }

    fn precision(&self) -> sprs::CsMat<f64> {
        let mut product = whole::matrix(self.graph, &self.layers[0]);
        for c in &self.layers[1..] {
            product = &whole::matrix(self.graph, c) * &product;
        }
        &product.transpose_view().to_csr() * &product
    }

    /// `h = -Gᵀ c` with the stacked bias `c = g(0)`.
    fn information(&self) -> Result<Vec<f64>> {
        let mut engine = whole::engine(self.graph)?;
        let layers: Vec<Layer> = self.layers.iter().map(|c| whole::layer(&engine, c)).collect();
        let (mut h, mut next) = (engine.zeros(1), engine.zeros(1));
        for layer in &layers {
            engine.layer(layer, true, &mut h, &mut next);
            std::mem::swap(&mut h, &mut next);
        }
        for layer in layers.iter().rev() {
            engine.adjoint(layer, &mut h, &mut next);
            std::mem::swap(&mut h, &mut next);
        }
        Ok(engine.download(&h).into_iter().map(|v| -v).collect())
    }
}
