//! The blocks conjugate gradients work in, and how finished columns leave them.

use super::bound::Steps;
use crate::field::Engine;

/// Room to work in, owned by the caller and used again from call to call.
pub struct Workspace<E: Engine> {
    /// Residuals, search directions, and their products (also the room in which columns move).
    pub(super) r: E::Block,
    pub(super) p: E::Block,
    pub(super) s: E::Block,
    /// Solutions, once there are fewer columns at work than the caller's block has.
    pub(super) x: E::Block,
    /// `M⁻¹ r` and `M⁻¹ s`, for preconditioners that are not diagonal.
    pub(super) z: E::Block,
    pub(super) q: E::Block,
    pub(super) alpha: Vec<f64>,
    pub(super) beta: Vec<f64>,
    pub(super) dots: Vec<f64>,
    /// `⟨b, M⁻¹ b⟩` of each column of the caller.
    pub(super) references: Vec<f64>,
    /// The steps of each column of the caller.
    pub(super) steps: Vec<Steps>,
}

impl<E: Engine> Workspace<E> {
    /// Room that grows to what is needed.
    pub fn new(engine: &E) -> Self {
        let empty = || engine.zeros(0);
        Workspace {
            r: empty(),
            p: empty(),
            s: empty(),
            x: empty(),
            z: empty(),
            q: empty(),
            alpha: Vec::new(),
            beta: Vec::new(),
            dots: Vec::new(),
            references: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Room for `columns` columns, and no steps yet.
    pub(super) fn resize(&mut self, engine: &E, columns: usize, diagonal: bool) {
        let [r, p, s] = [&mut self.r, &mut self.p, &mut self.s];
        [r, p, s].into_iter().for_each(|block| engine.resize(block, columns));
        if !diagonal {
            [&mut self.z, &mut self.q].into_iter().for_each(|block| engine.resize(block, columns));
        }
        self.alpha.resize(columns, 0.0);
        self.beta.resize(columns, 0.0);
        self.dots.resize(4 * columns, 0.0);
        self.references.resize(columns, 0.0);
        if self.steps.len() < columns {
            self.steps.resize_with(columns, Steps::default);
        }
        self.steps.iter_mut().for_each(Steps::clear);
    }

    /// `e₁ᵀ f(T) e₁` for the Lanczos matrix `T` of column `k` of the last solve: with the start
    /// vector `z = M^-½ r₀`, `zᵀ f(M^-½ A M^-½) z = ‖z‖² e₁ᵀ f(T) e₁`, exact for polynomials up to
    /// twice the number of steps.
    pub fn quadrature(&self, k: usize, f: impl Fn(f64) -> f64) -> f64 {
        self.steps[k].quadrature(f)
    }

    /// Copies the solutions of the columns at work to their places in the caller's block.
    pub(super) fn hand_over(&self, engine: &E, x: &mut E::Block, at_work: &[Column]) {
        let places: Vec<(usize, usize)> =
            at_work.iter().enumerate().map(|(k, column)| (k, column.place)).collect();
        engine.copy_columns(&self.x, x, &places);
    }

    /// Leaves only as many columns at work as a tile has that holds the unfinished ones. The
    /// solutions go on from the caller's block, which has all of them.
    pub(super) fn narrow(
        &mut self,
        engine: &E,
        x: &E::Block,
        at_work: &mut Vec<Column>,
        diagonal: bool,
    ) {
        let left = at_work.iter().filter(|column| !column.done).count();
        let width = tile(left);
        let mut idle = width - left; // finished columns that fill the tile
        let mut kept: Vec<(usize, usize)> = Vec::with_capacity(width);
        for (k, column) in at_work.iter().enumerate() {
            if !column.done || idle > 0 {
                idle -= usize::from(column.done);
                kept.push((k, kept.len()));
            }
        }
        // `s` is free between iterations: each block is copied there and changes places with it.
        let blocks = [&mut self.r, &mut self.p];
        let more = if diagonal { None } else { Some(&mut self.z) };
        for block in blocks.into_iter().chain(more) {
            engine.resize(&mut self.s, width);
            engine.copy_columns(block, &mut self.s, &kept);
            std::mem::swap(block, &mut self.s);
        }
        engine.resize(&mut self.s, width);
        if !diagonal {
            engine.resize(&mut self.q, width);
        }
        *at_work = kept.iter().map(|&(k, _)| at_work[k]).collect();
        engine.resize(&mut self.x, width);
        let places: Vec<(usize, usize)> =
            at_work.iter().enumerate().map(|(k, column)| (column.place, k)).collect();
        engine.copy_columns(x, &mut self.x, &places);
    }
}

/// A column at work: where it stands in the caller's block, and what it is judged by.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub place: usize,
    /// `⟨b, M⁻¹ b⟩`, the norm it is judged by.
    pub reference: f64,
    pub done: bool,
}

/// The narrowest block that holds `columns` columns and is a whole number of tiles.
pub(super) fn tile(columns: usize) -> usize {
    if columns <= 8 { columns.next_power_of_two() } else { columns.next_multiple_of(8) }
}
