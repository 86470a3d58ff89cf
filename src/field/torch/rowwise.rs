//! Row passes of training as tensor expressions.

use super::{Layer, Scalar, Torch};
use crate::field::rowwise::{AdamStep, Draw, Moving, Pull, Residual, Rowwise};
use crate::field::{Engine, LayerSums, Output};
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

    fn layer_located(
        &mut self,
        layer: &Layer,
        h: &mut Tensor,
        mean: Option<&Tensor>,
        scale: &Tensor,
        x: &mut Tensor,
    ) {
        self.layer(layer, false, h, x);
        let t = x.shallow_clone();
        self.locate(mean, scale, &t, x);
    }

    fn adjoint_pulled(
        &mut self,
        layer: &Layer,
        with_bias: bool,
        g: &mut Tensor,
        x: &Tensor,
        output: Output<'_, Tensor>,
        residual: Option<Residual<'_, Tensor>>,
        pull: Option<Pull<'_, Tensor>>,
        gx: &mut Tensor,
    ) -> (LayerSums, f64) {
        let sums = self.adjoint_with_sums(layer, with_bias, g, x, output, gx);
        let misfit = residual.map_or(0.0, |r| self.residual(r.precision, r.mask, r.target, x, gx));
        if let Some(Pull { mean, scale, of_mean, of_scale }) = pull {
            let (mut gx, scale, x) = (self.owned(gx), self.owned(scale), self.owned(x));
            let deviation = mean.map_or_else(|| x.shallow_clone(), |mean| &x - self.owned(mean));
            let across = |block: Tensor| block.sum_dim_intlist(1i64, true, T::KIND);
            self.owned(of_mean).copy_(&across(gx.shallow_clone()));
            self.owned(of_scale).copy_(&(across(&gx * deviation) / &scale));
            gx.copy_(&(&gx * scale));
        }
        (sums, misfit)
    }

    fn adjoint_dotted(
        &mut self,
        layer: &Layer,
        g: &mut Tensor,
        u: &Tensor,
        output: Output<'_, Tensor>,
        w: &Tensor,
        of_w: &mut Tensor,
    ) -> LayerSums {
        let mut back = self.zeros(self.columns(u));
        let sums = self.adjoint_with_sums(layer, false, g, u, output, &mut back);
        let dots = (self.owned(&back) * self.owned(u)).sum_dim_intlist(1i64, true, T::KIND);
        self.owned(of_w).copy_(&(dots / self.owned(w)));
        sums
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
