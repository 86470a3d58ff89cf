//! `dgmrf scale`: how fast this machine applies layers, and what keeps it from more.

use super::words::words;
use super::{ranks, table};
use crate::comm::World;
use crate::config::{Device, Engine, Precision};
use crate::dataset::DatasetFile;
use crate::error::{Error, Result};
use crate::graph::delaunay::Weighting;
use crate::partition::{self, Options, Part, order::Order};
use crate::run::scale::{self, Halo, Times};
use crate::synth::Observation;
use crate::synth::mesh::{self, Mesh};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Measure layers on a mesh or a dataset: seconds, bandwidth, halo share.
///
/// Run it with different numbers of ranks and compare. Times are the best of several rounds; the
/// copy bandwidth of memory is measured in the same run, on all ranks at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dgmrf scale --quick\n  \
    mpirun -n 4 dgmrf scale --nodes 1000000 --columns 8 --json\n  \
    srun -n 64 dgmrf scale --data mesh.h5 --engine torch")]
pub(super) struct Args {
    /// Dataset to run on [default: a mesh of --nodes nodes, kept in partitions/]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Nodes of the Delaunay mesh
    #[arg(long, default_value_t = 1_000_000)]
    nodes: usize,
    /// Columns of the blocks
    #[arg(long, default_value_t = 8)]
    columns: usize,
    /// Layers of the model
    #[arg(long, default_value_t = 1)]
    layers: usize,
    /// Rounds to take the best of
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Engine
    #[arg(long, value_parser = words::<Engine>(), default_value_t)]
    engine: Engine,
    /// Device of the torch engine
    #[arg(long, value_parser = words::<Device>(), default_value_t)]
    device: Device,
    /// Precision
    #[arg(long, value_parser = words::<Precision>(), default_value_t = Precision::Single)]
    precision: Precision,
    /// Keep the original order of nodes, to see what the locality order gives
    #[arg(long)]
    original_order: bool,
    /// A small mesh and few rounds
    #[arg(long)]
    quick: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ranks: ranks::Ranks,
}

pub(super) fn run(mut args: Args) -> Result<()> {
    if args.quick {
        (args.nodes, args.rounds) = (args.nodes.min(100_000), args.rounds.min(10));
    }
    let prepare = || {
        if args.columns == 0 || args.layers == 0 || args.rounds == 0 {
            let why = "columns, layers and rounds must be at least 1";
            return Err(Error::Setting(why.into()));
        }
        Ok((args.ranks.clone(), ()))
    };
    ranks::run(prepare, |world, threads, ()| {
        let part = load_part(&args, world)?;
        let mut bytes = [scale::must_move(&part, args.columns, args.precision)];
        world.sum(&mut bytes);
        let (nodes, order) = (part.nodes, part.order);
        let options = scale::Options {
            columns: args.columns,
            layers: args.layers,
            rounds: args.rounds,
            engine: args.engine,
            device: args.device,
            precision: args.precision,
            // Where the user profiles, the table tells it.
            halo: !(args.ranks.profile || args.ranks.profile_json.is_some()),
        };
        let times = scale::measure(world, part, &options)?;
        let found = Found { nodes, order, ranks: world.size(), threads, bytes: bytes[0], times };
        if world.is_root() {
            if args.json { found.print_json(&args) } else { found.print_table(&args) }
        }
        Ok(())
    })
}

fn load_part(args: &Args, world: &Rc<World>) -> Result<Part> {
    let order = if args.original_order { Order::Original } else { Order::Locality };
    let options = Options { order, ..Options::default() };
    let mesh = PathBuf::from(format!("partitions/mesh-{}.h5", args.nodes));
    world.make_if_missing(
        || Ok(args.data.is_some() || mesh.exists()),
        || world.on_root(|| make_mesh(args.nodes, &mesh)).map(|_| ()),
    )?;
    let data = world.agree(DatasetFile::open(args.data.as_ref().unwrap_or(&mesh)))?;
    let name = &data.header().name;
    let path = match order {
        Order::Locality => partition::default_path(name, world.size()),
        Order::Original => format!("partitions/{name}-p{}-original.h5", world.size()).into(),
    };
    Ok(partition::load_or_make(world, &data, Some(&path), &options)?.part)
}

