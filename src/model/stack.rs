//! The layers of a model on an engine: `g(x)`, `G x`, `Gᵀ z`, and gradients.

use super::Model;
use crate::field::{Engine, LayerSums};

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
                Some(&self.outputs[l]),
                to,
            );
            if !with_bias {
                sums[l].bias = 0.0; // G x does not depend on b
            }
        }
    }

    /// Forward and back for `½ ‖g(x)‖²` (without the biases `½ ‖G x‖²`), whose cotangent is the
    /// output itself: `gx = Gᵀ g(x)`. Adds `weight` times the local sums of every layer's gradient
    /// to `sums` and returns the local `‖g(x)‖²`.
    pub fn energy(
        &mut self,
        engine: &mut E,
        model: &Model,
        with_bias: bool,
        (weight, sums): (f64, &mut [LayerSums]),
        x: &mut E::Block,
        gx: &mut E::Block,
    ) -> f64 {
        self.forward(engine, with_bias, x);
        let last = self.layers.len() - 1;
        let mut squares = 0.0;
        for l in (0..=last).rev() {
            let (before, after) = self.outputs.split_at_mut(l);
            let (input, output) = (before.last().unwrap_or(x), &mut after[0]);
            let [a, b] = &mut self.between;
            let (from, to) = if l % 2 == 0 { (a, b) } else { (b, a) };
            let to = if l == 0 { &mut *gx } else { to };
            let layer = &self.layers[l];
            let mut found = match l == last {
                true => engine.adjoint_with_sums(layer, with_bias, output, input, None, to),
                false => engine.adjoint_with_sums(layer, with_bias, from, input, Some(output), to),
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
        squares
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
