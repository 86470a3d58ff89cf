//! Combinations of three blocks. Columns are worked on in tiles of fixed width, so that factors stay in
//! registers.

use super::{CHUNK, Scalar, inline};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// `z = a x + b y + c z` with factors `[a, b, c]` per column.
pub(super) fn combine<T: Scalar>(factors: [&[f64]; 3], x: &[T], y: &[T], z: &mut [T]) {
    assert!(x.len() == z.len() && y.len() == z.len(), "blocks of one width");
    let columns = factors[0].len();
    let size = CHUNK * columns;
    let chunk = |x: &[T], y: &[T], z: &mut [T]| {
        Arch::new().dispatch(Combine { factors, x, y, z, columns });
    };
    if inline(z.len() / columns) {
        let chunks = x.chunks(size).zip(y.chunks(size)).zip(z.chunks_mut(size));
        chunks.for_each(|((x, y), z)| chunk(x, y, z));
    } else {
        let chunks = x.par_chunks(size).zip(y.par_chunks(size)).zip(z.par_chunks_mut(size));
        chunks.for_each(|((x, y), z)| chunk(x, y, z));
    }
}

struct Combine<'a, T> {
    factors: [&'a [f64]; 3],
    x: &'a [T],
    y: &'a [T],
    z: &'a mut [T],
    columns: usize,
}

impl<T: Scalar> WithSimd for Combine<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<V: Simd>(mut self, _: V) {
        let mut first = 0;
        while first < self.columns {
            first += match self.columns - first {
                8.. => self.tile::<8>(first),
                4.. => self.tile::<4>(first),
                2.. => self.tile::<2>(first),
                _ => self.tile::<1>(first),
            };
        }
    }
}

impl<T: Scalar> Combine<'_, T> {
    #[inline(always)]
    fn tile<const W: usize>(&mut self, first: usize) -> usize {
        let [a, b, c]: [[T; W]; 3] =
            self.factors.map(|f| std::array::from_fn(|k| T::from_f64(f[first + k])));
        let rows = self.x.chunks_exact(self.columns).zip(self.y.chunks_exact(self.columns));
        for ((x, y), z) in rows.zip(self.z.chunks_exact_mut(self.columns)) {
            let (x, y) = (&x[first..first + W], &y[first..first + W]);
            let z = &mut z[first..first + W];
            for k in 0..W {
                z[k] = a[k] * x[k] + b[k] * y[k] + c[k] * z[k];
            }
        }
        W
    }
}
