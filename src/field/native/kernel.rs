//! The layer kernels: one pass over the rows of a CSR matrix, fixed-width inner loops.
//!
//! All three stencils gather `Σ_j w_ij c_j x_j` for a tile of columns and differ in what they make
//! of it. Tiles are 16, 10, 8, 4, 2 or 1 columns wide (10 because the paper's runs draw ten
//! samples), so that the compiler keeps the sums of a tile in registers. [`pulp`] compiles the
//! same loops for the vector units found at run time.

use super::scalar::Scalar;
use crate::field::LayerSums;
use pulp::{Arch, Simd, WithSimd};
use std::ops::Range;

/// The owned rows of the adjacency matrix, columns in local rows.
pub(super) struct Csr<T> {
    pub indptr: Vec<u32>,
    pub indices: Vec<u32>,
    /// Empty when all weights are one.
    pub weights: Vec<T>,
}

impl<T: Scalar> Csr<T> {
    fn row(&self, i: usize) -> Range<usize> {
        self.indptr[i] as usize..self.indptr[i + 1] as usize
    }

    /// Bytes that a sweep over the rows must move: each input and output row once, the matrix
    /// once, two coefficients per row.
    pub fn bytes_of(&self, rows: Range<usize>, columns: usize) -> u64 {
        let entries = (self.indptr[rows.end] - self.indptr[rows.start]) as usize;
        let entry = 4 + if self.weights.is_empty() { 0 } else { T::BYTES };
        (rows.len() * (2 * columns * T::BYTES + 4 + 2 * T::BYTES) + entries * entry) as u64
    }
}

/// What one output row is made of, given the gathered neighbours.
pub(super) trait Stencil<T: Scalar>: Sync {
    /// Whether the stencil also returns sums.
    const SUMS: bool = false;
    /// Whether each gathered neighbour is scaled by [`Stencil::neighbour`].
    const SCALED: bool;
    /// `c_j`.
    fn neighbour(&self, j: usize) -> T;
    /// Row `i`, columns `at..at + W` of a block with `at` counted over the whole block: `own` is
    /// the input there, `gathered` the neighbour sum.
    fn row<const W: usize>(
        &self,
        i: usize,
        at: usize,
        own: &[T; W],
        gathered: &[T; W],
        sums: &mut LayerSums,
    ) -> [T; W];
}

/// `b + s_i h_i + ρ (s_i/d_i) Σ_j w_ij h_j`.
pub(super) struct Forward<'a, T> {
    pub scale: &'a [T],
    pub ratio: &'a [T],
    pub rho: T,
    pub bias: T,
}

impl<T: Scalar> Stencil<T> for Forward<'_, T> {
    const SCALED: bool = false;
    #[inline(always)]
    fn neighbour(&self, _: usize) -> T {
        T::ONE
    }
    #[inline(always)]
    fn row<const W: usize>(
        &self,
        i: usize,
        _at: usize,
        own: &[T; W],
        gathered: &[T; W],
        _sums: &mut LayerSums,
    ) -> [T; W] {
        let (s, r) = (self.scale[i], self.rho * self.ratio[i]);
        std::array::from_fn(|c| self.bias + s * own[c] + r * gathered[c])
    }
}

/// `s_i g_i + ρ Σ_j w_ij (s_j/d_j) g_j`.
pub(super) struct Adjoint<'a, T> {
    pub scale: &'a [T],
    pub ratio: &'a [T],
    pub rho: T,
}

impl<T: Scalar> Stencil<T> for Adjoint<'_, T> {
    const SCALED: bool = true;
    #[inline(always)]
    fn neighbour(&self, j: usize) -> T {
        self.ratio[j]
    }
    #[inline(always)]
    fn row<const W: usize>(
        &self,
        i: usize,
        _at: usize,
        own: &[T; W],
        gathered: &[T; W],
        _sums: &mut LayerSums,
    ) -> [T; W] {
        let s = self.scale[i];
        std::array::from_fn(|c| s * own[c] + self.rho * gathered[c])
    }
}

/// [`Adjoint`] with the sums of [`LayerSums`] in the same pass.
pub(super) struct AdjointWithSums<'a, T> {
    pub adjoint: Adjoint<'a, T>,
    pub bias: T,
    pub log_degree: &'a [f64],
    pub input: &'a [T],
    pub output: &'a [T],
}

