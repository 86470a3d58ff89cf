//! The stage that predicts: from a fitted model and data to `posterior.h5`.

use super::engine::{Work, with_engine};
use super::predictions::{Predictions, Writer};
use super::{RunDir, parse_nodes, settings, values};
use crate::comm::World;
use crate::config::{self, Config};
use crate::dataset::{DatasetFile, Header};
use crate::error::{Error, Result, WithPath};
use crate::field::Device;
use crate::field::Engine;
use crate::likelihood::{Gaussian, Observations};
use crate::model::ModelFile;
use crate::partition;
use crate::posterior::{self, Estimate, Problem};
use crate::progress;
use crate::storage::{self, ArrayHasher};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

/// What is inferred from what, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The fitted model.
    pub model: PathBuf,
    /// The data to condition on: the graph of the model, `y` and mask may be others.
    pub data: PathBuf,
    /// Where the predictions go.
    pub output: PathBuf,
    /// Whether they are also written as a table, beside `output`.
    pub csv: bool,
    /// Nodes to keep predictions of, as [`parse_nodes`] reads them; all when absent.
    pub nodes: Option<String>,
    /// Samples, variances, solver.
    pub options: posterior::Options,
    /// Who does the arithmetic.
    pub engine: config::Engine,
    /// Device of the torch engine.
    pub device: Device,
}

/// How predictions were made.
#[derive(Debug, Clone)]
pub struct Inferred {
    /// Nodes of the graph.
    pub nodes: usize,
    /// Observed nodes.
    pub observed: usize,
    /// What was solved, and how well.
    pub info: posterior::Info,
    /// Wall-clock time.
    pub seconds: f64,
}

impl Plan {
    /// A plan without a run, by the defaults.
    pub fn new(model: impl Into<PathBuf>, data: impl Into<PathBuf>) -> Self {
        Plan {
            model: model.into(),
            data: data.into(),
            output: "posterior.h5".into(),
            csv: false,
            nodes: None,
            options: posterior::Options::default(),
            engine: config::Engine::default(),
            device: Device::default(),
        }
    }

    /// The plan of a run: everything from its settings and its directory.
    pub fn of_run(config: &Config, dir: &RunDir) -> Self {
        Plan {
            output: dir.predictions(),
            options: settings::posterior(config),
            engine: config.run.engine,
            device: config.run.device,
            ..Plan::new(dir.model(), &config.data)
        }
    }

    /// Hash of all that the result depends on: equal keys, equal numbers.
    pub fn key(&self, header: &Header) -> Result<String> {
        let mut hasher = ArrayHasher::new("dgmrf posterior 1");
        hasher.array("data", header.hash.as_bytes());
        hasher.array("model", &std::fs::read(&self.model).with_path(&self.model, "")?);
        hasher.array("nodes", self.nodes.as_deref().unwrap_or("all").as_bytes());
        let o = &self.options;
        let words = format!("{:?} {:?} {}", o.variance, o.preconditioner, o.keep_samples);
        hasher.array("options", words.as_bytes());
        hasher.array("numbers", &[o.samples as u64, o.seed]);
        hasher.array("tolerances", &[o.cg.tolerance, o.cg.error]);
        Ok(hasher.finish())
    }

    /// Computes and writes the predictions. All ranks call it.
    pub fn infer(&self, world: &Rc<World>) -> Result<Inferred> {
        self.infer_from(world, &world.agree(DatasetFile::open(&self.data))?)
    }

    /// Computes and writes the predictions from the data of the plan, already open.
    pub(super) fn infer_from(&self, world: &Rc<World>, data: &DatasetFile) -> Result<Inferred> {
        let start = Instant::now();
        let header = data.header();
        let model = world.agree(self.read_model(header))?;
        let key = world.agree(self.key(header))?;
        let part = partition::load_or_make(world, data, None, &Default::default())?.part;
        let part = if model.weighted { part } else { part.without_weights() };
        let ids = part.owned_ids().to_vec();

        let values = values::read(world, data, &ids, model.features, Some(model.standardise))?;
        let nodes = self.nodes.as_ref().map(|words| parse_nodes(words, header.nodes));
        let nodes = world.agree(nodes.transpose())?;
        let observed = values.observed_count;
        let job = Job { world, plan: self, values, ids: &ids, nodes, header, model: &model, key };
        let info = with_engine(world, part, self.engine, self.device, job)?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(Inferred { nodes: header.nodes, observed, info, seconds })
    }

    fn read_model(&self, header: &Header) -> Result<ModelFile> {
        let model = ModelFile::read(&self.model)?;
        if model.graph_hash != header.graph_hash {
            let why = format!("fitted on another graph than that of {}", self.data.display());
            return Err(Error::file(&self.model, why));
        }
        Ok(model)
    }
}

/// The inference itself, on whatever engine.
struct Job<'a> {
    world: &'a World,
    plan: &'a Plan,
    values: values::Values,
    ids: &'a [u32],
    nodes: Option<Vec<u32>>,
    header: &'a Header,
    model: &'a ModelFile,
    key: String,
}

