//! How fast layers run on this machine, and what keeps them from more.

use super::engine::{Work, with_precision};
use crate::comm::World;
use crate::config::{self, Device, Precision};
use crate::error::Result;
use crate::field::{Engine, LayerSums};
use crate::model::{Gamma, Model, Stack};
use crate::partition::Part;
use crate::profile::{self, Phase};
use crate::random::{Purpose, Stream};
use rayon::prelude::*;
use std::rc::Rc;
use std::time::Instant;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Columns of the blocks, at least 1.
    pub columns: usize,
    /// Layers of the model, at least 1.
    pub layers: usize,
    /// Rounds to take the best of, at least 1.
    pub rounds: usize,
    /// Who does the arithmetic.
    pub engine: config::Engine,
    /// Device of the torch engine.
    pub device: Device,
    /// Precision of node values.
    pub precision: Precision,
    /// Whether the halo is counted, which ends a profile of the whole program.
    pub halo: bool,
}

/// Bytes one layer has to move on this rank whatever the code: input and output rows, the matrix,
/// two coefficients per row.
pub fn must_move(part: &Part, columns: usize, precision: Precision) -> f64 {
    let value = bytes_of(precision);
    let entry = 4 + if part.weights.is_some() { value } else { 0 };
    let rows =
        part.owned * (2 * columns * value + 4 + 2 * value) + part.halo_rows() * columns * value;
    (rows + part.entries() * entry) as f64
}

fn bytes_of(precision: Precision) -> usize {
    match precision {
        Precision::Single => 4,
        Precision::Double => 8,
    }
}

/// Best seconds of each kind of pass, over all ranks.
pub struct Times {
    /// A layer.
    pub layer: f64,
    /// A transposed layer.
    pub adjoint: f64,
    /// A transposed layer with the gradient of its parameters.
    pub gradient: f64,
    /// A block of random signs.
    pub signs: f64,
    /// Bytes per second that all ranks copy together.
    pub copy_bandwidth: f64,
    /// Bytes that the halo plans of all ranks send for a layer.
    pub plan_bytes: f64,
    /// What the halo costs, where it was counted.
    pub halo: Option<Halo>,
}

/// What the halo costs.
pub struct Halo {
    /// Seconds in halo calls (packing, posting, waiting) over seconds of passes one after the
    /// other, on the average rank.
    pub share: f64,
    /// Bytes that were sent for a layer.
    pub bytes: f64,
    /// In passes that all ranks start together.
    pub together: Together,
}

/// What the halo costs in passes that all ranks start together, as shares of the pass: medians.
pub struct Together {
    /// Packing, posting and waiting of the average rank.
    pub share: f64,
    /// By how much the pass takes longer than the work of the slowest rank in it: what the exchange
    /// itself costs.
    pub transfer: f64,
    /// Waiting of the average rank for a neighbour that has more work or lost its core.
    pub wait: f64,
    /// Work of the slowest rank over that of the average one.
    pub imbalance: f64,
}

/// Measures layers on the parts of a graph. All ranks call it.
pub fn measure(world: &Rc<World>, part: Part, options: &Options) -> Result<Times> {
    let Options { engine, device, precision, .. } = *options;
    with_precision(world, part, engine, device, precision, Measure(options))
}

struct Measure<'a>(&'a Options);

impl Work for Measure<'_> {
    type Output = Times;

    fn on<E: Engine>(self, mut engine: E) -> Result<Times> {
        Ok(times(&mut engine, self.0))
    }
}

fn times<E: Engine>(engine: &mut E, options: &Options) -> Times {
    let Options { columns, layers, rounds, precision, .. } = *options;
    let world = engine.world().clone();
    let coefficients = vec![(1.2, -1.0, 0.5, 0.1); layers];
    let model = Model::from_coefficients(&coefficients, Gamma::Free).expect("a valid model");
    let mut stack = Stack::new(engine, layers, columns);
    stack.prepare(engine, &model);
    let [mut x, mut g, mut out] = std::array::from_fn(|_| engine.zeros(columns));
    engine.fill_normal(Stream::new(1, Purpose::Test, 0), 0, &mut x);
    engine.fill_rademacher(Stream::new(1, Purpose::Test, 1), 0, &mut g);

    let layer = best(&world, rounds, || {
        stack.apply(engine, true, &mut x, &mut out);
        engine.synchronise();
    });
    let adjoint = best(&world, rounds, || {
        stack.transpose(engine, &mut g, &mut out);
        engine.synchronise();
    });
    stack.forward(engine, true, &mut x);
    let mut sums = vec![LayerSums::default(); layers];
    let gradient = best(&world, rounds, || {
        stack.backward(engine, true, &x, &mut g, &mut out, &mut sums);
    });
    let signs = best(&world, rounds, || {
        engine.fill_rademacher(Stream::new(1, Purpose::Test, 2), 0, &mut g);
        engine.synchronise();
    });
    let copy_bandwidth = copy_bandwidth(&world, rounds);
    let mut plan_bytes = [(engine.part().halo.sent_rows() * columns * bytes_of(precision)) as f64];
    world.sum(&mut plan_bytes);
    // The halo is counted in rounds of its own, so that clocks do not disturb those above; long
    // enough that a rank losing its core for a moment does not count for much.
    let halo = options.halo.then(|| {
        let rounds = rounds.max((0.5 / layer).ceil() as usize);
        Halo::of(&world, rounds, layers, || stack.apply(engine, true, &mut x, &mut out))
    });
    let per_layer = |seconds: f64| seconds / layers as f64;
    Times {
        layer: per_layer(layer),
        adjoint: per_layer(adjoint),
        gradient: per_layer(gradient),
        signs,
        copy_bandwidth,
        plan_bytes: plan_bytes[0],
        halo,
    }
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

impl Halo {
    fn of(world: &World, rounds: usize, layers: usize, mut pass: impl FnMut()) -> Self {
        profile::enable();
        let begun = Instant::now();
        (0..rounds).for_each(|_| pass());
        let passes = begun.elapsed().as_secs_f64();
        let lines = world.profile();
        let phases = lines.iter().filter(|line| line.phase.is_halo());
        let share = phases.clone().map(|line| line.mean_seconds).sum::<f64>() / passes;
        let sent: u64 =
            phases.filter(|line| line.phase == Phase::HaloWait).map(|line| line.bytes).sum();
        let bytes = sent as f64 / (rounds * layers) as f64;
        Halo { share, bytes, together: Together::of(world, rounds, pass) }
    }
}

impl Together {
    /// Tells the transfer of halos from waiting for slower ranks, pass by pass: with time `t`, halo
    /// `h` and work `w = t − h` of each rank, the transfer is `max t − max w`, and `mean h` without
    /// it is waiting.
    fn of(world: &World, rounds: usize, mut pass: impl FnMut()) -> Self {
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
        Together {
            share: median(share),
            transfer: median(transfer),
            wait: median(wait),
            imbalance: median(imbalance),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
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
