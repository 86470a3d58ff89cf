//! `dgmrf scale`: how fast this machine applies layers, and what keeps it from more.

use super::{ranks, table};
use crate::comm::World;
use crate::config;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::field::{Engine, LayerSums, native::Native};
use crate::graph::delaunay::Weighting;
use crate::model::{Gamma, Model, Stack};
use crate::partition::{self, Options, Part, order::Order};
use crate::profile;
use crate::random::{Purpose, Stream};
use crate::synth::Observation;
use crate::synth::mesh::{self, Mesh};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

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
    #[arg(long, value_enum, default_value_t)]
    engine: config::Engine,
    /// Device of the torch engine
    #[arg(long, value_enum, default_value_t)]
    device: config::Device,
    /// Precision
    #[arg(long, value_enum, default_value_t)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Precision {
    #[default]
    Single,
    Double,
}

pub(super) fn run(mut args: Args) -> Result<()> {
    if args.quick {
        (args.nodes, args.rounds) = (args.nodes.min(100_000), args.rounds.min(10));
    }
    let prepare = || match args.columns == 0 || args.layers == 0 || args.rounds == 0 {
        true => Err(Error::Setting("columns, layers and rounds must be at least 1".into())),
        false => Ok((args.ranks.clone(), ())),
    };
    ranks::run(prepare, |world, threads, ()| {
        let part = load_part(&args, world)?;
        let (bytes, nodes, order) =
            (must_move(&part, args.columns, args.precision), part.nodes, part.order);
        let times = match (args.engine, args.precision) {
            (config::Engine::Native, Precision::Single) => {
                measure(&mut world.agree(Native::<f32>::new(world.clone(), part))?, &args)
            }
            (config::Engine::Native, Precision::Double) => {
                measure(&mut world.agree(Native::<f64>::new(world.clone(), part))?, &args)
            }
            (config::Engine::Torch, _) => measure_torch(world, part, &args)?,
        };
        show(&args, world, threads, bytes, (nodes, order), &times);
        Ok(())
    })
}

fn load_part(args: &Args, world: &Rc<World>) -> Result<Part> {
    let order = if args.original_order { Order::Original } else { Order::Locality };
    let options = Options { order, ..Options::default() };
    let mesh = PathBuf::from(format!("partitions/mesh-{}.h5", args.nodes));
    let data = args.data.as_ref().unwrap_or(&mesh);
    let made = match world.is_root() && args.data.is_none() && !mesh.exists() {
        true => make_mesh(args.nodes, &mesh),
        false => Ok(()),
    };
    world.agree(made)?;
    let name = world.agree(Dataset::read_header(data))?.name;
    let path = match order {
        Order::Locality => partition::default_path(&name, world.size()),
        Order::Original => format!("partitions/{name}-p{}-original.h5", world.size()).into(),
    };
    Ok(partition::load_or_make(world, data, Some(&path), &options)?.part)
}

fn make_mesh(nodes: usize, path: &Path) -> Result<()> {
    let mesh = Mesh { nodes, kind: mesh::Kind::Delaunay, weighting: Weighting::None };
    let mut data = mesh::generate(&mesh, &Observation::default())?;
    data.name = format!("mesh-{nodes}");
    data.write(path)?;
    eprintln!("made {} for this and later runs", path.display());
    Ok(())
}

/// Bytes one layer has to move on this rank whatever the code: input and output rows, the matrix,
/// two coefficients per row.
fn must_move(part: &Part, columns: usize, precision: Precision) -> f64 {
    let value = if precision == Precision::Single { 4 } else { 8 };
    let entry = 4 + if part.weights.is_some() { value } else { 0 };
    let rows =
        part.owned * (2 * columns * value + 4 + 2 * value) + part.halo_rows() * columns * value;
    (rows + part.entries() * entry) as f64
}

/// Best seconds of each kind of pass, over all ranks.
struct Times {
    layer: f64,
    adjoint: f64,
    gradient: f64,
    signs: f64,
    copy_bandwidth: f64,
    /// Seconds in halo calls (packing, posting, waiting) over seconds of the layer passes, on the
    /// average rank.
    halo_share: Option<f64>,
    halo: Option<Halo>,
    halo_bytes: Option<f64>,
    plan_bytes: f64,
}

/// What the halo costs in passes that all ranks start together, as shares of the pass: medians.
#[derive(Clone, Copy)]
struct Halo {
    /// Packing, posting and waiting of the average rank.
    share: f64,
    /// By how much the pass takes longer than the work of the slowest rank in it: what the exchange
    /// itself costs.
    transfer: f64,
    /// Waiting of the average rank for a neighbour that has more work or lost its core.
    wait: f64,
    /// Work of the slowest rank over that of the average one.
    imbalance: f64,
}

