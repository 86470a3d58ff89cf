//! Walks `v_h = Ãʰ e_i` from a few neighbouring nodes `i` at once.
//!
//! Such walks cross the same edges. So each node of a group has a lane of a vector, and the rows that its
//! walks reach get places in short blocks of such vectors, which stay in the nearest cache.
//!
//! As elsewhere, `y = D^-½ v` stands for `v`: with `s_h = A y_(h−1)`, `y_h = D⁻¹ s_h`, and the dots are
//! `v_(h−1)·v_h = y_(h−1)·s_h` and `‖v_h‖² = s_h·y_h`.

use crate::partition::Vicinity;
use pulp::{Arch, Simd, WithSimd};

/// Nodes that start together.
pub(super) const LANES: usize = 8;

/// One number of each walk, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Lanes([f64; LANES]);

const ZERO: Lanes = Lanes([0.0; LANES]);

/// Walks of one group after the other.
pub(super) struct Walks<'a> {
    vicinity: &'a Vicinity,
    /// Where each row of the vicinity stands among those that were reached.
    place: Vec<u32>,
    /// Rows that were reached, nearest first, and room for more.
    rows: Vec<u32>,
    /// `s_h` or `y_h` of each of them, and `y_(h−1)`; zero between walks.
    now: Vec<Lanes>,
    before: Vec<Lanes>,
}

const NOWHERE: u32 = u32::MAX;

impl<'a> Walks<'a> {
    pub fn new(vicinity: &'a Vicinity) -> Self {
        let place = vec![NOWHERE; vicinity.ids.len()];
        let mut walks =
            Walks { vicinity, place, rows: Vec::new(), now: Vec::new(), before: Vec::new() };
        walks.make_room(LANES);
        walks
    }

    /// Walks from the nodes of `group`, one hop for every two sums: adds `v_(h−1)·v_h` and `‖v_h‖²` to those of
    /// `2h − 1` and `2h`. Rows within one hop less must be complete. Returns the number of edges that the last hop
    /// has crossed.
    pub fn walk(&mut self, group: &[u32], sums: &mut [f64]) -> usize {
        for (lane, &row) in group.iter().enumerate() {
            self.rows[lane] = row;
            self.place[row as usize] = lane as u32;
            self.now[lane].0[lane] = 1.0 / self.vicinity.degree[row as usize].sqrt();
        }
        let (mut known, mut edges) = (group.len(), 0);
        for sums in sums[1..].chunks_exact_mut(2) {
            std::mem::swap(&mut self.now, &mut self.before);
            (known, edges) = Arch::new().dispatch(Hop { walks: self, known, sums });
        }
        self.rows[..known].iter().for_each(|&row| self.place[row as usize] = NOWHERE);
        self.now[..known].fill(ZERO);
        self.before[..known].fill(ZERO);
        edges
    }

    /// Places for at least `count` rows.
    fn make_room(&mut self, count: usize) {
        self.rows.resize(2 * count, 0);
        self.now.resize(2 * count, ZERO);
        self.before.resize(2 * count, ZERO);
    }
}

/// One hop from the `known` rows.
struct Hop<'w, 'a> {
    walks: &'w mut Walks<'a>,
    known: usize,
    sums: &'w mut [f64],
}

impl WithSimd for Hop<'_, '_> {
    /// Rows known then, and edges crossed.
    type Output = (usize, usize);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (usize, usize) {
        let Hop { walks, known: inner, sums } = self;
        let vicinity = walks.vicinity;
        walks.now[..inner].fill(ZERO); // the hop before last
        let (mut known, mut edges) = (inner, 0);
        // What is known goes out to the neighbours (`A` is symmetric): rows that are not complete, too.
        for i in 0..inner {
            let (neighbours, weights) = vicinity.row(walks.rows[i] as usize);
            edges += neighbours.len();
            if walks.rows.len() < known + neighbours.len() {
                walks.make_room(known + neighbours.len());
            }
            let Walks { place, rows, now, before, .. } = &mut *walks;
            let (place, now, own) = (&mut place[..], &mut now[..], before[i]);
            let fresh = &mut rows[known..known + neighbours.len()];
            let mut new = 0;
            for (&k, &w) in neighbours.iter().zip(weights) {
                // Without a branch on whether the row is new, which nothing could predict.
                let place = &mut place[k as usize];
                let unseen = *place == NOWHERE;
                *place = if unseen { (known + new) as u32 } else { *place };
                fresh[new] = k;
                new += usize::from(unseen);
                add_multiple(simd, w, &own, &mut now[*place as usize]);
            }
            known += new;
        }
        let (mut odd, mut even) = (ZERO, ZERO);
        let reached = walks.rows.iter().zip(&mut walks.now).zip(&walks.before);
        for ((&row, now), before) in reached.take(known) {
            let (sum, mut y) = (*now, ZERO);
            add_multiple(simd, 1.0 / vicinity.degree[row as usize], &sum, &mut y);
            add_product(simd, before, &sum, &mut odd);
            add_product(simd, &y, &sum, &mut even);
            *now = y;
        }
        sums[0] += odd.0.iter().sum::<f64>();
        sums[1] += even.0.iter().sum::<f64>();
        (known, edges)
    }
}

/// `y += a x` in every lane.
#[inline(always)]
fn add_multiple<S: Simd>(simd: S, a: f64, x: &Lanes, y: &mut Lanes) {
    let a = simd.splat_f64s(a);
    let (x, y) = (S::as_simd_f64s(&x.0).0, S::as_mut_simd_f64s(&mut y.0).0);
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = simd.mul_add_e_f64s(a, x, *y));
}

/// `z += x y` in every lane.
#[inline(always)]
fn add_product<S: Simd>(simd: S, x: &Lanes, y: &Lanes, z: &mut Lanes) {
    let (x, y) = (S::as_simd_f64s(&x.0).0, S::as_simd_f64s(&y.0).0);
    let z = S::as_mut_simd_f64s(&mut z.0).0;
    z.iter_mut().zip(x.iter().zip(y)).for_each(|(z, (&x, &y))| *z = simd.mul_add_e_f64s(x, y, *z));
}
