//! Sweeps over all rows of a rank: halo exchange behind the work on interior rows, and chunks of
//! rows on the threads of the rank.

use super::kernel::{self, Csr};
use super::stencil::{Stencil, Totals};
use super::{Block, CHUNK, Native, inline};
use crate::field::Scalar;
use crate::profile::{self, Phase};
use std::ops::Range;

impl<T: Scalar> Native<T> {
    /// Fills the halo of `input` while `stencil` works on the interior rows of `out`, then on the
    /// boundary rows. Sums are added chunk by chunk, in order.
    pub(super) fn sweep<S: Stencil<T>>(
        &mut self,
        stencil: &S,
        input: &mut Block<T>,
        out: kernel::Output<T>,
        phase: Phase,
    ) -> Totals {
        let columns = input.columns;
        let (owned, interior) = (self.part.owned, self.part.interior);
        if stencil.squared() {
            self.csr.square_weights();
        }
        let packing = profile::start();
        pack(&input.values, columns, &self.send_rows, &mut self.send);
        profile::stop(Phase::HaloPack, packing, 2 * size_of_val(&self.send[..]) as u64, 0);

        let csr = &self.csr;
        let (mine, halo) = input.values.split_at_mut(owned * columns);
        let (mut inner, boundary) = out.split(interior, columns);
        let mut total = Totals::default();
        let totals = &mut self.totals[..];
        self.exchange.run(columns, &self.send, halo, |flight| {
            let timer = profile::start();
            // Pieces, to give MPI a turn between them; large enough to occupy all threads.
            let piece = 4 * CHUNK * rayon::current_num_threads();
            let mut first = 0;
            while first < interior {
                let rows = first..interior.min(first + piece);
                let out = inner.take(rows.len(), columns);
                first = rows.end;
                total.add(&over_rows(stencil, csr, mine, columns, rows, out, totals));
                flight.progress();
            }
            profile::stop(phase, timer, csr.bytes_of(0..interior, columns), 0);
        });
        let timer = profile::start();
        let edge = interior..owned;
        total.add(&over_rows(stencil, csr, &input.values, columns, edge, boundary, totals));
        profile::stop(phase, timer, csr.bytes_of(interior..owned, columns), 0);
        total
    }
}

pub(super) fn pack<T: Scalar>(values: &[T], columns: usize, rows: &[u32], send: &mut Vec<T>) {
    send.clear();
    for &row in rows {
        send.extend_from_slice(&values[row as usize * columns..][..columns]);
    }
}

/// Applies a stencil to `rows`, whose results are `out`, chunk by chunk; the sums of the chunks
/// pass through `totals` and are added in order, whichever threads made them.
fn over_rows<T: Scalar, S: Stencil<T>>(
    stencil: &S,
    csr: &Csr<T>,
    input: &[T],
    columns: usize,
    rows: Range<usize>,
    out: kernel::Output<T>,
    totals: &mut [Totals],
) -> Totals {
    let totals = &mut totals[..rows.len().div_ceil(CHUNK)];
    let alone = inline(rows.len());
    let chunks = Chunks { stencil, csr, input, columns, alone };
    chunks.run(rows, out, totals);
    let mut total = Totals::default();
    totals.iter().for_each(|t| total.add(t));
    total
}

/// A sweep to be done chunk by chunk.
struct Chunks<'a, T: Scalar, S> {
    stencil: &'a S,
    csr: &'a Csr<T>,
    input: &'a [T],
    columns: usize,
    /// Whether one thread does all of them.
    alone: bool,
}

impl<T: Scalar, S: Stencil<T>> Chunks<'_, T, S> {
    /// All chunks of `rows`, half of them on another thread; one total for each.
    fn run(&self, rows: Range<usize>, out: kernel::Output<T>, totals: &mut [Totals]) {
        let Chunks { stencil, csr, input, columns, alone } = *self;
        match totals {
            [] => {}
            [total] => *total = stencil.run(csr, input, columns, rows, out),
            _ => {
                let half = totals.len() / 2;
                let middle = rows.start + half * CHUNK;
                let (left, right) = totals.split_at_mut(half);
                let (out, rest) = out.split(half * CHUNK, columns);
                let first = || self.run(rows.start..middle, out, left);
                let second = || self.run(middle..rows.end, rest, right);
                if alone {
                    first();
                    second();
                } else {
                    rayon::join(first, second);
                }
            }
        }
    }
}
