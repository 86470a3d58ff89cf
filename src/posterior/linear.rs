//! The linear model in the features on an engine, for as many right-hand sides as a block has.
//!
//! `y = x + F c + ε` with `c ~ N(0, τ² I)`. Eliminating `x` from the joint precision of `(x, c)`
//! leaves the Schur complement
//!
//! ```text
//! S = τ⁻² I + (G Z)ᵀ(G Z) + (F − Z)ᵀ W (F − Z)      with  Q̃ Z = W F,
//! ```
//!
//! and a system with right-hand side `(b, a)` is solved by `x₀ = Q̃⁻¹ b`, `c = S⁻¹ (a − Zᵀ b)`,
//! `x = x₀ − Z c`. This form of `S` is a sum of squares: nothing cancels, and an error of `Z`
//! enters squared.

use super::Precision;
use crate::error::{Error, Result};
use crate::field::Engine;
use faer::linalg::solvers::{Llt, Solve};
use faer::{Mat, Side};

/// Features of the owned rows and the prior of their coefficients.
#[derive(Debug, Clone)]
pub struct Features {
    /// Number of features.
    pub count: usize,
    /// `[owned, count]`, row-major.
    pub values: Vec<f64>,
    /// `τ⁻²`, the prior precision of every coefficient.
    pub prior_precision: f64,
}

/// Features on an engine, and the blocks that eliminating them takes.
pub struct Linear<E: Engine> {
    count: usize,
    prior_precision: f64,
    /// `F`.
    f: E::Block,
    /// `Z`, `G Z`, `F − Z` and room for one more of the kind.
    z: E::Block,
    image: E::Block,
    effect: E::Block,
    weighted: E::Block,
    /// `τ⁻¹` times what is random in `a`, `[count, columns]`; the same on all ranks.
    noise: Vec<f64>,
    columns: usize,
    /// `c`, `[count, columns]`.
    coefficients: Vec<f64>,
    /// Of `S`, with `log det S` and `tr S⁻¹`.
    factor: Option<Llt<f64>>,
    log_det: f64,
    inverse_trace: f64,
    sums: Vec<f64>,
    places: Vec<(usize, usize)>,
    back: Vec<(usize, usize)>,
}

impl<E: Engine> Linear<E> {
    /// For blocks `[mean | features | samples]`; `noise(f, k)` is the standard normal number (or
    /// sign) of feature `f` in sample `k`.
    pub fn new(
        engine: &E,
        features: &Features,
        samples: usize,
        noise: impl Fn(usize, usize) -> f64,
    ) -> Self {
        let count = features.count;
        let columns = 1 + count + samples;
        let block = || engine.zeros(count);
        let mut f = block();
        engine.upload(&features.values, &mut f);
        let mut linear = Linear {
            count,
            prior_precision: features.prior_precision,
            f,
            z: block(),
            image: block(),
            effect: block(),
            weighted: block(),
            noise: Vec::new(),
            columns,
            coefficients: vec![0.0; count * columns],
            factor: None,
            log_det: 0.0,
            inverse_trace: 0.0,
            sums: vec![0.0; count * (count + columns)],
            places: (0..count).map(|k| (k, 1 + k)).collect(),
            back: (0..count).map(|k| (1 + k, k)).collect(),
        };
        linear.draw(columns, 1 + count, noise);
        linear
    }

    /// Blocks of `columns` columns from here on, samples from column `first` on.
    fn draw(&mut self, columns: usize, first: usize, noise: impl Fn(usize, usize) -> f64) {
        let (count, root) = (self.count, self.prior_precision.sqrt());
        self.columns = columns;
        self.coefficients.resize(count * columns, 0.0);
        self.sums.resize(count * (count + columns), 0.0);
        self.noise.clear();
        self.noise.resize(count * columns, 0.0);
        for (f, row) in self.noise.chunks_exact_mut(columns).enumerate() {
            row[first..].iter_mut().enumerate().for_each(|(k, v)| *v = root * noise(f, k));
        }
    }

    /// Number of features.
    pub fn count(&self) -> usize {
        self.count
    }

    /// `c`, `[count, columns]` row-major; columns as in the blocks.
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    /// `log p(c) − log p(c | y)` at the posterior mean of `c`:
    /// `−½ τ⁻² ‖c‖² + ½ n log τ⁻² − ½ log det S`.
    pub fn log_density(&self) -> f64 {
        let squares: f64 = self.coefficients.iter().step_by(self.columns).map(|c| c * c).sum();
        let count = self.count as f64;
        0.5 * (count * self.prior_precision.ln() - self.prior_precision * squares - self.log_det)
    }

    /// What coefficients add to `E Σ W (u − E u)²`: their number less what the prior determines,
    /// `n − τ⁻² tr S⁻¹`.
    pub fn known_misfit(&self) -> f64 {
        self.count as f64 - self.prior_precision * self.inverse_trace
    }

    /// Makes the columns of the features those whose solution is `Z`: `w = 0`, `v = W^½ F`.
    pub fn place(&mut self, engine: &E, precision: &Precision<E>, v: &mut E::Block) {
        precision.weigh_root(engine, &self.f, &mut self.weighted);
        engine.copy_columns(&self.weighted, v, &self.places);
    }

