//! The layers of a model on an engine: `g(x)`, `G x`, `Gᵀ z`, and gradients.

use super::Model;
use crate::field::rowwise::{Pull, Residual, Rowwise};
use crate::field::{Engine, LayerSums, Output};

/// A model made ready for an engine, with room for the blocks between its layers.
///
/// [`Stack::forward`] keeps every layer's output for [`Stack::backward`]; the linear products
/// [`Stack::apply`] and [`Stack::transpose`] keep nothing. Blocks of any width may pass; the room
/// follows the width of the last one.
pub struct Stack<E: Engine> {
    layers: Vec<E::Layer>,
    /// Outputs of the layers, kept by `forward`.
    outputs: Vec<E::Block>,
    /// Two blocks that products pass through in turn.
    between: [E::Block; 2],
}

impl<E: Engine> Stack<E> {
    /// Room for `layers` layers and blocks of `columns` columns.
    pub fn new(engine: &E, layers: usize, columns: usize) -> Self {
        assert!(layers > 0, "a model has at least one layer");
        Stack {
            layers: (0..layers).map(|_| engine.new_layer()).collect(),
            outputs: (0..layers).map(|_| engine.zeros(0)).collect(), // not all need them
            between: [engine.zeros(columns), engine.zeros(columns)],
        }
    }

    /// Takes over the parameters of the model.
    pub fn prepare(&mut self, engine: &E, model: &Model) {
        assert_eq!(self.layers.len(), model.layers.len(), "layers of the model");
        for (l, layer) in self.layers.iter_mut().enumerate() {
            engine.prepare(&model.coefficients(l), layer);
        }
    }

    /// The output of the last [`Stack::forward`].
    pub fn output(&self) -> &E::Block {
        self.outputs.last().expect("at least one layer")
    }

    /// A layer as the engine has it.
    pub fn layer(&self, l: usize) -> &E::Layer {
        &self.layers[l]
    }

    /// Room for blocks as wide as `block`.
    fn fit(&mut self, engine: &E, block: &E::Block) {
        let columns = engine.columns(block);
        if engine.columns(&self.between[0]) != columns {
            self.between.iter_mut().for_each(|between| engine.resize(between, columns));
        }
    }

    /// `z = g(x)` with the biases, `G x` without; keeps what [`Stack::backward`] needs.
    pub fn forward(&mut self, engine: &mut E, with_bias: bool, x: &mut E::Block) -> &mut E::Block {
        let columns = engine.columns(x);
        if engine.columns(&self.outputs[0]) != columns {
            self.outputs.iter_mut().for_each(|output| engine.resize(output, columns));
        }
        for (l, layer) in self.layers.iter().enumerate() {
            let (before, after) = self.outputs.split_at_mut(l);
            let input = before.last_mut().unwrap_or(x);
            engine.layer(layer, with_bias, input, &mut after[0]);
        }
        self.outputs.last_mut().expect("at least one layer")
    }

    /// Back-propagation of a cotangent `g` of the output of the last [`Stack::forward`] of `x`:
    /// `gx = Gᵀ g`, and the local sums of every layer's gradient (layer 1 first) into `sums`.
    pub fn backward(
        &mut self,
        engine: &mut E,
        with_bias: bool,
        x: &E::Block,
        g: &mut E::Block,
        gx: &mut E::Block,
        sums: &mut [LayerSums],
    ) {
        self.fit(engine, g);
        let last = self.layers.len() - 1;
        for l in (0..=last).rev() {
            let input = if l == 0 { x } else { &self.outputs[l - 1] };
            let [a, b] = &mut self.between;
            // Cotangents alternate between the two blocks: layer l reads the one l + 1 wrote.
            let (from, to) = if l % 2 == 0 { (a, b) } else { (b, a) };
            let from = if l == last { &mut *g } else { from };
            let to = if l == 0 { &mut *gx } else { to };
            sums[l] = engine.adjoint_with_sums(
                &self.layers[l],
                with_bias,
                from,
                input,
                Output::Block(&self.outputs[l]),
                to,
            );
            if !with_bias {
                sums[l].bias = 0.0; // G x does not depend on b
            }
        }
    }

    /// `out = G x` (or `g(x)` with the biases), keeping nothing.
    pub fn apply(&mut self, engine: &mut E, with_bias: bool, x: &mut E::Block, out: &mut E::Block) {
        self.fit(engine, x);
        let last = self.layers.len() - 1;
        for (l, layer) in self.layers.iter().enumerate() {
            let [a, b] = &mut self.between;
            let (from, to) = if l % 2 == 0 { (a, b) } else { (b, a) };
            let from = if l == 0 { &mut *x } else { from };
            let to = if l == last { &mut *out } else { to };
            engine.layer(layer, with_bias, from, to);
        }
    }

    /// `out = Gᵀ z`.
    pub fn transpose(&mut self, engine: &mut E, z: &mut E::Block, out: &mut E::Block) {
        self.fit(engine, z);
        let last = self.layers.len() - 1;
        for (l, layer) in self.layers.iter().enumerate().rev() {
            let [a, b] = &mut self.between;
            let (from, to) = if l % 2 == 0 { (a, b) } else { (b, a) };
            let from = if l == last { &mut *z } else { from };
            let to = if l == 0 { &mut *out } else { to };
            engine.adjoint(layer, from, to);
        }
    }
}

