//! The torch engine: libtorch tensors on the CPU or on one CUDA device per local rank.
//!
//! The same operations as [`super::native`], as tensor expressions; nothing here assumes that
//! tensors live in host memory. Halo rows are staged through host buffers, and the exchange is
//! hidden behind the interior rows as in the native engine. Random numbers are computed on the
//! device from the same counters, so signs are identical and normal numbers equal to rounding.
//!
//! Not done: pinned staging buffers, and GPU-aware MPI.

use super::{
    Arithmetic, Coefficients, Draw, Engine, ForwardOutput, Layer, LayerSums, Pointwise, Recurrence,
    Scalar,
};
use crate::comm::World;
use crate::comm::halo::HaloExchange;
use crate::error::{Error, Result};
use crate::partition::Part;
use crate::profile::{self, Phase};
use crate::random::Stream;
use std::ops::Range;
use std::rc::Rc;
use tch::{Device, Kind, Tensor};

/// The torch engine of one rank, in precision `T`.
pub struct Torch<T: Scalar> {
    world: Rc<World>,
    part: Part,
    device: Device,
    /// Adjacency rows of interior nodes (columns: owned rows) and of boundary nodes (all rows).
    interior: Option<Tensor>,
    boundary: Option<Tensor>,
    /// Both with the squares of the weights, once they are asked for.
    squared: Option<[Option<Tensor>; 2]>,
    /// Columns `[owned, 1]` in double precision.
    degree: Tensor,
    log_degree: Tensor,
    /// Original ids `[owned, 1]` as 64-bit integers.
    ids: Tensor,
    send_rows: Tensor,
    exchange: HaloExchange,
    send: Vec<T>,
    receive: Vec<T>,
}

/// The device of a rank: its share of the GPUs of the machine, or the CPU.
pub fn device_of(world: &World, choice: super::Device) -> Result<Device> {
    let gpus =
        if tch::Cuda::is_available() { tch::Cuda::device_count().max(0) as usize } else { 0 };
    match (choice, gpus) {
        (super::Device::Cpu, _) | (super::Device::Auto, 0) => Ok(Device::Cpu),
        (super::Device::Cuda, 0) => Err(Error::Setting(
            "no CUDA device: libtorch finds none (set up with `launch/setup.sh --cuda`, and look \
             at `nvidia-smi`), or use device = \"cpu\""
                .into(),
        )),
        (_, gpus) => Ok(Device::Cuda(world.local_rank() % gpus)),
    }
}

impl<T: Scalar + tch::kind::Element> Torch<T> {
    /// An engine for the part of this rank. On the CPU it computes on as many threads as the native
    /// engine would.
    pub fn new(world: Rc<World>, part: Part, device: Device) -> Result<Self> {
        tch::set_num_threads(rayon::current_num_threads() as i32);
        let exchange = HaloExchange::new(world.clone(), part.halo.clone())?;
        let send_rows: Vec<i64> = part.halo.send_order().map(i64::from).collect();
        let ids: Vec<i64> = part.owned_ids().iter().map(|&id| i64::from(id)).collect();
        let column = |values: &[f64]| Tensor::from_slice(values).view([-1, 1]).to_device(device);
        let degree = column(&part.degree[..part.owned]);
        let torch_error = |e| Error::Setting(format!("libtorch: {e}"));
        let matrix = |rows, columns| csr::<T>(&part, rows, columns, device).map_err(torch_error);
        Ok(Torch {
            interior: matrix(0..part.interior, part.owned)?,
            boundary: matrix(part.interior..part.owned, part.ids.len())?,
            squared: None,
            log_degree: degree.log(),
            degree,
            ids: Tensor::from_slice(&ids).view([-1, 1]).to_device(device),
            send: Vec::new(),
            receive: Vec::new(),
            send_rows: Tensor::from_slice(&send_rows).to_device(device),
            world,
            exchange,
            device,
            part,
        })
    }

    fn owned(&self, block: &Tensor) -> Tensor {
        block.narrow(0, 0, self.part.owned as i64)
    }

    /// Writes the owned rows of a block.
    fn set(&self, block: &mut Tensor, values: &Tensor) {
        self.owned(block).copy_(values);
    }

