//! The native engine: Rust loops over all cores of the rank, in single or double precision.
//!
//! A layer is one pass: self term, neighbour sum, scale and bias are fused, for all columns of a
//! row at once. Rows are worked on in chunks of fixed size, each by one thread, and sums are
//! added chunk by chunk in order, so results do not depend on the number of threads.

mod aligned;
mod gather;
mod gradient;
mod kernel;
mod krylov;
mod lanes;
mod recurrence;
mod rowwise;
mod scalar;
mod stencil;
mod sweep;
mod tiles;
mod vector;

pub use scalar::Scalar;

use super::{Coefficients, Engine, LayerSums, Output};
use crate::comm::World;
use crate::comm::halo::HaloExchange;
use crate::elementary;
use crate::error::{Error, Result};
use crate::partition::Part;
use crate::profile::{self, Phase};
use crate::random::Stream;
use aligned::Aligned;
use kernel::Csr;
use rayon::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use stencil::Totals;

/// Rows per chunk: enough work to be worth handing to a thread, few enough to balance.
const CHUNK: usize = 1024;

/// The native engine of one rank, in precision `T`.
///
/// ```
/// use dgmrf::{comm::World, field::{native::Native, Coefficients, Engine}, graph::EdgeList};
/// use dgmrf::partition::{order::Order, Partition};
/// // Two nodes, one edge: G = α (I + ρ [[0, 1], [1, 0]]).
/// let mut edges = EdgeList::unweighted();
/// edges.push(0, 1, 1.0);
/// let graph = edges.into_graph(2)?.0;
/// let part = Partition::new(&graph, vec![0, 0], 1, Order::Original)?.part(0);
/// let mut engine = Native::<f64>::new(World::solo(), part)?;
/// let mut layer = engine.new_layer();
/// engine.prepare(&Coefficients { alpha: 2.0, rho: -0.5, gamma: 1.0, bias: 1.0 }, &mut layer);
/// let (mut h, mut out) = (engine.zeros(1), engine.zeros(1));
/// engine.upload(&[3.0, 4.0], &mut h);
/// engine.layer(&layer, true, &mut h, &mut out);
/// assert_eq!(engine.download(&out), [1.0 + 2.0 * (3.0 - 2.0), 1.0 + 2.0 * (4.0 - 1.5)]);
/// # Ok::<(), dgmrf::Error>(())
/// ```
pub struct Native<T: Scalar> {
    world: Rc<World>,
    part: Part,
    csr: Csr<T>,
    /// `log d` and `1 / d` of owned and halo rows.
    log_degree: Vec<f64>,
    inverse_degree: Vec<f64>,
    exchange: HaloExchange,
    /// Rows to send in packing order, and the buffer they are packed into.
    send_rows: Vec<u32>,
    send: Vec<T>,
    /// One sum per chunk of rows, so that passes allocate nothing.
    sums: RefCell<Vec<f64>>,
    totals: Vec<Totals>,
    sums_of_chunks: Vec<f64>,
    ahead: krylov::Ahead,
}

/// `[owned + halo, s]` values, row-major.
#[derive(Debug)]
pub struct Block<T> {
    columns: usize,
    values: Aligned<T>,
}

impl<T> Block<T> {
    /// Owned and halo rows, row-major.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Owned and halo rows, row-major.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

/// A layer made ready: `s_i` and `s_i / d_i` for owned and halo rows.
pub struct Layer<T> {
    scale: Vec<T>,
    ratio: Vec<T>,
    rho: f64,
    bias: f64,
    /// Whether edges count with the squares of their weights ([`Engine::square`]).
    squared: bool,
}

impl<T: Scalar> Native<T> {
    /// An engine for the part of this rank.
    pub fn new(world: Rc<World>, part: Part) -> Result<Self> {
        if part.entries() > u32::MAX as usize {
            return Err(Error::Setting(format!(
                "part {} has {} entries, more than 2^32: use more ranks",
                part.rank,
                part.entries()
            )));
        }
        let exchange = HaloExchange::new(world.clone(), part.halo.clone())?;
        let csr = Csr::new(&part);
        Ok(Native {
            log_degree: part.degree.iter().map(|d| d.ln()).collect(),
            inverse_degree: part.degree.iter().map(|d| 1.0 / d).collect(),
            send_rows: part.halo.send_order().collect(),
            send: Vec::new(),
            sums: RefCell::new(vec![0.0; part.owned.div_ceil(CHUNK)]),
            totals: vec![Totals::default(); part.owned.div_ceil(CHUNK)],
            sums_of_chunks: Vec::new(),
            ahead: krylov::Ahead::new(&csr, part.interior),
            world,
            csr,
            exchange,
            part,
        })
    }

