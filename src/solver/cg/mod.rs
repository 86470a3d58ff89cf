//! Conjugate gradients for `A x = b`, many columns at once, one reduction per iteration.
//!
//! The textbook method waits twice per iteration for a sum over all ranks. Here `β` is taken from
//! `γ_{k+1} = α² ⟨s, M⁻¹s⟩ − γ_k` (with `s = A p`; Meurant 1987), so that all sums of an iteration,
//! of all columns, travel in one reduction; `γ_k` itself is summed anew each time, so errors do not
//! build up. The residual follows from true products `A p`, as in the textbook, and is as accurate.

mod bound;
mod workspace;

pub use workspace::Workspace;

use super::{Operator, Precondition};
use crate::error::CgError;
use crate::field::Engine;
use bound::Steps;
use workspace::Column;

/// When to stop, and from where to start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Residual relative to the right-hand side, both in the norm `⟨r, M⁻¹ r⟩^½`.
    pub tolerance: f64,
    /// Bound on the error `‖x − x_k‖_A`. Where `A` is the precision of a Gaussian it bounds every
    /// node in units of its own standard deviation: `|x − x_k|_i <= sd_i ‖x − x_k‖_A`. Estimated
    /// from the coefficients of the steps; infinite switches it off.
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

/// How a solution was reached.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Info {
    /// Iterations of the slowest column.
    pub iterations: usize,
    /// Products with `A` (each of all columns still at work).
    pub products: usize,
    /// Products of single columns: what the dropping of finished columns saves.
    pub column_products: usize,
    /// How each column ended.
    pub columns: Vec<ColumnInfo>,
}

/// How a column ended.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ColumnInfo {
    /// Iterations.
    pub iterations: usize,
    /// Relative residual.
    pub residual: f64,
    /// Bound on the error `‖x − x_k‖_A`, where one was asked for.
    pub error: Option<f64>,
}

/// Below this share of the `γ` before it, a predicted `γ` is mostly rounding, and no reason to
/// stop.
const TRUSTED: f64 = 1e-10;
/// Below this share of the `γ` of the right-hand side, `γ` is rounding and may be negative: the
/// relative residual is below `1e-14`.
const NOTHING: f64 = 1e-28;
/// Iterations between evaluations of the bound of the error, where iterations are cheap.
const BOUND_EVERY: usize = 4;

/// Solves `A x = b` for every column of `b`, with the preconditioner `m`. All ranks call it and
/// come to the same end. The workspace grows to what is needed and serves the next call.
pub fn solve<E: Engine>(
    engine: &mut E,
    a: &mut impl Operator<E>,
    m: &mut impl Precondition<E>,
    b: &E::Block,
    x: &mut E::Block,
    options: &Options,
    work: &mut Workspace<E>,
) -> Result<Info, CgError> {
    let mut info = Solve::new(engine, a, m, b, x, options, work, Attempt::First).run(engine)?;
    if options.verify {
        // From the result, with the true residual: nothing to do where that is small. It may be
        // a little larger than the one that was followed along.
        let again = Options {
            warm_start: true,
            error: f64::INFINITY,
            tolerance: 2.0 * options.tolerance,
            ..*options
        };
        let check = Solve::new(engine, a, m, b, x, &again, work, Attempt::Check).run(engine)?;
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

/// Whether columns are new or come from the last run: in the latter case the norms of their
/// right-hand sides are known, and there may be nothing to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    Check,
}

/// One run of the method: start, then product, judgement and step in turn until all columns are
/// done.
struct Solve<'a, E: Engine, A, M> {
    a: &'a mut A,
    m: &'a mut M,
    b: &'a E::Block,
    x: &'a mut E::Block,
    options: &'a Options,
    work: &'a mut Workspace<E>,
    attempt: Attempt,
    /// Whether `M` is a diagonal, which the fused passes of the engine apply themselves.
    diagonal: bool,
    info: Info,
    at_work: Vec<Column>,
    /// The smallest eigenvalue of `M⁻¹A` known so far. It belongs to the matrix alone, so all
    /// columns help to find it.
    smallest: f64,
    /// Whether solutions are still in the caller's block.
    in_place: bool,
}