    /// The sums of all columns of some products, by one transfer to the host.
    fn column_sums<const N: usize>(&self, products: [Tensor; N], sums: &mut [f64]) {
        let all = products.map(|product| product.sum_dim_intlist(0i64, false, Kind::Double));
        Tensor::cat(&all, 0).to_device(Device::Cpu).copy_data(sums, sums.len());
    }

    /// One number per column, in the precision of the engine.
    fn numbers(&self, values: &[f64]) -> Tensor {
        Tensor::from_slice(values).to_kind(T::KIND).to_device(self.device)
    }

    /// `A x` on owned rows; fills the halo of `x` on the way.
    fn gather(&mut self, x: &mut Tensor, squared: bool, phase: Phase) -> Tensor {
        let columns = x.size()[1] as usize;
        let packing = profile::start();
        let packed = x.index_select(0, &self.send_rows).to_device(Device::Cpu).contiguous();
        let values = packed.numel();
        self.send.resize(values, T::from_f64(0.0));
        packed.copy_data(&mut self.send, values);
        self.receive.resize(self.part.halo_rows() * columns, T::from_f64(0.0));
        profile::stop(Phase::HaloPack, packing, (2 * values * T::BYTES) as u64, 0);

        if squared && self.squared.is_none() {
            let squares = |matrix: &Option<Tensor>| matrix.as_ref().map(squared_values);
            self.squared = Some([squares(&self.interior), squares(&self.boundary)]);
        }
        let mine = self.owned(x);
        let [interior, boundary] = match &self.squared {
            Some([interior, boundary]) if squared => [interior, boundary],
            _ => [&self.interior, &self.boundary],
        };
        let inner = self.exchange.run(columns, &self.send, &mut self.receive, |_| {
            let timer = profile::start();
            let inner = interior.as_ref().map(|a| a.mm(&mine));
            profile::stop(phase, timer, 0, 0);
            inner
        });
        let timer = profile::start();
        if self.part.halo_rows() > 0 {
            let halo = Tensor::from_slice(&self.receive).view([-1, columns as i64]);
            let mut place = x.narrow(0, self.part.owned as i64, self.part.halo_rows() as i64);
            place.copy_(&halo.to_device(self.device));
        }
        let outer = boundary.as_ref().map(|a| a.mm(x));
        let parts: Vec<Tensor> = [inner, outer].into_iter().flatten().collect();
        let gathered = Tensor::cat(&parts, 0);
        profile::stop(phase, timer, 0, 0);
        gathered
    }

    /// `A (s ∘ g / d)` on owned rows.
    fn transposed_sums(&mut self, l: &Layer<Tensor>, g: &Tensor, phase: Phase) -> Tensor {
        let mut weighted = g * &l.ratio;
        self.gather(&mut weighted, l.squared, phase)
    }

    /// 64 random bits per owned node, `word` of the stream: [`Stream::bits`] in tensor arithmetic.
    fn bits(&self, stream: Stream, word: u64) -> Tensor {
        stream.bits_with(
            &self.ids,
            word,
            |x, factor| x * factor,
            |x, term| x + term,
            |x, shift| {
                // torch shifts arithmetically: clear what came in from the sign.
                let low = i64::MAX >> (shift - 1);
                x.bitwise_xor_tensor(&x.bitwise_right_shift_tensor_scalar(shift).bitwise_and(low))
            },
            |x, mask| x.bitwise_xor(mask),
        )
    }

    fn fill_signs(&self, stream: Stream, first: u64, block: &Tensor) {
        let columns = block.size()[1] as u64;
        let rows = self.owned(block);
        let mut column = first;
        while column < first + columns {
            let here = (64 - column % 64).min(first + columns - column);
            let shifts: Vec<i64> = (0..here).map(|c| (column % 64 + c) as i64).collect();
            let shifts = Tensor::from_slice(&shifts).to_device(self.device);
            let bit = self.bits(stream, column / 64).bitwise_right_shift(&shifts).bitwise_and(1);
            let mut place = rows.narrow(1, (column - first) as i64, here as i64);
            place.copy_(&(bit * -2 + 1));
            column += here;
        }
    }