fn measure<E: Engine>(engine: &mut E, args: &Args) -> Times {
    let world = engine.world().clone();
    let layers = vec![(1.2, -1.0, 0.5, 0.1); args.layers];
    let model = Model::from_coefficients(&layers, Gamma::Free).expect("a valid model");
    let mut stack = Stack::new(engine, args.layers, args.columns);
    stack.prepare(engine, &model);
    let mut x = engine.zeros(args.columns);
    let mut g = engine.zeros(args.columns);
    let mut out = engine.zeros(args.columns);
    engine.fill_normal(Stream::new(1, Purpose::Test, 0), 0, &mut x);
    engine.fill_rademacher(Stream::new(1, Purpose::Test, 1), 0, &mut g);

    let per_layer = |seconds: f64| seconds / args.layers as f64;
    let layer = best(&world, args.rounds, || {
        stack.apply(engine, true, &mut x, &mut out);
        engine.synchronise();
    });
    let adjoint = best(&world, args.rounds, || {
        stack.transpose(engine, &mut g, &mut out);
        engine.synchronise();
    });
    stack.forward(engine, true, &mut x);
    let mut sums = vec![LayerSums::default(); args.layers];
    let gradient = best(&world, args.rounds, || {
        stack.backward(engine, true, &x, &mut g, &mut out, &mut sums);
    });
    let signs = best(&world, args.rounds, || {
        engine.fill_rademacher(Stream::new(1, Purpose::Test, 2), 0, &mut g);
        engine.synchronise();
    });
    let copy_bandwidth = copy_bandwidth(&world, args.rounds);

    // The halo is counted in rounds of its own, so that clocks do not disturb those above. Where
    // the user profiles, the table tells it.
    let counted = !(args.ranks.profile || args.ranks.profile_json.is_some());
    let (mut halo_share, mut halo, mut halo_bytes) = (None, None, None);
    let plan = &engine.part().halo;
    let value = if args.precision == Precision::Single { 4 } else { 8 };
    let mut plan_bytes = [(plan.sent_rows() * args.columns * value) as f64];
    world.sum(&mut plan_bytes);
    if counted {
        // Long enough that a rank losing its core for a moment does not count for much.
        let rounds = args.rounds.max((0.5 / layer).ceil() as usize);
        profile::enable();
        let begun = Instant::now();
        (0..rounds).for_each(|_| stack.apply(engine, true, &mut x, &mut out));
        let passes = begun.elapsed().as_secs_f64();
        let lines = world.profile();
        let phases = lines.iter().filter(|l| l.phase.starts_with("halo"));
        halo_share = Some(phases.clone().map(|l| l.mean_seconds).sum::<f64>() / passes);
        let sent: u64 = phases.filter(|l| l.phase == "halo wait").map(|l| l.bytes).sum();
        halo_bytes = Some(sent as f64 / (rounds * args.layers) as f64);
        halo = Some(halo_of(&world, rounds, || stack.apply(engine, true, &mut x, &mut out)));
    }
    Times {
        layer: per_layer(layer),
        adjoint: per_layer(adjoint),
        gradient: per_layer(gradient),
        signs,
        copy_bandwidth,
        halo_share,
        halo,
        halo_bytes,
        plan_bytes: plan_bytes[0],
    }
}

#[cfg(feature = "torch")]
fn measure_torch(world: &Rc<World>, part: Part, args: &Args) -> Result<Times> {
    use crate::field::torch::{Torch, device_of};
    let device = world.agree(device_of(world, args.device))?;
    Ok(match args.precision {
        Precision::Single => {
            measure(&mut world.agree(Torch::<f32>::new(world.clone(), part, device))?, args)
        }
        Precision::Double => {
            measure(&mut world.agree(Torch::<f64>::new(world.clone(), part, device))?, args)
        }
    })
}

#[cfg(not(feature = "torch"))]
fn measure_torch(world: &Rc<World>, _: Part, _: &Args) -> Result<Times> {
    world.agree(Err(Error::Setting(
        "this dgmrf was built without libtorch (feature `torch`); use --engine native".into(),
    )))
}

/// Best time of a pass that all ranks start together: the slowest rank counts, after one pass to
/// warm up.
fn best(world: &World, rounds: usize, mut pass: impl FnMut()) -> f64 {
    pass();
    let mut fastest = f64::INFINITY;
    for _ in 0..rounds {
        world.barrier();
        let begun = Instant::now();
        pass();
        let mut seconds = [begun.elapsed().as_secs_f64()];
        world.max(&mut seconds);
        fastest = fastest.min(seconds[0]);
    }
    fastest
}

