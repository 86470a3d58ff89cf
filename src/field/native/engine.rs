//! The contract of an engine ([`Engine`]), natively: each pass by the kernel made for it.

use super::{Block, CHUNK, Native, gradient, inline, kernel, krylov, stencil, tiles, vector};
use crate::comm::World;
use crate::elementary;
use crate::field::{
    Coefficients, Draw, Engine, ForwardOutput, LayerSums, Pointwise, PullBack, Recurrence,
    Residual, Scalar,
};
use crate::partition::Part;
use crate::profile::{self, Phase};
use crate::random::Stream;
use rayon::prelude::*;
use std::rc::Rc;

/// A layer made ready. Halo rows have their values too, for the transposed layer.
pub(super) type Layer<T> = crate::field::Layer<Block<T>>;

impl<T: Scalar> Engine for Native<T> {
    type Block = Block<T>;

    fn part(&self) -> &Part {
        &self.part
    }

    fn world(&self) -> &Rc<World> {
        &self.world
    }

    fn zeros(&self, columns: usize) -> Block<T> {
        Block::zeros(self.part.ids.len(), columns)
    }

    fn columns(&self, block: &Block<T>) -> usize {
        block.columns
    }

    fn resize(&self, block: &mut Block<T>, columns: usize) {
        block.columns = columns;
        block.values.resize(T::ZERO, self.part.ids.len() * columns);
    }

    fn upload(&self, values: &[f64], block: &mut Block<T>) {
        let owned = self.owned_mut(block);
        assert_eq!(values.len(), owned.len(), "one value per owned row and column");
        owned.iter_mut().zip(values).for_each(|(to, &from)| *to = T::from_f64(from));
    }

    fn download(&self, block: &Block<T>) -> Vec<f64> {
        self.owned(block).iter().map(|&v| v.to_f64()).collect()
    }

    fn fill(&self, draw: Draw, stream: Stream, first: u64, block: &mut Block<T>) {
        let (timer, columns) = (profile::start(), block.columns);
        let (ids, values) = (self.part.owned_ids(), self.owned_mut(block));
        match draw {
            Draw::Normal => vector::fill_normals(stream, first, ids, values, columns),
            Draw::Rademacher => vector::fill_signs(stream, first, ids, values, columns),
        }
        profile::stop(Phase::Random, timer, (self.part.owned * (columns * T::BYTES + 4)) as u64, 0);
    }

    fn neighbour_sums(&mut self, squared: bool, x: &mut Block<T>, out: &mut Block<T>) {
        assert_eq!(x.columns, out.columns, "blocks of one width");
        let stencil = stencil::Neighbours { squared, rows: self.part.owned };
        let out = kernel::Output::block(self.owned_mut(out));
        self.sweep(&stencil, x, out, Phase::Layer);
    }

    fn dots(&self, x: &Block<T>, y: &Block<T>, dots: &mut [f64]) {
        let timer = profile::start();
        tiles::dots(self.owned(x), self.owned(y), x.columns, dots);
        profile::stop(Phase::Vector, timer, self.bytes(x.columns, 2), 0);
    }

    fn row_sums(&self, x: &Block<T>, sums: &mut Block<T>) {
        let (timer, columns) = (profile::start(), x.columns);
        vector::row_sums(self.owned(x), columns, self.owned_mut(sums));
        profile::stop(Phase::Vector, timer, self.bytes(columns, 1), 0);
    }

    fn combine(
        &self,
        a: &[f64],
        x: &Block<T>,
        b: &[f64],
        y: &Block<T>,
        c: &[f64],
        z: &mut Block<T>,
    ) {
        let timer = profile::start();
        tiles::combine([a, b, c], self.owned(x), self.owned(y), self.owned_mut(z));
        profile::stop(Phase::Vector, timer, self.bytes(x.columns, 4), 0);
    }