    fn fill_normals(&self, stream: Stream, first: u64, block: &Tensor) {
        let columns = block.size()[1] as u64;
        let rows = self.owned(block);
        let mut pair = first / 2;
        while 2 * pair < first + columns {
            let radius = ((self.uniform(stream, 2 * pair) * -1.0 + 1.0).log() * -2.0).sqrt();
            let angle = self.uniform(stream, 2 * pair + 1) * std::f64::consts::TAU;
            for (column, value) in
                [(2 * pair, &radius * angle.cos()), (2 * pair + 1, &radius * angle.sin())]
            {
                if (first..first + columns).contains(&column) {
                    rows.narrow(1, (column - first) as i64, 1).copy_(&value);
                }
            }
            pair += 1;
        }
    }

    fn uniform(&self, stream: Stream, column: u64) -> Tensor {
        let low = i64::MAX >> 10;
        let bits = self.bits(stream, column).bitwise_right_shift_tensor_scalar(11).bitwise_and(low);
        bits.to_kind(Kind::Double) * (1.0 / (1u64 << 53) as f64)
    }
}

/// The adjacency of some owned rows as a sparse tensor, nothing if there is no such row.
fn csr<T: Scalar>(
    part: &Part,
    rows: Range<usize>,
    columns: usize,
    device: Device,
) -> std::result::Result<Option<Tensor>, tch::TchError> {
    if rows.is_empty() {
        return Ok(None);
    }
    let start = part.indptr[rows.start];
    let entries = start as usize..part.indptr[rows.end] as usize;
    let indptr: Vec<i64> =
        part.indptr[rows.start..=rows.end].iter().map(|p| (p - start) as i64).collect();
    // Torch wants the columns of a row in ascending order.
    let mut order: Vec<usize> = entries.collect();
    for row in indptr.windows(2) {
        order[row[0] as usize..row[1] as usize].sort_by_key(|&k| part.indices[k]);
    }
    let indices: Vec<i64> = order.iter().map(|&k| i64::from(part.indices[k])).collect();
    let kind = if T::BYTES == 4 { Kind::Float } else { Kind::Double };
    let values = match &part.weights {
        Some(weights) => {
            let weights: Vec<f64> = order.iter().map(|&k| weights[k]).collect();
            Tensor::f_from_slice(&weights)?.to_kind(kind)
        }
        None => Tensor::f_ones([indices.len() as i64], (kind, Device::Cpu))?,
    };
    let matrix = Tensor::f_sparse_csr_tensor_crow_col_value_size(
        &Tensor::f_from_slice(&indptr)?.to_device(device),
        &Tensor::f_from_slice(&indices)?.to_device(device),
        &values.to_device(device),
        [rows.len() as i64, columns as i64],
        (kind, device),
    )?;
    Ok(Some(matrix))
}

/// A sparse matrix with the squares of its values.
fn squared_values(matrix: &Tensor) -> Tensor {
    Tensor::sparse_csr_tensor_crow_col_value_size(
        &matrix.crow_indices(),
        &matrix.col_indices(),
        &matrix.values().square(),
        matrix.size(),
        (matrix.kind(), matrix.device()),
    )
}

impl<T: Scalar + tch::kind::Element> Engine for Torch<T> {
    type Block = Tensor;

    fn part(&self) -> &Part {
        &self.part
    }

    fn world(&self) -> &Rc<World> {
        &self.world
    }

    fn synchronise(&self) {
        if let Device::Cuda(index) = self.device {
            tch::Cuda::synchronize(index as i64);
        }
    }

    fn zeros(&self, columns: usize) -> Tensor {
        Tensor::zeros([self.part.ids.len() as i64, columns as i64], (T::KIND, self.device))
    }

    fn columns(&self, block: &Tensor) -> usize {
        block.size()[1] as usize
    }

    fn resize(&self, block: &mut Tensor, columns: usize) {
        if self.columns(block) != columns {
            *block = self.zeros(columns);
        }
    }

    fn upload(&self, values: &[f64], block: &mut Tensor) {
        let columns = block.size()[1];
        let rows = Tensor::from_slice(values).view([-1, columns]).to_kind(T::KIND);
        self.owned(block).copy_(&rows.to_device(self.device));
    }

    fn download(&self, block: &Tensor) -> Vec<f64> {
        let rows = self.owned(block).to_device(Device::Cpu).to_kind(Kind::Double).contiguous();
        let mut values = vec![0.0; rows.numel()];
        rows.copy_data(&mut values, rows.numel());
        values
    }