impl<T: Scalar> Stencil<T> for AdjointWithSums<'_, T> {
    const SUMS: bool = true;
    const SCALED: bool = true;
    #[inline(always)]
    fn neighbour(&self, j: usize) -> T {
        self.adjoint.ratio[j]
    }
    #[inline(always)]
    fn row<const W: usize>(
        &self,
        i: usize,
        at: usize,
        own: &[T; W],
        gathered: &[T; W],
        sums: &mut LayerSums,
    ) -> [T; W] {
        let input: &[T; W] = tile(self.input, at);
        let output: &[T; W] = tile(self.output, at);
        let (mut gu, mut th, mut g) = (0.0, 0.0, 0.0);
        for c in 0..W {
            gu += (own[c] * (output[c] - self.bias)).to_f64();
            th += (gathered[c] * input[c]).to_f64();
            g += own[c].to_f64();
        }
        sums.alpha += gu;
        sums.rho += th;
        sums.gamma += gu * self.log_degree[i];
        sums.bias += g;
        self.adjoint.row(i, at, own, gathered, sums)
    }
}

/// Applies the stencil to `rows`; `out` holds just these rows.
pub(super) fn run<T: Scalar, S: Stencil<T>>(
    stencil: &S,
    csr: &Csr<T>,
    input: &[T],
    columns: usize,
    rows: Range<usize>,
    out: &mut [T],
) -> LayerSums {
    Arch::new().dispatch(Sweep { stencil, csr, input, columns, rows, out })
}

struct Sweep<'a, T, S> {
    stencil: &'a S,
    csr: &'a Csr<T>,
    input: &'a [T],
    columns: usize,
    rows: Range<usize>,
    out: &'a mut [T],
}

impl<T: Scalar, S: Stencil<T>> WithSimd for Sweep<'_, T, S> {
    type Output = LayerSums;

    #[inline(always)]
    fn with_simd<V: Simd>(self, _: V) -> LayerSums {
        if self.csr.weights.is_empty() { self.tiles::<false>() } else { self.tiles::<true>() }
    }
}

impl<T: Scalar, S: Stencil<T>> Sweep<'_, T, S> {
    /// One or more tiles per row; widths that occur in practice are one tile.
    #[inline(always)]
    fn tiles<const WEIGHTED: bool>(mut self) -> LayerSums {
        let mut sums = LayerSums::default();
        match self.columns {
            1 => self.pass::<1, WEIGHTED>(0, &mut sums),
            8 => self.pass::<8, WEIGHTED>(0, &mut sums),
            10 => self.pass::<10, WEIGHTED>(0, &mut sums),
            columns => {
                let mut first = 0;
                while first < columns {
                    first += match columns - first {
                        16.. => {
                            self.pass::<16, WEIGHTED>(first, &mut sums);
                            16
                        }
                        4.. => {
                            self.pass::<4, WEIGHTED>(first, &mut sums);
                            4
                        }
                        2.. => {
                            self.pass::<2, WEIGHTED>(first, &mut sums);
                            2
                        }
                        _ => {
                            self.pass::<1, WEIGHTED>(first, &mut sums);
                            1
                        }
                    };
                }
            }
        }
        sums
    }

    /// All rows, columns `first..first + W`. A chunk of rows stays in cache between tiles.
    #[inline(always)]
    fn pass<const W: usize, const WEIGHTED: bool>(&mut self, first: usize, sums: &mut LayerSums) {
        let (csr, input, columns) = (self.csr, self.input, self.columns);
        let start = self.rows.start;
        for i in self.rows.clone() {
            let mut gathered = [T::ZERO; W];
            let row = csr.row(i);
            let indices = &csr.indices[row.clone()];
            let weights: &[T] = if WEIGHTED { &csr.weights[row] } else { &[] };
            for (k, &j) in indices.iter().enumerate() {
                let j = j as usize;
                let x: &[T; W] = tile(input, j * columns + first);
                if WEIGHTED || S::SCALED {
                    let mut factor = if S::SCALED { self.stencil.neighbour(j) } else { T::ONE };
                    if WEIGHTED {
                        factor = if S::SCALED { weights[k] * factor } else { weights[k] };
                    }
                    for c in 0..W {
                        gathered[c] += factor * x[c];
                    }
                } else {
                    for c in 0..W {
                        gathered[c] += x[c];
                    }
                }
            }
            let at = i * columns + first;
            let made = self.stencil.row(i, at, tile(input, at), &gathered, sums);
            let to = (i - start) * columns + first;
            self.out[to..to + W].copy_from_slice(&made);
        }
    }
}

/// `W` neighbouring values.
#[inline(always)]
fn tile<T, const W: usize>(values: &[T], at: usize) -> &[T; W] {
    values[at..at + W].first_chunk().expect("a slice of W values")
}
