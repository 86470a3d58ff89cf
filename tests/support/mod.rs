//! What several tests need: running a test body on MPI ranks, dense references, small graphs.
#![allow(dead_code, unused_macros)] // each test binary uses its own selection

pub mod counting;
pub mod dense;
#[macro_use]
pub mod engines;
pub mod graphs;

use dgmrf::comm::World;
use std::process::Command;
use std::rc::Rc;

/// Set in the ranks that a test starts: the file rank 0 leaves its result in.
const RESULT: &str = "DGMRF_TEST_RESULT";

/// Runs `body` of the test named `test` (its path, as libtest prints it) on each number of ranks,
/// and returns what rank 0 returned for each.
///
/// The test binary starts itself under `mpirun`; there, the same call runs the body instead. So a
/// test reads like any other, and a panic on any rank fails it.
pub fn on_ranks(
    test: &str,
    ranks: &[usize],
    body: impl FnOnce(&Rc<World>) -> Vec<f64>,
) -> Vec<Vec<f64>> {
    if let Some(file) = std::env::var_os(RESULT) {
        let world = World::init().expect("MPI");
        let result = body(&world);
        if world.is_root() {
            let bytes: Vec<u8> = result.iter().flat_map(|v| v.to_le_bytes()).collect();
            std::fs::write(file, bytes).expect("result file");
        }
        drop(world);
        std::process::exit(0);
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    ranks
        .iter()
        .map(|&size| {
            let file = dir.path().join(format!("{size}"));
            let output = mpirun(size)
                .arg(std::env::current_exe().expect("this test binary"))
                .args(["--exact", test, "--nocapture", "--test-threads=1"])
                .env(RESULT, &file)
                .output()
                .expect("mpirun");
            assert!(
                output.status.success(),
                "{test} on {size} ranks failed:\n{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            let bytes = std::fs::read(&file).unwrap_or_else(|_| {
                panic!("{test} did not run on {size} ranks: is the name its full path?")
            });
            bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
        })
        .collect()
}

/// `mpirun -n size`, one thread per rank, fit for root and for more ranks than cores.
pub fn mpirun(size: usize) -> Command {
    let mut command = Command::new("mpirun");
    command
        .args(["-n", &size.to_string()])
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_MCA_hwloc_base_binding_policy", "none")
        .env("RAYON_NUM_THREADS", "1")
        .env("OMP_NUM_THREADS", "1");
    command
}

/// Largest difference relative to the largest value of the reference.
pub fn relative_error(values: &[f64], reference: &[f64]) -> f64 {
    assert_eq!(values.len(), reference.len(), "lengths");
    let scale = reference.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
    let worst = values.iter().zip(reference).map(|(a, b)| (a - b).abs());
    // `max` would drop NaN: a NaN must count as wrong.
    worst.fold(0.0, |m: f64, d| if d.is_nan() { f64::INFINITY } else { m.max(d) }) / scale
}
