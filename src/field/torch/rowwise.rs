//! Row passes of training as tensor expressions.

use super::{Scalar, Torch};
use crate::field::Engine;
use crate::field::rowwise::{AdamStep, Draw, Moving, Rowwise};
use crate::random::Stream;
use tch::{Device, Kind, Tensor};

impl<T: Scalar + tch::kind::Element> Torch<T> {
    /// A sum on the host, added up in double precision.
    fn total(&self, values: &Tensor) -> f64 {
        values.sum(Kind::Double).double_value(&[])
    }

    fn update(&self, step: &AdamStep, gradient: &Tensor, field: &mut Moving<Tensor>) {
        let (mut value, mut first, mut second) =
            (self.owned(&field.value), self.owned(&field.first), self.owned(&field.second));
        first.copy_(&(&first * step.beta1 + gradient * (1.0 - step.beta1)));
        second.copy_(&(&second * step.beta2 + gradient * gradient * (1.0 - step.beta2)));
        value.copy_(&(&value - &first * step.rate / (second.sqrt() + step.epsilon)));
    }
}

impl<T: Scalar + tch::kind::Element> Rowwise for Torch<T> {
    fn product(&self, beta: f64, alpha: f64, a: &Tensor, b: &Tensor, y: &mut Tensor) {
        let product = self.owned(a) * self.owned(b) * alpha;
        let mut y = self.owned(y);
        y.copy_(&if beta == 0.0 { product } else { product + &y * beta });
    }

    fn residual(
        &self,
        p: f64,
        mask: &Tensor,
        target: Option<&Tensor>,
        x: &Tensor,
        g: &mut Tensor,
    ) -> f64 {
        let x = self.owned(x);
        let difference = target.map_or_else(|| x.shallow_clone(), |t| &x - self.owned(t));
        let masked = &difference * self.owned(mask);
        let mut g = self.owned(g);
        g.copy_(&(&g + &masked * p));
        self.total(&(masked * difference))
    }

    fn draw(&self, draw: Draw, stream: Stream, w: Option<&Tensor>, u: &mut Tensor) {
        match draw {
            Draw::Normal => self.fill_normal(stream, 0, u),
            Draw::Rademacher => self.fill_rademacher(stream, 0, u),
        }
        if let Some(w) = w {
            let mut u = self.owned(u);
            u.copy_(&(&u * self.owned(w)));
        }
    }

    fn locate(&self, mean: Option<&Tensor>, scale: &Tensor, t: &Tensor, x: &mut Tensor) {
        let spread = self.owned(scale) * self.owned(t);
        self.owned(x)
            .copy_(&mean.map_or_else(|| spread.shallow_clone(), |m| self.owned(m) + &spread));
    }

    fn pull(
        &self,
        scale: &Tensor,
        t: &Tensor,
        g: &mut Tensor,
        mean: &mut Tensor,
        spread: &mut Tensor,
    ) {
        let mut g = self.owned(g);
        self.owned(mean).copy_(&g.sum_dim_intlist(1i64, true, T::KIND));
        self.owned(spread).copy_(&(&g * self.owned(t)).sum_dim_intlist(1i64, true, T::KIND));
        g.copy_(&(&g * self.owned(scale)));
    }

    fn row_dots(&self, w: &Tensor, x: &Tensor, y: &Tensor, out: &mut Tensor) {
        let dots = (self.owned(x) * self.owned(y)).sum_dim_intlist(1i64, true, T::KIND);
        self.owned(out).copy_(&(dots / self.owned(w)));
    }

    fn subtract_linear(&self, f: &Tensor, a: &[f64], base: &Tensor, out: &mut Tensor) {
        let columns = self.columns(base) as i64;
        let a = Tensor::from_slice(a).view([-1, columns]).to_device(self.device);
        let linear = self.owned(f).to_kind(Kind::Double).mm(&a);
        self.owned(out).copy_(&(self.owned(base) - linear));
    }

    fn project(&self, f: &Tensor, v: &Tensor, out: &mut [f64]) {
        let f = self.owned(f).to_kind(Kind::Double);
        let sums = f.tr().mm(&self.owned(v).to_kind(Kind::Double)).view([-1]);
        sums.to_device(Device::Cpu).contiguous().copy_data(out, out.len());
    }

    fn adam(&self, step: &AdamStep, weight: f64, gradient: &Tensor, field: &mut Moving<Tensor>) {
        self.update(step, &(self.owned(gradient) * weight), field);
    }

    fn adam_positive(
        &self,
        step: &AdamStep,
        weight: f64,
        gradient: &Tensor,
        field: &mut Moving<Tensor>,
        positive: &mut Tensor,
    ) -> f64 {
        let value = self.owned(positive);
        let sum = self.total(&value.log());
        let outer = self.owned(gradient) * weight - value.reciprocal();
        self.update(step, &(outer * self.owned(&field.value).sigmoid()), field);
        self.softplus(&field.value, positive);
        sum
    }

    fn softplus(&self, a: &Tensor, positive: &mut Tensor) {
        self.owned(positive).copy_(&self.owned(a).softplus());
    }
}
