//! The layers of a model on an engine: `g(x)`, `G x`, `Gᵀ z`, and gradients.

use super::Model;
use crate::field::{Engine, ForwardOutput, Layer, LayerSums};

/// A model made ready for an engine, with the blocks between its layers.
///
/// [`Stack::forward`] keeps every layer's output for [`Stack::backward`]; the linear products
/// [`Stack::apply`] and [`Stack::transpose`] keep nothing. Blocks of any width may pass; those of
/// the stack follow the width of the last one.
pub struct Stack<E: Engine> {
    layers: Vec<Layer<E::Block>>,
    /// Outputs of the layers, kept by `forward`.
    outputs: Vec<E::Block>,
    /// Two blocks that products pass through in turn.
    between: [E::Block; 2],
}

/// The layers of a stack, and its blocks.
pub(crate) struct Parts<'a, E: Engine> {
    /// The layers.
    pub layers: &'a [Layer<E::Block>],
    /// Outputs of the layers, those of the last [`Stack::forward`].
    pub outputs: &'a mut [E::Block],
    /// Two blocks, as wide as the last [`Stack::fit`] has made them.
    pub between: &'a mut [E::Block; 2],
}

impl<E: Engine> Stack<E> {
    /// For `layers` layers and blocks of `columns` columns.
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
    pub fn layer(&self, l: usize) -> &Layer<E::Block> {
        &self.layers[l]
    }

    /// Makes the blocks that products pass through as wide as `block`.
    pub(crate) fn fit(&mut self, engine: &E, block: &E::Block) {
        let columns = engine.columns(block);
        if engine.columns(&self.between[0]) != columns {
            self.between.iter_mut().for_each(|between| engine.resize(between, columns));
        }
    }

    /// What passes work with that fuse the layers with what comes before or after them.
    pub(crate) fn parts(&mut self) -> Parts<'_, E> {
        Parts { layers: &self.layers, outputs: &mut self.outputs, between: &mut self.between }
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
                ForwardOutput::Block(&self.outputs[l]),
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