/// Tells the transfer of halos from waiting for slower ranks, pass by pass: with time `t`, halo `h` and
/// work `w = t − h` of each rank, the transfer is `max t − max w`, and `mean h` without it is waiting.
fn halo_of(world: &World, rounds: usize, mut pass: impl FnMut()) -> Halo {
    let [mut share, mut transfer, mut wait, mut imbalance] = [const { Vec::new() }; 4];
    profile::enable();
    for _ in 0..rounds {
        world.barrier();
        let (begun, before) = (Instant::now(), profile::halo_seconds());
        pass();
        let seconds = begun.elapsed().as_secs_f64();
        let spent = profile::halo_seconds() - before;
        let (mut most, mut sums) = ([seconds, seconds - spent], [spent, seconds - spent]);
        world.max(&mut most);
        world.sum(&mut sums);
        let mean = sums.map(|sum| sum / world.size() as f64);
        share.push(mean[0] / most[0]);
        transfer.push((most[0] - most[1]) / most[0]);
        wait.push((mean[0] - (most[0] - most[1])).max(0.0) / most[0]);
        imbalance.push(most[1] / mean[1]);
    }
    world.profile(); // ends the counting
    let median = |mut values: Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Halo {
        share: median(share),
        transfer: median(transfer),
        wait: median(wait),
        imbalance: median(imbalance),
    }
}

/// Bytes per second (read plus written) that all ranks and threads together move in STREAM's
/// `b = q a`, on arrays no cache holds.
///
/// With `q` the traffic is that of a copy, but by ordinary stores as the layers make them; a
/// `memcpy` of this size would write past the caches.
fn copy_bandwidth(world: &World, rounds: usize) -> f64 {
    const LENGTH: usize = 1 << 23; // 64 MB, twice
    let q = std::hint::black_box(1.0);
    let from = vec![1.0f64; LENGTH];
    let mut to = vec![0.0f64; LENGTH];
    let piece = LENGTH.div_ceil(rayon::current_num_threads());
    let seconds = best(world, rounds, || {
        to.par_chunks_mut(piece).zip(from.par_chunks(piece)).for_each(|(to, from)| {
            pulp::Arch::new().dispatch(
                #[inline(always)]
                || to.iter_mut().zip(from).for_each(|(to, from)| *to = q * from),
            );
        });
    });
    (2 * 8 * LENGTH * world.size()) as f64 / seconds
}

fn show(
    args: &Args,
    world: &World,
    threads: usize,
    bytes: f64,
    (nodes, order): (usize, Order),
    times: &Times,
) {
    let mut total = [bytes];
    world.sum(&mut total);
    if !world.is_root() {
        return;
    }
    let layer_bandwidth = total[0] / times.layer;
    if args.json {
        let json = serde_json::json!({
            "nodes": nodes, "data": args.data, "columns": args.columns,
            "ranks": world.size(), "threads": threads,
            "engine": format!("{:?}", args.engine).to_lowercase(),
            "precision": format!("{:?}", args.precision).to_lowercase(),
            "order": order.name(),
            "layer_seconds": times.layer,
            "adjoint_seconds": times.adjoint,
            "gradient_seconds": times.gradient,
            "rademacher_seconds": times.signs,
            "copy_gigabytes_per_second": times.copy_bandwidth * 1e-9,
            "layer_gigabytes_per_second": layer_bandwidth * 1e-9,
            "layer_over_copy": layer_bandwidth / times.copy_bandwidth,
            "halo_share": times.halo_share,
            "halo_median_share": times.halo.map(|halo| halo.share),
            "halo_transfer_share": times.halo.map(|halo| halo.transfer),
            "halo_wait_share": times.halo.map(|halo| halo.wait),
            "work_imbalance": times.halo.map(|halo| halo.imbalance),
            "halo_bytes_per_layer": times.halo_bytes,
            "halo_bytes_planned": times.plan_bytes,
        });
        println!("{json:#}");
        return;
    }
    let pass = |seconds: f64| format!("{:.3} ms", 1e3 * seconds);
    let percent = |share: Option<f64>| {
        share.map_or("? %".to_owned(), |share| format!("{:.1} %", 100.0 * share))
    };
    table::print_pairs(&[
        ("ranks x threads", format!("{} x {threads}", world.size())),
        (
            "block",
            format!("{} columns, {:?} precision", args.columns, args.precision).to_lowercase(),
        ),
        ("layer", pass(times.layer)),
        ("transposed", pass(times.adjoint)),
        ("with gradient", pass(times.gradient)),
        ("signs", pass(times.signs)),
        (
            "bandwidth",
            format!(
                "{:.1} GB/s for the layer, {:.1} GB/s for a copy ({:.0} %)",
                layer_bandwidth * 1e-9,
                times.copy_bandwidth * 1e-9,
                100.0 * layer_bandwidth / times.copy_bandwidth
            ),
        ),
        (
            "halo",
            format!(
                "{} of the time, {} per layer",
                percent(times.halo_share),
                table::bytes(times.plan_bytes as usize)
            ),
        ),
        (
            "started together",
            format!(
                "{} halo in the median pass: {} transfer, {} waiting for slower ranks",
                percent(times.halo.map(|halo| halo.share)),
                percent(times.halo.map(|halo| halo.transfer)),
                percent(times.halo.map(|halo| halo.wait))
            ),
        ),
    ]);
}
