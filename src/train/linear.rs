//! The linear model in the features under variational training: `y = x + F c + ε` with
//! `q(c) = N(m, diag(s²))`, fitted together with everything else.
//!
//! What `c` adds to the ELBO is known in closed form: data are compared with `y − F m`, the
//! variance of `F c` adds `Σ_k s_k² Σ_i m_i F_ik²` to the misfit, and prior and entropy are those
//! of Gaussians.

use crate::error::{Error, Result};
use crate::field::Engine;
use crate::likelihood::{Observations, ObservedFields};
use crate::posterior::Features;
use faer::linalg::solvers::Solve;
use faer::{Mat, Side};

/// Features on an engine, and `q(c)`.
pub(super) struct Linear<E: Engine> {
    f: E::Block,
    prior_precision: f64,
    mean: Vec<f64>,
    log_std: Vec<f64>,
    /// `Σ_i m_i F_ik²` over all ranks.
    squares: Vec<f64>,
    /// The data less the linear model.
    residual: ObservedFields<E::Block>,
    scratch: [E::Block; 2],
}

impl<E: Engine> Linear<E> {
    /// Begins at the least-squares fit of the observed data.
    pub fn new(engine: &E, features: &Features, data: &Observations<E>) -> Result<Self> {
        let count = features.count;
        let mut f = engine.zeros(count);
        engine.upload(&features.values, &mut f);
        // FᵀmF, then Fᵀm y.
        let mut sums = vec![0.0; count * count + count];
        let rows = features.values.chunks_exact(count).zip(&data.y).zip(&data.observed);
        for ((f, &y), &observed) in rows {
            let m = f64::from(u8::from(observed));
            let (square, right) = sums.split_at_mut(count * count);
            for (a, fa) in f.iter().enumerate() {
                f.iter().zip(&mut square[a * count..]).for_each(|(fb, s)| *s += m * fa * fb);
                right[a] += m * fa * y;
            }
        }
        engine.world().sum(&mut sums);
        let (square, right) = sums.split_at(count * count);
        let squares: Vec<f64> = (0..count).map(|k| square[k * count + k]).collect();
        let ridge = 1e-10 * squares.iter().sum::<f64>() / count as f64 + features.prior_precision;
        let matrix = Mat::from_fn(count, count, |a, b| {
            square[a * count + b] + if a == b { ridge } else { 0.0 }
        });
        let why = || Error::Numeric("the features are not finite or all zero".into());
        let factor = matrix.llt(Side::Lower).map_err(|_| why())?;
        let solved = factor.solve(Mat::from_fn(count, 1, |a, _| right[a]));
        let block = || engine.zeros(1);
        let mut linear = Linear {
            f,
            prior_precision: features.prior_precision,
            mean: (0..count).map(|k| solved[(k, 0)]).collect(),
            log_std: squares.iter().map(|s| -0.5 * (1.0 + s).ln()).collect(),
            squares,
            residual: ObservedFields { mask: block(), y: block() },
            scratch: [block(), block()],
        };
        engine.copy_columns(&data.fields.mask, &mut linear.residual.mask, &[(0, 0)]);
        linear.residual_data(engine, &data.fields);
        Ok(linear)
    }

    /// Number of features.
    pub fn count(&self) -> usize {
        self.mean.len()
    }

    /// `y − F m`.
    pub fn target(&self) -> &E::Block {
        &self.residual.y
    }

    /// The data less the linear model as it is now.
    pub fn residual_data(
        &mut self,
        engine: &E,
        data: &ObservedFields<E::Block>,
    ) -> &ObservedFields<E::Block> {
        engine.subtract_linear(&self.f, &self.mean, &data.y, &mut self.residual.y);
        &self.residual
    }

    /// The local `Fᵀ m (ν − (y − F m))`: what the gradient in `m` needs.
    pub fn project(
        &mut self,
        engine: &E,
        data: &ObservedFields<E::Block>,
        nu: &E::Block,
        sums: &mut [f64],
    ) {
        let [difference, masked] = &mut self.scratch;
        engine.combine(&[1.0], nu, &[-1.0], &self.residual.y, &[0.0], difference);
        engine.product(0.0, 1.0, &data.mask, Some(&*difference), masked);
        engine.project(&self.f, masked, sums);
    }

    /// From the sums over all ranks: adds the variance of `F c` to the misfit, writes the gradient
    /// of minus the ELBO in `(m, log s)`, and returns what prior and entropy add to the ELBO.
    pub fn finish(
        &self,
        precision: f64,
        sums: &[f64],
        misfit: &mut f64,
        gradient: &mut [f64],
    ) -> f64 {
        let count = self.count();
        let prior = self.prior_precision;
        let mut elbo = 0.0;
        for k in 0..count {
            let (m, variance) = (self.mean[k], (2.0 * self.log_std[k]).exp());
            *misfit += variance * self.squares[k];
            gradient[k] = precision * sums[k] + prior * m;
            gradient[count + k] = variance * (precision * self.squares[k] + prior) - 1.0;
            elbo += 0.5 * prior.ln() - 0.5 * prior * (m * m + variance) + self.log_std[k] + 0.5;
        }
        elbo
    }

    /// `(m, log s)`.
    pub fn read_into(&self, vector: &mut [f64]) {
        let (mean, log_std) = vector.split_at_mut(self.count());
        mean.copy_from_slice(&self.mean);
        log_std.copy_from_slice(&self.log_std);
    }

    /// Takes over what [`Linear::read_into`] has written.
    pub fn assign(&mut self, vector: &[f64]) {
        let (mean, log_std) = vector.split_at(self.mean.len());
        self.mean.copy_from_slice(mean);
        self.log_std.copy_from_slice(log_std);
    }
}
