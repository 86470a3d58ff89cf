//! Closed walks, counted at the first of their nodes.
//!
//! Elimination of one node after the other (the pivots of `L D Lᵀ`) says
//!
//! ```text
//! det(I − tÃ) = Π_i (1 − R_i(t)),   R_i(t) = Σ_k r_k tᵏ,   r_(a+b+2) = v_a·v_b,   v_h = Ã_iʰ Ã e_i
//! ```
//!
//! where `Ã_i` is what is left of `Ã` without node `i` and those before it: `r_k` adds up the closed walks of `k` steps
//! that leave `i`, see later nodes only, and return once. By the logarithm of both sides,
//! `Σ_k tᵏ/k tr Ãᵏ = −Σ_i log(1 − R_i(t))`, the share of node `i` in `tr Ãᵏ` is `p_k = k r_k + Σ_(j<k) r_j p_(k−j)`. All terms
//! are positive, so nothing cancels. Walks through the whole graph would cross more than twice as many edges.
//!
//! Walks from neighbouring nodes cross the same edges. So each node of a group has a lane of a vector, and the rows
//! that its walks reach get places in short blocks of such vectors, which stay in the nearest cache.
//!
//! As elsewhere, `y = D^-½ v` stands for `v`: with `s_h = A y_(h−1)`, `y_h = D⁻¹ s_h`, and the dots are
//! `v_(h−1)·v_h = y_(h−1)·s_h` and `‖v_h‖² = s_h·y_h`.

#![allow(unsafe_code)] // lists by raw pointers

use crate::partition::{Lists, Overlap};
use pulp::{Arch, Simd, WithSimd};
use std::ops::Range;

/// Nodes that start together.
const LANES: usize = 8;

/// One number of each walk, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Lanes([f64; LANES]);

const ZERO: Lanes = Lanes([0.0; LANES]);

/// Groups of neighbouring rows, in the order of their elimination. Rows of one rank are eliminated before those of
/// the next.
pub(super) struct Groups {
    /// The owned rows, group by group.
    rows: Vec<u32>,
    /// Where each group begins, and the end.
    starts: Vec<u32>,
}

impl Groups {
    pub fn new(overlap: &Overlap) -> Self {
        let (graph, owned) = (overlap.lists(), overlap.owned);
        // Rows of other ranks walk there.
        let mut free = vec![false; overlap.ids.len()];
        free[..owned].fill(true);
        let mut rows = vec![0; owned];
        let mut starts = Vec::with_capacity(owned / LANES + 2);
        let mut end = 0;
        for i in 0..owned {
            if !std::mem::replace(&mut free[i], false) {
                continue;
            }
            let (start, full) = (end, end + LANES);
            starts.push(start as u32);
            rows[end] = i as u32;
            end += 1;
            let mut next = start;
            while next < end && end < full {
                let neighbours = graph.row(rows[next] as usize).0;
                if rows.len() < end + neighbours.len() {
                    rows.resize(end + neighbours.len(), 0);
                }
                // Without a branch on who is free, which nothing could predict; too many are given back.
                for &k in neighbours {
                    rows[end] = k;
                    end += usize::from(std::mem::replace(&mut free[k as usize], false));
                }
                next += 1;
            }
            let back = full.min(end)..end;
            end = back.start;
            rows[back].iter().for_each(|&k| free[k as usize] = true);
        }
        starts.push(end as u32);
        rows.truncate(end);
        Groups { rows, starts }
    }

    /// Number of groups.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The rows of some groups.
    fn rows(&self, groups: Range<usize>) -> &[u32] {
        &self.rows[self.starts[groups.start] as usize..self.starts[groups.end] as usize]
    }
}

/// Walks of one group after the other.
pub(super) struct Walks<'a> {
    graph: Lists<'a>,
    degree: &'a [f64],
    groups: &'a Groups,
    /// The group that walks; those before it are eliminated.
    group: usize,
    /// Where each row of the overlap stands among those that were reached.
    place: Vec<u32>,
    /// Rows that were reached, nearest first, and room for more.
    rows: Vec<u32>,
    /// `s_h` or `y_h` of each of them, and `y_(h−1)`.
    now: Vec<Lanes>,
    before: Vec<Lanes>,
    /// Edges from them, and room for more.
    edges: Vec<Edge>,
    /// `r_k` and `p_k`.
    returns: Vec<Lanes>,
    shares: Vec<Lanes>,
}

