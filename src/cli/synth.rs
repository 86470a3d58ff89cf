//! `dgmrf synth`: datasets whose law is known, and meshes for scaling studies.

use super::words::words;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::graph;
use crate::graph::delaunay::Weighting;
use crate::model::LayerSpec;
use crate::synth::mesh::{self, Kind, Mesh};
use crate::synth::{self, Dgmrf, Mix, Observation, WriteTruth, mix};
use std::path::PathBuf;

/// Generate a dataset: samples of known models, or large meshes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    dgmrf synth dgmrf --layers 3 -o synth-l3.h5\n  \
    dgmrf synth dense --hops 3 -o dense.h5\n  \
    dgmrf synth mix --random-parameters -o mix.h5\n  \
    dgmrf synth mesh --nodes 1000000 -o mesh-1m.h5")]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// A sample of an L-layer DGMRF on a random Delaunay graph (paper, E.1)
    #[command(after_help = "Examples:\n  \
        dgmrf synth dgmrf -o synth-l3.h5\n  \
        dgmrf synth dgmrf --layers 2 --alpha 1.2,1.5 --bias 0,0.1 --seed 7 -o two.h5")]
    Dgmrf {
        /// Number of nodes
        #[arg(long, default_value_t = 3000, allow_negative_numbers = true)]
        nodes: usize,
        /// Number of layers
        #[arg(long, default_value_t = 3)]
        layers: usize,
        #[command(flatten)]
        parameters: Parameters,
        /// Edge weights of the graph
        #[arg(long, value_enum, default_value_t = Weights::None)]
        weights: Weights,
        /// Fraction of the nodes to hide
        #[arg(long, default_value_t = 0.25, allow_negative_numbers = true)]
        mask_fraction: f64,
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        truth: TruthArg,
    },
    /// A sample of a 1-layer DGMRF on the k-hop graph; the file holds the base graph (paper, E.1)
    #[command(after_help = "Examples:\n  \
        dgmrf synth dense --hops 3 -o dense.h5")]
    Dense {
        /// Number of nodes
        #[arg(long, default_value_t = 3000, allow_negative_numbers = true)]
        nodes: usize,
        /// Nodes up to this far apart are neighbours in the generating model
        #[arg(long, default_value_t = 3)]
        hops: usize,
        #[command(flatten)]
        parameters: Parameters,
        /// Fraction of the nodes to hide
        #[arg(long, default_value_t = 0.25, allow_negative_numbers = true)]
        mask_fraction: f64,
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        truth: TruthArg,
    },
    /// A sample of the GMRF with Q = sum of G_i' G_i over the i-hop graphs (paper, E.1)
    ///
    /// With beta = -alpha (the default, and how the paper's data was really made) the prior is
    /// intrinsic: constants cost nothing, and the field is drawn with average zero.
    #[command(after_help = "Examples:\n  \
        dgmrf synth mix -o mix.h5\n  \
        dgmrf synth mix --hops 4 --random-parameters --seed 2 -o mix-random.h5")]
    Mix {
        /// Number of nodes
        #[arg(long, default_value_t = 5000, allow_negative_numbers = true)]
        nodes: usize,
        /// Number of terms: the 1-hop to the k-hop graph
        #[arg(long, default_value_t = 4)]
        hops: usize,
        /// Self weight of every term: one value, or one per hop
        #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "1")]
        alpha: Vec<f64>,
        /// Neighbour weight of every term: one value, or one per hop
        #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "-1")]
        beta: Vec<f64>,
        /// Draw alpha from U[0.5, 1.5] and beta from U[-1.1, -0.1], as in the paper's text
        #[arg(long, conflicts_with_all = ["alpha", "beta"])]
        random_parameters: bool,
        /// Fraction of the nodes to hide
        #[arg(long, default_value_t = 0.5, allow_negative_numbers = true)]
        mask_fraction: f64,
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        truth: TruthArg,
    },
    /// A mesh of any size with a smooth random field, for scaling studies
    #[command(after_help = "Examples:\n  \
        dgmrf synth mesh --nodes 1000000 -o mesh-1m.h5\n  \
        dgmrf synth mesh --nodes 250000 --kind grid --json -o grid.h5")]
    Mesh {
        /// Number of nodes
        #[arg(long, default_value_t = 1_000_000, allow_negative_numbers = true)]
        nodes: usize,
        /// How nodes are connected
        #[arg(long, value_parser = words::<Kind>(), default_value_t = Kind::Delaunay)]
        kind: Kind,
        /// Edge weights
        #[arg(long, value_enum, default_value_t = Weights::None)]
        weights: Weights,
        /// Fraction of the nodes to hide
        #[arg(long, default_value_t = 0.5, allow_negative_numbers = true)]
        mask_fraction: f64,
        #[command(flatten)]
        common: Common,
    },
}

/// The four parameters of the layers, each one value or one per layer.
#[derive(Debug, clap::Args)]
struct Parameters {
    /// Self weight: one value, or one per layer (first layer first)
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "1.2")]
    alpha: Vec<f64>,
    /// Neighbour weight, |beta| < alpha: one value, or one per layer
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "-1")]
    beta: Vec<f64>,
    /// Power of the degree: one value, or one per layer
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "1")]
    gamma: Vec<f64>,
    /// Bias: one value, or one per layer
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0")]
    bias: Vec<f64>,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Standard deviation of the observation noise
    #[arg(long, default_value_t = 0.01, allow_negative_numbers = true)]
    noise: f64,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Dataset file to write
    #[arg(short, long)]
    output: PathBuf,
    /// Print one JSON object instead of a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct TruthArg {
    /// Whether to write the true posterior under /truth
    #[arg(long, value_parser = words::<WriteTruth>(), default_value_t = WriteTruth::Auto)]
    truth: WriteTruth,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Weights {
    /// All edges weigh one
    None,
    /// 1 / (d/d_max + 0.01) with the edge length d
    InverseRelative,
}

