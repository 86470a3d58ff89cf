//! What ranks do together: sums, rows by node, random numbers, failing, dying.

mod support;

use dgmrf::Error;
use dgmrf::comm::World;
use dgmrf::field::LayerSums;
use dgmrf::field::{Engine, native::Native};
use dgmrf::model::{Gamma, Model, Stack};
use dgmrf::partition::{self, Options, Part, Partition};
use dgmrf::profile::{self, Phase};
use dgmrf::random::{Purpose, Stream};
use std::rc::Rc;
use std::time::{Duration, Instant};
use support::{graphs, mpirun, on_ranks};

/// The part of this rank of a random graph.
fn part(world: &World, nodes: usize) -> Part {
    let graph = graphs::random(nodes, 2 * nodes, false, 9);
    let options = Options::default();
    let owner = partition::divide(&graph, world.size(), &options).unwrap();
    Partition::new(&graph, owner, world.size(), options.order).unwrap().part(world.rank())
}

fn native(world: &Rc<World>, nodes: usize) -> Native<f64> {
    Native::new(world.clone(), part(world, nodes)).unwrap()
}

/// The owned rows of all ranks, by original node.
fn gather<E: Engine>(engine: &E, block: &E::Block) -> Vec<f64> {
    let (ids, nodes) = (engine.part().owned_ids(), engine.part().nodes);
    let rows = engine.download(block);
    let columns = engine.columns(block);
    engine.world().gather_rows(ids, &rows, columns, nodes).unwrap().unwrap_or_default()
}

#[test]
fn sums_and_maxima() {
    on_ranks("sums_and_maxima", &[1, 2, 4], |world| {
        let (rank, size) = (world.rank() as f64, world.size() as f64);
        let mut values = [1.0, rank, -rank];
        world.sum(&mut values);
        let triangle = size * (size - 1.0) / 2.0;
        assert_eq!(values, [size, triangle, -triangle]);
        let mut values = [rank, -rank];
        world.max(&mut values);
        assert_eq!(values, [size - 1.0, 0.0]);
        let text = world.broadcast(if world.is_root() { b"hello".to_vec() } else { vec![] });
        assert_eq!(text, b"hello");
        assert_eq!((world.local_rank(), world.local_size()), (world.rank(), world.size()));
        Vec::new()
    });
}

#[test]
fn rows_find_their_owners_and_come_back() {
    on_ranks("rows_find_their_owners_and_come_back", &[1, 3], |world| {
        // Node i belongs to rank i mod P; slabs are shorter than this.
        let (nodes, columns) = (1_000_003, 2);
        let ids: Vec<u32> =
            (0..nodes as u32).filter(|i| *i as usize % world.size() == world.rank()).collect();
        let all: Vec<f64> = (0..nodes * columns).map(|k| k as f64).collect();
        let mine = world.scatter_rows(&ids, world.is_root().then_some(&all[..]), columns);
        assert!(
            ids.iter()
                .zip(mine.chunks(2))
                .all(|(&i, r)| r == [2.0 * i as f64, 2.0 * i as f64 + 1.0])
        );
        let back = world.gather_rows(&ids, &mine, columns, nodes).unwrap();
        assert_eq!(back, world.is_root().then_some(all));
        Vec::new()
    });
}

#[test]
fn a_missing_row_is_an_error() {
    let world = World::solo();
    let short = world.gather_rows(&[0, 1], &[0.0, 0.0], 1, 3).expect_err("two of three");
    assert!(short.to_string().contains("own 2 nodes"), "{short}");
    assert!(world.gather_rows(&[0, 5], &[0.0, 0.0], 1, 2).is_err());
}

#[test]
fn all_ranks_fail_with_the_first_message() {
    on_ranks("all_ranks_fail_with_the_first_message", &[1, 4], |world| {
        let agreed = world.agree(Ok(7)).expect("nobody failed");
        assert_eq!(agreed, 7);
        let last = world.size() - 1;
        let mine = if world.rank() == last {
            Err(Error::Setting("the disk of this rank is full".into()))
        } else {
            Ok(())
        };
        let error = world.agree(mine).expect_err("all fail").to_string();
        assert!(error.contains("the disk of this rank is full"), "{error}");
        assert_eq!(error.contains(&format!("rank {last}")), world.rank() != last, "{error}");
        Vec::new()
    });
}

/// Random fields are a function of seed, node and column: the same on any number of ranks, and
/// what [`Stream`] says one by one.
#[test]
fn random_fields_do_not_depend_on_ranks() {
    let (nodes, columns, first) = (500, 11, 60); // crosses a word of 64 signs
    let results = on_ranks("random_fields_do_not_depend_on_ranks", &[1, 2, 3, 4], |world| {
        let engine = native(world, nodes);
        let mut block = engine.zeros(columns);
        let stream = Stream::new(5, Purpose::Test, 3);
        engine.fill_rademacher(stream, first, &mut block);
        let mut values = gather(&engine, &block);
        engine.fill_normal(stream, first + 1, &mut block);
        values.extend(gather(&engine, &block));
        #[cfg(feature = "torch")]
        {
            use dgmrf::field::torch::Torch;
            let device = tch::Device::Cpu;
            let torch = Torch::<f64>::new(world.clone(), part(world, nodes), device).unwrap();
            let mut block = torch.zeros(columns);
            torch.fill_rademacher(stream, first, &mut block);
            let mut same = gather(&torch, &block);
            torch.fill_normal(stream, first + 1, &mut block);
            same.extend(gather(&torch, &block));
            assert!(support::relative_error(&same, &values) < 1e-14, "torch draws other numbers");
        }
        values
    });
    let stream = Stream::new(5, Purpose::Test, 3);
    let cells = || (0..nodes as u64).flat_map(|i| (0..columns as u64).map(move |c| (i, c)));
    let signs = cells().map(|(i, c)| stream.rademacher(i, first + c));
    let normals = cells().map(|(i, c)| stream.normal(i, first + 1 + c));
    let expected: Vec<f64> = signs.chain(normals).collect();
    for (k, result) in results.iter().enumerate() {
        assert!(*result == expected, "{} ranks", k + 1);
    }
}

