//! Wide rows taken apart into columns that fit into registers.
//!
//! Two kinds of loops need it. Those that the compiler turns into vectors are written for a number
//! of columns that it knows ([`Columns`]); those in vectors of [`super::lanes`] take as many
//! columns as one or two vectors have ([`Vectors`]).

use super::lanes;
use crate::field::Scalar;
use pulp::Simd;

/// A pass over rows, for some of their columns.
pub(super) trait Columns {
    /// Most columns that it should do at once.
    const WIDEST: usize;

    /// Columns `first..first + W` of rows that are `stride` values apart.
    fn pass<const W: usize>(&mut self, stride: usize, first: usize);

    /// The first `width` columns of rows that are `stride` values apart, in as few passes as there
    /// are registers for. (10 is among the widths since the paper's runs draw ten samples.)
    #[inline(always)]
    fn passes(&mut self, stride: usize, width: usize) {
        match stride {
            // One pass; a distance of rows that is known makes addresses cheap.
            1 => self.pass::<1>(1, 0),
            8 => self.pass::<8>(8, 0),
            10 => self.pass::<10>(10, 0),
            16 if Self::WIDEST >= 16 => self.pass::<16>(16, 0),
            _ => {
                let mut first = 0;
                while first < width {
                    first += match width - first {
                        16.. if Self::WIDEST >= 16 => self.counted::<16>(stride, first),
                        8.. => self.counted::<8>(stride, first),
                        6.. => self.counted::<6>(stride, first),
                        4.. => self.counted::<4>(stride, first),
                        2.. => self.counted::<2>(stride, first),
                        _ => self.counted::<1>(stride, first),
                    };
                }
            }
        }
    }

    /// [`Columns::pass`]; returns `W`.
    #[inline(always)]
    fn counted<const W: usize>(&mut self, stride: usize, first: usize) -> usize {
        self.pass::<W>(stride, first);
        W
    }
}

/// A pass over rows in vectors, for some of their columns.
pub(super) trait Vectors<T: Scalar> {
    /// `N` vectors of every row, from column `first` on.
    fn pass<S: Simd, const N: usize>(&mut self, simd: S, first: usize);

    /// All columns: full vectors, and what is left one column at a time. (Vectors do not overlap,
    /// so rows may be changed in place.)
    #[inline(always)]
    fn passes<S: Simd>(&mut self, simd: S, columns: usize) {
        let full = lanes::lanes::<T, S>();
        let mut first = 0;
        while first < columns {
            let left = columns - first;
            if left >= 2 * full {
                self.pass::<S, 2>(simd, first);
                first += 2 * full;
            } else if left >= full {
                self.pass::<S, 1>(simd, first);
                first += full;
            } else {
                self.pass::<pulp::Scalar, 1>(pulp::Scalar::new(), first);
                first += 1;
            }
        }
    }
}
