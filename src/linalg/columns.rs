//! Sparse matrices by columns.

/// Columns of a sparse matrix, each a list of rows and values.
///
/// ```
/// use dgmrf::linalg::SparseColumns;
/// let mut columns = SparseColumns::new(3);
/// columns.push([(0, 1.0), (2, -1.0)]);
/// columns.push([(1, 2.0)]);
/// assert_eq!((columns.count(), columns.entries()), (2, 3));
/// assert_eq!(columns.column(0), (&[0, 2][..], &[1.0, -1.0][..]));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SparseColumns {
    indptr: Vec<usize>,
    rows: Vec<u32>,
    values: Vec<f64>,
    height: usize,
}

impl SparseColumns {
    /// No columns yet; rows will be numbers below `height`.
    pub fn new(height: usize) -> Self {
        SparseColumns { indptr: vec![0], rows: Vec::new(), values: Vec::new(), height }
    }

    /// Adds a column.
    pub fn push(&mut self, column: impl IntoIterator<Item = (u32, f64)>) {
        for (row, value) in column {
            self.rows.push(row);
            self.values.push(value);
        }
        self.indptr.push(self.rows.len());
    }

    /// Adds all columns of another matrix after the last one.
    pub fn append(&mut self, other: SparseColumns) {
        let before = self.rows.len();
        self.indptr.extend(other.indptr[1..].iter().map(|end| before + end));
        self.rows.extend(other.rows);
        self.values.extend(other.values);
    }

    /// Sets the number of rows, where it is known only after the columns.
    pub fn set_height(&mut self, height: usize) {
        self.height = height;
    }

    /// Number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Number of columns.
    pub fn count(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of entries of all columns.
    pub fn entries(&self) -> usize {
        self.rows.len()
    }

    /// Rows and values of a column, in the order in which its entries were added.
    pub fn column(&self, i: usize) -> (&[u32], &[f64]) {
        let range = self.indptr[i]..self.indptr[i + 1];
        (&self.rows[range.clone()], &self.values[range])
    }
}
