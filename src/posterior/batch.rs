//! One batch of columns after another: right-hand sides, conjugate gradients with the
//! preconditioner that suits them, and the linear model in the features.

use super::{Choice, Linear, MeanSource, Options, Precision, Preconditioner, Problem, draw};
use crate::error::{CgError, Error, Result};
use crate::field::Engine;
use crate::likelihood::ObservedFields;
use crate::random::{Purpose, Stream};
use crate::solver::{Refusal, cg, schwarz};

/// Iterations after which `auto` takes conjugate gradients with the diagonal for slow, and turns to
/// blocks: about what solving with blocks costs, which grows faster with the layers than a product
/// does. Small graphs are a single block, cheap to make and solved for at once.
fn jacobi_budget(nodes: usize, layers: usize) -> usize {
    if nodes <= schwarz::Options::default().nodes { 100 } else { 200 * layers }
}

/// Blocks of a batch: right-hand sides `b` are made from `w` and `v`, solutions are in `x`.
pub(super) struct Batch<E: Engine> {
    w: E::Block,
    v: E::Block,
    b: E::Block,
    x: E::Block,
    /// Samples before they are placed beside the columns of the mean and the features.
    drawn: [E::Block; 2],
    mean: MeanSource<E>,
    /// Features, with room for `u = x + F c` and one more block.
    linear: Option<(Linear<E>, [E::Block; 2])>,
    work: cg::Workspace<E>,
    cg: cg::Options,
    seed: u64,
    preconditioner: Preconditioner<E>,
    /// Name of the preconditioner.
    pub name: &'static str,
    /// Iterations of the diagonal preconditioner after which blocks take its place.
    jacobi_budget: Option<usize>,
    /// Why there are no blocks.
    pub refusal: Option<Refusal>,
}

impl<E: Engine> Batch<E> {
    /// Room for `columns` columns, of which `samples` are samples in the first batch.
    pub fn new(
        engine: &mut E,
        precision: &Precision<E>,
        problem: &Problem<E>,
        options: &Options,
        columns: usize,
        samples: usize,
    ) -> Self {
        let block = || engine.zeros(columns);
        let linear = problem.features.as_ref().map(|features| {
            let noise = feature_noise(options.seed, 0);
            (Linear::new(engine, features, samples, noise), [block(), block()])
        });
        let mut batch = Batch {
            w: block(),
            v: block(),
            b: block(),
            x: block(),
            drawn: [engine.zeros(0), engine.zeros(0)],
            mean: MeanSource::new(engine),
            linear,
            work: cg::Workspace::new(engine),
            cg: options.cg,
            seed: options.seed,
            preconditioner: Preconditioner::none(engine),
            name: "none",
            jacobi_budget: None,
            refusal: None,
        };
        match options.preconditioner {
            Choice::None => {}
            Choice::Schwarz if batch.turn_to_blocks(engine, precision) => {}
            chosen => {
                batch.preconditioner = Preconditioner::exact_jacobi(engine, precision);
                batch.name = "jacobi";
                let budget = jacobi_budget(engine.part().nodes, precision.coefficients().len());
                let may_turn = chosen == Choice::Auto && options.cg.max_iterations > budget;
                batch.jacobi_budget = may_turn.then_some(budget);
            }
        }
        batch
    }

    /// Takes blocks as preconditioner, if there can be any.
    fn turn_to_blocks(&mut self, engine: &E, precision: &Precision<E>) -> bool {
        match Preconditioner::schwarz(engine, precision, &Default::default()) {
            Ok(made) => (self.preconditioner, self.name) = (made, "schwarz"),
            Err(why) => self.refusal = Some(why),
        }
        self.refusal.is_none()
    }

