//! A linear model in the node features, integrated out exactly: `y = x + F c + ε`,
//! `c ~ N(0, τ² I)`.
//!
//! The joint precision of `(x, c)` given `y` is
//!
//! ```text
//! [ Q̃         σ⁻² m F             ]      with  Q̃ Z = σ⁻² m F  and the Schur complement
//! [ σ⁻² Fᵀm   σ⁻² FᵀmF + τ⁻² I    ]      S = τ⁻² I + (G Z)ᵀ(G Z) + σ⁻² (F − Z)ᵀ m (F − Z)
//! ```
//!
//! so a system with right-hand side `(b, a)` is solved by `x₀ = Q̃⁻¹ b`, `c = S⁻¹ (a − Zᵀ b)`,
//! `x = x₀ − Z c`. This form of `S` is a sum of squares: nothing cancels, and an error of `Z`
//! enters squared.

use crate::comm::World;
use crate::error::{Error, Result};
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

/// The small system of the coefficients.
pub(super) struct Coefficients {
    pub count: usize,
    /// `F − Z` of the owned rows: how a unit of a coefficient moves `x + F c`.
    pub effect: Vec<f64>,
    z: Vec<f64>,
    factor: Option<Llt<f64>>,
}

impl Coefficients {
    /// No features.
    pub fn none() -> Self {
        Coefficients { count: 0, effect: Vec::new(), z: Vec::new(), factor: None }
    }

    /// From `Z` and `G Z` of the owned rows, and `weight = σ⁻² m`.
    pub fn new(
        world: &World,
        features: &Features,
        z: Vec<f64>,
        image: &[f64],
        weight: &[f64],
    ) -> Result<Self> {
        let count = features.count;
        let effect: Vec<f64> = features.values.iter().zip(&z).map(|(f, z)| f - z).collect();
        let mut schur = vec![0.0; count * count];
        let rows = effect.chunks_exact(count).zip(image.chunks_exact(count)).zip(weight);
        for ((effect, image), weight) in rows {
            for a in 0..count {
                for b in 0..=a {
                    schur[a * count + b] += image[a] * image[b] + weight * effect[a] * effect[b];
                }
            }
        }
        world.sum(&mut schur);
        let matrix = Mat::from_fn(count, count, |a, b| {
            let prior = if a == b { features.prior_precision } else { 0.0 };
            schur[a.max(b) * count + a.min(b)] + prior
        });
        let factor = matrix.llt(Side::Lower).map_err(|_| {
            Error::Numeric(
                "the features depend on each other so much that their coefficients are not \
                 determined: leave some out, or scale them"
                    .into(),
            )
        })?;
        Ok(Coefficients { count, effect, z, factor: Some(factor) })
    }

    /// `c = S⁻¹ (a − Zᵀ b)` for every column: `b` are the owned rows `[owned, columns]`, `a` is
    /// `[count, columns]` and local (a sum over the ranks is still to be made).
    pub fn solve(&self, world: &World, mut a: Vec<f64>, b: &[f64], columns: usize) -> Vec<f64> {
        let Some(factor) = &self.factor else { return Vec::new() };
        for (z, b) in self.z.chunks_exact(self.count).zip(b.chunks_exact(columns)) {
            for (z, a) in z.iter().zip(a.chunks_exact_mut(columns)) {
                a.iter_mut().zip(b).for_each(|(a, b)| *a -= z * b);
            }
        }
        world.sum(&mut a);
        let solved = factor.solve(Mat::from_fn(self.count, columns, |f, c| a[f * columns + c]));
        (0..self.count * columns).map(|k| solved[(k / columns, k % columns)]).collect()
    }

    /// Adds `(F − Z) c` to the owned rows of `x`: `x₀` becomes `x + F c`.
    pub fn add_effect(&self, c: &[f64], x: &mut [f64], columns: usize) {
        if self.count == 0 {
            return;
        }
        for (effect, x) in self.effect.chunks_exact(self.count).zip(x.chunks_exact_mut(columns)) {
            for (e, c) in effect.iter().zip(c.chunks_exact(columns)) {
                x.iter_mut().zip(c).for_each(|(x, c)| *x += e * c);
            }
        }
    }

    /// What the coefficients add to the variance of `x + F c` at each owned row:
    /// `(F − Z) S⁻¹ (F − Z)ᵀ`.
    pub fn add_variance(&self, variance: &mut [f64]) {
        let Some(factor) = &self.factor else { return };
        let count = self.count;
        let inverse = factor.solve(Mat::<f64>::identity(count, count));
        for (effect, variance) in self.effect.chunks_exact(count).zip(variance) {
            for a in 0..count {
                for b in 0..count {
                    *variance += effect[a] * inverse[(a, b)] * effect[b];
                }
            }
        }
    }
}
