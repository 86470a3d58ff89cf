//! What the fused passes of an engine compute, in terms of its core.
//!
//! Engines that fuse must come to the same numbers but for rounding (`tests/fused.rs`). Here
//! clarity counts: every intermediate result is a block of its own.

use super::layer::{Coefficients, ForwardOutput, Layer, LayerSums, PullBack, Residual};
use super::pointwise::Quotient;
use super::{Engine, Recurrence};

/// A node field made of the degrees.
pub(super) fn of_degree<E: Engine>(engine: &E, f: impl Fn(f64) -> f64) -> E::Block {
    let part = engine.part();
    let values: Vec<f64> = part.degree[..part.owned].iter().map(|&d| f(d)).collect();
    engine.node_field(&values)
}

/// `a ∘ b`, for blocks of one width or a node field and a block.
pub(super) fn times<E: Engine>(engine: &E, a: &E::Block, b: &E::Block) -> E::Block {
    let mut product = engine.zeros(engine.columns(a).max(engine.columns(b)));
    engine.product(0.0, 1.0, a, Some(b), &mut product);
    product
}

/// `x_ic + α t_i` for a node field `t`.
fn shifted<E: Engine>(engine: &E, x: &E::Block, alpha: f64, t: &E::Block) -> E::Block {
    let mut sum = engine.zeros(engine.columns(x));
    engine.product(0.0, 1.0, x, None, &mut sum);
    engine.product(1.0, alpha, t, None, &mut sum);
    sum
}

/// `Σ_c a_ic b_ic`, a node field.
fn across<E: Engine>(engine: &E, a: &E::Block, b: &E::Block) -> E::Block {
    let mut sums = engine.zeros(1);
    engine.row_sums(&times(engine, a, b), &mut sums);
    sums
}

/// `Σ a_ic b_ic` over all rows and columns.
fn total<E: Engine>(engine: &E, a: &E::Block, b: &E::Block) -> f64 {
    let mut dots = vec![0.0; engine.columns(a)];
    engine.dots(a, b, &mut dots);
    dots.iter().sum()
}

pub(super) fn prepare<E: Engine>(engine: &E, c: &Coefficients, layer: &mut Layer<E::Block>) {
    let scale = |d: f64| (c.gamma * d.ln() + c.alpha.ln()).exp();
    layer.scale = of_degree(engine, scale);
    layer.ratio = of_degree(engine, |d| scale(d) / d);
    (layer.rho, layer.bias, layer.squared) = (c.rho, c.bias, false);
}

pub(super) fn layer<E: Engine>(
    engine: &mut E,
    layer: &Layer<E::Block>,
    with_bias: bool,
    h: &mut E::Block,
    out: &mut E::Block,
) {
    let mut sums = engine.zeros(engine.columns(h));
    engine.neighbour_sums(layer.squared, h, &mut sums);
    engine.product(0.0, 1.0, &layer.scale, Some(h), out);
    engine.product(1.0, layer.rho, &layer.ratio, Some(&sums), out);
    if with_bias {
        engine.product(1.0, layer.bias, &of_degree(engine, |_| 1.0), None, out);
    }
}

/// `A (s ∘ g / d)`.
pub(super) fn transposed_sums<E: Engine>(
    engine: &mut E,
    layer: &Layer<E::Block>,
    g: &E::Block,
) -> E::Block {
    let mut weighted = times(engine, &layer.ratio, g);
    let mut sums = engine.zeros(engine.columns(g));
    engine.neighbour_sums(layer.squared, &mut weighted, &mut sums);
    sums
}

pub(super) fn adjoint_with_sums<E: Engine>(
    engine: &mut E,
    layer: &Layer<E::Block>,
    with_bias: bool,
    g: &mut E::Block,
    input: &E::Block,
    output: ForwardOutput<'_, E::Block>,
    out: &mut E::Block,
) -> LayerSums {
    let (ones, log_degree) = (of_degree(engine, |_| 1.0), of_degree(engine, f64::ln));
    let bias = if with_bias { layer.bias } else { 0.0 };
    // Σ_c g u, with u the output without the bias.
    let gu = match output {
        ForwardOutput::Cotangent => across(engine, g, &shifted(engine, g, -bias, &ones)),
        ForwardOutput::Block(output) => across(engine, g, &shifted(engine, output, -bias, &ones)),
        ForwardOutput::RowDots(a, b) => times(engine, a, b),
    };
    let sums = transposed_sums(engine, layer, g);
    engine.adjoint(layer, g, out);
    LayerSums {
        alpha: total(engine, &gu, &ones),
        rho: total(engine, &sums, input),
        gamma: total(engine, &gu, &log_degree),
        bias: total(engine, &across(engine, g, &ones), &ones),
    }
}