    /// Values of the owned rows.
    fn owned<'b>(&self, block: &'b Block<T>) -> &'b [T] {
        &block.values[..self.part.owned * block.columns]
    }

    fn owned_mut<'b>(&self, block: &'b mut Block<T>) -> &'b mut [T] {
        &mut block.values[..self.part.owned * block.columns]
    }
}

/// Whether handing the rows to other threads would cost more than it gives.
fn inline(rows: usize) -> bool {
    rows < 4 * CHUNK || rayon::current_num_threads() == 1
}

impl<T: Scalar> Engine for Native<T> {
    type Block = Block<T>;
    type Rows = Vec<T>;
    type Layer = Layer<T>;

    fn part(&self) -> &Part {
        &self.part
    }

    fn world(&self) -> &Rc<World> {
        &self.world
    }

    fn zeros(&self, columns: usize) -> Block<T> {
        Block { columns, values: Aligned::new(T::ZERO, self.part.ids.len() * columns) }
    }

    fn columns(&self, block: &Block<T>) -> usize {
        block.columns
    }

    fn resize(&self, block: &mut Block<T>, columns: usize) {
        block.columns = columns;
        block.values.resize(T::ZERO, self.part.ids.len() * columns);
    }

    fn upload(&self, values: &[f64], block: &mut Block<T>) {
        let owned = self.owned_mut(block);
        assert_eq!(values.len(), owned.len(), "one value per owned row and column");
        owned.iter_mut().zip(values).for_each(|(to, &from)| *to = T::from_f64(from));
    }

    fn download(&self, block: &Block<T>) -> Vec<f64> {
        self.owned(block).iter().map(|&v| v.to_f64()).collect()
    }

    fn rows(&self, values: &[f64]) -> Vec<T> {
        assert_eq!(values.len(), self.part.ids.len(), "one value per local row");
        values.iter().map(|&v| T::from_f64(v)).collect()
    }

    fn set_rows(&self, values: &[f64], rows: &mut Vec<T>) {
        assert_eq!(values.len(), rows.len(), "one value per local row");
        rows.iter_mut().zip(values).for_each(|(to, &from)| *to = T::from_f64(from));
    }

    fn fill_rademacher(&self, stream: Stream, first: u64, block: &mut Block<T>) {
        let columns = block.columns;
        let timer = profile::start();
        let ids = self.part.owned_ids();
        vector::fill_signs(stream, first, ids, self.owned_mut(block), columns);
        profile::stop(Phase::Random, timer, (self.part.owned * (columns * T::BYTES + 4)) as u64, 0);
    }

    fn fill_normal(&self, stream: Stream, first: u64, block: &mut Block<T>) {
        let columns = block.columns;
        let timer = profile::start();
        let ids = self.part.owned_ids();
        vector::fill_normals(stream, first, ids, self.owned_mut(block), columns);
        profile::stop(Phase::Random, timer, (self.part.owned * (columns * T::BYTES + 4)) as u64, 0);
    }

    fn new_layer(&self) -> Layer<T> {
        let rows = self.part.ids.len();
        Layer {
            scale: vec![T::ZERO; rows],
            ratio: vec![T::ZERO; rows],
            rho: 0.0,
            bias: 0.0,
            squared: false,
        }
    }

