//! All eigenvalues, by a dense symmetric solver on rank 0.

use crate::error::{Error, Result};
use crate::field::Engine;
use crate::linalg::Tridiagonal;
use crate::progress::Progress;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd;

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

/// Bytes that `nodes` nodes need on rank 0: the matrix, which the solver overwrites, and a little.
pub fn memory(nodes: usize) -> u64 {
    (nodes as u64).pow(2) * 8 + nodes as u64 * 8 * 512
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
    let mut matrix =
        if world.is_root() { faer::Mat::<f64>::zeros(nodes, nodes) } else { faer::Mat::new() };
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
    let solved = if world.is_root() { solve(matrix) } else { Vec::new() };
    let mut eigenvalues = world.broadcast_numbers(solved);
    // Eigenvalues lie in [-1, 1]; rounding must not put one beyond the reach of |ρ| < 1.
    eigenvalues.iter_mut().for_each(|v| *v = v.clamp(-1.0, 1.0));
    Ok(eigenvalues)
}

/// The eigenvalues of a symmetric matrix, of which the lower half is read and all is overwritten:
/// reduction to tridiagonal form by reflections, then QL.
fn solve(mut matrix: faer::Mat<f64>) -> Vec<f64> {
    let n = matrix.nrows();
    let parallelism = faer::get_global_parallelism();
    // Reflections one by one: nobody applies them again, so they need no blocks.
    let mut reflections = faer::Mat::<f64>::zeros(1, n.saturating_sub(1));
    let room = evd::tridiag::tridiag_in_place_scratch::<f64>(n, parallelism, Default::default());
    evd::tridiag::tridiag_in_place(
        matrix.as_mut(),
        reflections.as_mut(),
        parallelism,
        MemStack::new(&mut MemBuffer::new(room)),
        Default::default(),
    );
    let tridiagonal = Tridiagonal {
        diagonal: (0..n).map(|i| matrix[(i, i)]).collect(),
        off_diagonal: (1..n).map(|i| matrix[(i, i - 1)]).collect(),
    };
    drop(matrix);
    tridiagonal.eigenvalues()
}