    /// Solves for the coefficients, given the sources `v` and right-hand sides `b`, and the
    /// solutions `x₀` of all columns; turns `x₀` into `x`, and writes `u = x + F c`. `scratch` is
    /// as wide as they are. All ranks call it.
    pub fn eliminate(
        &mut self,
        engine: &mut E,
        precision: &mut Precision<E>,
        (v, b): (&E::Block, &E::Block),
        x: &mut E::Block,
        u: &mut E::Block,
        scratch: &mut E::Block,
    ) -> Result<()> {
        let count = self.count;
        engine.copy_columns(x, &mut self.z, &self.back);
        precision.stack().apply(engine, false, &mut self.z, &mut self.image);
        let (one, minus) = (vec![1.0; count], vec![-1.0; count]);
        let zero = vec![0.0; count];
        engine.combine(&one, &self.f, &minus, &self.z, &zero, &mut self.effect);
        precision.weigh(engine, &self.effect, &mut self.weighted);

        // S, then a − Zᵀb, in one reduction.
        let (schur, _) = self.sums.split_at_mut(count * count);
        let mut part = vec![0.0; count * count];
        engine.project(&self.image, &self.image, schur);
        engine.project(&self.effect, &self.weighted, &mut part);
        schur.iter_mut().zip(&part).for_each(|(s, p)| *s += p);
        self.project_right(engine, precision, (v, b), scratch);
        engine.world().sum(&mut self.sums);

        let schur = &self.sums[..count * count];
        let matrix = Mat::from_fn(count, count, |i, j| {
            let prior = if i == j { self.prior_precision } else { 0.0 };
            0.5 * (schur[i * count + j] + schur[j * count + i]) + prior
        });
        let factor: Llt<f64> = matrix.llt(Side::Lower).map_err(|_| {
            Error::Numeric(
                "the features depend on each other so much that their coefficients are not \
                 determined: leave some out, or scale them"
                    .into(),
            )
        })?;
        self.log_det = (0..count).map(|i| 2.0 * factor.L()[(i, i)].ln()).sum();
        let inverse = factor.solve(Mat::<f64>::identity(count, count));
        self.inverse_trace = (0..count).map(|i| inverse[(i, i)]).sum();
        self.factor = Some(factor);
        self.substitute(engine, x, u, scratch);
        Ok(())
    }

    /// Solves for the coefficients of a block of further samples alone, once [`Linear::eliminate`]
    /// has seen the features.
    pub fn eliminate_more(
        &mut self,
        engine: &mut E,
        precision: &Precision<E>,
        noise: impl Fn(usize, usize) -> f64,
        (v, b): (&E::Block, &E::Block),
        x: &mut E::Block,
        [u, scratch]: [&mut E::Block; 2],
    ) {
        self.draw(engine.columns(x), 0, noise);
        self.project_right(engine, precision, (v, b), scratch);
        engine.world().sum(&mut self.sums[self.count * self.count..]);
        self.substitute(engine, x, u, scratch);
    }

    /// Local `Fᵀ W^½ v − Zᵀ b`.
    fn project_right(
        &mut self,
        engine: &E,
        precision: &Precision<E>,
        (v, b): (&E::Block, &E::Block),
        scratch: &mut E::Block,
    ) {
        let (_, right) = self.sums.split_at_mut(self.count * self.count);
        let mut part = vec![0.0; right.len()];
        precision.weigh_root(engine, v, scratch);
        engine.project(&self.f, scratch, right);
        engine.project(&self.z, b, &mut part);
        right.iter_mut().zip(&part).for_each(|(r, p)| *r -= p);
    }

    /// `c = S⁻¹ (a − Zᵀ b)` from the sums over all ranks; `x₀` becomes `x`, and `u = x + F c`.
    fn substitute(
        &mut self,
        engine: &E,
        x: &mut E::Block,
        u: &mut E::Block,
        scratch: &mut E::Block,
    ) {
        let (count, columns) = (self.count, self.columns);
        let factor = self.factor.as_ref().expect("the features have been eliminated");
        let right = &self.sums[count * count..];
        let value = |i: usize, c: usize| right[i * columns + c] + self.noise[i * columns + c];
        let solved = factor.solve(Mat::from_fn(count, columns, value));
        for (k, c) in self.coefficients.iter_mut().enumerate() {
            *c = solved[(k / columns, k % columns)];
        }
        // u = x₀ + (F − Z) c, x = x₀ − Z c.
        let opposite: Vec<f64> = self.coefficients.iter().map(|c| -c).collect();
        engine.subtract_linear(&self.effect, &opposite, x, u);
        engine.subtract_linear(&self.z, &self.coefficients, x, scratch);
        std::mem::swap(x, scratch);
    }

    /// Adds to the variances of `x` what the coefficients add to those of `x + F c`, at each owned
    /// row: `(F − Z) S⁻¹ (F − Z)ᵀ`.
    pub fn add_variance(&self, engine: &E, variance: &mut [f64]) {
        let (count, Some(factor)) = (self.count, &self.factor) else { return };
        let inverse = factor.solve(Mat::<f64>::identity(count, count));
        let effect = engine.download(&self.effect);
        for (effect, variance) in effect.chunks_exact(count).zip(variance) {
            for a in 0..count {
                for b in 0..count {
                    *variance += effect[a] * inverse[(a, b)] * effect[b];
                }
            }
        }
    }
}
