//! The engine a command computes with, as the user chose it.

use crate::comm::World;
use crate::config::{self, Precision};
use crate::error::Result;
use crate::field::rowwise::Rowwise;
use crate::field::{Device, native::Native};
use crate::partition::Part;
use std::rc::Rc;

/// Work that runs on any engine. (A closure cannot be generic over the engine, a trait can.)
pub(super) trait Work {
    type Output;
    fn on<E: Rowwise>(self, engine: E) -> Result<Self::Output>;
}

/// Does `work` in double precision on the engine of the user's choice. To be called by all ranks.
pub(super) fn with_engine<W: Work>(
    world: &Rc<World>,
    part: Part,
    engine: config::Engine,
    device: Device,
    work: W,
) -> Result<W::Output> {
    with_precision(world, part, engine, device, Precision::Double, work)
}

/// [`with_engine`] in the precision asked for.
pub(super) fn with_precision<W: Work>(
    world: &Rc<World>,
    part: Part,
    engine: config::Engine,
    device: Device,
    precision: Precision,
    work: W,
) -> Result<W::Output> {
    match (engine, precision) {
        (config::Engine::Native, Precision::Double) => {
            work.on(world.agree(Native::<f64>::new(world.clone(), part))?)
        }
        (config::Engine::Native, Precision::Single) => {
            work.on(world.agree(Native::<f32>::new(world.clone(), part))?)
        }
        (config::Engine::Torch, _) => with_torch(world, part, device, precision, work),
    }
}

#[cfg(feature = "torch")]
fn with_torch<W: Work>(
    world: &Rc<World>,
    part: Part,
    device: Device,
    precision: Precision,
    work: W,
) -> Result<W::Output> {
    use crate::field::torch::{Torch, device_of};
    let device = world.agree(device_of(world, device))?;
    match precision {
        Precision::Double => {
            work.on(world.agree(Torch::<f64>::new(world.clone(), part, device))?)
        }
        Precision::Single => {
            work.on(world.agree(Torch::<f32>::new(world.clone(), part, device))?)
        }
    }
}

#[cfg(not(feature = "torch"))]
fn with_torch<W: Work>(
    world: &Rc<World>,
    _: Part,
    _: Device,
    _: Precision,
    _: W,
) -> Result<W::Output> {
    world.agree(Err(crate::Error::Setting(
        "this dgmrf was built without libtorch (feature `torch`); use the native engine".into(),
    )))
}