    fn prepare(&self, c: &Coefficients, layer: &mut Layer<T>) {
        (layer.rho, layer.bias) = (c.rho, c.bias);
        let log_alpha = c.alpha.ln();
        let chunk = |scale: &mut [T], ratio: &mut [T], log_d: &[f64], inverse_d: &[f64]| {
            vector::on_vectors(
                #[inline(always)]
                || {
                    let rows = scale.iter_mut().zip(&mut *ratio).zip(log_d).zip(inverse_d);
                    for (((scale, ratio), log_d), inverse_d) in rows {
                        let s = elementary::exp_f64(c.gamma.mul_add(*log_d, log_alpha));
                        *scale = T::from_f64(s);
                        *ratio = T::from_f64(s * inverse_d);
                    }
                },
            );
        };
        let Layer { scale, ratio, .. } = layer;
        let (log_d, inverse_d) = (&self.log_degree, &self.inverse_degree);
        if inline(scale.len()) {
            chunk(scale, ratio, log_d, inverse_d);
        } else {
            let rows = scale.par_chunks_mut(CHUNK).zip(ratio.par_chunks_mut(CHUNK));
            let rows = rows.zip(log_d.par_chunks(CHUNK)).zip(inverse_d.par_chunks(CHUNK));
            rows.for_each(|(((s, r), log_d), inverse_d)| chunk(s, r, log_d, inverse_d));
        }
    }

    fn square(&mut self, layer: &Layer<T>, squared: &mut Layer<T>) {
        self.csr.square_weights();
        for (to, from) in [(&mut squared.scale, &layer.scale), (&mut squared.ratio, &layer.ratio)] {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = from * from);
        }
        (squared.rho, squared.bias, squared.squared) = (layer.rho * layer.rho, 0.0, true);
    }

    fn random_walk(&self) -> Layer<T> {
        let ratio: Vec<T> = self.inverse_degree.iter().map(|&r| T::from_f64(r)).collect();
        Layer { scale: vec![T::ZERO; ratio.len()], ratio, rho: 1.0, bias: 0.0, squared: false }
    }

    fn layer(&mut self, l: &Layer<T>, with_bias: bool, h: &mut Block<T>, out: &mut Block<T>) {
        let bias = if with_bias { l.bias } else { 0.0 };
        let stencil = stencil::Forward::new(l, bias);
        assert_eq!(h.columns, out.columns, "blocks of one width");
        let out = kernel::Output::block(self.owned_mut(out));
        self.sweep(&stencil, h, out, Phase::Layer);
    }

    fn adjoint(&mut self, l: &Layer<T>, g: &mut Block<T>, out: &mut Block<T>) {
        assert_eq!(g.columns, out.columns, "blocks of one width");
        let out = kernel::Output::block(self.owned_mut(out));
        self.sweep(&stencil::Adjoint::new(l), g, out, Phase::Adjoint);
    }

    fn adjoint_with_sums(
        &mut self,
        l: &Layer<T>,
        with_bias: bool,
        g: &mut Block<T>,
        input: &Block<T>,
        output: Output<'_, Block<T>>,
        out: &mut Block<T>,
    ) -> LayerSums {
        assert_eq!(g.columns, out.columns, "blocks of one width");
        let out = kernel::Output::block(self.owned_mut(out));
        self.gradient(l, with_bias, g, input, output, gradient::Kept, out).layer
    }

    fn dots(&self, x: &Block<T>, y: &Block<T>, dots: &mut [f64]) {
        let timer = profile::start();
        tiles::dots(self.owned(x), self.owned(y), x.columns, dots);
        profile::stop(Phase::Vector, timer, self.bytes(x.columns, 2), 0);
    }

    fn krylov(
        &mut self,
        turn: Option<[&[f64]; 3]>,
        x: &mut Block<T>,
        z: &mut Block<T>,
        sums: &mut [f64],
    ) {
        self.krylov_step(turn, x, z, sums);
    }

    fn combine(
        &self,
        a: &[f64],
        x: &Block<T>,
        b: &[f64],
        y: &Block<T>,
        c: &[f64],
        z: &mut Block<T>,
    ) {
        let timer = profile::start();
        recurrence::combine([a, b, c], self.owned(x), self.owned(y), self.owned_mut(z));
        profile::stop(Phase::Vector, timer, self.bytes(x.columns, 4), 0);
    }

    fn axpy(&self, a: &[f64], x: &Block<T>, y: &mut Block<T>) {
        let (timer, columns) = (profile::start(), x.columns);
        tiles::zip_columns(a, self.owned(x), self.owned_mut(y), |a, x, y| y + a * x);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 3), 0);
    }

    fn aypx(&self, a: &[f64], x: &Block<T>, y: &mut Block<T>) {
        let (timer, columns) = (profile::start(), x.columns);
        tiles::zip_columns(a, self.owned(x), self.owned_mut(y), |a, x, y| x + a * y);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 3), 0);
    }

    fn scale_rows(&self, w: &Vec<T>, x: &Block<T>, y: &mut Block<T>) {
        let (timer, columns) = (profile::start(), x.columns);
        vector::zip_rows(w, self.owned(x), self.owned_mut(y), columns, |w, x, _| w * x);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 2), 0);
    }

    fn add_scaled_rows(&self, w: &Vec<T>, x: &Block<T>, y: &mut Block<T>) {
        let (timer, columns) = (profile::start(), x.columns);
        vector::zip_rows(w, self.owned(x), self.owned_mut(y), columns, |w, x, y| y + w * x);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 3), 0);
    }

    fn copy_columns(&self, x: &Block<T>, y: &mut Block<T>, pairs: &[(usize, usize)]) {
        let (timer, widths) = (profile::start(), (x.columns, y.columns));
        vector::copy_columns(self.owned(x), self.owned_mut(y), widths, pairs);
        profile::stop(Phase::Vector, timer, self.bytes(pairs.len(), 2), 0);
    }

    fn step_dots(&self, w: &Vec<T>, p: &Block<T>, s: &Block<T>, r: &Block<T>, dots: &mut [f64]) {
        let (timer, columns) = (profile::start(), p.columns);
        tiles::step_dots(w, [p, s, r].map(|block| self.owned(block)), columns, dots);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 3), 0);
    }

    fn step(
        &self,
        (alpha, beta): (&[f64], &[f64]),
        w: &Vec<T>,
        s: &Block<T>,
        p: &mut Block<T>,
        x: &mut Block<T>,
        r: &mut Block<T>,
    ) {
        let (timer, columns) = (profile::start(), s.columns);
        let changed = [p, x, r].map(|block| self.owned_mut(block));
        tiles::step(alpha, beta, w, self.owned(s), changed);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 7), 0);
    }
}

