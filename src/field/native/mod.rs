//! The native engine: Rust loops over all cores of the rank, in single or double precision.
//!
//! A layer is one pass: self term, neighbour sum, scale and bias are fused, for all columns of a
//! row at once. Rows are worked on in chunks of fixed size, each by one thread, and sums are
//! added chunk by chunk in order, so results do not depend on the number of threads.
//!
//! The way of a layer: `Engine::layer` (`engine.rs`) names a stencil (`stencil.rs`); a sweep
//! (`sweep.rs`) takes it over all chunks of rows while the halo travels; for each chunk a kernel
//! (`kernel.rs`) gathers the neighbours (`gather.rs`) and ends each row as the stencil says.
//! Gradients are ended by `gradient.rs`. Passes without neighbours are in `tiles.rs`, `rows.rs` and
//! `vector.rs`; `cover.rs` takes wide rows apart.

mod aligned;
mod cover;
mod engine;
mod gather;
mod gradient;
mod kernel;
mod krylov;
pub(super) mod lanes;
mod pointwise;
mod rows;
mod stencil;
mod sweep;
mod tiles;
mod vector;

use super::Scalar;
use crate::comm::World;
use crate::comm::halo::HaloExchange;
use crate::error::{Error, Result};
use crate::partition::Part;
use aligned::Aligned;
use kernel::Csr;
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

impl<T: Scalar> Block<T> {
    fn zeros(rows: usize, columns: usize) -> Self {
        Block { columns, values: Aligned::new(T::ZERO, rows * columns) }
    }
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

    /// Bytes of `passes` passes over the owned rows of a block.
    fn bytes(&self, columns: usize, passes: usize) -> u64 {
        (self.part.owned * columns * passes * T::BYTES) as u64
    }
}

/// Whether handing the rows to other threads would cost more than it gives.
fn inline(rows: usize) -> bool {
    rows < 4 * CHUNK || rayon::current_num_threads() == 1
}
