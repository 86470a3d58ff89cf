//! The linear model in the features on an engine, for as many right-hand sides as a block has.
//!
//! `y = x + F c + ε` with `c ~ N(0, τ² I)`. Eliminating `x` from the joint precision of `(x, c)` leaves
//! the Schur complement
//!
//! ```text
//! S = τ⁻² I + (G Z)ᵀ(G Z) + σ⁻² (F − Z)ᵀ m (F − Z)      with  Q̃ Z = σ⁻² m F,
//! ```
//!
//! and a system with right-hand side `(b, a)` is solved by `x₀ = Q̃⁻¹ b`, `c = S⁻¹ (a − Zᵀ b)`,
//! `x = x₀ − Z c`. This form of `S` is a sum of squares: nothing cancels, and an error of `Z` enters
//! squared.

use super::{Features, Precision};
use crate::error::{Error, Result};
use crate::field::rowwise::Rowwise;
use faer::linalg::solvers::{Llt, Solve};
use faer::{Mat, Side};

/// Features on an engine, and the blocks that eliminating them takes.
pub struct Linear<E: Rowwise> {
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
    /// `log det S` and `tr S⁻¹`.
    log_det: f64,
    inverse_trace: f64,
    sums: Vec<f64>,
    places: Vec<(usize, usize)>,
    back: Vec<(usize, usize)>,
}

impl<E: Rowwise> Linear<E> {
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
        let root = features.prior_precision.sqrt();
        let mut drawn = vec![0.0; count * columns];
        for (f, row) in drawn.chunks_exact_mut(columns).enumerate() {
            row[1 + count..].iter_mut().enumerate().for_each(|(k, v)| *v = root * noise(f, k));
        }
        Linear {
            count,
            prior_precision: features.prior_precision,
            f,
            z: block(),
            image: block(),
            effect: block(),
            weighted: block(),
            noise: drawn,
            columns,
            coefficients: vec![0.0; count * columns],
            log_det: 0.0,
            inverse_trace: 0.0,
            sums: vec![0.0; count * (count + columns)],
            places: (0..count).map(|k| (k, 1 + k)).collect(),
            back: (0..count).map(|k| (1 + k, k)).collect(),
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

    /// What coefficients add to `σ⁻² E Σ m (u − E u)²`: their number less what the prior determines,
    /// `n − τ⁻² tr S⁻¹`.
    pub fn known_misfit(&self) -> f64 {
        self.count as f64 - self.prior_precision * self.inverse_trace
    }

    /// Makes the columns of the features those whose solution is `Z`: `w = 0`, `v = F/σ`.
    pub fn place(&mut self, engine: &E, sigma: f64, v: &mut E::Block) {
        let (a, zero) = (vec![1.0 / sigma; self.count], vec![0.0; self.count]);
        engine.combine(&a, &self.f, &zero, &self.f, &zero, &mut self.weighted);
        engine.copy_columns(&self.weighted, v, &self.places);
    }

    /// Solves for the coefficients, given the sources `v` and right-hand sides `b`, and the
    /// solutions `x₀` of all columns; turns `x₀` into `x`, and writes `u = x + F c`. `scratch` is as wide as they are.
    /// All ranks call it.
    pub fn eliminate(
        &mut self,
        engine: &mut E,
        precision: &mut Precision<E>,
        (v, b): (&E::Block, &E::Block),
        x: &mut E::Block,
        u: &mut E::Block,
        scratch: &mut E::Block,
    ) -> Result<()> {
        let (count, columns) = (self.count, self.columns);
        engine.copy_columns(x, &mut self.z, &self.back);
        precision.stack().apply(engine, false, &mut self.z, &mut self.image);
        let (one, minus) = (vec![1.0; count], vec![-1.0; count]);
        let zero = vec![0.0; count];
        engine.combine(&one, &self.f, &minus, &self.z, &zero, &mut self.effect);
        precision.weigh(engine, &self.effect, &mut self.weighted);

        // S, then a − Zᵀb, in one reduction.
        let (schur, right) = self.sums.split_at_mut(count * count);
        let mut part = vec![0.0; count * count.max(columns)];
        engine.project(&self.image, &self.image, schur);
        engine.project(&self.effect, &self.weighted, &mut part[..count * count]);
        schur.iter_mut().zip(&part).for_each(|(s, p)| *s += p);
        precision.weigh_root(engine, v, scratch);
        engine.project(&self.f, scratch, right);
        let part = &mut part[..count * columns];
        engine.project(&self.z, b, part);
        right.iter_mut().zip(&*part).for_each(|(r, p)| *r -= p);
        engine.world().sum(&mut self.sums);

        let (schur, right) = self.sums.split_at(count * count);
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
        Ok(())
    }
}