    fn product(&self, beta: f64, alpha: f64, a: &Block<T>, b: Option<&Block<T>>, y: &mut Block<T>) {
        let (timer, columns) = (profile::start(), y.columns);
        self.product_rows(beta, alpha, a, b, y);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 3), 0);
    }

    fn copy_columns(&self, x: &Block<T>, y: &mut Block<T>, pairs: &[(usize, usize)]) {
        let (timer, widths) = (profile::start(), (x.columns, y.columns));
        vector::copy_columns(self.owned(x), self.owned_mut(y), widths, pairs);
        profile::stop(Phase::Vector, timer, self.bytes(pairs.len(), 2), 0);
    }

    fn pointwise<W: Pointwise<C, G>, const C: usize, const G: usize>(
        &self,
        work: &W,
        changed: [&mut Block<T>; C],
        given: [&Block<T>; G],
    ) -> f64 {
        let timer = profile::start();
        let columns = changed.first().map_or(0, |block| block.columns);
        let sum = self.pointwise_rows(work, changed, given);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 2 * C + G), 0);
        sum
    }

    fn draw(&self, draw: Draw, stream: Stream, w: Option<&Block<T>>, u: &mut Block<T>) {
        let (timer, columns) = (profile::start(), u.columns);
        self.draw_rows(draw, stream, w, u);
        profile::stop(Phase::Random, timer, self.bytes(columns, 1), 0);
    }

    fn prepare(&self, c: &Coefficients, layer: &mut Layer<T>) {
        (layer.rho, layer.bias, layer.squared) = (c.rho, c.bias, false);
        let log_alpha = c.alpha.ln();
        let chunk = |scale: &mut [T], ratio: &mut [T], log_d: &[f64], inverse_d: &[f64]| {
            vector::on_vectors(
                #[inline(always)]
                || {
                    let rows = scale.iter_mut().zip(&mut *ratio).zip(log_d).zip(inverse_d);
                    for (((scale, ratio), log_d), inverse_d) in rows {
                        let s = elementary::exp_f64(c.gamma.mul_add(*log_d, log_alpha));
                        *scale = T::from_f64(s);
                        *ratio = T::from_f64(s * inverse_d);
                    }
                },
            );
        };
        let (scale, ratio) = (&mut layer.scale.values[..], &mut layer.ratio.values[..]);
        let (log_d, inverse_d) = (&self.log_degree, &self.inverse_degree);
        if inline(scale.len()) {
            chunk(scale, ratio, log_d, inverse_d);
        } else {
            let rows = scale.par_chunks_mut(CHUNK).zip(ratio.par_chunks_mut(CHUNK));
            let rows = rows.zip(log_d.par_chunks(CHUNK)).zip(inverse_d.par_chunks(CHUNK));
            rows.for_each(|(((s, r), log_d), inverse_d)| chunk(s, r, log_d, inverse_d));
        }
    }

    fn square(&self, layer: &Layer<T>, squared: &mut Layer<T>) {
        for (to, from) in [(&mut squared.scale, &layer.scale), (&mut squared.ratio, &layer.ratio)] {
            to.values.iter_mut().zip(&*from.values).for_each(|(to, &from)| *to = from * from);
        }
        (squared.rho, squared.bias, squared.squared) = (layer.rho * layer.rho, 0.0, true);
    }

    fn random_walk(&self) -> Layer<T> {
        let (scale, mut ratio) = (self.zeros(1), self.zeros(1));
        let rows = ratio.values.iter_mut().zip(&self.inverse_degree);
        rows.for_each(|(ratio, &inverse)| *ratio = T::from_f64(inverse));
        Layer { scale, ratio, rho: 1.0, bias: 0.0, squared: false }
    }

    fn layer(&mut self, l: &Layer<T>, with_bias: bool, h: &mut Block<T>, out: &mut Block<T>) {
        assert_eq!(h.columns, out.columns, "blocks of one width");
        let stencil = stencil::Forward::new(self.own(l), if with_bias { l.bias } else { 0.0 });
        let out = kernel::Output::block(self.owned_mut(out));
        self.sweep(&stencil, h, out, Phase::Layer);
    }

    fn adjoint(&mut self, l: &Layer<T>, g: &mut Block<T>, out: &mut Block<T>) {
        assert_eq!(g.columns, out.columns, "blocks of one width");
        let stencil = stencil::Adjoint::new(self.own(l));
        let out = kernel::Output::block(self.owned_mut(out));
        self.sweep(&stencil, g, out, Phase::Adjoint);
    }

    fn adjoint_with_sums(
        &mut self,
        l: &Layer<T>,
        with_bias: bool,
        g: &mut Block<T>,
        input: &Block<T>,
        output: ForwardOutput<'_, Block<T>>,
        out: &mut Block<T>,
    ) -> LayerSums {
        assert_eq!(g.columns, out.columns, "blocks of one width");
        let out = kernel::Output::block(self.owned_mut(out));
        self.gradient(l, with_bias, g, input, output, gradient::Identity, out).layer
    }

    fn layer_affine(
        &mut self,
        l: &Layer<T>,
        h: &mut Block<T>,
        mean: Option<&Block<T>>,
        scale: &Block<T>,
        x: &mut Block<T>,
    ) {
        assert_eq!(h.columns, x.columns, "blocks of one width");
        let mut stencil = stencil::Forward::new(self.own(l), 0.0);
        stencil.affine = Some((mean.map(|mean| &mean.values[..]), &scale.values[..]));
        let out = kernel::Output::block(self.owned_mut(x));
        self.sweep(&stencil, h, out, Phase::Layer);
    }

    fn adjoint_pull_back(
        &mut self,
        l: &Layer<T>,
        with_bias: bool,
        g: &mut Block<T>,
        x: &Block<T>,
        output: ForwardOutput<'_, Block<T>>,
        residual: Option<Residual<'_, Block<T>>>,
        pull_back: Option<PullBack<'_, Block<T>>>,
        gx: &mut Block<T>,
    ) -> (LayerSums, f64) {
        assert_eq!(g.columns, gx.columns, "blocks of one width");
        let residual = residual.map(|r| gradient::Residual {
            precision: T::from_f64(r.precision),
            mask: &r.mask.values[..],
            target: r.target.map(|target| &target.values[..]),
        });
        let mut out = kernel::Output::block(self.owned_mut(gx));
        let mut epilogue = gradient::PullBack { residual, through: None };
        if let Some(PullBack { mean, scale, of_mean, of_scale }) = pull_back {
            epilogue.through = Some((mean.map(|mean| &mean.values[..]), &scale.values));
            out.fields = [self.owned_mut(of_mean), self.owned_mut(of_scale)];
        }
        let total = self.gradient(l, with_bias, g, x, output, epilogue, out);
        (total.layer, total.misfit)
    }

    fn adjoint_row_dots(
        &mut self,
        l: &Layer<T>,
        g: &mut Block<T>,
        u: &Block<T>,
        output: ForwardOutput<'_, Block<T>>,
        w: &Block<T>,
        of_w: &mut Block<T>,
    ) -> LayerSums {
        let fields = [self.owned_mut(of_w), &mut []];
        let out = kernel::Output { block: &mut [], fields };
        self.gradient(l, false, g, u, output, gradient::RowDots(&w.values), out).layer
    }

    fn axpy(&self, a: &[f64], x: &Block<T>, y: &mut Block<T>) {
        let (timer, columns) = (profile::start(), x.columns);
        tiles::zip_columns(a, self.owned(x), self.owned_mut(y), |a, x, y| y + a * x);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 3), 0);
    }

    fn aypx(&self, a: &[f64], x: &Block<T>, y: &mut Block<T>) {
        let (timer, columns) = (profile::start(), x.columns);
        tiles::zip_columns(a, self.owned(x), self.owned_mut(y), |a, x, y| x + a * y);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 3), 0);
    }

    fn scale_rows(&self, w: &Block<T>, x: &Block<T>, y: &mut Block<T>) {
        let (timer, columns, w) = (profile::start(), x.columns, self.owned(w));
        vector::zip_rows(w, self.owned(x), self.owned_mut(y), columns, |w, x, _| w * x);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 2), 0);
    }

    fn add_scaled_rows(&self, w: &Block<T>, x: &Block<T>, y: &mut Block<T>) {
        let (timer, columns, w) = (profile::start(), x.columns, self.owned(w));
        vector::zip_rows(w, self.owned(x), self.owned_mut(y), columns, |w, x, y| y + w * x);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 3), 0);
    }

    fn affine(&self, mean: Option<&Block<T>>, scale: &Block<T>, t: &Block<T>, x: &mut Block<T>) {
        let (timer, columns) = (profile::start(), t.columns);
        self.affine_rows(mean, scale, t, x);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 2), 0);
    }

    fn residual(&self, r: &Residual<'_, Block<T>>, x: &Block<T>, g: &mut Block<T>) -> f64 {
        let (timer, columns) = (profile::start(), x.columns);
        let misfit = self.residual_rows(r, x, g);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 3), 0);
        misfit
    }

    fn subtract_linear(&self, f: &Block<T>, a: &[f64], base: &Block<T>, out: &mut Block<T>) {
        let (timer, columns) = (profile::start(), 2 * base.columns + f.columns);
        self.subtract_linear_rows(f, a, base, out);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 1), 0);
    }

    fn project(&self, f: &Block<T>, v: &Block<T>, out: &mut [f64]) {
        let (timer, columns) = (profile::start(), v.columns + f.columns);
        self.project_rows(f, v, out);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 1), 0);
    }

    fn step_dots(&self, w: &Block<T>, p: &Block<T>, s: &Block<T>, r: &Block<T>, dots: &mut [f64]) {
        let (timer, columns, w) = (profile::start(), p.columns, self.owned(w));
        tiles::step_dots(w, [p, s, r].map(|block| self.owned(block)), columns, dots);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 3), 0);
    }

    fn step(
        &self,
        (alpha, beta): (&[f64], &[f64]),
        w: &Block<T>,
        s: &Block<T>,
        p: &mut Block<T>,
        x: &mut Block<T>,
        r: &mut Block<T>,
    ) {
        let (timer, columns, w) = (profile::start(), s.columns, self.owned(w));
        let changed = [p, x, r].map(|block| self.owned_mut(block));
        tiles::step(alpha, beta, w, self.owned(s), changed);
        profile::stop(Phase::Vector, timer, self.bytes(columns, 7), 0);
    }

    fn krylov(
        &mut self,
        recurrence: Option<Recurrence<'_>>,
        x: &mut Block<T>,
        z: &mut Block<T>,
        sums: &mut [f64],
    ) {
        krylov::step(self, recurrence, x, z, sums);
    }
}

