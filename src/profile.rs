//! Where the time goes: a table in the spirit of PETSc's `-log_view`, on at one flag.
//!
//! Rooms mark their work with [`start`] and [`stop`]. When profiling is off that is one relaxed
//! load of a flag; when it is on, a clock reading and a few atomic additions per event.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The kinds of work that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Phase {
    /// Layer applied to a block, without the halo exchange.
    Layer,
    /// Transposed layer.
    Adjoint,
    /// Transposed layer with the gradient of its parameters.
    Gradient,
    /// Dots, axpys and other passes over whole blocks.
    Vector,
    /// Random fills.
    Random,
    /// Gathering boundary rows into the send buffer.
    HaloPack,
    /// Starting sends and receives.
    HaloPost,
    /// Waiting for the halo after the interior rows are done.
    HaloWait,
    /// Reductions over all ranks.
    Reduce,
}

const PHASES: [Phase; 9] = [
    Phase::Layer,
    Phase::Adjoint,
    Phase::Gradient,
    Phase::Vector,
    Phase::Random,
    Phase::HaloPack,
    Phase::HaloPost,
    Phase::HaloWait,
    Phase::Reduce,
];

impl Phase {
    /// Name for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Layer => "layer",
            Phase::Adjoint => "adjoint",
            Phase::Gradient => "gradient",
            Phase::Vector => "vector",
            Phase::Random => "random",
            Phase::HaloPack => "halo pack",
            Phase::HaloPost => "halo post",
            Phase::HaloWait => "halo wait",
            Phase::Reduce => "reduce",
        }
    }

    /// Whether it is part of a halo exchange.
    pub fn is_halo(self) -> bool {
        matches!(self, Phase::HaloPack | Phase::HaloPost | Phase::HaloWait)
    }
}

impl serde::Serialize for Phase {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

struct Tally {
    count: AtomicU64,
    nanoseconds: AtomicU64,
    bytes: AtomicU64,
    messages: AtomicU64,
}

static ON: AtomicBool = AtomicBool::new(false);
static TALLIES: [Tally; PHASES.len()] = [const {
    Tally {
        count: AtomicU64::new(0),
        nanoseconds: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        messages: AtomicU64::new(0),
    }
}; PHASES.len()];

/// Starts counting, from zero.
pub fn enable() {
    for tally in &TALLIES {
        for counter in [&tally.count, &tally.nanoseconds, &tally.bytes, &tally.messages] {
            counter.store(0, Relaxed);
        }
    }
    ON.store(true, Relaxed);
}

/// A running clock, or nothing when profiling is off.
pub type Timer = Option<Instant>;

/// Begins an event.
#[inline]
pub fn start() -> Timer {
    ON.load(Relaxed).then(Instant::now)
}

/// Ends an event: the bytes are those moved through memory (or the network, for halo and
/// reductions), messages are MPI messages sent or reductions made.
#[inline]
pub fn stop(phase: Phase, timer: Timer, bytes: u64, messages: u64) {
    if let Some(begun) = timer {
        let tally = &TALLIES[phase as usize];
        tally.count.fetch_add(1, Relaxed);
        tally.nanoseconds.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
        tally.bytes.fetch_add(bytes, Relaxed);
        tally.messages.fetch_add(messages, Relaxed);
    }
}

/// Seconds that this rank has spent in halo exchanges so far: packing, posting and waiting.
pub fn halo_seconds() -> f64 {
    let halo = PHASES.iter().filter(|phase| phase.is_halo());
    let spent = |&phase: &Phase| TALLIES[phase as usize].nanoseconds.load(Relaxed);
    halo.map(spent).sum::<u64>() as f64 * 1e-9
}

/// One line of the profile, over all ranks.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Line {
    /// The kind of work.
    pub phase: Phase,
    /// Events, the largest count of any rank.
    pub count: u64,
    /// Seconds on the slowest rank.
    pub seconds: f64,
    /// Seconds on the average rank.
    pub mean_seconds: f64,
    /// Seconds of the slowest rank over those of the fastest.
    pub imbalance: f64,
    /// Bytes on all ranks.
    pub bytes: u64,
    /// Messages or reductions on all ranks.
    pub messages: u64,
    /// Bytes per second on all ranks, in 1e9.
    pub gigabytes_per_second: f64,
}

/// Collects the profile of all ranks, given the reductions over them (see
/// [`crate::comm::World::profile`]); phases that never ran are left out.
pub fn collect(max: impl FnOnce(&mut [f64]), sum: impl FnOnce(&mut [f64])) -> Vec<Line> {
    ON.store(false, Relaxed); // the reductions below are not part of the job
    let get = |counter: &AtomicU64| counter.load(Relaxed) as f64;
    let mut largest: Vec<f64> = Vec::with_capacity(3 * PHASES.len());
    let mut totals: Vec<f64> = Vec::with_capacity(4 * PHASES.len());
    for tally in &TALLIES {
        let seconds = get(&tally.nanoseconds) * 1e-9;
        largest.extend([get(&tally.count), seconds, -seconds]);
        totals.extend([get(&tally.bytes), get(&tally.messages), seconds, 1.0]);
    }
    max(&mut largest);
    sum(&mut totals);
    let mut lines = Vec::new();
    for ((&phase, high), total) in
        PHASES.iter().zip(largest.chunks_exact(3)).zip(totals.chunks_exact(4))
    {
        if high[0] > 0.0 {
            let (seconds, fastest) = (high[1], -high[2]);
            lines.push(Line {
                phase,
                count: high[0] as u64,
                seconds,
                mean_seconds: total[2] / total[3], // the last sums up to the number of ranks
                imbalance: if fastest > 0.0 { seconds / fastest } else { f64::INFINITY },
                bytes: total[0] as u64,
                messages: total[1] as u64,
                gigabytes_per_second: total[0] * 1e-9 / seconds.max(1e-9),
            });
        }
    }
    lines
}

/// The profile as a table for people.
pub fn table(lines: &[Line]) -> String {
    let mut text = format!(
        "{:<10} {:>9} {:>11} {:>8} {:>11} {:>10} {:>8}\n",
        "phase", "count", "seconds", "max/min", "MB", "messages", "GB/s"
    );
    for l in lines {
        text += &format!(
            "{:<10} {:>9} {:>11.4} {:>8.2} {:>11.2} {:>10} {:>8.2}\n",
            l.phase.name(),
            l.count,
            l.seconds,
            l.imbalance,
            l.bytes as f64 * 1e-6,
            l.messages,
            l.gigabytes_per_second
        );
    }
    text
}
