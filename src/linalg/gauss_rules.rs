//! Gauss rules of several tridiagonal matrices at once.
//!
//! The rotations of implicit QL wait for each other, each for a root and a quotient; rotations of
//! different matrices do not wait. So every matrix has a lane of a vector, with a block of its own
//! to work on, and a sweep runs over the rows of all of them. The arithmetic is to the letter that
//! of [`Tridiagonal::gauss_rule`], which is the reference.

use super::tridiagonal::{SWEEPS, Tridiagonal};
use pulp::{Arch, Simd, WithSimd};

/// Nodes, ascending, and weights of every matrix.
pub(crate) fn gauss_rules(matrices: &[Tridiagonal]) -> Vec<Vec<(f64, f64)>> {
    let together = |some: &[Tridiagonal]| match some.len() {
        ..=8 => Arch::new().dispatch(LaneMatrices::<8>::new(some)),
        9..=16 => Arch::new().dispatch(LaneMatrices::<16>::new(some)),
        _ => Arch::new().dispatch(LaneMatrices::<MOST_LANES>::new(some)),
    };
    matrices.chunks(MOST_LANES).flat_map(together).collect()
}

/// Matrices that are worked on together: several vectors of them, since the rotations of one vector
/// wait for each other, too.
const MOST_LANES: usize = 32;

/// Matrices of a group by rows, each filled up with zeros to the size of the largest.
struct LaneMatrices<const LANES: usize> {
    size: Vec<usize>,
    d: Vec<[f64; LANES]>,
    e: Vec<[f64; LANES]>,
    /// The first row of the eigenvectors.
    first: Vec<[f64; LANES]>,
}

/// What a rotation leaves to the next one.
struct Bulge<const LANES: usize> {
    g: [f64; LANES],
    s: [f64; LANES],
    c: [f64; LANES],
    p: [f64; LANES],
    /// The rows `l..m` of the block, for comparisons with rows; none where there is nothing to do.
    l: [f64; LANES],
    m: [f64; LANES],
}

impl<const LANES: usize> LaneMatrices<LANES> {
    fn new(matrices: &[Tridiagonal]) -> Self {
        let size: Vec<usize> = matrices.iter().map(|t| t.diagonal.len()).collect();
        let most = size.iter().copied().max().unwrap_or(0);
        let [mut d, mut e, mut first] = [0, 1, 2].map(|_| vec![[0.0; LANES]; most]);
        for (k, t) in matrices.iter().enumerate() {
            t.diagonal.iter().zip(&mut d).for_each(|(v, d)| d[k] = *v);
            t.off_diagonal.iter().zip(&mut e).for_each(|(v, e)| e[k] = *v);
        }
        first.iter_mut().take(1).for_each(|lanes| *lanes = [1.0; LANES]);
        LaneMatrices { size, d, e, first }
    }

    /// The last row of the block of matrix `k` that begins at `l`: up to an entry that is nothing
    /// but rounding.
    fn end_of_block(&self, k: usize, l: usize) -> usize {
        let (d, e) = (&self.d, &self.e);
        let negligible =
            |i: &usize| e[*i][k].abs() <= f64::EPSILON * (d[*i][k].abs() + d[*i + 1][k].abs());
        (l..self.size[k] - 1).find(negligible).unwrap_or(self.size[k] - 1)
    }

    /// One rotation in every matrix whose block holds rows `i` and `i + 1`.
    #[inline(always)]
    fn rotate(&mut self, i: usize, bulge: &mut Bulge<LANES>) {
        let at = i as f64;
        let Bulge { g, s, c, p, l, m } = bulge;
        let (d0, mut d1, e0, mut e1) = (self.d[i], self.d[i + 1], self.e[i], self.e[i + 1]);
        let (mut z0, mut z1) = (self.first[i], self.first[i + 1]);
        for k in 0..LANES {
            let (f, b) = (s[k] * e0[k], c[k] * e0[k]);
            let r = (f * f + g[k] * g[k]).sqrt();
            let inside = l[k] <= at && at < m[k];
            // Where r = 0 the matrix falls apart; the next sweep takes what is left.
            let go = inside && r != 0.0;
            let (sine, cosine) = (f / r, g[k] / r);
            let middle = d1[k] - p[k];
            let t = (d0[k] - middle) * sine + 2.0 * cosine * b;
            let shift = sine * t;
            let (a, b1) = (z0[k], z1[k]);
            e1[k] = if inside { r } else { e1[k] };
            d1[k] = if go {
                middle + shift
            } else if inside {
                middle
            } else {
                d1[k]
            };
            z0[k] = if go { cosine * a - sine * b1 } else { a };
            z1[k] = if go { sine * a + cosine * b1 } else { b1 };
            g[k] = if go { cosine * t - b } else { g[k] };
            s[k] = if go { sine } else { s[k] };
            c[k] = if go { cosine } else { c[k] };
            p[k] = if go { shift } else { p[k] };
            // No row is inside from here on.
            l[k] = if inside && !go { f64::INFINITY } else { l[k] };
        }
        (self.d[i + 1], self.e[i + 1]) = (d1, e1);
        (self.first[i], self.first[i + 1]) = (z0, z1);
    }
}

impl<const LANES: usize> WithSimd for LaneMatrices<LANES> {
    type Output = Vec<Vec<(f64, f64)>>;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> Self::Output {
        let count = self.size.len();
        let mut row = vec![0; count];
        let mut sweeps = vec![0; count];
        loop {
            let mut bulge = Bulge {
                g: [0.0; LANES],
                s: [1.0; LANES],
                c: [1.0; LANES],
                p: [0.0; LANES],
                l: [f64::INFINITY; LANES],
                m: [0.0; LANES],
            };
            let (mut low, mut high) = (usize::MAX, 0);
            for k in 0..count {
                while row[k] < self.size[k] {
                    let (l, m) = (row[k], self.end_of_block(k, row[k]));
                    if m == l || sweeps[k] == SWEEPS {
                        (row[k], sweeps[k]) = (l + 1, 0);
                        continue;
                    }
                    sweeps[k] += 1;
                    let (d, e) = (&self.d, &self.e);
                    // Wilkinson's shift.
                    let shift = (d[l + 1][k] - d[l][k]) / (2.0 * e[l][k]);
                    let root = (shift * shift + 1.0).sqrt().copysign(shift);
                    bulge.g[k] = d[m][k] - d[l][k] + e[l][k] / (shift + root);
                    (bulge.l[k], bulge.m[k]) = (l as f64, m as f64);
                    (low, high) = (low.min(l), high.max(m));
                    break;
                }
            }
            if low == usize::MAX {
                break;
            }
            let ends = bulge.m;
            (low..high).rev().for_each(|i| self.rotate(i, &mut bulge));
            for k in 0..count {
                if bulge.l[k].is_finite() {
                    let l = row[k];
                    self.d[l][k] -= bulge.p[k];
                    self.e[l][k] = bulge.g[k];
                }
                if row[k] < self.size[k] {
                    self.e[ends[k] as usize][k] = 0.0;
                }
            }
        }
        let rule = |k: usize| {
            let rows = self.d.iter().zip(&self.first).take(self.size[k]);
            let mut rule: Vec<_> = rows.map(|(d, z)| (d[k], z[k] * z[k])).collect();
            rule.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            rule
        };
        (0..count).map(rule).collect()
    }
}