impl From<Weights> for Weighting {
    fn from(weights: Weights) -> Self {
        match weights {
            Weights::None => Weighting::None,
            Weights::InverseRelative => Weighting::InverseRelative { epsilon: 0.01 },
        }
    }
}

impl Parameters {
    fn per_layer(&self, layers: usize) -> Result<Vec<LayerSpec>> {
        let alpha = spread("alpha", &self.alpha, layers, "layers")?;
        let beta = spread("beta", &self.beta, layers, "layers")?;
        let gamma = spread("gamma", &self.gamma, layers, "layers")?;
        let bias = spread("bias", &self.bias, layers, "layers")?;
        let layer = |l: usize| LayerSpec {
            alpha: alpha[l],
            beta: beta[l],
            gamma: gamma[l],
            bias: bias[l],
            theta2: None,
        };
        let all: Vec<LayerSpec> = (0..layers).map(layer).collect();
        all.iter().try_for_each(LayerSpec::check_invertible)?;
        Ok(all)
    }
}

/// One value for all, or one each.
fn spread(name: &str, values: &[f64], count: usize, what: &str) -> Result<Vec<f64>> {
    match values {
        [one] => Ok(vec![*one; count]),
        many if many.len() == count => Ok(many.to_vec()),
        many => Err(Error::Setting(format!(
            "--{name} has {} values for {count} {what}: give one value, or one for each",
            many.len()
        ))),
    }
}

impl Common {
    /// The options, already checked: nothing slow starts with impossible ones.
    fn observation(&self, mask_fraction: f64, truth: WriteTruth) -> Result<Observation> {
        let options = Observation { noise: self.noise, mask_fraction, seed: self.seed, truth };
        options.check()?;
        Ok(options)
    }
}

pub(super) fn run(args: Args) -> Result<()> {
    let (mut data, layers, common) = match args.what {
        What::Dgmrf { nodes, layers, parameters, weights, mask_fraction, common, truth } => {
            let options = common.observation(mask_fraction, truth.truth)?;
            at_least_one("layers", layers)?;
            let layers = parameters.per_layer(layers)?;
            let (points, graph) = synth::random_graph(nodes, options.seed, weights.into())?;
            let prior = Dgmrf::new(&graph, &layers)?;
            let mut data = synth::observe(&prior, graph.clone(), &options)?;
            data.position = Some(points);
            (data, layers, common)
        }
        What::Dense { nodes, hops, parameters, mask_fraction, common, truth } => {
            let options = common.observation(mask_fraction, truth.truth)?;
            at_least_one("hops", hops)?;
            let layers = parameters.per_layer(1)?;
            let (points, graph) = synth::random_graph(nodes, options.seed, Weighting::None)?;
            let dense = graph::k_hop(&graph, hops)?;
            let prior = Dgmrf::new(&dense, &layers)?;
            let mut data = synth::observe(&prior, graph, &options)?;
            data.position = Some(points);
            (data, layers, common)
        }
        What::Mix { nodes, hops, alpha, beta, random_parameters, mask_fraction, common, truth } => {
            let options = common.observation(mask_fraction, truth.truth)?;
            at_least_one("hops", hops)?;
            let layers = if random_parameters {
                mix::random_parameters(hops, options.seed)
            } else {
                let alpha = spread("alpha", &alpha, hops, "hops")?;
                let beta = spread("beta", &beta, hops, "hops")?;
                let term = |(&alpha, &beta)| LayerSpec { alpha, beta, ..LayerSpec::default() };
                alpha.iter().zip(&beta).map(term).collect()
            };
            let (points, graph) = synth::random_graph(nodes, options.seed, Weighting::None)?;
            let graphs = mix::hop_graphs(&graph, hops)?;
            let mut data = synth::observe(&Mix::new(&graphs, &layers)?, graph, &options)?;
            data.position = Some(points);
            (data, layers, common)
        }
        What::Mesh { nodes, kind, weights, mask_fraction, common } => {
            let options = common.observation(mask_fraction, WriteTruth::Never)?;
            let mesh = Mesh { nodes, kind, weighting: weights.into() };
            (mesh::generate(&mesh, &options)?, Vec::new(), common)
        }
    };
    if let Some(stem) = common.output.file_stem() {
        data.name = stem.to_string_lossy().into_owned();
    }
    if !common.json {
        return super::write_dataset(&data, &common.output);
    }
    super::save_dataset(&data, &common.output)?;
    println!("{:#}", summary(&data, &layers));
    Ok(())
}

fn at_least_one(name: &str, count: usize) -> Result<()> {
    match count {
        0 => Err(Error::Setting(format!("--{name} must be at least 1"))),
        _ => Ok(()),
    }
}

fn summary(data: &Dataset, layers: &[LayerSpec]) -> serde_json::Value {
    let layers: Vec<_> = layers
        .iter()
        .map(|p| {
            serde_json::json!({
                "alpha": p.alpha, "beta": p.beta, "gamma": p.gamma, "bias": p.bias
            })
        })
        .collect();
    serde_json::json!({
        "name": data.name,
        "nodes": data.nodes(),
        "edges": data.graph.edges(),
        "observed": data.observed_count(),
        "truth": data.truth.iter().flat_map(|t| t.arrays()).map(|(k, _)| k).collect::<Vec<_>>(),
        "layers": layers,
        "hash": data.hash(),
    })
}
