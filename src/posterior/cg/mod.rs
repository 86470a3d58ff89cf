//! Conjugate gradients for `Q̃ x = b`, many columns at once, one reduction per iteration.
//!
//! The textbook method waits twice per iteration for a sum over all ranks. Here `β` is taken from
//! `γ_{k+1} = α² ⟨s, M⁻¹s⟩ − γ_k` (with `s = A p`; Meurant 1987), so that all sums of an iteration,
//! of all columns, travel in one reduction; `γ_k` itself is summed anew each time, so errors do not
//! build up. The residual follows from true products `A p`, as in the textbook, and is as accurate.

mod bound;
mod workspace;

pub use workspace::Workspace;

use super::{Precision, Preconditioner};
use crate::error::CgError;
use crate::field::Engine;
use bound::Steps;
use workspace::Column;

/// When to stop, and from where to start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Residual relative to the right-hand side, both in the norm `⟨r, M⁻¹ r⟩^½`.
    pub tolerance: f64,
    /// Bound on the error `‖x − x_k‖_Q̃`. It bounds every node in units of its own posterior
    /// standard deviation: `|x − x_k|_i <= sd_i ‖x − x_k‖_Q̃`. Estimated from the coefficients of
    /// the steps; infinite switches it off.
    pub error: f64,
    /// More iterations than this are an error.
    pub max_iterations: usize,
    /// Whether `x` holds a first guess (a solution of nearby parameters); otherwise its values do
    /// not matter.
    pub warm_start: bool,
    /// Whether to compute the residual of the result anew, and to go on where rounding has left it
    /// above the tolerance. Costs one product and one reduction.
    pub verify: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            tolerance: 1e-7,
            error: f64::INFINITY,
            max_iterations: 20_000,
            warm_start: false,
            verify: false,
        }
    }
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Info {
    /// Iterations of the slowest column.
    pub iterations: usize,
    /// Products with `Q̃` (each of all columns still at work).
    pub products: usize,
    /// Products of single columns: what the dropping of finished columns saves.
    pub column_products: usize,
    /// Each column.
    pub columns: Vec<ColumnInfo>,
}

/// How a column ended.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ColumnInfo {
    /// Iterations.
    pub iterations: usize,
    /// Relative residual.
    pub residual: f64,
    /// Bound on the error in posterior standard deviations, where one was asked for.
    pub error: Option<f64>,
}

/// Below this share of the last one, the predicted `γ` is mostly rounding, and no reason to stop.
const TRUSTED: f64 = 1e-10;
/// Below this share of that of the right-hand side, `γ` is rounding and may even be negative: the
/// relative residual is below `1e-14`.
const NOTHING: f64 = 1e-28;
/// Iterations between looks at the bound of the error, where iterations are cheap.
const LOOK: usize = 4;

/// Solves `Q̃ x = b` for every column of `b`. All ranks call it and come to the same end.
pub fn solve<E: Engine>(
    engine: &mut E,
    precision: &mut Precision<E>,
    preconditioner: &mut Preconditioner<E>,
    b: &E::Block,
    x: &mut E::Block,
    options: &Options,
    work: &mut Workspace<E>,
) -> Result<Info, CgError> {
    let mut info = run(engine, precision, preconditioner, b, x, (options, false), work)?;
    if options.verify {
        // From the result, with the true residual: nothing to do where that is small. It may be
        // a little larger than the one that was followed along.
        let again = Options {
            warm_start: true,
            error: f64::INFINITY,
            tolerance: 2.0 * options.tolerance,
            ..*options
        };
        let check = run(engine, precision, preconditioner, b, x, (&again, true), work)?;
        info.iterations += check.iterations;
        info.products += check.products;
        info.column_products += check.column_products;
        for (column, check) in info.columns.iter_mut().zip(check.columns) {
            column.iterations += check.iterations;
            column.residual = check.residual;
        }
    }
    Ok(info)
}

