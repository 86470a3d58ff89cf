//! Every engine in every precision, to test the contract on; and engines reduced to their core, so
//! that what the contract provides is tested too.

use dgmrf::comm::World;
use dgmrf::field::{Draw, Engine, Pointwise, native::Native};
use dgmrf::partition::Part;
use dgmrf::random::Stream;
use std::rc::Rc;

/// A kind of engine.
pub trait Kind {
    type Engine: Engine;
    /// The module that [`for_every_engine`] puts the tests in.
    const NAME: &'static str;
    /// Relative error of a few operations.
    const ROUNDING: f64;
    fn engine(world: &Rc<World>, part: Part) -> Self::Engine;

    /// The path of a test, for [`super::on_ranks`].
    fn path(test: &str) -> String {
        format!("{}::{test}", Self::NAME)
    }
}

/// Makes a test of every generic function that is named, for every kind of engine.
macro_rules! for_every_engine {
    (@ $kind:ident in $name:ident: $($test:ident),+) => {
        mod $name {
            $(#[test]
            fn $test() {
                super::$test::<crate::support::engines::$kind>();
            })+
        }
    };
    ($($test:ident),+ $(,)?) => {
        for_every_engine!(@ NativeF64 in native_f64: $($test),+);
        for_every_engine!(@ NativeF32 in native_f32: $($test),+);
        for_every_engine!(@ CoreF64 in core_f64: $($test),+);
        #[cfg(feature = "torch")]
        for_every_engine!(@ TorchF64 in torch_f64: $($test),+);
        #[cfg(feature = "torch")]
        for_every_engine!(@ TorchF32 in torch_f32: $($test),+);
    };
}

macro_rules! kind {
    ($kind:ident, $name:literal, $rounding:literal, $engine:ty, $make:expr) => {
        pub struct $kind;
        impl Kind for $kind {
            type Engine = $engine;
            const NAME: &'static str = $name;
            const ROUNDING: f64 = $rounding;
            fn engine(world: &Rc<World>, part: Part) -> $engine {
                $make(world.clone(), part)
            }
        }
    };
}

kind!(NativeF64, "native_f64", 1e-14, Native<f64>, |w, p| Native::new(w, p).expect("an engine"));
kind!(NativeF32, "native_f32", 1e-6, Native<f32>, |w, p| Native::new(w, p).expect("an engine"));
kind!(CoreF64, "core_f64", 1e-14, Core<Native<f64>>, |w, p| Core(
    Native::new(w, p).expect("an engine")
));
#[cfg(feature = "torch")]
use dgmrf::field::torch::Torch;
#[cfg(feature = "torch")]
kind!(TorchF64, "torch_f64", 1e-14, Torch<f64>, |w, p| Torch::new(w, p, tch::Device::Cpu)
    .expect("an engine"));
#[cfg(feature = "torch")]
kind!(TorchF32, "torch_f32", 1e-6, Torch<f32>, |w, p| Torch::new(w, p, tch::Device::Cpu)
    .expect("an engine"));

/// The core of an engine, and nothing else of it: every fused pass runs as the contract provides
/// it.
pub struct Core<E>(pub E);

impl<E: Engine> Engine for Core<E> {
    type Block = E::Block;

    fn part(&self) -> &Part {
        self.0.part()
    }
    fn world(&self) -> &Rc<World> {
        self.0.world()
    }
    fn zeros(&self, columns: usize) -> E::Block {
        self.0.zeros(columns)
    }
    fn columns(&self, block: &E::Block) -> usize {
        self.0.columns(block)
    }
    fn resize(&self, block: &mut E::Block, columns: usize) {
        self.0.resize(block, columns);
    }
    fn upload(&self, values: &[f64], block: &mut E::Block) {
        self.0.upload(values, block);
    }
    fn download(&self, block: &E::Block) -> Vec<f64> {
        self.0.download(block)
    }
    fn fill(&self, draw: Draw, stream: Stream, first: u64, block: &mut E::Block) {
        self.0.fill(draw, stream, first, block);
    }
    fn neighbour_sums(&mut self, squared: bool, x: &mut E::Block, out: &mut E::Block) {
        self.0.neighbour_sums(squared, x, out);
    }
    fn dots(&self, x: &E::Block, y: &E::Block, dots: &mut [f64]) {
        self.0.dots(x, y, dots);
    }
    fn row_sums(&self, x: &E::Block, sums: &mut E::Block) {
        self.0.row_sums(x, sums);
    }
    fn combine(
        &self,
        a: &[f64],
        x: &E::Block,
        b: &[f64],
        y: &E::Block,
        c: &[f64],
        z: &mut E::Block,
    ) {
        self.0.combine(a, x, b, y, c, z);
    }
    fn product(&self, beta: f64, alpha: f64, a: &E::Block, b: Option<&E::Block>, y: &mut E::Block) {
        self.0.product(beta, alpha, a, b, y);
    }
    fn copy_columns(&self, x: &E::Block, y: &mut E::Block, pairs: &[(usize, usize)]) {
        self.0.copy_columns(x, y, pairs);
    }
    fn pointwise<W: Pointwise<C, G>, const C: usize, const G: usize>(
        &self,
        work: &W,
        changed: [&mut E::Block; C],
        given: [&E::Block; G],
    ) -> f64 {
        self.0.pointwise(work, changed, given)
    }
}
