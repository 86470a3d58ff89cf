//! The file of a spectrum.

use super::*;
use dgmrf::dataset::{Dataset, DatasetFile};

/// A dataset of 1200 nodes in a directory of its own.
fn dataset(dir: &tempfile::TempDir) -> std::path::PathBuf {
    let path = dir.path().join("small.h5");
    let graph = graphs::random(1200, 2400, true, 3);
    Dataset::new("small", graph, vec![0.5; 1200]).write(&path).expect("written");
    path
}

fn load(data: &std::path::Path, options: &Options) -> logdet::Loaded {
    let world = World::solo();
    let graph = Dataset::read(data).expect("a dataset").graph;
    let file = DatasetFile::open(data).expect("a dataset");
    logdet::load_or_make(&world, &file, true, options, |options| {
        logdet::compute(&mut native(&World::solo(), &graph), options)
    })
    .expect("a spectrum")
}

#[test]
fn a_second_run_reads_what_the_first_has_kept() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = dataset(&dir);
    let mut paths = Vec::new();
    for method in [Method::Eigenvalues, Method::PowerSeries, Method::Lanczos] {
        let options = options(method, 20, 1);
        let (first, second) = (load(&data, &options), load(&data, &options));
        assert!(first.made && !second.made, "{method:?}");
        assert_eq!(first.spectrum.source(), second.spectrum.source());
        let layer = Coefficients { alpha: 1.2, rho: -0.8, gamma: 0.3, bias: 0.0 };
        assert_eq!(log_det(&first.spectrum, layer), log_det(&second.spectrum, layer));
        paths.push(first.path);
    }
    let other = load(&data, &options(Method::Lanczos, 20, 2));
    assert!(other.made, "another seed is another spectrum");
    paths.push(other.path);
    paths.dedup();
    assert_eq!(paths.len(), 4, "a file each");
    assert!(paths.iter().all(|p| p.parent() == data.parent()), "beside the dataset");
}

/// Another graph, or the same without its weights, never finds the file of this one; where nothing
/// can be kept, the result is there all the same.
#[test]
fn files_belong_to_one_graph_and_are_never_needed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = dataset(&dir);
    let options = options(Method::Lanczos, 20, 1);
    let first = load(&data, &options);
    let graph = Dataset::read(&data).expect("a dataset").graph;
    let compute = |o: &Options| logdet::compute(&mut native(&World::solo(), &graph), o);
    let file = DatasetFile::open(&data).expect("a dataset");
    let plain = logdet::load_or_make(&World::solo(), &file, false, &options, compute);
    let plain = plain.expect("a spectrum");
    assert!(plain.made && plain.path != first.path, "weights are part of the name");

    std::fs::remove_file(&first.path).expect("removed");
    std::fs::create_dir(&first.path).expect("a directory in its place");
    let again = load(&data, &options);
    assert!(again.made, "a directory is no spectrum");
    assert_eq!(again.spectrum.source(), first.spectrum.source());

    let other = graphs::random(1200, 2400, true, 4);
    Dataset::new("small", other, vec![0.5; 1200]).write(&data).expect("written");
    let stale = load(&data, &options);
    assert!(stale.made && stale.path != first.path, "another graph has another hash");
    assert_ne!(stale.spectrum.source(), first.spectrum.source());
}

#[test]
fn a_damaged_file_is_computed_again() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = dataset(&dir);
    let options = options(Method::Lanczos, 20, 1);
    let first = load(&data, &options);
    let good = std::fs::read(&first.path).expect("the file");
    let mut flipped = good.clone();
    let at = flipped.len() - 100; // inside the last array
    flipped[at] ^= 0x10;
    for bad in [&b""[..], b"not HDF5", &good[..good.len() / 2], &flipped] {
        std::fs::write(&first.path, bad).expect("written");
        let again = load(&data, &options);
        assert!(again.made, "{} bytes of it were taken for good", bad.len());
        assert_eq!(again.spectrum.source(), first.spectrum.source());
        assert_eq!(std::fs::read(&first.path).expect("the file").len(), good.len());
    }
}