impl<T: Scalar> Native<T> {
    /// A transposed layer with the sums of its gradient and the fate of the result.
    #[allow(clippy::too_many_arguments)] // what the trait asks for in three forms
    fn gradient<F: gradient::Fate<T>>(
        &mut self,
        l: &Layer<T>,
        with_bias: bool,
        g: &mut Block<T>,
        input: &Block<T>,
        output: Output<'_, Block<T>>,
        fate: F,
        out: kernel::Output<T>,
    ) -> Totals {
        assert_eq!(input.columns, g.columns, "blocks of one width");
        match output {
            Output::Cotangent => {
                self.gradient_of(l, with_bias, g, input, gradient::Cotangent, fate, out)
            }
            Output::Block(block) => {
                assert_eq!(block.columns, g.columns, "blocks of one width");
                let known = gradient::Output(&block.values);
                self.gradient_of(l, with_bias, g, input, known, fate, out)
            }
            Output::Dots(a, b) => {
                let known = gradient::Dots(&a.values, &b.values);
                self.gradient_of(l, with_bias, g, input, known, fate, out)
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // as above
    fn gradient_of<K: gradient::Known<T>, F: gradient::Fate<T>>(
        &mut self,
        l: &Layer<T>,
        with_bias: bool,
        g: &mut Block<T>,
        input: &Block<T>,
        known: K,
        fate: F,
        out: kernel::Output<T>,
    ) -> Totals {
        let log_degree = std::mem::take(&mut self.log_degree);
        let stencil = gradient::Gradient {
            adjoint: stencil::Adjoint::new(l),
            bias: T::from_f64(if with_bias { l.bias } else { 0.0 }),
            log_degree: &log_degree,
            input: &input.values,
            known,
            fate,
        };
        let total = self.sweep(&stencil, g, out, Phase::Gradient);
        self.log_degree = log_degree;
        total
    }

    /// Bytes of `passes` passes over the owned rows of a block.
    fn bytes(&self, columns: usize, passes: usize) -> u64 {
        (self.part.owned * columns * passes * T::BYTES) as u64
    }
}
