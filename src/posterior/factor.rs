//! Sparse Cholesky factors (faer's), and what is read off them.

use crate::error::{Error, Result};
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::sparse::linalg::SupernodalThreshold;
use faer::sparse::linalg::cholesky::{
    CholeskySymbolicParams, LltRef, SymbolicCholesky, SymbolicCholeskyRaw, SymmetricOrdering,
    factorize_symbolic_cholesky,
};
use faer::sparse::{SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Conj, MatMut, Par, Side};

/// The lower half of a sparse symmetric matrix, column by column, rows ascending.
#[derive(Debug, Default)]
pub struct Lower {
    /// Where columns begin and end.
    pub ends: Vec<usize>,
    /// Rows, each at least its column.
    pub rows: Vec<usize>,
    /// Values.
    pub values: Vec<f64>,
}

impl Lower {
    fn size(&self) -> usize {
        self.ends.len() - 1
    }
}

/// `P M Pᵀ = L Lᵀ` with a fill-reducing permutation.
pub struct Factor {
    symbolic: SymbolicCholesky<usize>,
    values: Vec<f64>,
}

/// Where the entries of a factor will be, before any are computed.
pub struct Pattern {
    symbolic: SymbolicCholesky<usize>,
}

impl Pattern {
    /// Analyses the matrix, for a factor whose entries are to be read.
    pub fn new(matrix: &Lower) -> Result<Self> {
        Self::analyse(matrix, SupernodalThreshold::FORCE_SIMPLICIAL)
    }

    /// Analyses the matrix, for a factor to solve with: dense panels where that pays.
    pub fn to_solve(matrix: &Lower) -> Result<Self> {
        Self::analyse(matrix, SupernodalThreshold::AUTO)
    }

    fn analyse(matrix: &Lower, threshold: SupernodalThreshold) -> Result<Self> {
        let n = matrix.size();
        let pattern = SymbolicSparseColMatRef::new_checked(n, n, &matrix.ends, None, &matrix.rows);
        let params = CholeskySymbolicParams {
            supernodal_flop_ratio_threshold: threshold,
            ..Default::default()
        };
        factorize_symbolic_cholesky(pattern, Side::Lower, SymmetricOrdering::Amd, params)
            .map(|symbolic| Pattern { symbolic })
            .map_err(|e| Error::Numeric(format!("sparse Cholesky factorisation: {e}")))
    }

    /// Entries of the factor.
    pub fn entries(&self) -> usize {
        self.symbolic.len_val()
    }

    /// Computes the factor of a matrix of this pattern.
    pub fn factorise(self, matrix: &Lower) -> Result<Factor> {
        let mut factor = Factor { symbolic: self.symbolic, values: Vec::new() };
        factor.update(matrix)?;
        Ok(factor)
    }
}

impl Factor {
    /// Becomes the factor of another matrix of the same pattern, or stays as it is.
    pub fn update(&mut self, matrix: &Lower) -> Result<()> {
        let n = matrix.size();
        let pattern = SymbolicSparseColMatRef::new_checked(n, n, &matrix.ends, None, &matrix.rows);
        let view = SparseColMatRef::new(pattern, &matrix.values[..]);
        let mut values = vec![0.0; self.symbolic.len_val()];
        let need = self.symbolic.factorize_numeric_llt_scratch::<f64>(Par::Seq, Default::default());
        let mut memory = MemBuffer::try_new(need)
            .map_err(|_| Error::Numeric("no memory for a sparse Cholesky factorisation".into()))?;
        self.symbolic
            .factorize_numeric_llt(
                &mut values,
                view,
                Side::Lower,
                Default::default(),
                Par::Seq,
                MemStack::new(&mut memory),
                Default::default(),
            )
            .map_err(|_| {
                Error::Numeric(
                    "the posterior precision is not positive definite in double precision".into(),
                )
            })?;
        self.values = values;
        Ok(())
    }

    /// Bytes of scratch that [`Factor::solve`] needs for so many columns.
    pub fn scratch(&self, columns: usize) -> StackReq {
        self.symbolic.solve_in_place_scratch::<f64>(columns, Par::Seq)
    }

    /// `v` becomes `M⁻¹ v`; `[n, columns]`, row-major.
    pub fn solve(&self, v: &mut [f64], columns: usize, scratch: &mut MemBuffer) {
        let n = self.symbolic.nrows();
        let rows = MatMut::from_row_major_slice_mut(v, n, columns);
        LltRef::new(&self.symbolic, &self.values).solve_in_place_with_conj(
            Conj::No,
            rows,
            Par::Seq,
            MemStack::new(scratch),
        );
    }

    /// Column pointers and rows of `L`: the diagonal first in each column.
    fn pattern(&self) -> (&[usize], &[usize]) {
        match self.symbolic.raw() {
            SymbolicCholeskyRaw::Simplicial(l) => (l.col_ptr(), l.row_idx()),
            SymbolicCholeskyRaw::Supernodal(_) => unreachable!("simplicial is asked for"),
        }
    }

    /// Row of the original matrix that stands at each place of the factor.
    fn order(&self) -> &[usize] {
        self.symbolic.perm().expect("an ordering is asked for").arrays().0
    }

    /// `(M⁻¹)_ii` of all rows, by the recursion of Takahashi, Fagan and Chen (1973). With
    /// `Z = M⁻¹`, from the last column to the first, only where `L` has entries:
    ///
    /// ```text
    /// Z_ij = −1/L_jj Σ_{k>j} L_kj Z_ik  (i > j),    Z_jj = 1/L_jj² − 1/L_jj Σ_{k>j} L_kj Z_kj
    /// ```
    pub fn inverse_diagonal(&self) -> Vec<f64> {
        let (ends, rows) = self.pattern();
        let n = ends.len() - 1;
        let mut z = vec![0.0; self.values.len()];
        // Place of each row in the column at hand, and its sum Σ_k L_kj Z_ik.
        let mut place = vec![usize::MAX; n];
        let mut sums: Vec<f64> = Vec::new();
        for j in (0..n).rev() {
            let column = ends[j] + 1..ends[j + 1];
            let (pattern, l) = (&rows[column.clone()], &self.values[column.clone()]);
            let pivot = self.values[ends[j]];
            pattern.iter().enumerate().for_each(|(a, &i)| place[i] = a);
            sums.clear();
            sums.resize(pattern.len(), 0.0);
            for (a, &k) in pattern.iter().enumerate() {
                // Column k of Z, rows i >= k: each serves Z_ik and Z_ki.
                for at in ends[k]..ends[k + 1] {
                    let b = place[rows[at]];
                    if b != usize::MAX {
                        sums[b] += l[a] * z[at];
                        if b != a {
                            sums[a] += l[b] * z[at];
                        }
                    }
                }
            }
            let mut own = 1.0 / (pivot * pivot);
            for (a, at) in column.enumerate() {
                z[at] = -sums[a] / pivot;
                own -= l[a] * z[at] / pivot;
            }
            z[ends[j]] = own;
            pattern.iter().for_each(|&i| place[i] = usize::MAX);
        }
        let mut diagonal = vec![0.0; n];
        self.order().iter().zip(ends).for_each(|(&row, &at)| diagonal[row] = z[at]);
        diagonal
    }
}