impl<'a, E: Engine, A: Operator<E>, M: Precondition<E>> Solve<'a, E, A, M> {
    #[allow(clippy::too_many_arguments)] // a system, where it goes, and how
    fn new(
        engine: &E,
        a: &'a mut A,
        m: &'a mut M,
        b: &'a E::Block,
        x: &'a mut E::Block,
        options: &'a Options,
        work: &'a mut Workspace<E>,
        attempt: Attempt,
    ) -> Self {
        let columns = engine.columns(b);
        assert_eq!(columns, engine.columns(x), "blocks of one width");
        let diagonal = m.diagonal().is_some();
        work.resize(engine, columns, diagonal);
        let info = Info { columns: vec![ColumnInfo::default(); columns], ..Info::default() };
        let column = |place| Column { place, reference: 0.0, done: false };
        let at_work = (0..columns).map(column).collect();
        let (smallest, in_place) = (f64::INFINITY, true);
        Solve { a, m, b, x, options, work, attempt, diagonal, info, at_work, smallest, in_place }
    }

    fn run(mut self, engine: &mut E) -> Result<Info, CgError> {
        self.start(engine);
        if self.attempt == Attempt::Check && self.residuals_are_small(engine) {
            return Ok(self.info);
        }
        for iteration in 1usize.. {
            self.multiply(engine, iteration);
            self.judge(iteration)?;
            self.step(engine);
            let left = self.at_work.iter().filter(|column| !column.done).count();
            if left == 0 || iteration >= self.options.max_iterations {
                self.hand_over(engine);
                return if left == 0 {
                    Ok(self.info)
                } else {
                    Err(not_converged(&self.info, self.options))
                };
            }
            if workspace::tile(left) < self.at_work.len() {
                self.hand_over(engine);
                self.work.narrow(engine, self.x, &mut self.at_work, self.diagonal);
                self.in_place = false;
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// `r = b − A x` and `p = z = M⁻¹ r`. The norm of `b` joins the first reduction.
    fn start(&mut self, engine: &mut E) {
        let columns = self.at_work.len();
        let all: Vec<(usize, usize)> = (0..columns).map(|c| (c, c)).collect();
        let work = &mut *self.work;
        engine.copy_columns(self.b, &mut work.r, &all);
        work.alpha.fill(-1.0);
        if self.options.warm_start {
            if self.attempt == Attempt::First {
                self.m.apply(engine, &mut work.r, &mut work.p);
                engine.dots(&work.r, &work.p, &mut work.dots[3 * columns..]);
            }
            self.a.apply(engine, self.x, &mut work.s);
            self.info.products += 1;
            self.info.column_products += columns;
            engine.axpy(&work.alpha, &work.s, &mut work.r);
        } else {
            engine.copy_columns(self.b, self.x, &all); // x = b − b: finite, whatever it was
            engine.axpy(&work.alpha, self.b, self.x);
        }
        if self.diagonal {
            self.m.apply(engine, &mut work.r, &mut work.p);
        } else {
            self.m.apply(engine, &mut work.r, &mut work.z);
            engine.copy_columns(&work.z, &mut work.p, &all);
        }
    }

    /// Whether the residuals of the start are within the tolerance already; notes them in `info`.
    fn residuals_are_small(&mut self, engine: &E) -> bool {
        let (columns, work) = (self.at_work.len(), &mut *self.work);
        let z = if self.diagonal { &work.p } else { &work.z };
        engine.dots(&work.r, z, &mut work.dots[..columns]);
        engine.world().sum(&mut work.dots[..columns]);
        let mut small = true;
        let norms = work.dots.iter().zip(&work.references);
        for (reached, (gamma, reference)) in self.info.columns.iter_mut().zip(norms) {
            reached.residual = relative(*gamma, *reference);
            small &= reached.residual <= self.options.tolerance;
        }
        small
    }

    /// Whether the norms of the right-hand sides are in the reduction of this iteration.
    fn with_norms(&self, iteration: usize) -> bool {
        iteration == 1 && self.options.warm_start && self.attempt == Attempt::First
    }

    /// `s = A p`, and all sums of the iteration in one reduction: `⟨p, s⟩`, `⟨s, M⁻¹s⟩`,
    /// `⟨r, M⁻¹r⟩`.
    fn multiply(&mut self, engine: &mut E, iteration: usize) {
        let width = self.at_work.len();
        let sums = if self.with_norms(iteration) { 4 * width } else { 3 * width };
        let work = &mut *self.work;
        self.a.apply(engine, &mut work.p, &mut work.s);
        self.info.products += 1;
        self.info.column_products += width;
        if let Some(inverse) = self.m.diagonal() {
            engine.step_dots(inverse, &work.p, &work.s, &work.r, &mut work.dots[..3 * width]);
        } else {
            self.m.apply(engine, &mut work.s, &mut work.q);
            engine.dots(&work.p, &work.s, &mut work.dots[..width]);
            engine.dots(&work.s, &work.q, &mut work.dots[width..2 * width]);
            engine.dots(&work.r, &work.z, &mut work.dots[2 * width..3 * width]);
        }
        engine.world().sum(&mut work.dots[..sums]);
    }

    /// Follows from the sums: which columns are done, and `α` and `β` of the others.
    fn judge(&mut self, iteration: usize) -> Result<(), CgError> {
        let (width, first) = (self.at_work.len(), iteration == 1);
        let with_norms = self.with_norms(iteration);
        let Solve { work, info, at_work, smallest, options, diagonal, attempt, .. } = self;
        for (k, column) in at_work.iter_mut().enumerate() {
            (work.alpha[k], work.beta[k]) = (0.0, 0.0);
            if column.done {
                continue;
            }
            let (curvature, turn, mut gamma) =
                (work.dots[k], work.dots[width + k], work.dots[2 * width + k]);
            if first {
                let norm = if with_norms { work.dots[3 * width + k] } else { gamma };
                // Nothing to solve: then the residual of the first guess is what must shrink.
                let reference = if norm > 0.0 { norm } else { gamma };
                let known = *attempt == Attempt::Check;
                column.reference = if known { work.references[k] } else { reference };
                work.references[k] = column.reference;
            }
            if gamma.abs() <= NOTHING * column.reference {
                gamma = 0.0;
            }
            let target = options.tolerance * options.tolerance * column.reference;
            let reached = &mut info.columns[column.place];
            let steps = &mut work.steps[column.place];
            let enough =
                |gamma: f64, steps: &Steps, smallest: &mut f64, reached: &mut ColumnInfo| {
                    reached.residual = relative(gamma, column.reference);
                    if gamma > target || options.error.is_infinite() {
                        return gamma <= target;
                    }
                    if gamma > 0.0 && *diagonal && !iteration.is_multiple_of(BOUND_EVERY) {
                        return false;
                    }
                    steps.lower_to_ritz(smallest);
                    let error = steps.error(*smallest, gamma);
                    reached.error = Some(error);
                    error <= options.error
                };
            if enough(gamma, steps, smallest, reached) {
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
            reached.iterations = iteration;
            column.done =
                predicted > TRUSTED * gamma && enough(predicted, steps, smallest, reached);
        }
        info.iterations = info.columns.iter().map(|c| c.iterations).max().unwrap_or(0);
        Ok(())
    }

    /// `x += α p`, `r −= α s`, `p = M⁻¹r + β p`.
    fn step(&mut self, engine: &mut E) {
        let (width, work) = (self.at_work.len(), &mut *self.work);
        let x = if self.in_place { &mut *self.x } else { &mut work.x };
        if let Some(inverse) = self.m.diagonal() {
            let steps = (&work.alpha[..width], &work.beta[..width]);
            engine.step(steps, inverse, &work.s, &mut work.p, x, &mut work.r);
        } else {
            engine.axpy(&work.alpha[..width], &work.p, x);
            work.alpha.iter_mut().for_each(|a| *a = -*a);
            engine.axpy(&work.alpha[..width], &work.s, &mut work.r);
            engine.axpy(&work.alpha[..width], &work.q, &mut work.z);
            engine.aypx(&work.beta[..width], &work.z, &mut work.p);
        }
    }

    /// Puts the solutions at work into the caller's block, if they are not there anyway.
    fn hand_over(&mut self, engine: &E) {
        if !self.in_place {
            self.work.hand_over(engine, self.x, &self.at_work);
        }
    }
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
