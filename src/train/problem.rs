//! What a fit is given: the data of this rank on an engine, and the spectrum of the graph.

use super::joint::Observations;
use crate::error::{Error, Result};
use crate::field::Engine;
use crate::logdet::Spectrum;
use crate::posterior::Features;

/// The data in standardised units, owned rows.
pub struct Problem<E: Engine> {
    /// `y` and the mask as node fields.
    pub data: Observations<E::Block>,
    /// `y`, 0 where unobserved.
    pub y: Vec<f64>,
    /// The mask.
    pub observed: Vec<bool>,
    /// Features for a linear part of the mean.
    pub features: Option<Features>,
    /// Log-determinants of layers.
    pub spectrum: Spectrum,
}

impl<E: Engine> Problem<E> {
    /// Puts the data of the owned rows on the engine; values that are not observed may be missing
    /// (NaN). All ranks call it.
    pub fn new(
        engine: &E,
        y: Vec<f64>,
        observed: Vec<bool>,
        features: Option<Features>,
        spectrum: Spectrum,
    ) -> Result<Self> {
        let world = engine.world();
        let wrong = observed.iter().zip(&y).position(|(&o, y)| o && !y.is_finite());
        world.agree(match wrong {
            Some(row) => {
                let id = engine.part().ids[row];
                Err(Error::Data(format!("node {id} is observed, but its value is {}", y[row])))
            }
            None => Ok(()),
        })?;
        let mut count = [observed.iter().filter(|&&o| o).count() as f64];
        world.sum(&mut count);
        if count[0] == 0.0 {
            let why = "no node is observed: there is nothing to learn from";
            return world.agree(Err(Error::Data(why.into())));
        }
        let y: Vec<f64> = y.iter().zip(&observed).map(|(&y, &o)| if o { y } else { 0.0 }).collect();
        let marks: Vec<f64> = observed.iter().map(|&o| f64::from(u8::from(o))).collect();
        let (mut mask, mut block) = (engine.zeros(1), engine.zeros(1));
        engine.upload(&marks, &mut mask);
        engine.upload(&y, &mut block);
        let data = Observations { mask, y: block, count: count[0] };
        Ok(Problem { data, y, observed, features, spectrum })
    }

    /// Nodes of the whole graph.
    pub fn nodes(&self) -> usize {
        self.spectrum.nodes()
    }
}
