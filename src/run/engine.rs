//! The engine that a run computes with, as its settings choose it.

use crate::comm::World;
use crate::config::{self, Config, Precision};
#[cfg(not(feature = "torch"))]
use crate::error::Error;
use crate::error::Result;
use crate::field::Engine;
use crate::field::{Device, native::Native};
use crate::partition::Part;
use std::rc::Rc;

/// Work that runs on any engine. (A closure cannot be generic over the engine, a trait can.)
pub trait Work {
    /// What comes out.
    type Output;
    /// Does the work on this engine. Called by all ranks.
    fn on<E: Engine>(self, engine: E) -> Result<Self::Output>;
}

/// Does `work` in double precision on the engine of the user's choice. All ranks call it.
pub fn with_engine<W: Work>(
    world: &Rc<World>,
    part: Part,
    engine: config::Engine,
    device: Device,
    work: W,
) -> Result<W::Output> {
    with_precision(world, part, engine, device, Precision::Double, work)
}

/// Does `work` on the engine of the user's choice, in the precision asked for. All ranks call it.
pub fn with_precision<W: Work>(
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
        #[cfg(feature = "torch")]
        (config::Engine::Torch, precision) => {
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
        (config::Engine::Torch, _) => {
            let _ = device;
            world.agree(Err(no_torch()))
        }
    }
}

#[cfg(not(feature = "torch"))]
fn no_torch() -> Error {
    Error::Setting(
        "this dgmrf was built without libtorch (feature `torch`): set run.engine = \"native\""
            .into(),
    )
}

/// A missing engine or device should not show after hours of work: fails where the settings ask for
/// one. All ranks call it.
pub fn check_engine(world: &World, config: &Config) -> Result<()> {
    if config.run.engine == config::Engine::Native {
        return Ok(());
    }
    #[cfg(feature = "torch")]
    return world.agree(crate::field::torch::device_of(world, config.run.device)).map(|_| ());
    #[cfg(not(feature = "torch"))]
    return world.agree(Err(no_torch()));
}