/// `check` says that the columns are those of the last run: their references are known, and there may
/// be nothing to do.
fn run<E: Engine>(
    engine: &mut E,
    precision: &mut Precision<E>,
    preconditioner: &mut Preconditioner<E>,
    b: &E::Block,
    x: &mut E::Block,
    (options, check): (&Options, bool),
    work: &mut Workspace<E>,
) -> Result<Info, CgError> {
    let columns = engine.columns(b);
    assert_eq!(columns, engine.columns(x), "blocks of one width");
    let diagonal = matches!(preconditioner, Preconditioner::Diagonal(_));
    work.resize(engine, columns, diagonal);
    let mut info = Info { columns: vec![ColumnInfo::default(); columns], ..Info::default() };
    let all: Vec<(usize, usize)> = (0..columns).map(|c| (c, c)).collect();
    let mut at_work: Vec<Column> =
        (0..columns).map(|place| Column { place, reference: 0.0, done: false }).collect();
    // The smallest eigenvalue of M⁻¹Q̃: of the matrix alone, so all columns add to what is known.
    let mut smallest = f64::INFINITY;

    // r = b − Q̃ x and p = z = M⁻¹ r. The norm of b joins the first reduction.
    engine.copy_columns(b, &mut work.r, &all);
    if options.warm_start {
        if !check {
            preconditioner.apply(engine, &mut work.r, &mut work.p);
            engine.dots(&work.r, &work.p, &mut work.dots[3 * columns..]);
        }
        precision.apply(engine, x, &mut work.s);
        info.products += 1;
        info.column_products += columns;
        work.alpha.fill(-1.0);
        engine.axpy(&work.alpha, &work.s, &mut work.r);
    } else {
        engine.copy_columns(b, x, &all); // x = b − b: finite, whatever it was
        work.alpha.fill(-1.0);
        engine.axpy(&work.alpha, b, x);
    }
    if diagonal {
        preconditioner.apply(engine, &mut work.r, &mut work.p);
    } else {
        preconditioner.apply(engine, &mut work.r, &mut work.z);
        engine.copy_columns(&work.z, &mut work.p, &all);
    }
    if check {
        let z = if diagonal { &work.p } else { &work.z };
        engine.dots(&work.r, z, &mut work.dots[..columns]);
        engine.world().sum(&mut work.dots[..columns]);
        let mut small = true;
        for (told, (gamma, reference)) in
            info.columns.iter_mut().zip(work.dots.iter().zip(&work.references))
        {
            told.residual = relative(*gamma, *reference);
            small &= told.residual <= options.tolerance;
        }
        if small {
            return Ok(info);
        }
    }
    let mut in_place = true; // x is still the caller's block

    for iteration in 1usize.. {
        let width = at_work.len();
        precision.apply(engine, &mut work.p, &mut work.s);
        info.products += 1;
        info.column_products += width;
        let first = iteration == 1;
        let with_norm = first && options.warm_start && !check;
        let sums = if with_norm { 4 * width } else { 3 * width };
        match preconditioner {
            Preconditioner::Diagonal(d) => {
                let dots = &mut work.dots[..3 * width];
                engine.step_dots(&d.inverse, &work.p, &work.s, &work.r, dots);
            }
            Preconditioner::Operator(operator) => {
                operator.apply(engine, &mut work.s, &mut work.q);
                engine.dots(&work.p, &work.s, &mut work.dots[..width]);
                engine.dots(&work.s, &work.q, &mut work.dots[width..2 * width]);
                engine.dots(&work.r, &work.z, &mut work.dots[2 * width..3 * width]);
            }
        }
        engine.world().sum(&mut work.dots[..sums]);

        for (k, column) in at_work.iter_mut().enumerate() {
            (work.alpha[k], work.beta[k]) = (0.0, 0.0);
            if column.done {
                continue;
            }
            let (curvature, turn, mut gamma) =
                (work.dots[k], work.dots[width + k], work.dots[2 * width + k]);
            if first {
                let norm = if with_norm { work.dots[3 * width + k] } else { gamma };
                // Nothing to solve: then the residual of the first guess is what must shrink.
                let reference = if norm > 0.0 { norm } else { gamma };
                column.reference = if check { work.references[k] } else { reference };
                work.references[k] = column.reference;
            }
            if gamma.abs() <= NOTHING * column.reference {
                gamma = 0.0;
            }
            let target = options.tolerance * options.tolerance * column.reference;
            let told = &mut info.columns[column.place];
            let steps = &mut work.steps[column.place];
            let enough = |gamma: f64, steps: &Steps, smallest: &mut f64, told: &mut ColumnInfo| {
                told.residual = relative(gamma, column.reference);
                if gamma > target || options.error.is_infinite() {
                    return gamma <= target;
                }
                if gamma > 0.0 && diagonal && !iteration.is_multiple_of(LOOK) {
                    return false;
                }
                steps.lower_to_ritz(smallest);
                let error = steps.error(*smallest, gamma);
                told.error = Some(error);
                error <= options.error
            };
            if enough(gamma, steps, &mut smallest, told) {
                column.done = true;
                continue;
            }
            let definite = curvature > 0.0 && curvature.is_finite() && gamma > 0.0;
            if !definite {
                return Err(CgError::Breakdown {
                    iteration,
                    column: column.place,
                    curvature,
                    residual: relative(gamma, column.reference),
                });
            }
            let alpha = gamma / curvature;
            let predicted = (alpha * alpha * turn - gamma).max(0.0);
            (work.alpha[k], work.beta[k]) = (alpha, predicted / gamma);
            steps.push(alpha, predicted / gamma);
            told.iterations = iteration;
            column.done =
                predicted > TRUSTED * gamma && enough(predicted, steps, &mut smallest, told);
        }
        info.iterations = info.columns.iter().map(|c| c.iterations).max().unwrap_or(0);

        let solution = if in_place { &mut *x } else { &mut work.x };
        match preconditioner {
            Preconditioner::Diagonal(d) => engine.step(
                (&work.alpha[..width], &work.beta[..width]),
                &d.inverse,
                &work.s,
                &mut work.p,
                solution,
                &mut work.r,
            ),
            Preconditioner::Operator(_) => {
                engine.axpy(&work.alpha[..width], &work.p, solution);
                work.alpha.iter_mut().for_each(|a| *a = -*a);
                engine.axpy(&work.alpha[..width], &work.s, &mut work.r);
                engine.axpy(&work.alpha[..width], &work.q, &mut work.z);
                engine.aypx(&work.beta[..width], &work.z, &mut work.p);
            }
        }

        let left = at_work.iter().filter(|column| !column.done).count();
        if left == 0 || iteration >= options.max_iterations {
            if !in_place {
                work.hand_over(engine, x, &at_work);
            }
            return if left == 0 { Ok(info) } else { Err(not_converged(&info, options)) };
        }
        if workspace::tile(left) < width {
            if !in_place {
                work.hand_over(engine, x, &at_work);
            }
            work.narrow(engine, x, &mut at_work, diagonal);
            in_place = false;
        }
    }
    unreachable!("the loop ends by returning")
}

fn not_converged(info: &Info, options: &Options) -> CgError {
    let residuals: Vec<f64> = info.columns.iter().map(|c| c.residual).collect();
    let (iterations, tolerance, error) = (info.iterations, options.tolerance, options.error);
    if residuals.iter().any(|r| *r > tolerance) {
        return CgError::NoConvergence { iterations, tolerance, residuals };
    }
    let bounds = info.columns.iter().map(|c| c.error.unwrap_or(f64::INFINITY)).collect();
    CgError::NotAccurate { iterations, error, bounds }
}

/// `γ` as a relative residual.
fn relative(gamma: f64, reference: f64) -> f64 {
    if gamma == 0.0 { 0.0 } else { (gamma / reference).sqrt() }
}
