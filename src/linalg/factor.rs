//! Sparse Cholesky factors (faer's), and what is read off them.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::sparse::linalg::SupernodalThreshold;
use faer::sparse::linalg::cholesky::{
    CholeskySymbolicParams, SymbolicCholesky, SymbolicCholeskyRaw, SymmetricOrdering,
    factorize_symbolic_cholesky,
};
use faer::sparse::{SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Par, Side};

/// Why a matrix has no Cholesky factor here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactorError {
    /// A pivot is not positive.
    #[error("the matrix is not positive definite in double precision")]
    NotDefinite,
    /// A factor that is stored in less than double precision has lost a pivot.
    #[error("the factor is not positive definite as it is stored")]
    NotDefiniteAsStored,
    /// Room for the factor or the work on it cannot be had.
    #[error("no memory for a sparse Cholesky factorisation: {0}")]
    Memory(String),
}

/// The lower half of a sparse symmetric matrix, column by column, rows ascending.
#[derive(Debug)]
pub struct Lower {
    /// Where columns begin and end.
    pub ends: Vec<usize>,
    /// Rows, each at least its column.
    pub rows: Vec<usize>,
    /// Values.
    pub values: Vec<f64>,
}

impl Lower {
    /// No columns yet, with room for so many and their entries.
    pub fn with_capacity(columns: usize, entries: usize) -> Self {
        let mut ends = Vec::with_capacity(columns + 1);
        ends.push(0);
        Lower { ends, rows: Vec::with_capacity(entries), values: Vec::with_capacity(entries) }
    }

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
    pub fn new(matrix: &Lower) -> Result<Self, FactorError> {
        Self::analyse(matrix, SupernodalThreshold::FORCE_SIMPLICIAL)
    }

    /// Analyses the matrix, for a factor to solve with: dense panels, see
    /// [`Panels`](super::Panels).
    pub fn to_solve(matrix: &Lower) -> Result<Self, FactorError> {
        Self::analyse(matrix, SupernodalThreshold::FORCE_SUPERNODAL)
    }

    fn analyse(matrix: &Lower, threshold: SupernodalThreshold) -> Result<Self, FactorError> {
        let n = matrix.size();
        let pattern = SymbolicSparseColMatRef::new_checked(n, n, &matrix.ends, None, &matrix.rows);
        let params = CholeskySymbolicParams {
            supernodal_flop_ratio_threshold: threshold,
            ..Default::default()
        };
        factorize_symbolic_cholesky(pattern, Side::Lower, SymmetricOrdering::Amd, params)
            .map(|symbolic| Pattern { symbolic })
            .map_err(|e| FactorError::Memory(e.to_string()))
    }

    /// Entries of the factor.
    pub fn entries(&self) -> usize {
        self.symbolic.len_val()
    }

    /// Columns of each panel of the factor, and rows below its triangle.
    pub fn panels(&self) -> impl Iterator<Item = (usize, usize)> {
        panels(&self.symbolic).map(|panel| (panel.width, panel.below.len()))
    }

    /// Computes the factor of a matrix of this pattern.
    pub fn factorise(self, matrix: &Lower) -> Result<Factor, FactorError> {
        let symbolic = self.symbolic;
        let n = matrix.size();
        let pattern = SymbolicSparseColMatRef::new_checked(n, n, &matrix.ends, None, &matrix.rows);
        let view = SparseColMatRef::new(pattern, &matrix.values[..]);
        let mut values = vec![0.0; symbolic.len_val()];
        let need = symbolic.factorize_numeric_llt_scratch::<f64>(Par::Seq, Default::default());
        let mut memory =
            MemBuffer::try_new(need).map_err(|e| FactorError::Memory(format!("{e:?}")))?;
        symbolic
            .factorize_numeric_llt(
                &mut values,
                view,
                Side::Lower,
                Default::default(),
                Par::Seq,
                MemStack::new(&mut memory),
                Default::default(),
            )
            .map_err(|_| FactorError::NotDefinite)?;
        Ok(Factor { symbolic, values })
    }
}

/// Neighbouring columns of `L` with the same rows below their triangle.
pub struct Panel<'a> {
    /// The first column, and how many there are.
    pub start: usize,
    pub width: usize,
    /// The rows below.
    pub below: &'a [usize],
    values: std::ops::Range<usize>,
}

fn panels(symbolic: &SymbolicCholesky<usize>) -> impl Iterator<Item = Panel<'_>> {
    let count = match symbolic.raw() {
        SymbolicCholeskyRaw::Supernodal(l) => l.n_supernodes(),
        SymbolicCholeskyRaw::Simplicial(l) => l.ncols(),
    };
    (0..count).map(|k| match symbolic.raw() {
        SymbolicCholeskyRaw::Supernodal(l) => {
            let start = l.supernode_begin()[k];
            let width = l.supernode_end()[k] - start;
            let values = l.col_ptr_for_val()[k]..l.col_ptr_for_val()[k + 1];
            Panel { start, width, below: l.supernode(k).pattern(), values }
        }
        // What faer makes of a diagonal matrix even if panels are asked for.
        SymbolicCholeskyRaw::Simplicial(l) => {
            let values = l.col_ptr()[k]..l.col_ptr()[k + 1];
            let below = &l.row_idx()[values.start + 1..values.end];
            Panel { start: k, width: 1, below, values }
        }
    })
}

impl Factor {
    /// The panels with their values, column by column from the diagonal of the first one: all have
    /// `width + below.len()`, those above the diagonal without meaning.
    pub fn panels(&self) -> impl Iterator<Item = (Panel<'_>, &[f64])> {
        panels(&self.symbolic).map(|panel| {
            let values = &self.values[panel.values.clone()];
            (panel, values)
        })
    }

    /// Column pointers and rows of `L`: the diagonal first in each column.
    fn pattern(&self) -> (&[usize], &[usize]) {
        match self.symbolic.raw() {
            SymbolicCholeskyRaw::Simplicial(l) => (l.col_ptr(), l.row_idx()),
            SymbolicCholeskyRaw::Supernodal(_) => unreachable!("simplicial is asked for"),
        }
    }

    /// Row of the original matrix that stands at each place of the factor.
    pub fn order(&self) -> &[usize] {
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