/// An edge from one place to another.
#[derive(Clone, Copy, Default)]
struct Edge {
    from: u32,
    to: u32,
    weight: f64,
}

const NOWHERE: u32 = u32::MAX;
const ELIMINATED: u32 = u32::MAX - 1;

/// Edges that are found before they are crossed. Those of the last hop need no more room than that.
const SOME: usize = 512;

impl<'a> Walks<'a> {
    /// For walks of `hops` hops.
    pub fn new(overlap: &'a Overlap, groups: &'a Groups, hops: usize) -> Self {
        let left = |row| row < overlap.owned || overlap.is_of_later_rank(row);
        let place = |row| if left(row) { NOWHERE } else { ELIMINATED };
        let place = (0..overlap.ids.len()).map(place).collect();
        let series = vec![ZERO; 2 * hops + 1];
        Walks {
            graph: overlap.lists(),
            degree: &overlap.degree,
            groups,
            group: 0,
            place,
            rows: vec![0; LANES],
            now: vec![ZERO; LANES],
            before: vec![ZERO; LANES],
            edges: Vec::new(),
            returns: series.clone(),
            shares: series,
        }
    }

    /// Adds the shares of the nodes of `group` in the traces. Groups come in their order, but some may be left out.
    /// Rows within one hop less must be complete.
    pub fn walk(&mut self, group: usize, traces: &mut [f64]) {
        for &row in self.groups.rows(self.group..group) {
            self.place[row as usize] = ELIMINATED;
        }
        self.group = group;
        Arch::new().dispatch(Walk { walks: self, traces });
    }
}

struct Walk<'w, 'a> {
    walks: &'w mut Walks<'a>,
    traces: &'w mut [f64],
}

impl WithSimd for Walk<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Walk { walks, traces } = self;
        let hops = walks.returns.len() / 2;
        let group = walks.groups.rows(walks.group..walks.group + 1);
        for (lane, &row) in group.iter().enumerate() {
            walks.rows[lane] = row;
            walks.place[row as usize] = lane as u32;
            walks.now[lane] = ZERO;
            walks.now[lane].0[lane] = 1.0 / walks.degree[row as usize].sqrt();
        }
        let (mut inner, mut known, mut edges) = (0, group.len(), 0);
        for hop in 1..=hops {
            std::mem::swap(&mut walks.now, &mut walks.before);
            let fresh = inner..known;
            inner = known;
            (known, edges) = walks.hop(simd, fresh, edges, hop == hops);
            // A walk does not come back to where it started, nor to rows of the group before that.
            for row in 0..group.len() {
                walks.now[row].0[row..].fill(0.0);
            }
            [walks.returns[2 * hop - 1], walks.returns[2 * hop]] = walks.dots(simd, inner, known);
        }
        for &row in &walks.rows[..known] {
            walks.place[row as usize] = NOWHERE;
        }
        for (k, trace) in traces.iter_mut().enumerate().skip(1) {
            let mut share = ZERO;
            add_multiple(simd, k as f64, &walks.returns[k], &mut share);
            for j in 1..k {
                add_product(simd, &walks.returns[j], &walks.shares[k - j], &mut share);
            }
            walks.shares[k] = share;
            *trace += share.0.iter().sum::<f64>();
        }
    }
}

