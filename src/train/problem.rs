//! What a fit is given: the data of this rank on an engine, and the spectrum of the graph.

use crate::error::{Error, Result};
use crate::field::Engine;
use crate::likelihood::Observations;
use crate::logdet::Spectrum;
use crate::posterior::Features;

/// The data in standardised units, owned rows.
pub struct Problem<E: Engine> {
    /// Values and mask.
    pub data: Observations<E>,
    /// Features for a linear part of the mean.
    pub features: Option<Features>,
    /// Log-determinants of layers.
    pub spectrum: Spectrum,
}

impl<E: Engine> Problem<E> {
    /// Refuses data of which nothing is observed. All ranks call it.
    pub fn new(
        data: Observations<E>,
        features: Option<Features>,
        spectrum: Spectrum,
    ) -> Result<Self> {
        if data.count == 0.0 {
            let why = "no node is observed: there is nothing to learn from";
            return Err(Error::Data(why.into()));
        }
        Ok(Problem { data, features, spectrum })
    }

    /// Nodes of the whole graph.
    pub fn nodes(&self) -> usize {
        self.spectrum.nodes()
    }
}