impl Work for Job<'_> {
    type Output = posterior::Info;

    fn on<E: Engine>(mut self, mut engine: E) -> Result<posterior::Info> {
        let features = self.values.features.take();
        let (world, plan, all) = (self.world, self.plan, self.header.nodes);
        let options = &plan.options;
        let kept = self.nodes.as_ref().map_or(all, Vec::len);
        let samples = if options.keep_samples { options.samples } else { 0 };
        let writer = world.on_root(|| Writer::create(&plan.output, samples, kept))?;
        if world.is_root() && kept * samples * 8 > 1 << 30 {
            let size = (kept * samples * 8) as f64 * 1e-9;
            progress::note(format!(
                "{samples} samples of {kept} nodes: {size:.3} GB on disk, written batch by batch"
            ));
        }
        let (shift, scale) = (self.model.standardise.mean, self.model.standardise.scale);
        let mut keep = |first: usize, count: usize, rows: &[f64]| -> Result<()> {
            let Some(rows) = world.gather_rows(self.ids, rows, count, all)? else {
                return Ok(());
            };
            let writer = writer.as_ref().expect("rank 0 writes");
            for c in 0..count {
                let value = |i: usize| shift + scale * rows[i * count + c];
                let sample: Vec<f64> = match &self.nodes {
                    Some(nodes) => nodes.iter().map(|&i| value(i as usize)).collect(),
                    None => (0..all).map(value).collect(),
                };
                writer.sample(first + c, &sample)?;
            }
            Ok(())
        };
        let keep: Option<posterior::Keep> =
            if options.keep_samples { Some(&mut keep) } else { None };
        let noise = Gaussian::new(self.model.sigma / self.model.standardise.scale);
        let data = Observations::new(&engine, &self.values.y, &self.values.observed)?;
        let curvature = world.agree(noise)?.curvature(&data.observed);
        let problem = Problem { model: &self.model.model, curvature, data: &data, features };
        let estimate = posterior::infer(&mut engine, &problem, options, keep)?;
        let info = estimate.info.clone();
        let gathered = world.agree(self.gather(&estimate))?;
        let written = match (gathered, writer) {
            (Some(content), Some(writer)) => self.write(writer, &content),
            _ => Ok(()),
        };
        world.agree(written)?;
        Ok(info)
    }
}

impl Job<'_> {
    /// The estimate in the units of `y`, by original id, on rank 0.
    fn gather(&self, estimate: &Estimate) -> Result<Option<Predictions>> {
        let (shift, scale) = (self.model.standardise.mean, self.model.standardise.scale);
        let noise = Gaussian::new(self.model.sigma)?;
        let error = estimate.variance_error.as_ref();
        let rows: Vec<f64> = (0..self.ids.len())
            .flat_map(|i| {
                let variance = estimate.variance[i].max(0.0) * scale * scale;
                let std_x = variance.sqrt();
                // d std = d var / (2 std)
                let std_error = error.map_or(0.0, |e| e[i] * scale * scale / (2.0 * std_x));
                let std_y = noise.predictive_std(variance);
                [shift + scale * estimate.mean[i], std_x, std_y, std_error]
            })
            .collect();
        let Some(all) = self.world.gather_rows(self.ids, &rows, 4, self.header.nodes)? else {
            return Ok(None);
        };
        let column = |c: usize| -> Vec<f64> {
            match &self.nodes {
                Some(nodes) => nodes.iter().map(|&i| all[4 * i as usize + c]).collect(),
                None => all.iter().skip(c).step_by(4).copied().collect(),
            }
        };
        Ok(Some(Predictions {
            data_hash: self.header.hash.clone(),
            key: self.key.clone(),
            nodes: self.nodes.clone(),
            mean: column(0),
            std_x: column(1),
            std_y: column(2),
            std_x_error: error.map(|_| column(3)),
            coefficients: estimate.coefficients.iter().map(|c| c * scale).collect(),
            provenance: self.provenance(&estimate.info),
        }))
    }

    /// How the predictions were made, by name.
    fn provenance(&self, info: &posterior::Info) -> Vec<(String, String)> {
        let options = &self.plan.options;
        [
            ("name", self.header.name.clone()),
            ("variance", info.variance.to_string()),
            ("samples", info.samples.to_string()),
            ("seed", options.seed.to_string()),
            ("tolerance", format!("{:e}", options.cg.tolerance)),
            ("preconditioner", info.preconditioner.to_owned()),
            ("iterations", info.iterations.to_string()),
            ("residual", format!("{:.3e}", info.residual)),
            ("error", info.error.map_or("unknown".into(), |e| format!("{e:.3e}"))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    fn write(&self, writer: Writer, content: &Predictions) -> Result<()> {
        writer.finish(content)?;
        if self.plan.csv {
            storage::write_text_file(&self.plan.output.with_extension("csv"), &content.to_csv())?;
        }
        Ok(())
    }
}