impl Walks<'_> {
    /// One hop, `s = A y`, from the rows before `fresh.end`; the edges of those before `fresh.start` are known already.
    /// Returns how many rows and edges are known then.
    #[inline(always)]
    fn hop<S: Simd>(
        &mut self,
        simd: S,
        mut fresh: Range<usize>,
        mut edges: usize,
        last: bool,
    ) -> (usize, usize) {
        let (mut known, mut crossed, mut cleared) = (fresh.end, 0, 0);
        let kept = edges;
        loop {
            while edges < crossed + SOME && !fresh.is_empty() {
                (known, edges) = self.find_edges(fresh.start, known, edges);
                fresh.start += 1;
            }
            self.now[cleared..known].fill(ZERO);
            self.cross(simd, crossed..edges);
            (crossed, cleared) = (edges, known);
            if fresh.is_empty() {
                return (known, edges);
            }
            if last {
                (crossed, edges) = (kept, kept); // nobody will ask for them again
            }
        }
    }

    /// Adds the edges from a place to rows that are left; rows without a place get one.
    #[inline(always)]
    fn find_edges(&mut self, from: usize, mut known: usize, mut edges: usize) -> (usize, usize) {
        // `A` is symmetric, so `s` can be made from the rows that hold `y`; those it reaches need not be complete.
        let (neighbours, weights) = self.graph.row(self.rows[from] as usize);
        if self.edges.len() < edges + neighbours.len() {
            self.edges.resize(2 * (edges + neighbours.len()), Edge::default());
        }
        if self.rows.len() < known + neighbours.len() {
            let room = 2 * (known + neighbours.len());
            self.rows.resize(room, 0);
            self.now.resize(room, ZERO);
            self.before.resize(room, ZERO);
        }
        let (place, rows, list) =
            (self.place.as_mut_ptr(), self.rows.as_mut_ptr(), self.edges.as_mut_ptr());
        // Without branches on what nothing could predict, and without checks: here and where edges are crossed they take a
        // tenth of the time of the walks.
        // SAFETY: an overlap names rows of its own only, each of which has an entry in `place`; there is room for as many
        // rows and edges as this one has neighbours, and no neighbour takes more than one of either.
        let mut find = |row: u32, weight: f64| unsafe {
            let place = place.add(row as usize);
            let new = *place == NOWHERE;
            let to = if new { known as u32 } else { *place };
            *place = to;
            *rows.add(known) = row;
            known += usize::from(new);
            *list.add(edges) = Edge { from: from as u32, to, weight };
            edges += usize::from(to != ELIMINATED);
        };
        if weights.is_empty() {
            neighbours.iter().for_each(|&row| find(row, 1.0));
        } else {
            neighbours.iter().zip(weights).for_each(|(&row, &weight)| find(row, weight));
        }
        (known, edges)
    }

    /// `s += A y` along some edges.
    #[inline(always)]
    fn cross<S: Simd>(&mut self, simd: S, edges: Range<usize>) {
        let (y, s) = (self.before.as_ptr(), self.now.as_mut_ptr());
        let cross = |edge: &Edge| {
            // SAFETY: edges lead from place to place, and all places are there.
            unsafe {
                let (y, s) = (&*y.add(edge.from as usize), &mut *s.add(edge.to as usize));
                add_multiple(simd, edge.weight, y, s);
            }
        };
        // Edges that follow each other often lead to the same rows, and then the later one waits for the earlier: two
        // streams of them wait less.
        let edges = &self.edges[edges];
        let (one, other) = edges.split_at(edges.len() / 2);
        for (a, b) in one.iter().zip(other) {
            cross(a);
            cross(b);
        }
        other[one.len()..].iter().for_each(cross);
    }

    /// `y_(h−1)·s_h` and `s_h·y_h`, and `y_h` in the place of `s_h`.
    #[inline(always)]
    fn dots<S: Simd>(&mut self, simd: S, inner: usize, known: usize) -> [Lanes; 2] {
        let (mut odd, mut even) = (ZERO, ZERO);
        let Walks { now, before, rows, degree, .. } = self;
        let (old, new) = now[..known].split_at_mut(inner);
        let mut divide = |s: &mut Lanes, row: u32| {
            let mut y = ZERO;
            add_multiple(simd, 1.0 / degree[row as usize], s, &mut y);
            add_product(simd, &y, s, &mut even);
            *s = y;
        };
        for ((s, y), &row) in old.iter_mut().zip(&before[..inner]).zip(&rows[..inner]) {
            add_product(simd, y, s, &mut odd);
            divide(s, row);
        }
        new.iter_mut().zip(&rows[inner..known]).for_each(|(s, &row)| divide(s, row));
        [odd, even]
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
