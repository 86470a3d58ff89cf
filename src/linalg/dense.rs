//! Dense symmetric positive definite matrices of a few thousand rows.

use faer::{Mat, Par, Side};
use rayon::prelude::*;

/// The inverse of a Cholesky factor, `L⁻¹` with `M = L Lᵀ`: solutions and the diagonal of the
/// inverse are read off it.
pub struct InverseFactor(Mat<f64>);

impl InverseFactor {
    /// Factorises `M` (of which the lower half is read) and inverts the factor; nothing where `M`
    /// is not positive definite in double precision. `2/3 N³` operations.
    pub fn new(matrix: Mat<f64>) -> Option<Self> {
        let factor = matrix.llt(Side::Lower).ok()?;
        drop(matrix);
        let n = factor.L().nrows();
        let mut inverse = Mat::<f64>::zeros(n, n);
        faer::linalg::triangular_inverse::invert_lower_triangular(
            inverse.as_mut(),
            factor.L(),
            Par::rayon(0),
        );
        Some(InverseFactor(inverse))
    }

    /// `(M⁻¹)_jj = Σ_i (L⁻¹)_ij²`.
    pub fn inverse_diagonal(&self) -> Vec<f64> {
        let square = |j: usize| self.column(j).map(|l| l * l).sum();
        (0..self.0.ncols()).into_par_iter().map(square).collect()
    }

    /// `M⁻¹ h = L⁻ᵀ (L⁻¹ h)`.
    pub fn solve(&self, h: &[f64]) -> Vec<f64> {
        let n = self.0.ncols();
        let mut white = vec![0.0; n];
        for (j, h) in h.iter().enumerate() {
            self.column(j).zip(&mut white[j..]).for_each(|(l, w)| *w += l * h);
        }
        let row = |j: usize| self.column(j).zip(&white[j..]).map(|(l, w)| l * w).sum();
        (0..n).into_par_iter().map(row).collect()
    }

    /// Column `j` of `L⁻¹`, from the diagonal down.
    fn column(&self, j: usize) -> impl Iterator<Item = &f64> {
        self.0.col(j).try_as_col_major().into_iter().flat_map(move |c| &c.as_slice()[j..])
    }
}