pub(super) fn residual<E: Engine>(
    engine: &E,
    residual: &Residual<'_, E::Block>,
    x: &E::Block,
    g: &mut E::Block,
) -> f64 {
    let Residual { precision, mask, target } = *residual;
    let difference = shifted(engine, x, -1.0, target.unwrap_or(&engine.zeros(1)));
    engine.product(1.0, precision, mask, Some(&difference), g);
    total(engine, &times(engine, mask, &difference), &difference)
}

pub(super) fn pull_back<E: Engine>(
    engine: &E,
    pull_back: PullBack<'_, E::Block>,
    x: &E::Block,
    g: &mut E::Block,
) {
    let PullBack { mean, scale, of_mean, of_scale } = pull_back;
    engine.row_sums(g, of_mean);
    let deviation = shifted(engine, x, -1.0, mean.unwrap_or(&engine.zeros(1)));
    row_dots(engine, g, &deviation, scale, of_scale);
    let scaled = times(engine, scale, g);
    engine.product(0.0, 1.0, &scaled, None, g);
}

/// `out_i = Σ_c a_ic b_ic / w_i`.
pub(super) fn row_dots<E: Engine>(
    engine: &E,
    a: &E::Block,
    b: &E::Block,
    w: &E::Block,
    out: &mut E::Block,
) {
    engine.row_sums(&times(engine, a, b), out);
    engine.pointwise(&Quotient, [out], [w]);
}

/// Column `k` of a block.
fn column<E: Engine>(engine: &E, block: &E::Block, k: usize) -> E::Block {
    let mut column = engine.zeros(1);
    engine.copy_columns(block, &mut column, &[(k, 0)]);
    column
}

pub(super) fn subtract_linear<E: Engine>(
    engine: &E,
    f: &E::Block,
    a: &[f64],
    base: &E::Block,
    out: &mut E::Block,
) {
    engine.product(0.0, 1.0, base, None, out);
    for (k, a) in a.chunks_exact(engine.columns(base)).enumerate() {
        let minus: Vec<f64> = a.iter().map(|a| -a).collect();
        let mut repeated = engine.zeros(a.len());
        engine.product(0.0, 1.0, &column(engine, f, k), None, &mut repeated);
        engine.axpy(&minus, &repeated, out);
    }
}

pub(super) fn project<E: Engine>(engine: &E, f: &E::Block, v: &E::Block, out: &mut [f64]) {
    let ones = of_degree(engine, |_| 1.0);
    let mut repeated = engine.zeros(engine.columns(v));
    for (k, out) in out.chunks_exact_mut(engine.columns(v)).enumerate() {
        engine.product(0.0, 1.0, &column(engine, f, k), Some(&ones), &mut repeated);
        engine.dots(&repeated, v, out);
    }
}

pub(super) fn krylov<E: Engine>(
    engine: &mut E,
    recurrence: Option<Recurrence<'_>>,
    x: &mut E::Block,
    z: &mut E::Block,
    sums: &mut [f64],
) {
    let columns = engine.columns(x);
    if let Some(Recurrence { a, b, .. }) = recurrence {
        engine.combine(b, x, &vec![0.0; columns], x, a, z);
        std::mem::swap(x, z);
    }
    let mut walked = engine.zeros(columns);
    engine.neighbour_sums(false, x, &mut walked);
    let mut product = times(engine, &of_degree(engine, |d| 1.0 / d), &walked);
    if let Some(Recurrence { c, .. }) = recurrence {
        engine.axpy(c, z, &mut product);
    }
    engine.product(0.0, 1.0, &product, None, z);

    let degree = of_degree(engine, |d| d);
    let [dx, dz] = [&*x, &*z].map(|block| times(engine, &degree, block));
    let pairs = [(&dx, &*x), (&dx, &*z), (&dz, &*z)];
    for ((a, b), sums) in pairs.into_iter().zip(sums.chunks_exact_mut(columns)) {
        engine.dots(a, b, sums);
    }
}
