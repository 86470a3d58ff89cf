//! All eigenvalues, by a dense symmetric solver on rank 0.

use crate::error::{Error, Result};
use crate::field::Engine;
use crate::progress::Progress;

/// What the dense solver may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Bytes; graphs that need more are refused.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { memory: 16 << 30 }
    }
}

/// Bytes that `nodes` nodes need: the matrix and the solver's copy of it, and a little.
pub fn memory(nodes: usize) -> u64 {
    (nodes as u64).pow(2) * 8 * 2 + nodes as u64 * 8 * 512
}

/// The eigenvalues of `Ã` of the graph that the engine works on, ascending. To be called by all
/// ranks.
///
/// The matrix is made column by column with the same products as everything else: `Ã e_j` is
/// `D^½ (D⁻¹A) D^-½ e_j`.
pub fn compute<E: Engine>(
    engine: &mut E,
    options: &Options,
    progress: &mut Progress,
) -> Result<Vec<f64>> {
    const COLUMNS: usize = 16;
    let world = engine.world().clone();
    let nodes = engine.part().nodes;
    let need = memory(nodes);
    if need > options.memory {
        return Err(Error::Setting(format!(
            "the eigenvalues of {nodes} nodes need {:.1} GB, more than the {:.1} GB allowed; \
             use logdet.method = \"lanczos\"",
            need as f64 / 1e9,
            options.memory as f64 / 1e9
        )));
    }
    let ids = engine.part().owned_ids().to_vec();
    let root: Vec<f64> = engine.part().degree.iter().map(|d| d.sqrt()).collect();
    let walk = engine.random_walk();
    let (mut unit, mut column) = (engine.zeros(COLUMNS), engine.zeros(COLUMNS));
    let mut matrix = match world.is_root() {
        true => faer::Mat::<f64>::zeros(nodes, nodes),
        false => faer::Mat::new(),
    };
    let mut values = vec![0.0; ids.len() * COLUMNS];
    for first in (0..nodes).step_by(COLUMNS) {
        let here = first..nodes.min(first + COLUMNS);
        values.fill(0.0);
        for (row, &id) in ids.iter().enumerate() {
            if here.contains(&(id as usize)) {
                values[row * COLUMNS + id as usize - first] = 1.0 / root[row];
            }
        }
        engine.upload(&values, &mut unit);
        engine.layer(&walk, false, &mut unit, &mut column);
        let mut made = engine.download(&column);
        for (row, made) in made.chunks_exact_mut(COLUMNS).enumerate() {
            made.iter_mut().for_each(|v| *v *= root[row]);
        }
        if let Some(all) = world.gather_rows(&ids, &made, COLUMNS, nodes)? {
            for (i, row) in all.chunks_exact(COLUMNS).enumerate() {
                here.clone().for_each(|j| matrix[(i, j)] = row[j - first]);
            }
        }
        progress.advance(here.len() as u64);
    }
    let solved = match world.is_root() {
        true => matrix.self_adjoint_eigenvalues(faer::Side::Lower).map_err(|e| {
            Error::Numeric(format!("the eigenvalues of {nodes} nodes did not converge: {e:?}"))
        }),
        false => Ok(Vec::new()),
    };
    let mut eigenvalues = world.broadcast_numbers(world.agree(solved)?);
    // They lie in [-1, 1]; rounding must not put one beyond the reach of |ρ| < 1.
    eigenvalues.iter_mut().for_each(|v| *v = v.clamp(-1.0, 1.0));
    Ok(eigenvalues)
}