    /// Solves for the mean and the features, if `first_batch`, and `count` samples from `first`.
    /// Gives `u = x + F c` and `b` of the owned rows, row-major.
    pub fn solve(
        &mut self,
        engine: &mut E,
        precision: &mut Precision<E>,
        data: &ObservedFields<E::Block>,
        first_batch: bool,
        first: usize,
        count: usize,
    ) -> Result<(cg::Info, Vec<f64>, Vec<f64>)> {
        let features = self.linear.as_ref().map_or(0, |(linear, _)| linear.count());
        let ahead = if first_batch { 1 + features } else { 0 };
        [&mut self.w, &mut self.v, &mut self.b, &mut self.x]
            .into_iter()
            .for_each(|block| engine.resize(block, ahead + count));
        if first_batch {
            self.place(engine, precision, data, features, count);
        } else {
            draw(engine, self.seed, first as u64, &mut self.w, &mut self.v);
        }
        precision.right_hand_side(engine, &mut self.w, &self.v, &mut self.b);
        let solved = self.conjugate_gradients(engine, precision);
        let info = solved.map_err(|e| match self.refusal {
            Some(why) => Error::CgWithoutBlocks { source: e, refusal: why.to_string() },
            None => e.into(),
        })?;
        let b = engine.download(&self.b);
        let Some((linear, [u, scratch])) = &mut self.linear else {
            return Ok((info, engine.download(&self.x), b));
        };
        [&mut *u, &mut *scratch].into_iter().for_each(|b| engine.resize(b, ahead + count));
        let sources = (&self.v, &self.b);
        if first_batch {
            let done = linear.eliminate(engine, precision, sources, &mut self.x, u, scratch);
            engine.world().clone().agree(done)?;
        } else {
            let noise = feature_noise(self.seed, first);
            linear.eliminate_more(engine, precision, noise, sources, &mut self.x, [u, scratch]);
        }
        Ok((info, engine.download(u), b))
    }

    /// Sources of the first batch: the mean, the features, and `count` samples.
    fn place(
        &mut self,
        engine: &mut E,
        precision: &mut Precision<E>,
        data: &ObservedFields<E::Block>,
        features: usize,
        count: usize,
    ) {
        let [w, v] = &mut self.drawn;
        if count > 0 {
            [&mut *w, &mut *v].into_iter().for_each(|block| engine.resize(block, count));
            draw(engine, self.seed, 0, w, v);
            let places: Vec<(usize, usize)> = (0..count).map(|c| (c, 1 + features + c)).collect();
            engine.copy_columns(w, &mut self.w, &places);
            engine.copy_columns(v, &mut self.v, &places);
        }
        self.mean.place(engine, precision, data, (&mut self.w, &mut self.v), 0);
        if let Some((linear, _)) = &mut self.linear {
            let places: Vec<(usize, usize)> = (0..features).map(|c| (c, 1 + c)).collect();
            engine.copy_columns(&engine.zeros(features), &mut self.w, &places);
            linear.place(engine, precision, &mut self.v);
        }
    }

    fn conjugate_gradients(
        &mut self,
        engine: &mut E,
        precision: &mut Precision<E>,
    ) -> Result<cg::Info, CgError> {
        let mut options = self.cg;
        if let Some(budget) = self.jacobi_budget {
            let short = cg::Options { max_iterations: budget, ..options };
            match self.run(engine, precision, &short) {
                Err(CgError::NoConvergence { .. } | CgError::NotAccurate { .. }) => {}
                ended => return ended,
            }
            self.jacobi_budget = None;
            // Without blocks it goes on from where it is.
            options.warm_start = !self.turn_to_blocks(engine, precision);
        }
        self.run(engine, precision, &options)
    }

    fn run(
        &mut self,
        engine: &mut E,
        precision: &mut Precision<E>,
        options: &cg::Options,
    ) -> Result<cg::Info, CgError> {
        let Batch { preconditioner, b, x, work, .. } = self;
        cg::solve(engine, precision, preconditioner, b, x, options, work)
    }

    /// `E[c | y]`, after the first batch.
    pub fn coefficients(&self) -> Vec<f64> {
        let Some((linear, _)) = &self.linear else { return Vec::new() };
        let columns = linear.coefficients().len() / linear.count();
        linear.coefficients().iter().step_by(columns).copied().collect()
    }

    /// Adds what features add to exact variances.
    pub fn add_variance(&self, engine: &E, variance: &mut [f64]) {
        if let Some((linear, _)) = &self.linear {
            linear.add_variance(engine, variance);
        }
    }
}

/// Standard normal number of feature `f` in sample `first + k`.
fn feature_noise(seed: u64, first: usize) -> impl Fn(usize, usize) -> f64 {
    let stream = Stream::new(seed, Purpose::Posterior, 2);
    move |f, k| stream.normal(f as u64, (first + k) as u64)
}