/// Every width of the sign kernel gives the stream's numbers, in both precisions.
#[test]
fn signs_of_every_width() {
    let stream = Stream::new(2, Purpose::Test, 0);
    let world = World::solo();
    for columns in [1, 2, 7, 8, 10, 16, 33, 64, 100] {
        for first in [0, 3, 63, 64] {
            let engine = native(&world, 40);
            let single = Native::<f32>::new(world.clone(), part(&world, 40)).unwrap();
            let (mut double_block, mut single_block) =
                (engine.zeros(columns), single.zeros(columns));
            engine.fill_rademacher(stream, first, &mut double_block);
            single.fill_rademacher(stream, first, &mut single_block);
            let expected: Vec<f64> = (0..40u64)
                .flat_map(|i| (0..columns as u64).map(move |c| stream.rademacher(i, first + c)))
                .collect();
            assert!(gather(&engine, &double_block) == expected, "{columns} columns from {first}");
            assert!(gather(&single, &single_block) == expected, "{columns} columns from {first}");
        }
    }
}

/// No hidden traffic: a layer sends what the plan says, and a gradient makes one reduction.
#[test]
fn halo_traffic_is_the_plan() {
    on_ranks("halo_traffic_is_the_plan", &[1, 3], |world| {
        let (columns, depth) = (5, 3);
        let mut engine = native(world, 400);
        let layers = vec![(1.2, -1.0, 0.5, 0.1); depth];
        let model = Model::from_coefficients(&layers, Gamma::Free).unwrap();
        let mut stack = Stack::new(&engine, depth, columns);
        stack.prepare(&engine, &model);
        let (mut x, mut g, mut gx) =
            (engine.zeros(columns), engine.zeros(columns), engine.zeros(columns));
        engine.fill_normal(Stream::new(1, Purpose::Test, 0), 0, &mut x);
        engine.fill_normal(Stream::new(1, Purpose::Test, 1), 0, &mut g);
        profile::enable();
        stack.forward(&mut engine, true, &mut x);
        let mut sums = vec![LayerSums::default(); model.layers.len()];
        stack.backward(&mut engine, true, &x, &mut g, &mut gx, &mut sums);
        let mut all: Vec<f64> =
            sums.iter().flat_map(|s| [s.alpha, s.rho, s.gamma, s.bias]).collect();
        world.sum(&mut all); // a gradient of all layers is one reduction
        let lines = world.profile();
        let halo = &engine.part().halo;
        let mut planned = [
            (2 * depth * halo.sent_rows() * columns * 8) as f64,
            (2 * depth * halo.neighbours.len()) as f64,
        ];
        world.sum(&mut planned);
        let line = |phase: Phase| lines.iter().find(|l| l.phase == phase);
        if world.size() > 1 {
            let wait = line(Phase::HaloWait).expect("a halo");
            assert_eq!([wait.bytes as f64, wait.messages as f64], planned);
            assert_eq!(line(Phase::Reduce).expect("a reduction").count, 1);
        } else {
            assert!(line(Phase::HaloWait).is_none() && line(Phase::Reduce).is_none());
        }
        assert!(profile::table(&lines).lines().count() == lines.len() + 1);
        Vec::new()
    });
}

/// One rank of four dies while the others exchange halos: the job ends, and soon.
#[test]
fn a_dying_rank_ends_the_job() {
    for how in ["abort", "panic"] {
        let begun = Instant::now();
        let output = mpirun(4)
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "exchange_until_death",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("DGMRF_TEST_DEATH", how)
            .output()
            .unwrap();
        assert!(!output.status.success(), "a job with a dead rank must not succeed");
        let seconds = begun.elapsed();
        assert!(seconds < Duration::from_secs(10), "{how}: took {seconds:?}");
        if how == "panic" {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(text.contains("rank 2: internal error"), "{text}");
        }
    }
}

#[test]
#[ignore = "a rank of `a_dying_rank_ends_the_job`"]
fn exchange_until_death() {
    let how = std::env::var("DGMRF_TEST_DEATH").unwrap();
    let world = World::init().unwrap();
    let mut engine = native(&world, 2000);
    let mut layer = engine.new_layer();
    let c = dgmrf::field::Coefficients { alpha: 1.0, rho: 0.1, gamma: 0.5, bias: 0.0 };
    engine.prepare(&c, &mut layer);
    let (mut x, mut y) = (engine.zeros(8), engine.zeros(8));
    for step in 0u64.. {
        engine.layer(&layer, true, &mut x, &mut y);
        if step == 100 && world.rank() == 2 {
            match how.as_str() {
                "abort" => std::process::abort(),
                _ => panic!("as the test asks"),
            }
        }
    }
}