impl<T: Scalar> Native<T> {
    /// The layer, if it is one of this graph.
    ///
    /// # Panics
    /// If it was prepared for a graph with another number of nodes (a bug of the caller).
    fn own<'l>(&self, layer: &'l Layer<T>) -> &'l Layer<T> {
        let rows = self.part.ids.len();
        let fits = layer.scale.values.len() == rows && layer.ratio.values.len() == rows;
        assert!(fits, "the layer was prepared for another graph");
        layer
    }

    /// A transposed layer with the sums of its gradient, and what becomes of the result.
    #[allow(clippy::too_many_arguments)] // what the trait asks for in three forms
    fn gradient<F: gradient::Epilogue<T>>(
        &mut self,
        l: &Layer<T>,
        with_bias: bool,
        g: &mut Block<T>,
        input: &Block<T>,
        output: ForwardOutput<'_, Block<T>>,
        epilogue: F,
        out: kernel::Output<T>,
    ) -> stencil::Totals {
        assert_eq!(input.columns, g.columns, "blocks of one width");
        match output {
            ForwardOutput::Cotangent => {
                self.gradient_of(l, with_bias, g, input, gradient::Cotangent, epilogue, out)
            }
            ForwardOutput::Block(block) => {
                assert_eq!(block.columns, g.columns, "blocks of one width");
                let known = gradient::Values(&block.values);
                self.gradient_of(l, with_bias, g, input, known, epilogue, out)
            }
            ForwardOutput::RowDots(a, b) => {
                let known = gradient::Dots(&a.values, &b.values);
                self.gradient_of(l, with_bias, g, input, known, epilogue, out)
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // as above
    fn gradient_of<K: gradient::Forward<T>, F: gradient::Epilogue<T>>(
        &mut self,
        l: &Layer<T>,
        with_bias: bool,
        g: &mut Block<T>,
        input: &Block<T>,
        forward: K,
        epilogue: F,
        out: kernel::Output<T>,
    ) -> stencil::Totals {
        let log_degree = std::mem::take(&mut self.log_degree);
        let stencil = gradient::Gradient {
            adjoint: stencil::Adjoint::new(self.own(l)),
            bias: T::from_f64(if with_bias { l.bias } else { 0.0 }),
            log_degree: &log_degree,
            input: &input.values,
            forward,
            epilogue,
        };
        let total = self.sweep(&stencil, g, out, Phase::Gradient);
        self.log_degree = log_degree;
        total
    }
}
