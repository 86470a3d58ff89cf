//! The data of a rank, on the host and on its engine.

use crate::error::{Error, Result};
use crate::field::Engine;

/// The data as node fields of an engine.
pub struct ObservedFields<B> {
    /// `m`: 1 where observed, 0 elsewhere.
    pub mask: B,
    /// `y`, 0 where unobserved.
    pub y: B,
}

/// Values at the owned rows of a rank, in the units that the layers work in.
pub struct Observations<E: Engine> {
    /// The data on the engine.
    pub fields: ObservedFields<E::Block>,
    /// `y` of the owned rows, 0 where unobserved.
    pub y: Vec<f64>,
    /// Which owned rows are observed.
    pub observed: Vec<bool>,
    /// Observed nodes of all ranks, `M`.
    pub count: f64,
}

impl<E: Engine> Observations<E> {
    /// Puts the data of the owned rows on the engine. Values that are not observed may be missing
    /// (NaN); an observed one that is not finite is an error on all ranks. All ranks call it.
    pub fn new(engine: &E, y: &[f64], observed: &[bool]) -> Result<Self> {
        let (world, part) = (engine.world(), engine.part());
        assert!(y.len() == part.owned && observed.len() == part.owned, "one value per owned row");
        let wrong = observed.iter().zip(y).position(|(&o, y)| o && !y.is_finite());
        world.agree(wrong.map_or(Ok(()), |row| {
            let id = part.ids[row];
            Err(Error::Data(format!("node {id} is observed, but its value is {}", y[row])))
        }))?;
        let mut count = [observed.iter().filter(|&&o| o).count() as f64];
        world.sum(&mut count);
        let y: Vec<f64> = y.iter().zip(observed).map(|(&y, &o)| if o { y } else { 0.0 }).collect();
        let marks: Vec<f64> = observed.iter().map(|&o| f64::from(u8::from(o))).collect();
        let mut fields = ObservedFields { mask: engine.zeros(1), y: engine.zeros(1) };
        engine.upload(&marks, &mut fields.mask);
        engine.upload(&y, &mut fields.y);
        Ok(Observations { fields, y, observed: observed.to_vec(), count: count[0] })
    }
}
