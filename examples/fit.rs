//! What `dgmrf run CONFIG` does, by library calls: data, partition, fit, predictions, scores.
//!
//! ```sh
//! cargo run --release --example fit -- configs/quickstart.toml run.dir=runs/example
//! ```

use dgmrf::comm::{World, threads};
use dgmrf::config::Config;
use dgmrf::dataset::DatasetFile;
use dgmrf::run::{self, Metrics, ModelFile, Plan, Run};
use dgmrf::train::session::Resume;
use dgmrf::{Result, cli, partition, progress};
use std::path::Path;
use std::rc::Rc;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (config, set) = words.split_first().expect("usage: fit CONFIG [KEY=VALUE]...");
    let config = Config::load(Path::new(config), set)?;
    // Joins the ranks of `mpirun`, if there are others.
    let world = World::init()?;
    threads::configure(&world, config.run.threads)?;
    // Without an observer, the library says nothing.
    let metrics = progress::observed_by(Rc::new(cli::Terminal), || fit(&world, config))?;
    if let (true, Some(scores)) = (world.is_root(), metrics.scores) {
        println!("RMSE {:.5} at {} hidden nodes", scores.rmse, scores.n_test);
    }
    Ok(())
}

/// From the settings to scores; the results are files of the run directory. All ranks call it.
pub fn fit(world: &Rc<World>, config: Config) -> Result<Metrics> {
    let run = Run::begin(world, config)?;
    let (config, dir) = (run.config(), run.dir());
    run.data(cli::run_words)?; // makes the dataset where it is missing
    let data = world.agree(DatasetFile::open(&config.data))?;
    let part = partition::load_or_make(world, &data, None, &Default::default())?.part;
    println!("rank {}: {} of {} nodes", world.rank(), part.owned, part.nodes);

    let summary = run::train(world, config, &data, &Resume::Never)?;
    let model = world.agree(ModelFile::read(&dir.model()))?;
    if world.is_root() {
        println!("{:.5} per node after {} steps", summary.objective_per_node, summary.iterations);
        (0..model.model.layers.len()).for_each(|l| println!("{:?}", model.model.coefficients(l)));
    }

    let plan = Plan::of_run(config, dir);
    plan.infer(world)?;
    let score = || {
        let metrics = run::evaluate(&plan.output, &config.data)?;
        metrics.write(&dir.metrics())?;
        Ok(metrics)
    };
    world.on_root(score)?;
    world.agree(Metrics::read(&dir.metrics()))
}
