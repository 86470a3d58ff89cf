//! Values of the rows of an overlap, between those who hold them and those who own them.

use super::Overlap;
use crate::comm::World;
use crate::comm::halo::{HaloExchange, Tags};
use crate::profile::{self, Phase};
use std::rc::Rc;
use std::sync::Arc;

/// Fetches values of the rings around a part, and adds contributions to them back to their owners.
///
/// Made once per overlap and used as often as values change: messages pass between neighbours
/// only, and buffers are kept, so an exchange allocates nothing unless it has more columns than
/// any before. The *ghosts* of a rank are the rows after its owned ones, ring by ring, as far as
/// [`Overlap::collect`] was told that values are wanted. All ranks make the same exchanges in the
/// same order.
pub struct OverlapExchange {
    exchange: HaloExchange,
    owned: usize,
    /// Where each row that is received stands among the ghosts.
    places: Arc<Vec<u32>>,
    /// Owned rows that others ask for, and ghosts, neighbour by neighbour.
    inner: Vec<f64>,
    outer: Vec<f64>,
}

impl OverlapExchange {
    /// An exchange among the ranks that have collected the overlap together.
    pub fn new(world: &Rc<World>, overlap: &Overlap) -> Self {
        let exchange = HaloExchange::with_tags(world.clone(), overlap.plan.clone(), Tags::OVERLAP)
            .expect("ranks of the world that the overlap was collected in");
        OverlapExchange {
            exchange,
            owned: overlap.owned,
            places: overlap.places.clone(),
            inner: Vec::new(),
            outer: Vec::new(),
        }
    }

    /// Number of ghosts.
    pub fn ghosts(&self) -> usize {
        self.places.len()
    }

    /// Fills `ghosts` with the values that their owners have, given the owned rows
    /// `[owned, columns]`.
    ///
    /// # Panics
    /// If the lengths do not fit the overlap (a bug of the caller).
    pub fn fetch(&mut self, values: &[f64], columns: usize, ghosts: &mut [f64]) {
        self.fit(values.len(), ghosts.len(), columns);
        let OverlapExchange { exchange, places, inner, outer, .. } = self;
        let timer = profile::start();
        for (to, row) in inner.chunks_exact_mut(columns.max(1)).zip(exchange.plan().send_order()) {
            to.copy_from_slice(&values[row as usize * columns..][..columns]);
        }
        profile::stop(Phase::HaloPack, timer, std::mem::size_of_val(&inner[..]) as u64, 0);
        exchange.run(columns, inner, outer, |_| ());
        for (from, &row) in outer.chunks_exact(columns.max(1)).zip(&places[..]) {
            ghosts[row as usize * columns..][..columns].copy_from_slice(from);
        }
    }

    /// Adds the values of all copies of a row to the row itself, `values` `[owned, columns]`, where
    /// `ghosts` are those that this rank holds. Sums have one order, rank by rank.
    ///
    /// # Panics
    /// If the lengths do not fit the overlap (a bug of the caller).
    pub fn add_back(&mut self, ghosts: &[f64], columns: usize, values: &mut [f64]) {
        self.fit(values.len(), ghosts.len(), columns);
        let OverlapExchange { exchange, places, inner, outer, .. } = self;
        let timer = profile::start();
        for (to, &row) in outer.chunks_exact_mut(columns.max(1)).zip(&places[..]) {
            to.copy_from_slice(&ghosts[row as usize * columns..][..columns]);
        }
        profile::stop(Phase::HaloPack, timer, std::mem::size_of_val(&outer[..]) as u64, 0);
        exchange.run_back(columns, outer, inner);
        for (from, row) in inner.chunks_exact(columns.max(1)).zip(exchange.plan().send_order()) {
            let row = &mut values[row as usize * columns..][..columns];
            row.iter_mut().zip(from).for_each(|(v, more)| *v += more);
        }
    }

    /// Room for messages of so many columns.
    fn fit(&mut self, values: usize, ghosts: usize, columns: usize) {
        assert_eq!(values, self.owned * columns, "one row of values per owned row");
        assert_eq!(ghosts, self.ghosts() * columns, "one row of values per ghost");
        self.inner.resize(self.exchange.plan().sent_rows() * columns, 0.0);
        self.outer.resize(self.ghosts() * columns, 0.0);
    }
}