    fn fill(&self, draw: Draw, stream: Stream, first: u64, block: &mut Tensor) {
        let timer = profile::start();
        match draw {
            Draw::Normal => self.fill_normals(stream, first, block),
            Draw::Rademacher => self.fill_signs(stream, first, block),
        }
        profile::stop(Phase::Random, timer, 0, 0);
    }

    fn neighbour_sums(&mut self, squared: bool, x: &mut Tensor, out: &mut Tensor) {
        let sums = self.gather(x, squared, Phase::Layer);
        self.set(out, &sums);
    }

    fn row_sums(&self, x: &Tensor, sums: &mut Tensor) {
        self.set(sums, &self.owned(x).sum_dim_intlist(1i64, true, T::KIND));
    }

    fn product(&self, beta: f64, alpha: f64, a: &Tensor, b: Option<&Tensor>, y: &mut Tensor) {
        let a = self.owned(a) * alpha;
        let product = b.map_or_else(|| a.shallow_clone(), |b| &a * self.owned(b));
        let sum = if beta == 0.0 { product } else { product + self.owned(y) * beta };
        self.set(y, &sum);
    }

    fn pointwise<W: Pointwise<C, G>, const C: usize, const G: usize>(
        &self,
        work: &W,
        changed: [&mut Tensor; C],
        given: [&Tensor; G],
    ) -> f64 {
        let before = changed.each_ref().map(|block| self.owned(block));
        let given = given.map(|block| self.owned(block));
        let sum = work.summand(&before, &given);
        let sum = sum.map_or(0.0, |terms| terms.sum(Kind::Double).double_value(&[]));
        let after = work.apply(before, given);
        for (block, values) in changed.into_iter().zip(after) {
            self.set(block, &values);
        }
        sum
    }

    fn prepare(&self, c: &Coefficients, layer: &mut Layer<Tensor>) {
        let scale = (&self.log_degree * c.gamma + c.alpha.ln()).exp();
        self.set(&mut layer.ratio, &(&scale / &self.degree));
        self.set(&mut layer.scale, &scale);
        (layer.rho, layer.bias, layer.squared) = (c.rho, c.bias, false);
    }

    fn layer(&mut self, l: &Layer<Tensor>, with_bias: bool, h: &mut Tensor, out: &mut Tensor) {
        let sums = self.gather(h, l.squared, Phase::Layer);
        let bias = if with_bias { l.bias } else { 0.0 };
        let own = self.owned(h) * self.owned(&l.scale);
        self.set(out, &(own + sums * (self.owned(&l.ratio) * l.rho) + bias));
    }

    fn adjoint(&mut self, l: &Layer<Tensor>, g: &mut Tensor, out: &mut Tensor) {
        let sums = self.transposed_sums(l, g, Phase::Adjoint);
        self.set(out, &(self.owned(g) * self.owned(&l.scale) + sums * l.rho));
    }

    fn adjoint_with_sums(
        &mut self,
        l: &Layer<Tensor>,
        with_bias: bool,
        g: &mut Tensor,
        input: &Tensor,
        output: ForwardOutput<'_, Tensor>,
        out: &mut Tensor,
    ) -> LayerSums {
        let gathered = self.transposed_sums(l, g, Phase::Gradient);
        let bias = if with_bias { l.bias } else { 0.0 };
        let g = self.owned(g);
        let gu = match output {
            ForwardOutput::Cotangent => &g * (&g - bias),
            ForwardOutput::Block(output) => &g * (self.owned(output) - bias),
            ForwardOutput::RowDots(a, b) => self.owned(a) * self.owned(b),
        };
        let gu = gu.to_kind(Kind::Double);
        let sums = Tensor::stack(
            &[
                gu.sum(Kind::Double),
                (&gathered * self.owned(input)).sum(Kind::Double),
                (gu * &self.log_degree).sum(Kind::Double),
                g.sum(Kind::Double),
            ],
            0,
        );
        self.set(out, &(g * self.owned(&l.scale) + gathered * l.rho));
        let mut host = [0.0; 4];
        sums.to_device(Device::Cpu).copy_data(&mut host, 4); // one transfer for all four
        LayerSums { alpha: host[0], rho: host[1], gamma: host[2], bias: host[3] }
    }

    fn dots(&self, x: &Tensor, y: &Tensor, dots: &mut [f64]) {
        let [x, y] = [x, y].map(|block| self.owned(block).to_kind(Kind::Double));
        self.column_sums([x * y], dots);
    }

