//! Node fields that training moves: by Adam, some of them kept positive by a softplus.

use super::adam::AdamStep;
use crate::field::{Arithmetic, Engine, Pointwise};

/// A node field that Adam moves, with the moments of its gradient.
pub struct Moving<B> {
    /// The parameters.
    pub value: B,
    /// First moment.
    pub first: B,
    /// Second moment.
    pub second: B,
}

impl<B> Moving<B> {
    /// A field with these values at the owned rows, and no moments yet.
    pub fn new<E: Engine<Block = B>>(engine: &E, start: &[f64]) -> Self {
        let value = engine.node_field(start);
        Moving { value, first: engine.zeros(1), second: engine.zeros(1) }
    }

    /// A step of Adam for the gradient `weight * gradient`.
    pub fn update<E: Engine<Block = B>>(
        &mut self,
        engine: &E,
        step: &AdamStep,
        weight: f64,
        gradient: &B,
    ) {
        let Moving { value, first, second } = self;
        let work = Plain { step: *step, weight };
        engine.pointwise(&work, [value, first, second], [gradient]);
    }

    /// A step of Adam on the raw values of a positive field `ξ = softplus(a)`, for the objective
    /// whose derivative in `ξ` is `weight * gradient − 1/ξ` (the second term is that of the
    /// entropy); writes the new `ξ`. Returns the local `Σ log ξ` of the old one.
    pub fn update_positive<E: Engine<Block = B>>(
        &mut self,
        engine: &E,
        step: &AdamStep,
        weight: f64,
        gradient: &B,
        positive: &mut B,
    ) -> f64 {
        let Moving { value, first, second } = self;
        let work = Positive { step: *step, weight };
        engine.pointwise(&work, [value, first, second, positive], [gradient])
    }
}

/// Writes the positive field `ξ` of raw values `a`.
pub fn to_positive<E: Engine>(engine: &E, a: &E::Block, positive: &mut E::Block) {
    engine.pointwise(&ToPositive, [positive], [a]);
}

/// `softplus(a) = log(1 + exp a)`, accurate for all `a`.
#[inline(always)]
fn softplus<V: Arithmetic>(a: V) -> V {
    let above = a.copy().positive_part();
    let minus_size = a - above.copy() - above.copy(); // −|a|
    above + minus_size.exp().ln_1p()
}

/// `ξ = softplus(a)`.
#[derive(Clone, Copy)]
struct ToPositive;

impl Pointwise<1, 1> for ToPositive {
    #[inline(always)]
    fn apply<V: Arithmetic>(&self, _: [V; 1], [a]: [V; 1]) -> [V; 1] {
        [softplus(a)]
    }
}

/// Adam on `[p, m, v]`.
#[derive(Clone, Copy)]
struct Plain {
    step: AdamStep,
    weight: f64,
}

impl Pointwise<3, 1> for Plain {
    #[inline(always)]
    fn apply<V: Arithmetic>(&self, moving: [V; 3], [g]: [V; 1]) -> [V; 3] {
        self.step.apply(g.number(self.weight) * g, moving)
    }
}

/// Adam on `[p, m, v, ξ]` with `ξ = softplus(p)`.
#[derive(Clone, Copy)]
struct Positive {
    step: AdamStep,
    weight: f64,
}

impl Pointwise<4, 1> for Positive {
    #[inline(always)]
    fn apply<V: Arithmetic>(&self, [p, m, v, xi]: [V; 4], [g]: [V; 1]) -> [V; 4] {
        let one = || g.number(1.0);
        // The derivative of softplus is the sigmoid.
        let sigmoid = one() / (one() + (g.number(0.0) - p.copy()).exp());
        let g = (g.number(self.weight) * g.copy() - one() / xi) * sigmoid;
        let [p, m, v] = self.step.apply(g, [p, m, v]);
        let xi = softplus(p.copy());
        [p, m, v, xi]
    }

    #[inline(always)]
    fn summand<V: Arithmetic>(&self, [_, _, _, xi]: &[V; 4], _: &[V; 1]) -> Option<V> {
        Some(xi.copy().ln())
    }
}
