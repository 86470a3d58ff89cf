//! Work at every value of some blocks by itself, compiled into loops for vector units.

use super::rows::{LANES, total};
use super::vector::on_vectors;
use super::{Block, CHUNK, Native, inline};
use crate::field::{Pointwise, Scalar};

impl<T: Scalar> Native<T> {
    pub(super) fn pointwise_rows<W: Pointwise<C, G>, const C: usize, const G: usize>(
        &self,
        work: &W,
        changed: [&mut Block<T>; C],
        given: [&Block<T>; G],
    ) -> f64 {
        let columns = changed.first().map_or(1, |block| block.columns);
        let changed = changed.map(|block| self.owned_mut(block));
        let given = given.map(|block| self.owned(block));
        let values = self.part.owned * columns;
        let fits =
            changed.iter().all(|x| x.len() == values) && given.iter().all(|x| x.len() == values);
        assert!(fits, "blocks of one width");
        let mut sums = self.sums.borrow_mut();
        let chunks =
            PointwiseChunks { work, size: CHUNK * columns, alone: inline(self.part.owned) };
        chunks.run(changed, given, &mut sums);
        sums.iter().sum() // in the order of the chunks
    }
}

/// Pointwise work to be done chunk by chunk.
struct PointwiseChunks<'a, W> {
    work: &'a W,
    /// Values of a chunk.
    size: usize,
    /// Whether one thread does all of them.
    alone: bool,
}

impl<W> PointwiseChunks<'_, W> {
    /// All chunks, half of them on another thread; one sum for each.
    fn run<T: Scalar, const C: usize, const G: usize>(
        &self,
        changed: [&mut [T]; C],
        given: [&[T]; G],
        sums: &mut [f64],
    ) where
        W: Pointwise<C, G>,
    {
        match sums {
            [] => {}
            [sum] => *sum = pointwise(self.work, changed, given),
            _ => {
                let half = sums.len() / 2;
                let (left, right) = sums.split_at_mut(half);
                let (changed, changed_rest) =
                    halves(changed.map(|x| x.split_at_mut(half * self.size)));
                let (given, given_rest) = halves(given.map(|x| x.split_at(half * self.size)));
                let first = || self.run(changed, given, left);
                let second = || self.run(changed_rest, given_rest, right);
                if self.alone {
                    first();
                    second();
                } else {
                    rayon::join(first, second);
                }
            }
        }
    }
}

/// The first of all pairs, and the second.
fn halves<X, const N: usize>(pairs: [(X, X); N]) -> ([X; N], [X; N]) {
    let mut pairs = pairs.map(|(a, b)| (Some(a), Some(b)));
    let first = std::array::from_fn(|k| pairs[k].0.take().expect("taken once"));
    let second = std::array::from_fn(|k| pairs[k].1.take().expect("taken once"));
    (first, second)
}

/// Values that pointwise work takes at once. They are copied to arrays of known length that are
/// known not to overlap: only then the compiler makes vectors of the loop.
const PIECE: usize = 64;

/// Pointwise work on one chunk; returns its sum.
fn pointwise<T: Scalar, W: Pointwise<C, G>, const C: usize, const G: usize>(
    work: &W,
    mut changed: [&mut [T]; C],
    given: [&[T]; G],
) -> f64 {
    on_vectors(
        #[inline(always)]
        || {
            let work = *work; // no reference that the loops could be writing behind
            let length = changed.first().map_or(0, |x| x.len());
            let mut sums = [0.0; LANES];
            // What is left in these beyond the end is worked on, too, but nobody sees it.
            let (mut now, mut known) = ([[T::ONE; PIECE]; C], [[T::ONE; PIECE]; G]);
            let mut terms = [0.0; PIECE];
            let mut at = 0;
            while at < length {
                let here = PIECE.min(length - at);
                for (now, changed) in now.iter_mut().zip(&changed) {
                    now[..here].copy_from_slice(&changed[at..at + here]);
                }
                for (known, given) in known.iter_mut().zip(&given) {
                    known[..here].copy_from_slice(&given[at..at + here]);
                }
                // Two loops, since one with a sum in it does not run on vectors.
                for (i, sum) in terms.iter_mut().enumerate() {
                    if let Some(term) = work.summand(&place(&now, i), &place(&known, i)) {
                        *sum = term.to_f64();
                    }
                }
                terms[here..].fill(0.0);
                for terms in terms.as_chunks::<LANES>().0 {
                    sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
                }
                for i in 0..PIECE {
                    let after = work.apply(place(&now, i), place(&known, i));
                    for (now, after) in now.iter_mut().zip(after) {
                        now[i] = after;
                    }
                }
                for (changed, now) in changed.iter_mut().zip(&now) {
                    changed[at..at + here].copy_from_slice(&now[..here]);
                }
                at += here;
            }
            total(sums)
        },
    )
}

/// The values at place `i`. (A loop, for `map` on an array is not always inlined.)
#[inline(always)]
fn place<T: Scalar, const N: usize>(values: &[[T; PIECE]; N], i: usize) -> [T; N] {
    let mut at = [T::ZERO; N];
    for (at, values) in at.iter_mut().zip(values) {
        *at = values[i];
    }
    at
}
