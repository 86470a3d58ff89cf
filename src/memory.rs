//! What fits into memory: how many columns to solve for at once.

use crate::comm::World;
use crate::error::{Error, Result};
use crate::field::Engine;

/// Columns that the kernels are fastest with: one tile. Twice as many are no faster, and all blocks
/// of columns take twice the memory.
const TILE: usize = 8;
/// Blocks that hold a column each while it is solved for (right-hand side and its two sources,
/// solution, residual, direction, product, image, two between layers, two preconditioned ones,
/// room of the blocks of a preconditioner, and copies on the host).
const BLOCKS: usize = 20;

/// Columns of a batch out of `total`: what was asked for, or a tile, or what fits into half of
/// the memory that is left. All ranks call it and get the same.
pub(crate) fn batch<E: Engine>(engine: &E, asked: Option<usize>, total: usize) -> Result<usize> {
    let world = engine.world();
    let column = (engine.part().ids.len() * BLOCKS * 8) as f64;
    let left = share(world, 1.0);
    let fits = if column > 0.0 { (0.5 * left / column).floor() } else { f64::INFINITY };
    let mut least = [fits];
    world.min(&mut least);
    let fits = least[0];
    if fits < 1.0 {
        return Err(Error::Setting(format!(
            "one column of the posterior takes {:.1} GB on a rank, and {:.1} GB are left: use more \
             ranks on more machines",
            column * 1e-9,
            left * 1e-9
        )));
    }
    let fits = if fits.is_finite() { fits as usize } else { usize::MAX };
    match asked {
        Some(asked) if asked > fits => Err(Error::Setting(format!(
            "{asked} columns at once take {:.1} GB on a rank, and {:.1} GB are left: at most {fits}",
            asked as f64 * column * 1e-9,
            left * 1e-9
        ))),
        Some(asked) => Ok(asked.max(1)),
        None => Ok(TILE.min(fits).min(total)),
    }
}

/// This rank's share of some fraction of the memory that is left on its machine, in bytes.
pub(crate) fn share(world: &World, fraction: f64) -> f64 {
    available().map_or(f64::INFINITY, |bytes| fraction * bytes / world.local_size() as f64)
}

/// Bytes of memory that are left on this machine, where the system tells.
fn available() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
}
