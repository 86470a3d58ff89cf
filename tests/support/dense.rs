//! The model as dense matrices, straight from the paper: the reference that shares no code with
//! the engines.

use dgmrf::graph::Graph;
use faer::Mat;
use faer::linalg::solvers::Solve;

/// `(α, β, γ, b)` of a layer.
pub type Layer = (f64, f64, f64, f64);

/// Row-major `N x N`.
pub type Matrix = Vec<Vec<f64>>;

/// Paper, Eq. 6: `G = α D^γ + β D^(γ-1) A`.
pub fn layer(graph: &Graph, &(alpha, beta, gamma, _): &Layer) -> Matrix {
    let n = graph.nodes();
    let mut g = vec![vec![0.0; n]; n];
    for (i, row) in g.iter_mut().enumerate() {
        let degree: f64 = graph.weighted_neighbours(i).map(|(_, w)| w).sum();
        row[i] = alpha * degree.powf(gamma);
        for (j, w) in graph.weighted_neighbours(i) {
            row[j as usize] = beta * degree.powf(gamma - 1.0) * w;
        }
    }
    g
}

/// `M x` for one column.
pub fn times(m: &Matrix, x: &[f64]) -> Vec<f64> {
    m.iter().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

/// `Mᵀ x` for one column.
pub fn times_transposed(m: &Matrix, x: &[f64]) -> Vec<f64> {
    (0..x.len()).map(|j| m.iter().zip(x).map(|(row, x)| row[j] * x).sum()).collect()
}

/// Column `c` of row-major values with `columns` columns.
pub fn column(values: &[f64], columns: usize, c: usize) -> Vec<f64> {
    values.iter().skip(c).step_by(columns).copied().collect()
}

/// Applies `f` to every column of row-major values.
pub fn each_column(values: &[f64], columns: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let made: Vec<Vec<f64>> = (0..columns).map(|c| f(&column(values, columns, c))).collect();
    (0..values.len()).map(|k| made[k % columns][k / columns]).collect()
}

/// `g(x)` (or `G x` without the biases) of a stack of layers, all columns.
pub fn forward(graph: &Graph, layers: &[Layer], bias: bool, x: &[f64], columns: usize) -> Vec<f64> {
    let mut h = x.to_vec();
    for l in layers {
        let g = layer(graph, l);
        h = each_column(&h, columns, |x| times(&g, x));
        if bias {
            h.iter_mut().for_each(|v| *v += l.3);
        }
    }
    h
}

/// `Gᵀ z` of a stack of layers, all columns.
pub fn transpose(graph: &Graph, layers: &[Layer], z: &[f64], columns: usize) -> Vec<f64> {
    let mut h = z.to_vec();
    for l in layers.iter().rev() {
        let g = layer(graph, l);
        h = each_column(&h, columns, |x| times_transposed(&g, x));
    }
    h
}

/// `GᵀG + σ⁻² I_m`, and `G`.
pub fn precision(
    graph: &Graph,
    layers: &[Layer],
    observed: &[bool],
    sigma: f64,
) -> (Mat<f64>, Mat<f64>) {
    let n = graph.nodes();
    let g = layers.iter().fold(Mat::identity(n, n), |g, l| {
        let rows = layer(graph, l);
        Mat::from_fn(n, n, |i, j| rows[i][j]) * g
    });
    let mut q = g.transpose() * &g;
    (0..n).filter(|&i| observed[i]).for_each(|i| q[(i, i)] += sigma.powi(-2));
    (q, g)
}

/// Solves `M X = B` for row-major `B` with `columns` columns.
pub fn solve(m: &Mat<f64>, b: &[f64], columns: usize) -> Vec<f64> {
    let n = m.nrows();
    let b = Mat::from_fn(n, columns, |i, c| b[i * columns + c]);
    let x = m.llt(faer::Side::Lower).expect("positive definite").solve(b);
    (0..n * columns).map(|k| x[(k / columns, k % columns)]).collect()
}

/// `log|det M|` by elimination with row exchanges.
pub fn log_abs_det(m: &Matrix) -> f64 {
    let mut m = m.clone();
    let n = m.len();
    let mut sum = 0.0;
    for k in 0..n {
        let pivot = (k..n).max_by(|&a, &b| m[a][k].abs().total_cmp(&m[b][k].abs())).unwrap();
        m.swap(k, pivot);
        sum += m[k][k].abs().ln();
        let (above, below) = m.split_at_mut(k + 1);
        for row in below {
            let factor = row[k] / above[k][k];
            (k..n).for_each(|j| row[j] -= factor * above[k][j]);
        }
    }
    sum
}

/// Eigenvalues of a symmetric matrix by Jacobi rotations.
pub fn symmetric_eigenvalues(mut a: Matrix) -> Vec<f64> {
    let n = a.len();
    for _sweep in 0..50 {
        let off: f64 =
            (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i][j] * a[i][j]).sum();
        if off < 1e-28 {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[p][q].abs() < 1e-300 {
                    continue;
                }
                let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let t = if theta == 0.0 { 1.0 } else { t };
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = t * c;
                for row in a.iter_mut() {
                    (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
                }
                let (upper, lower) = a.split_at_mut(q);
                for (x, y) in upper[p].iter_mut().zip(&mut lower[0]) {
                    (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
                }
            }
        }
    }
    (0..n).map(|i| a[i][i]).collect()
}
