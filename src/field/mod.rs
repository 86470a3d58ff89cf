//! Blocks of node values and what engines can do with them.
//!
//! A *block* is a tall matrix `[owned + halo, s]`, row-major: `s` samples or probes side by side,
//! so that one gather of a neighbour serves all columns. A block of one column is a *node field*.
//! Every algorithm downstream is written once against [`Engine`]; there are two engines, [`native`]
//! (Rust, all CPUs) and, with the feature `torch`, [`torch`] (libtorch on the CPU or one CUDA
//! device per local rank).
//!
//! The contract has two levels. An engine must bring a small core; everything else is a fused pass
//! whose provided body, written with the core, says what it computes ([`Engine`] and `fused.rs`).
//! An engine overrides those that it can do in fewer passes.
//!
//! Sums that an engine returns are *local*, over the owned rows of this rank; the caller puts all
//! it needs into one [`World::sum`](crate::comm::World::sum). In the native engine their order is
//! fixed: it depends on the number of ranks but not on the number of threads.

mod engine;
mod fused;
mod layer;
pub mod native;
mod pointwise;
mod scalar;
#[cfg(feature = "torch")]
pub mod torch;

pub use engine::{Draw, Engine, Recurrence};
pub use layer::{Coefficients, ForwardOutput, Layer, LayerSums, PullBack, Residual};
pub use pointwise::{Arithmetic, Pointwise};
pub use scalar::Scalar;

words! {
    /// Where the torch engine computes.
    pub enum Device {
        /// A GPU if there is one.
        #[default]
        Auto = "auto",
        /// The CPU.
        Cpu = "cpu",
        /// The CUDA device of the local rank.
        Cuda = "cuda",
    }
}