    fn krylov(
        &mut self,
        recurrence: Option<Recurrence<'_>>,
        x: &mut Tensor,
        z: &mut Tensor,
        sums: &mut [f64],
    ) {
        let last = recurrence.map(|Recurrence { a, b, c }| {
            let next = self.owned(z) * self.numbers(a) + self.owned(x) * self.numbers(b);
            self.set(z, &next);
            std::mem::swap(x, z);
            self.owned(z) * self.numbers(c)
        });
        let product = self.gather(x, false, Phase::Layer) / &self.degree;
        self.set(z, &last.map_or_else(|| product.shallow_clone(), |last| &product + last));
        let [x, z] = [x, z].map(|block| self.owned(block).to_kind(Kind::Double));
        let (dx, dz) = (&x * &self.degree, &z * &self.degree);
        self.column_sums([&dx * &x, dx * &z, dz * &z], sums);
    }

    fn combine(&self, a: &[f64], x: &Tensor, b: &[f64], y: &Tensor, c: &[f64], z: &mut Tensor) {
        let [a, b, c] = [a, b, c].map(|numbers| self.numbers(numbers));
        let sum = self.owned(x) * a + self.owned(y) * b + self.owned(z) * c;
        self.set(z, &sum);
    }

    fn axpy(&self, a: &[f64], x: &Tensor, y: &mut Tensor) {
        let _ = self.owned(y).addcmul_(&self.owned(x), &self.numbers(a));
    }

    fn copy_columns(&self, x: &Tensor, y: &mut Tensor, pairs: &[(usize, usize)]) {
        let (from, to): (Vec<i64>, Vec<i64>) =
            pairs.iter().map(|&(a, b)| (a as i64, b as i64)).unzip();
        let index = |columns: &[i64]| Tensor::from_slice(columns).to_device(self.device);
        let picked = self.owned(x).index_select(1, &index(&from));
        let _ = self.owned(y).index_copy_(1, &index(&to), &picked);
    }

    fn step_dots(&self, w: &Tensor, p: &Tensor, s: &Tensor, r: &Tensor, dots: &mut [f64]) {
        let [w, p, s, r] = [w, p, s, r].map(|block| self.owned(block).to_kind(Kind::Double));
        self.column_sums([p * &s, &s * &s * &w, &r * &r * &w], dots);
    }

    fn step(
        &self,
        (alpha, beta): (&[f64], &[f64]),
        w: &Tensor,
        s: &Tensor,
        p: &mut Tensor,
        x: &mut Tensor,
        r: &mut Tensor,
    ) {
        let alpha = self.numbers(alpha);
        let mut r = self.owned(r);
        let _ = self.owned(x).addcmul_(&self.owned(p), &alpha);
        let _ = r.addcmul_(&self.owned(s), &-alpha);
        let next = &r * self.owned(w) + self.owned(p) * self.numbers(beta);
        self.set(p, &next);
    }

    fn subtract_linear(&self, f: &Tensor, a: &[f64], base: &Tensor, out: &mut Tensor) {
        let columns = self.columns(base) as i64;
        let a = Tensor::from_slice(a).view([-1, columns]).to_device(self.device);
        let linear = self.owned(f).to_kind(Kind::Double).mm(&a);
        self.set(out, &(self.owned(base) - linear));
    }

    fn project(&self, f: &Tensor, v: &Tensor, out: &mut [f64]) {
        let f = self.owned(f).to_kind(Kind::Double);
        let sums = f.tr().mm(&self.owned(v).to_kind(Kind::Double)).view([-1]);
        sums.to_device(Device::Cpu).contiguous().copy_data(out, out.len());
    }
}

impl Arithmetic for Tensor {
    fn copy(&self) -> Tensor {
        self.shallow_clone()
    }
    fn number(&self, value: f64) -> Tensor {
        Tensor::from(value).to_kind(self.kind())
    }
    fn sqrt(self) -> Tensor {
        Tensor::sqrt(&self)
    }
    fn exp(self) -> Tensor {
        Tensor::exp(&self)
    }
    fn ln(self) -> Tensor {
        self.log()
    }
    fn ln_1p(self) -> Tensor {
        self.log1p()
    }
    fn positive_part(self) -> Tensor {
        self.clamp_min(0.0)
    }
}
