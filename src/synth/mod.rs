//! Generated data: fields whose law is known, for tests, for the paper's experiments and for
//! scaling studies.
//!
//! A [`Prior`] is a Gaussian field that can be sampled exactly: [`Dgmrf`] (paper E.1; on a k-hop
//! graph it is the paper's *Dense*) and [`Mix`]. [`observe`] turns one into a [`Dataset`]: noise,
//! mask and, on small graphs, the true posterior ([`truth`]). [`mesh`] makes graphs of millions
//! of nodes with a smooth field instead. Both priors are made of the layers of the model, and drawn
//! with the solver of inference.
//!
//! Every draw is a function of the seed and the node, so a dataset can be made again anywhere.

mod dgmrf;
pub mod mesh;
pub mod mix;
pub mod truth;
mod whole;

pub use dgmrf::Dgmrf;
pub use mix::Mix;

use crate::dataset::{Dataset, Truth, mask};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::graph::delaunay::{self, Weighting};
use crate::progress::Progress;
use crate::random::{Purpose, Stream};
use rayon::prelude::*;

/// A Gaussian field on the nodes of a graph, `p(x) ∝ exp(-½ xᵀ Q x + hᵀ x)`.
pub trait Prior {
    /// Number of nodes `N`.
    fn nodes(&self) -> usize;

    /// A sample of the field made from the white noise of `stream` (one column per factor of
    /// the precision).
    fn sample(&self, stream: Stream, progress: &mut Progress) -> Result<Vec<f64>>;

    /// The precision matrix `Q`.
    fn precision(&self) -> sprs::CsMat<f64>;

    /// The information vector `h = Q μ`.
    fn information(&self) -> Result<Vec<f64>>;
}

/// Standard normal numbers of all nodes.
fn white_noise(nodes: usize, stream: Stream, column: u64) -> Vec<f64> {
    (0..nodes as u64).into_par_iter().map(|i| stream.normal(i, column)).collect()
}

words! {
    /// When the true posterior is computed; it takes `O(N³)` time and `O(N²)` memory.
    pub enum WriteTruth {
        /// The posterior up to 6000 nodes, the field `x` always
        #[default]
        Auto = "auto",
        /// The posterior at any size
        Always = "always",
        /// Neither the posterior nor the field
        Never = "never",
    }
}

/// Largest graph for which [`WriteTruth::Auto`] computes the posterior.
pub const TRUTH_NODES: usize = 6000;

/// How a field is observed: `y = x + N(0, σ²)`, a random part of it hidden.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Standard deviation `σ > 0` of the noise.
    pub noise: f64,
    /// Fraction of the nodes that is hidden, in `[0, 1)`.
    pub mask_fraction: f64,
    /// Seed of the field, its noise and the mask.
    pub seed: u64,
    /// Whether `/truth` is written.
    pub truth: WriteTruth,
}

impl Default for Observation {
    /// The paper's E.1.
    fn default() -> Self {
        Observation { noise: 0.01, mask_fraction: 0.25, seed: 1, truth: WriteTruth::Auto }
    }
}

impl Observation {
    /// Refuses impossible values; worth calling before the graph is made.
    pub fn check(&self) -> Result<()> {
        if !(self.noise > 0.0 && self.noise.is_finite()) {
            return Err(Error::Setting(format!(
                "noise {} must be a positive standard deviation",
                self.noise
            )));
        }
        if !(0.0..1.0).contains(&self.mask_fraction) {
            return Err(Error::Setting(format!(
                "mask fraction {} must be at least 0 and less than 1",
                self.mask_fraction
            )));
        }
        Ok(())
    }

    /// `y = x + noise` with the mask, without truth.
    fn data(&self, graph: Graph, mut y: Vec<f64>) -> Result<Dataset> {
        self.check()?;
        let noise = Stream::new(self.seed, Purpose::Noise, 0);
        y.par_iter_mut()
            .enumerate()
            .for_each(|(i, y)| *y += self.noise * noise.normal(i as u64, 0));
        let mut data = Dataset::new("synth", graph, y);
        mask::hide_fraction(&mut data, self.mask_fraction, self.seed)?;
        Ok(data)
    }
}

/// Samples `prior` and observes it on `graph` (the graph a model will be given; it may differ
/// from the one the prior lives on).
///
/// ```
/// use dgmrf::synth::{self, Dgmrf, Observation};
/// use dgmrf::{graph::delaunay, model::LayerSpec};
/// let points = synth::uniform_points(50, 1);
/// let graph = delaunay::graph(&points, delaunay::Weighting::None)?;
/// let prior = Dgmrf::new(&graph, &[LayerSpec::default(); 2])?;
/// let data = synth::observe(&prior, graph.clone(), &Observation::default())?;
/// assert_eq!(data.observed_count(), 38); // 25 % of 50, rounded down, are hidden
/// assert!(data.truth.unwrap().post_std.unwrap().iter().all(|&s| s > 0.01));
/// # Ok::<(), dgmrf::Error>(())
/// ```
pub fn observe(prior: &dyn Prior, graph: Graph, options: &Observation) -> Result<Dataset> {
    options.check()?;
    let mut progress = Progress::new("sampling the field", 100);
    let x = prior.sample(Stream::new(options.seed, Purpose::Field, 0), &mut progress)?;
    drop(progress);
    let mut data = options.data(graph, x.clone())?;
    let posterior = match options.truth {
        WriteTruth::Never => return Ok(data),
        WriteTruth::Always => true,
        WriteTruth::Auto => prior.nodes() <= TRUTH_NODES,
    };
    let mut known = Truth { x: Some(x), ..Truth::default() };
    if posterior {
        let exact = truth::posterior(prior, &data.y, &data.observed, options.noise)?;
        known.post_mean = Some(exact.mean);
        known.post_std = Some(exact.std_y);
    }
    data.truth = Some(known);
    Ok(data)
}

/// `nodes` points, uniform on the unit square.
pub fn uniform_points(nodes: usize, seed: u64) -> Vec<[f64; 2]> {
    let stream = Stream::new(seed, Purpose::Position, 0);
    (0..nodes as u64).into_par_iter().map(|i| [0, 1].map(|axis| stream.uniform(i, axis))).collect()
}

/// The paper's random graph: [`uniform_points`] and their Delaunay triangulation.
pub fn random_graph(
    nodes: usize,
    seed: u64,
    weighting: Weighting,
) -> Result<(Vec<[f64; 2]>, Graph)> {
    check_nodes(nodes)?;
    let points = uniform_points(nodes, seed);
    let graph = delaunay::graph(&points, weighting)?;
    Ok((points, graph))
}

/// Fewer than three points have no triangulation, and ids are 32-bit.
fn check_nodes(nodes: usize) -> Result<()> {
    if !(3..=u32::MAX as usize).contains(&nodes) {
        return Err(Error::Setting(format!(
            "{nodes} nodes: a generated graph needs at least 3 (and fewer than 2^32)"
        )));
    }
    Ok(())
}