fn make_mesh(nodes: usize, path: &Path) -> Result<()> {
    let mesh = Mesh { nodes, kind: mesh::Kind::Delaunay, weighting: Weighting::None };
    let mut data = mesh::generate(&mesh, &Observation::default())?;
    data.name = format!("mesh-{nodes}");
    data.write(path)?;
    eprintln!("made {} for this and later runs", path.display());
    Ok(())
}

/// What was measured, and on what.
struct Found {
    nodes: usize,
    order: Order,
    ranks: usize,
    threads: usize,
    /// Bytes that a layer has to move on all ranks.
    bytes: f64,
    times: Times,
}

impl Found {
    /// Bytes per second of a layer.
    fn bandwidth(&self) -> f64 {
        self.bytes / self.times.layer
    }

    fn print_json(&self, args: &Args) {
        let times = &self.times;
        let halo = times.halo.as_ref();
        let together = halo.map(|halo| &halo.together);
        let json = serde_json::json!({
            "nodes": self.nodes, "data": args.data, "columns": args.columns,
            "ranks": self.ranks, "threads": self.threads,
            "engine": args.engine,
            "precision": args.precision,
            "order": self.order.name(),
            "layer_seconds": times.layer,
            "adjoint_seconds": times.adjoint,
            "gradient_seconds": times.gradient,
            "rademacher_seconds": times.signs,
            "copy_gigabytes_per_second": times.copy_bandwidth * 1e-9,
            "layer_gigabytes_per_second": self.bandwidth() * 1e-9,
            "layer_over_copy": self.bandwidth() / times.copy_bandwidth,
            "halo_share": halo.map(|halo| halo.share),
            "halo_median_share": together.map(|passes| passes.share),
            "halo_transfer_share": together.map(|passes| passes.transfer),
            "halo_wait_share": together.map(|passes| passes.wait),
            "work_imbalance": together.map(|passes| passes.imbalance),
            "halo_bytes_per_layer": halo.map(|halo| halo.bytes),
            "halo_bytes_planned": times.plan_bytes,
        });
        println!("{json:#}");
    }

    fn print_table(&self, args: &Args) {
        let times = &self.times;
        let pass = |seconds: f64| format!("{:.3} ms", 1e3 * seconds);
        let percent = |share: fn(&Halo) -> f64| {
            let share = times.halo.as_ref().map(share);
            share.map_or("? %".to_owned(), |share| format!("{:.1} %", 100.0 * share))
        };
        table::print_pairs(&[
            ("ranks x threads", format!("{} x {}", self.ranks, self.threads)),
            ("block", format!("{} columns, {} precision", args.columns, args.precision)),
            ("layer", pass(times.layer)),
            ("transposed", pass(times.adjoint)),
            ("with gradient", pass(times.gradient)),
            ("signs", pass(times.signs)),
            (
                "bandwidth",
                format!(
                    "{:.1} GB/s for the layer, {:.1} GB/s for a copy ({:.0} %)",
                    self.bandwidth() * 1e-9,
                    times.copy_bandwidth * 1e-9,
                    100.0 * self.bandwidth() / times.copy_bandwidth
                ),
            ),
            (
                "halo",
                format!(
                    "{} of the time, {} per layer",
                    percent(|halo| halo.share),
                    table::bytes(times.plan_bytes as usize)
                ),
            ),
            (
                "started together",
                format!(
                    "{} halo in the median pass: {} transfer, {} waiting for slower ranks",
                    percent(|halo| halo.together.share),
                    percent(|halo| halo.together.transfer),
                    percent(|halo| halo.together.wait)
                ),
            ),
        ]);
    }
}