/// What follows the way back through a stack, in the pass of its first layer.
pub struct After<'a, B> {
    /// Added to the gradient in `x`.
    pub residual: Option<Residual<'a, B>>,
    /// Where it goes from there.
    pub pull: Option<Pull<'a, B>>,
}

/// What training asks of a stack: passes over blocks that are fused with those of its layers.
impl<E: Rowwise> Stack<E> {
    /// Forward and back for `½ ‖g(x)‖²` (without the biases `½ ‖G x‖²`), whose cotangent is the
    /// output itself: `gx = Gᵀ g(x)`, and what `after` makes of it. Adds `weight` times the local sums of
    /// every layer's gradient to `sums` and returns the local `‖g(x)‖²`, and that of the residual.
    pub fn energy(
        &mut self,
        engine: &mut E,
        model: &Model,
        with_bias: bool,
        (weight, sums): (f64, &mut [LayerSums]),
        mut after: After<'_, E::Block>,
        [x, gx]: [&mut E::Block; 2],
    ) -> (f64, f64) {
        self.forward(engine, with_bias, x);
        let last = self.layers.len() - 1;
        if last == 1 {
            self.fit(engine, x);
        }
        let (mut squares, mut misfit) = (0.0, 0.0);
        for (l, layer) in self.layers.iter().enumerate().rev() {
            // A cotangent takes the place of an output that nobody needs any more: still in cache, or
            // at least no further block to be brought in. The first one goes to `gx`, but for two
            // layers, where the second reads it when it writes `gx`.
            let (before, rest) = self.outputs.split_at_mut(l);
            let (output, spent) = rest.split_first_mut().expect("the output of the layer");
            let (spent, later) = match spent {
                [] => (None, None),
                [spent, later @ ..] => (Some(spent), later.first_mut()),
            };
            let spare = if last == 1 { &mut self.between[0] } else { &mut *gx };
            let mut found = match (before.last(), spent) {
                (Some(input), None) => engine.adjoint_with_sums(
                    layer,
                    with_bias,
                    output,
                    input,
                    Output::Cotangent,
                    spare,
                ),
                (Some(input), Some(to)) => {
                    let g = later.unwrap_or(spare);
                    engine.adjoint_with_sums(layer, with_bias, g, input, Output::Block(output), to)
                }
                (None, spent) => {
                    let (residual, pull) = (after.residual.take(), after.pull.take());
                    let (g, output) = match (spent, later) {
                        (None, _) => (output, Output::Cotangent),
                        (Some(_), Some(later)) => (later, Output::Block(&*output)),
                        (Some(_), None) => (&mut self.between[0], Output::Block(&*output)),
                    };
                    let (found, of_residual) =
                        engine.adjoint_pulled(layer, with_bias, g, x, output, residual, pull, gx);
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
    /// [`Stack::backward_located`] needs.
    pub fn forward_located(
        &mut self,
        engine: &mut E,
        u: &mut E::Block,
        mean: Option<&E::Block>,
        scale: &E::Block,
        x: &mut E::Block,
    ) {
        let columns = engine.columns(u);
        let last = self.layers.len() - 1;
        for l in 0..last {
            let (before, after) = self.outputs.split_at_mut(l);
            engine.resize(&mut after[0], columns);
            engine.layer(&self.layers[l], false, before.last_mut().unwrap_or(u), &mut after[0]);
        }
        let input = self.outputs[..last].last_mut().unwrap_or(u);
        engine.layer_located(&self.layers[last], input, mean, scale, x);
    }

    /// The way back through [`Stack::forward_located`] of `u = w ∘ r`, for `g` times `scale` (as
    /// [`Pull`] leaves it): the local sums of every layer's gradient, and `of_w`. What the output of the last
    /// layer has to say comes from the gradient in `scale`, `of_scale = Σ_c g ∘ G u`.
    pub fn backward_located(
        &mut self,
        engine: &mut E,
        (scale, of_scale): (&E::Block, &E::Block),
        g: &mut E::Block,
        u: &E::Block,
        (w, of_w): (&E::Block, &mut E::Block),
        sums: &mut [LayerSums],
    ) {
        self.fit(engine, g);
        let last = self.layers.len() - 1;
        for l in (0..=last).rev() {
            let [a, b] = &mut self.between;
            let (from, to) = if l % 2 == 0 { (a, b) } else { (b, a) };
            let (from, output) = match l == last {
                true => (&mut *g, Output::Dots(scale, of_scale)),
                false => (from, Output::Block(&self.outputs[l])),
            };
            let layer = &self.layers[l];
            sums[l] = match l {
                0 => engine.adjoint_dotted(layer, from, u, output, w, of_w),
                _ => {
                    let input = &self.outputs[l - 1];
                    engine.adjoint_with_sums(layer, false, from, input, output, to)
                }
            };
            sums[l].bias = 0.0; // G x does not depend on b
        }
    }
}
