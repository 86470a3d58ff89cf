//! A graph with values at its nodes: the unit that users bring and that every later room reads.
//!
//! Here: the [`Dataset`] in memory, its HDF5 file ([`Dataset::read`], [`Dataset::write`], or opened
//! once for several readers, [`DatasetFile`]), masks ([`mask`]), and how files become one:
//! [`import`]. (Generated data: [`crate::synth`].)

mod file;
pub mod import;
pub mod mask;

pub use file::{DatasetFile, FORMAT, Header, VERSION};

use crate::error::{Error, Result};
use crate::graph::{self, Graph};
use crate::storage::ArrayHasher;

/// A graph, a value at some of its nodes, and what else is known of the nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Short name, used for run directories and partition files.
    pub name: String,
    /// The graph, `N` nodes.
    pub graph: Graph,
    /// Value at every node; NaN where unknown. Length `N`.
    pub y: Vec<f64>,
    /// Which values the model may see (the mask `m` of the paper). Length `N`.
    pub observed: Vec<bool>,
    /// Node features for the linear part of the mean.
    pub features: Option<Features>,
    /// Positions in the plane, only for plots and spatial masks.
    pub position: Option<Vec<[f64; 2]>>,
    /// The generating field and posterior, where known.
    pub truth: Option<Truth>,
}

/// Features of the nodes, row-major `[N, names.len()]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    /// One name per column.
    pub names: Vec<String>,
    /// `N * names.len()` values, all finite.
    pub values: Vec<f64>,
}

/// What is known of the truth behind generated data. Each array has length `N`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Truth {
    /// The latent field.
    pub x: Option<Vec<f64>>,
    /// `E[x | y]` under the generating model.
    pub post_mean: Option<Vec<f64>>,
    /// Posterior predictive standard deviation of **y**: the noise is included.
    pub post_std: Option<Vec<f64>>,
}

impl Truth {
    /// The arrays that are there, by their names in the file.
    pub fn arrays(&self) -> impl Iterator<Item = (&'static str, &Vec<f64>)> {
        [("x", &self.x), ("post_mean", &self.post_mean), ("post_std", &self.post_std)]
            .into_iter()
            .filter_map(|(name, values)| values.as_ref().map(|v| (name, v)))
    }
}

impl Dataset {
    /// A dataset of a graph and values; all finite values are observed.
    pub fn new(name: impl Into<String>, graph: Graph, y: Vec<f64>) -> Self {
        let observed = y.iter().map(|v| v.is_finite()).collect();
        Dataset {
            name: name.into(),
            graph,
            y,
            observed,
            features: None,
            position: None,
            truth: None,
        }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    /// Number of observed nodes, `M` in the paper.
    pub fn observed_count(&self) -> usize {
        self.observed.iter().filter(|&&o| o).count()
    }

    /// The evaluation nodes: unobserved, with a value to compare to.
    pub fn evaluation_nodes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes()).filter(|&i| !self.observed[i] && self.y[i].is_finite())
    }

    /// Verifies what every later room relies on, and returns warnings a user should see.
    ///
    /// Errors: lengths that differ from `N`, an isolated node, an observed node without a value,
    /// no observed node, features or positions that are not finite.
    pub fn check(&self) -> Result<Vec<String>> {
        let n = self.nodes();
        let fail = |message: String| Err(Error::Data(message));
        if n == 0 {
            return fail("there are no nodes".into());
        }
        let strange = |c: char| c == '/' || c == '\\' || c.is_control();
        if self.name.is_empty() || self.name.starts_with('.') || self.name.contains(strange) {
            return fail(format!("the name {:?} cannot be part of a file name", self.name));
        }
        let mut lengths = vec![("y", self.y.len()), ("observed", self.observed.len())];
        lengths.extend(self.position.iter().map(|p| ("position", p.len())));
        lengths.extend(self.truth.iter().flat_map(Truth::arrays).map(|(k, v)| (k, v.len())));
        if let Some((what, len)) = lengths.into_iter().find(|&(_, len)| len != n) {
            return fail(format!("`{what}` has {len} values for {n} nodes"));
        }
        if let Some(f) = &self.features {
            if f.values.len() != n * f.names.len() {
                return fail(format!(
                    "{} feature values for {n} nodes x {} features",
                    f.values.len(),
                    f.names.len()
                ));
            }
            if let Some(k) = f.values.iter().position(|v| !v.is_finite()) {
                let (node, column) = (k / f.names.len(), &f.names[k % f.names.len()]);
                return fail(format!("feature `{column}` of node {node} is not a finite number"));
            }
        }
        if let Some(i) =
            self.position.iter().flatten().position(|p| !p.iter().all(|c| c.is_finite()))
        {
            return fail(format!("the position of node {i} is not finite"));
        }
        if let Some(i) = self.graph.first_isolated() {
            return fail(format!(
                "node {i} is isolated (degree 0): a layer is not defined there; \
                 remove the node or connect it"
            ));
        }
        if let Some(i) = (0..n).find(|&i| self.observed[i] && !self.y[i].is_finite()) {
            return fail(format!("node {i} is observed but its value y is {}", self.y[i]));
        }
        if self.observed_count() == 0 {
            return fail("no node is observed: there is nothing to learn from".into());
        }
        let mut warnings = Vec::new();
        let components = graph::components(&self.graph);
        if components.count() > 1 {
            warnings.push(format!(
                "the graph is disconnected: {} components ({})",
                components.count(),
                components.describe(5)
            ));
        }
        if let Some((unobserved, size)) = component_without_data(self, &components) {
            warnings.push(format!(
                "{unobserved} of the components (the largest has {size} nodes) hold no observed \
                 node: predictions there are the prior"
            ));
        }
        Ok(warnings)
    }

    /// BLAKE3 of the graph alone: partitions and spectra depend on nothing else.
    pub fn graph_hash(&self) -> String {
        let mut hasher = ArrayHasher::new("dgmrf graph 1");
        hash_graph(&mut hasher, &self.graph);
        hasher.finish()
    }

    /// BLAKE3 of everything but the name.
    pub fn hash(&self) -> String {
        let mut hasher = ArrayHasher::new("dgmrf dataset 1");
        hash_graph(&mut hasher, &self.graph);
        hasher.array("y", &self.y);
        hasher.array("observed", &self.observed);
        if let Some(f) = &self.features {
            hasher.array("feature names", f.names.join("\n").as_bytes());
            hasher.array("features", &f.values);
        }
        if let Some(p) = &self.position {
            hasher.array("position", p.as_flattened());
        }
        for (name, values) in self.truth.iter().flat_map(Truth::arrays) {
            hasher.array(name, values);
        }
        hasher.finish()
    }
}

/// How many components have no observed node, and the size of the largest of them.
fn component_without_data(
    data: &Dataset,
    components: &graph::Components,
) -> Option<(usize, usize)> {
    let mut seen = vec![false; components.count()];
    for (i, &label) in components.label.iter().enumerate() {
        seen[label as usize] |= data.observed[i];
    }
    let blind = || components.sizes.iter().zip(&seen).filter(|(_, seen)| !**seen).map(|(s, _)| *s);
    blind().max().map(|largest| (blind().count(), largest))
}

fn hash_graph(hasher: &mut ArrayHasher, graph: &Graph) {
    hasher.array("indptr", graph.indptr());
    hasher.array("indices", graph.indices());
    if let Some(weights) = graph.weights() {
        hasher.array("weights", weights);
    }
}
