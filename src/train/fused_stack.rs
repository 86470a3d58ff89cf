//! Passes of training that are fused with those of the layers: the energy `½ ‖g(x)‖²` there and
//! back, and samples `x = mean + scale ∘ G u` there and back.

use crate::field::{Engine, ForwardOutput, LayerSums, PullBack, Residual};
use crate::model::{Model, Stack};

/// What follows the way back through a stack, in the pass of its first layer.
pub(super) struct Tail<'a, B> {
    /// Added to the gradient in `x`.
    pub residual: Option<Residual<'a, B>>,
    /// Where the gradient in `x` goes from there.
    pub pull_back: Option<PullBack<'a, B>>,
}

/// Forward and back for `½ ‖g(x)‖²` (without the biases `½ ‖G x‖²`), whose cotangent is the output
/// itself: `gx = Gᵀ g(x)`, and what `tail` makes of it. Adds `weight` times the local sums of every
/// layer's gradient to `sums` and returns the local `‖g(x)‖²`, and that of the residual.
pub(super) fn energy<E: Engine>(
    stack: &mut Stack<E>,
    engine: &mut E,
    model: &Model,
    with_bias: bool,
    (weight, sums): (f64, &mut [LayerSums]),
    mut tail: Tail<'_, E::Block>,
    [x, gx]: [&mut E::Block; 2],
) -> (f64, f64) {
    stack.forward(engine, with_bias, x);
    let last = model.layers.len() - 1;
    if last == 1 {
        stack.fit(engine, x);
    }
    let stack = stack.parts();
    let (mut squares, mut misfit) = (0.0, 0.0);
    for (l, layer) in stack.layers.iter().enumerate().rev() {
        // A cotangent takes the place of an output that is not needed any more: still in cache, or
        // at least no further block to be brought in. The first one goes to `gx`, but for two
        // layers, where the second reads it when it writes `gx`.
        let (before, rest) = stack.outputs.split_at_mut(l);
        let (output, spent) = rest.split_first_mut().expect("the output of the layer");
        let (spent, later) = match spent {
            [] => (None, None),
            [spent, later @ ..] => (Some(spent), later.first_mut()),
        };
        let spare = if last == 1 { &mut stack.between[0] } else { &mut *gx };
        let mut found = match (before.last(), spent) {
            (Some(input), None) => {
                let known = ForwardOutput::Cotangent;
                engine.adjoint_with_sums(layer, with_bias, output, input, known, spare)
            }
            (Some(input), Some(to)) => {
                let (g, known) = (later.unwrap_or(spare), ForwardOutput::Block(&*output));
                engine.adjoint_with_sums(layer, with_bias, g, input, known, to)
            }
            (None, spent) => {
                let (residual, pull_back) = (tail.residual.take(), tail.pull_back.take());
                let (g, known) = match (spent, later) {
                    (None, _) => (output, ForwardOutput::Cotangent),
                    (Some(_), Some(later)) => (later, ForwardOutput::Block(&*output)),
                    (Some(_), None) => (&mut stack.between[0], ForwardOutput::Block(&*output)),
                };
                let (found, of_residual) = engine
                    .adjoint_pull_back(layer, with_bias, g, x, known, residual, pull_back, gx);
                misfit = of_residual;
                found
            }
        };
        if l == last {
            // Σ g u with g = out and u = out − b.
            let bias = if with_bias { model.layers[l].bias } else { 0.0 };
            squares = found.alpha + bias * found.bias;
        }
        if !with_bias {
            found.bias = 0.0; // G x does not depend on b
        }
        sums[l].add(&found.times(weight));
    }
    (squares, misfit)
}

/// `x = mean + scale ∘ G u`, the last of the layers in one pass with what follows it. Keeps what
/// [`backward_affine`] needs.
pub(super) fn forward_affine<E: Engine>(
    stack: &mut Stack<E>,
    engine: &mut E,
    u: &mut E::Block,
    mean: Option<&E::Block>,
    scale: &E::Block,
    x: &mut E::Block,
) {
    let (stack, columns) = (stack.parts(), engine.columns(u));
    let last = stack.layers.len() - 1;
    for l in 0..last {
        let (before, after) = stack.outputs.split_at_mut(l);
        engine.resize(&mut after[0], columns);
        let input = before.last_mut().unwrap_or(u);
        engine.layer(&stack.layers[l], false, input, &mut after[0]);
    }
    let input = stack.outputs[..last].last_mut().unwrap_or(u);
    engine.layer_affine(&stack.layers[last], input, mean, scale, x);
}

/// The way back through [`forward_affine`] of `u = w ∘ r`, for `g` times `scale` (as [`PullBack`]
/// leaves it): the local sums of every layer's gradient, and `of_w`. The dots of the last layer's
/// output with its cotangent come from the gradient in `scale`, `of_scale = Σ_c g ∘ G u`.
pub(super) fn backward_affine<E: Engine>(
    stack: &mut Stack<E>,
    engine: &mut E,
    (scale, of_scale): (&E::Block, &E::Block),
    g: &mut E::Block,
    u: &E::Block,
    (w, of_w): (&E::Block, &mut E::Block),
    sums: &mut [LayerSums],
) {
    stack.fit(engine, g);
    let stack = stack.parts();
    let last = stack.layers.len() - 1;
    for (l, layer) in stack.layers.iter().enumerate().rev() {
        let [a, b] = &mut *stack.between;
        let (from, to) = if l % 2 == 0 { (a, b) } else { (b, a) };
        let (from, known) = if l == last {
            (&mut *g, ForwardOutput::RowDots(scale, of_scale))
        } else {
            (from, ForwardOutput::Block(&stack.outputs[l]))
        };
        sums[l] = if l == 0 {
            engine.adjoint_row_dots(layer, from, u, known, w, of_w)
        } else {
            engine.adjoint_with_sums(layer, false, from, &stack.outputs[l - 1], known, to)
        };
        sums[l].bias = 0.0; // G x does not depend on b
    }
}
